"""The page in a real browser: what is clicked, dragged and dropped, and what is then seen."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp import Warp
from dreamwarp.report import story
from tests.explore.cases import scene, shades
from tests.report import cases as report_cases

pytest.importorskip("fastapi")
playwright = pytest.importorskip("playwright.sync_api")

from tests.explore.test_server import serving  # noqa: E402

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

# What may pass between a drag and the picture, in milliseconds: the page's promise, and slack for a
# machine that is busy with other tests.
PROMISE, SLACK = {"image": 50, "large": 150}, 4
SHOWN = "[...document.querySelector('#{} canvas').getContext('2d').getImageData(0, 0, {}, {}).data]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Opens pages, and sees to it that they log no error and ask nobody else for anything."""
    contexts, troubles = [], []

    def opened(address: str, **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda m: troubles.append(m.text) if m.type == "error" else 0)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        own = address.split("?")[0]
        page.on("request", lambda r: None if r.url.startswith((own, "data:", "blob:")) else
                troubles.append(r.url))  # fmt: skip
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


def pixels(page: Any, name: str = "warped", rows: int = 28, columns: int = 28) -> Any:
    """Pixels of a canvas as the page has them, first channel."""
    shown = page.evaluate(SHOWN.format(name, columns, rows))
    return np.array(shown, np.uint8).reshape(rows, columns, 4)[..., 0]


def state(page: Any) -> dict[str, Any]:
    return page.evaluate("dreamwarp.state")


def until(page: Any, condition: str, seconds: float = 30.0) -> None:
    """Wait for a condition. Playwright's own way to wait evaluates text, which the page forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(10)


def settle(page: Any, action: Any) -> None:
    """Do something, and wait until the page has drawn what came of it."""
    before = page.evaluate("dreamwarp.shown.latencies.length")
    action()
    until(page, f"dreamwarp.shown.latencies.length > {before}")
    page.wait_for_timeout(50)


def expected(page: Any) -> Any:
    """The pixels that the library makes of what the page has set."""
    found, now = scene(), state(page)
    theta = found.theta(now["classNumber"], np.round(now["coefficients"], 3), now["strength"])
    index = found.index(now["classNumber"], now["sample"])
    return Warp(found.kind.model.space, theta).image(found.kind.subject.X[index])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    scene().warm()
    with serving() as served:
        yield served.address


@pytest.fixture
def page(open_page: Any, address: str) -> Any:
    found = open_page(address, viewport={"width": 1280, "height": 900})
    found.wait_for_selector("body[data-ready]")
    return found


def test_classes_sliders_and_dice_show_what_the_library_makes(page: Any) -> None:
    np.testing.assert_array_equal(pixels(page), expected(page))
    settle(page, lambda: page.click("#classes button:nth-child(2)"))
    assert state(page)["classNumber"] == 1
    slider = page.locator("#component-1").bounding_box()
    middle = slider["y"] + slider["height"] / 2
    page.mouse.move(slider["x"] + slider["width"] / 2, middle)
    page.mouse.down()
    settle(page, lambda: page.mouse.move(slider["x"] + 0.9 * slider["width"], middle, steps=4))
    page.mouse.up()
    page.wait_for_timeout(200)
    assert state(page)["coefficients"][0] > 1.5
    np.testing.assert_array_equal(pixels(page), expected(page))
    assert (pixels(page) != pixels(page, "original")).any()
    settle(page, lambda: page.click("#dice"))
    assert len(state(page)["coefficients"]) == scene().kind.model.space.dim
    np.testing.assert_array_equal(pixels(page), expected(page))
    settle(page, lambda: page.locator("#strength").fill("0.5"))
    np.testing.assert_array_equal(pixels(page), expected(page))
    settle(page, lambda: page.click("#members button:nth-child(3)"))
    np.testing.assert_array_equal(pixels(page), expected(page))
    settle(page, lambda: page.click("#reset"))
    np.testing.assert_array_equal(pixels(page), pixels(page, "original"))


def test_the_python_shown_makes_the_pixels_shown(page: Any, tmp_path: Path) -> None:
    settle(page, lambda: page.click("#dice"))
    code = page.text_content("#python")
    found = scene()
    found.kind.model.save(tmp_path / "m.dwm")
    np.savez(tmp_path / "d.npz", X=found.kind.subject.X, y=found.kind.subject.source.data.y)
    code = code.replace("'m.dwm'", repr(str(tmp_path / "m.dwm")))
    made: dict[str, Any] = {}
    exec(code.replace("load('d')", f"load({str(tmp_path / 'd.npz')!r})"), made)
    np.testing.assert_array_equal(made["warped"], pixels(page))


def test_play_moves_until_it_is_stopped(page: Any) -> None:
    page.click("#play")
    until(page, "dreamwarp.shown.latencies.length > 6")
    assert page.get_attribute("#play", "aria-pressed") == "true"
    page.click("#play")
    page.wait_for_timeout(400)
    count = page.evaluate("dreamwarp.shown.latencies.length")
    np.testing.assert_array_equal(pixels(page), expected(page))
    page.wait_for_timeout(300)
    assert page.evaluate("dreamwarp.shown.latencies.length") == count


def test_landmarks_follow(page: Any) -> None:
    settle(page, lambda: page.click("#dice"))
    box = page.locator("#original .over").bounding_box()
    place = {"x": 0.3 * box["width"], "y": 0.6 * box["height"]}
    settle(page, lambda: page.click("#original .over", position=place))
    now = state(page)
    (point,) = now["landmarks"]
    assert point == pytest.approx([0.6, 0.3], abs=0.01)
    theta = scene().theta(now["classNumber"], now["coefficients"], now["strength"])
    moved = Warp(scene().kind.model.space, theta).points([point])
    shown = page.evaluate("dreamwarp.shown.warp.landmarks")
    np.testing.assert_allclose(shown, moved, atol=1e-5)
    settle(page, lambda: page.click("#clear"))
    assert state(page)["landmarks"] == []


def test_a_picture_is_brought_warped_and_taken_home(page: Any) -> None:
    values = np.random.default_rng(0).integers(0, 256, (40, 60)).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(values).save(out, "png")
    own = {"name": "own.png", "mimeType": "image/png", "buffer": out.getvalue()}
    settle(page, lambda: page.set_input_files("#upload", own))
    np.testing.assert_array_equal(pixels(page, "original", 40, 60), values)
    settle(page, lambda: page.click("#dice"))
    now = state(page)
    theta = scene().theta(now["classNumber"], now["coefficients"], now["strength"])
    warped = Warp(scene().kind.model.space, theta).image(values)
    np.testing.assert_array_equal(pixels(page, "warped", 40, 60), warped)
    with page.expect_download() as coming:
        page.click("#download")
    with Image.open(coming.value.path()) as picture:
        np.testing.assert_array_equal(np.asarray(picture.convert("L")), warped)


def test_what_is_no_picture_is_said_to_be_none(open_page: Any, address: str, browser: Any) -> None:
    # The browser logs refused requests as errors, so that this page is opened by itself.
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    own = {"name": "own.png", "mimeType": "image/png", "buffer": b"nothing"}
    page.set_input_files("#upload", own)
    page.wait_for_selector("#message:not([hidden])")
    assert "the picture can't be read" in page.text_content("#message")
    context.close()


def test_fresh_samples_and_pairs(page: Any) -> None:
    page.click("#tab-mosaic")
    until(page, "document.querySelectorAll('#mosaic canvas').length === 40")
    page.click("#tab-align")
    until(page, "dreamwarp.shown.pair !== null")
    first, second = state(page)["pair"]
    found = scene()
    shown = found.align(0, first, second)
    page.wait_for_timeout(100)
    from tests.explore.cases import pixels as decode

    np.testing.assert_array_equal(pixels(page, "pair-warped"), decode(shown["warped"])[0])
    assert "of the squared difference remains" in page.text_content("#pair-words")
    page.click("#blink")
    until(page, "document.getElementById('pair-caption').textContent.includes('target')")
    page.click("#blink")


def test_keys_are_enough(page: Any) -> None:
    page.focus("#classes button:nth-child(1)")
    settle(page, lambda: page.keyboard.press("ArrowRight"))
    assert state(page)["classNumber"] == 1
    page.focus("#component-2")
    settle(page, lambda: page.keyboard.press("ArrowRight"))
    assert state(page)["coefficients"][1] == pytest.approx(0.05)
    settle(page, lambda: page.keyboard.press("d"))
    assert len(state(page)["coefficients"]) > 2


def test_signals_are_lines(open_page: Any) -> None:
    found = scene("signal")
    with serving(scene=found) as served:
        page = open_page(served.address, color_scheme="dark")
        page.wait_for_selector("body[data-ready]")
        settle(page, lambda: page.click("#dice"))
        now = state(page)
        theta = found.theta(now["classNumber"], now["coefficients"], now["strength"])
        sample = found.kind.subject.sample(found.index(now["classNumber"], now["sample"]))
        shown = page.evaluate("[...dreamwarp.shown.warp.sample.values]")
        warped = Warp(found.kind.model.space, theta).image(sample)
        np.testing.assert_allclose(shown, warped.ravel(), rtol=1e-5, atol=1e-6)
        own = {"name": "own.csv", "mimeType": "text/csv", "buffer": b"0,1\n0.5,0\n1,0.5\n"}
        settle(page, lambda: page.set_input_files("#upload", own))
        with page.expect_download() as coming:
            page.click("#download")
        assert len(Path(coming.value.path()).read_text().splitlines()) == 3
        page.close()


def test_volumes_are_slices(open_page: Any) -> None:
    found = scene("volume")
    with serving(scene=found) as served:
        page = open_page(served.address)
        page.wait_for_selector("body[data-ready]")
        settle(page, lambda: page.click("#dice"))
        settle(page, lambda: page.select_option("#axis", "0"))
        settle(page, lambda: page.locator("#place").fill("3"))
        now = state(page)
        theta = found.theta(now["classNumber"], now["coefficients"], now["strength"])
        sample = found.kind.sample(found.index(now["classNumber"], now["sample"]))
        warped = Warp(found.kind.model.space, theta).image(sample)[0, 2]
        np.testing.assert_array_equal(pixels(page, "warped", 14, 16), shades(warped))
        np.testing.assert_array_equal(pixels(page, "original", 14, 16), shades(sample[0, 2]))
        assert not page.is_visible("#slice-hint")  # nothing is known of a patient
        own = io.BytesIO()
        values = np.random.default_rng(0).random((4, 5, 6)).astype(np.float32)
        np.save(own, values)
        file = {"name": "own.npy", "mimeType": "", "buffer": own.getvalue()}
        settle(page, lambda: page.set_input_files("#upload", file))
        assert page.evaluate("dreamwarp.shown.original.shape") == [1, 5, 6]
        page.click("#tab-mosaic")
        until(page, "document.querySelectorAll('#mosaic canvas').length === 40")
        page.click("#tab-align")
        until(page, "dreamwarp.shown.pair !== null")
        assert "of the volumes remains" in page.text_content("#pair-words")
        page.close()


def test_meshes_can_be_turned(open_page: Any) -> None:
    found = scene("mesh")
    shown = "document.querySelector('#warped canvas').toDataURL()"
    with serving(scene=found) as served:
        page = open_page(served.address, color_scheme="dark")
        page.wait_for_selector("body[data-ready]")
        assert not page.is_visible("#upload-label") and not page.is_visible("#slice-part")
        before = page.evaluate(shown)
        settle(page, lambda: page.click("#dice"))
        warped = page.evaluate(shown)
        box = page.locator("#original").bounding_box()
        page.mouse.move(box["x"] + 50, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 120, box["y"] + 70, steps=3)
        page.mouse.up()
        page.wait_for_timeout(200)
        assert len({before, warped, page.evaluate(shown)}) == 3
        page.click("#tab-mosaic")
        until(page, "document.querySelectorAll('#mosaic canvas').length === 40")
        page.click("#tab-align")
        until(page, "dreamwarp.shown.pair !== null")
        assert "of the squared distance remains" in page.text_content("#pair-words")
        page.close()


@pytest.mark.parametrize("kind", ["image", "large"])
def test_updates_are_quick(open_page: Any, kind: str) -> None:
    with serving(scene=scene(kind)) as served:
        page = open_page(served.address)
        page.wait_for_selector("body[data-ready]")
        for value in np.linspace(-3, 3, 15):
            settle(page, lambda value=value: page.locator("#component-1").fill(f"{value:.2f}"))
        taken = page.evaluate("dreamwarp.shown.latencies")[3:]
        page.close()
    print(f"{kind}: median {np.median(taken):.1f} ms, 95 %: {np.quantile(taken, 0.95):.1f} ms")
    assert np.median(taken) < SLACK * PROMISE[kind]


@pytest.fixture(scope="module")
def report(tmp_path_factory: Any) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(story, "N_FRAMES", 3)
        path = tmp_path_factory.mktemp("report") / "report.html"
        return story.write_report(report_cases.study(2), path)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_in_a_browser(open_page: Any, report: Path, scheme: str) -> None:
    for width in (1200, 390):
        page = open_page(
            report.as_uri(), viewport={"width": width, "height": 800}, color_scheme=scheme
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        broken = "[...document.images].filter((i) => !i.complete || !i.naturalWidth).length"
        assert page.evaluate(broken) == 0
        ink, paper = page.evaluate(
            "['color', 'backgroundColor'].map((n) => getComputedStyle(document.body)[n])"
        )
        assert (brightness(paper) < brightness(ink)) == (scheme == "dark")
        moves = "getComputedStyle(document.querySelector('.sprite')).animationPlayState"
        assert page.evaluate(moves) == "running"
        page.check("#pause")
        assert page.evaluate(moves) == "paused"


def brightness(color: str) -> float:
    return sum(float(part) for part in color.removeprefix("rgb(").removesuffix(")").split(","))
