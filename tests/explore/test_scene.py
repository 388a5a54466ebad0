"""What the page is sent is what the library makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp import Warp
from dreamwarp.augment.source import SampleSource
from dreamwarp.explore.scene import Scene
from tests.explore.cases import N_PER_CLASS, numbers, pixels, scene
from tests.report import cases as report_cases


def theta_of(code: int, coefficients: list[float], strength: float, kind: str = "image") -> Any:
    found = scene(kind).subject.model.components(code)
    n = len(coefficients)
    steps = found.directions[:, :n] * found.standard_deviations[:n]
    return strength * steps @ np.array(coefficients)


@pytest.mark.parametrize("kind", ["image", "colour"])
def test_warped_images_landmarks_and_fields(kind: str) -> None:
    shown_scene, coefficients = scene(kind), [1.5, -2.0, 0.25]
    theta = theta_of(1, coefficients, 0.7, kind)
    np.testing.assert_allclose(shown_scene.theta(1, coefficients, 0.7), theta, atol=1e-12)
    sample = shown_scene.subject.sample(20)
    landmarks = [(0.25, 0.75), (0.5, 0.5)]
    shown = shown_scene.show_warp(sample, theta, landmarks)
    warp = Warp(shown_scene.subject.model.space, theta)
    np.testing.assert_array_equal(pixels(shown["image"]), warp.image(sample))
    np.testing.assert_allclose(shown["landmarks"], warp.points(landmarks), atol=1e-6)
    arrows = numbers(shown["arrows"], 256, 4)
    velocity = warp.space.velocity(-theta, arrows[:, :2].astype(float))
    np.testing.assert_allclose(arrows[:, 2:], velocity, atol=1e-5)
    grid = numbers(shown["grid"], 30, shown["points_per_line"], 2)
    line = np.stack([np.full(49, 7 / 14), np.linspace(0, 1, 49)], axis=1)
    np.testing.assert_allclose(grid[7], warp.space.flow(-theta, line), atol=1e-5)


def test_warped_signals() -> None:
    shown_scene = scene("signal")
    theta = theta_of(0, [2.0], 1.0, "signal")
    sample = shown_scene.subject.sample(3)
    shown = shown_scene.show_warp(sample, theta, [])
    expected = Warp(shown_scene.subject.model.space, theta).image(sample)
    np.testing.assert_allclose(numbers(shown["image"]["data"], 2, 64), expected, rtol=1e-6)


def test_dice_are_draws_of_the_model() -> None:
    shown_scene = scene()
    drawn = shown_scene.draw_coefficients(1, 4, 99)
    theta = shown_scene.subject.model.draw(1, [0], seed=99)[0]
    np.testing.assert_allclose(shown_scene.theta(1, drawn, 1.0), theta, atol=0.01)


def test_fresh_samples_are_those_of_the_source() -> None:
    shown_scene = scene()
    source = SampleSource(
        shown_scene.subject.model, shown_scene.subject.source.data, seed=5, strength=0.5
    )
    X, y = source.make(0, 12)
    shown = shown_scene.mosaic(None, 12, 0.5, 5)
    np.testing.assert_array_equal(pixels(shown["images"])[:, 0], X)
    assert shown["labels"] == [str(label) for label in y]
    of_one = shown_scene.mosaic(1, 6, 0.5, 5)
    assert of_one["labels"] == 6 * ["1"]
    theta = 0.5 * shown_scene.subject.model.draw(1, np.arange(6), seed=5)
    originals = shown_scene.subject.X[source.choose(np.arange(6), code=1)]
    expected = Warp(shown_scene.subject.model.space, theta).image(originals)
    np.testing.assert_array_equal(pixels(of_one["images"])[:, 0], expected)


def test_pairs_are_aligned() -> None:
    shown = scene().align(0, 1, 2)
    assert 0 <= shown["left"] < 1 and shown["loss_after"] < shown["loss_before"]
    difference = pixels(shown["warped"]).astype(float) - pixels(shown["target"])
    loss = (difference**2).sum() / 255**2
    assert loss == pytest.approx(shown["loss_after"], rel=0.05)


def test_large_images_come_in_smaller_numbers() -> None:
    assert scene("image").most_images == 64
    assert scene("large").most_images == 64
    assert scene("colour").members(0, 10, 64)["images"]["shape"] == [N_PER_CLASS - 10, 3, 20, 24]
    assert scene("image").members(0, 99, 5)["images"] is None


def test_the_python_makes_what_is_shown(tmp_path: Path) -> None:
    subject = scene().subject
    subject.model.save(tmp_path / "m.dwm")
    np.savez(tmp_path / "d.npz", X=subject.X, y=subject.source.data.y)
    named = Scene(subject, str(tmp_path / "m.dwm"), str(tmp_path / "d.npz"))
    coefficients = [0.5, 0.0, -1.25, 0.0]
    shown = named.show_warp(subject.sample(17), named.theta(1, coefficients, 0.8), [])
    made: dict[str, Any] = {}
    exec(named.warp_code(1, 17, coefficients, 0.8), made)
    np.testing.assert_array_equal(made["warped"], pixels(shown["image"])[0])
    pair = named.align(0, 3, 4)
    exec(pair["python"], made)
    np.testing.assert_array_equal(made["warped"], pixels(pair["warped"]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.theta(9, [], 1.0), "`class_number` must be from 0 to 1 for 2 classes"),
        (lambda s: s.index(0, 99), "`sample` must be from 0 to 14 for 15 samples"),
        (lambda s: s.theta(0, [0.0] * 99, 1.0), r"`coefficients` must be at most \d+ numbers"),
    ],
)
def test_what_is_not_there(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(scene())


def test_volumes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"got a model of volumes\. Use `dreamwarp report`"):
        Scene.of(report_cases.model(3), report_cases.data(3))


def test_everything_can_be_done_ahead() -> None:
    scene("signal").warm()
    scene("colour").warm()
