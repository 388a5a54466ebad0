"""The benchmarks' machinery, on small sizes; the peers where they are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dreamwarp as dw
from benchmarks import QUESTIONS, flow1d, peers, readme, report
from benchmarks.__main__ import main
from benchmarks.data import (
    STRENGTHS,
    SmoothFields,
    draw_theta,
    pixel_centers,
    pixel_errors,
    theta_of,
)
from benchmarks.flows import Problem, Rival, distance_row, flow_errors, gradient_errors
from benchmarks.hardware import cells_visited, operations_per_step
from benchmarks.measure import Contestant, Timing, measure, ratios
from benchmarks.settings import QUICK_RESULTS, RESULTS, Settings

ROOT = Path(__file__).parents[1]


def timing(*seconds: float, name: str = "some") -> Timing:
    return Timing(name, 1, 1, seconds)


# -- measuring


def test_contestants_take_turns() -> None:
    calls: list[str] = []
    contestants = [Contestant(name, partial(calls.append, name)) for name in "ab"]
    measure(contestants, n_rounds=3, shortest=0.0)
    assert calls[-6:] == ["a", "b", "b", "a", "a", "b"]


def test_short_calls_are_repeated_and_counted_per_item() -> None:
    naps: list[float] = []

    def nap() -> None:
        start = time.perf_counter()
        time.sleep(0.002)
        naps.append(time.perf_counter() - start)

    (result,) = measure([Contestant("nap", nap, n_items=4)], n_rounds=2, shortest=0.01)
    assert 1 <= result.n_calls <= 5  # a busy machine may make a nap long, never short
    assert len(naps) == 2 + 2 * result.n_calls  # one to warm up, one to see how long it takes
    first = naps[2 : 2 + result.n_calls]
    assert result.seconds[0] >= sum(first) / result.n_calls / 4


def test_ratios_are_formed_within_rounds() -> None:
    assert ratios(timing(2.0, 6.0), timing(1.0, 2.0)) == (2.0, 3.0)


def test_timing_summary() -> None:
    one = timing(3.0, 1.0, 2.0)
    assert (one.median, one.fastest, one.spread) == (2.0, 1.0, 0.5)


# -- data


@pytest.mark.parametrize("boundary", ["zero", "slip"])
@pytest.mark.parametrize("cells", [(4,), (4, 4), (2, 2, 2)])
def test_fields_respect_the_border(cells: tuple[int, ...], boundary: Any) -> None:
    space = dw.WarpSpace(cells, boundary)
    rng = np.random.default_rng(0)
    fields = SmoothFields.draw(3, len(cells), slip=boundary == "slip", rng=rng)
    vertices = space.tessellation.vertices
    fitted = space.vertex_velocities(theta_of(space, fields))
    np.testing.assert_allclose(fitted, fields(vertices), atol=1e-12)


@pytest.mark.parametrize("displacement", STRENGTHS.values())
def test_theta_moves_points_as_far_as_asked(displacement: float) -> None:
    space, points = dw.WarpSpace((4, 4), "slip"), pixel_centers((28, 28))
    moved = space.flow(draw_theta(space, 5, displacement, points, seed=0), points)
    furthest = np.linalg.norm(moved - points, axis=-1).max(axis=1)
    np.testing.assert_allclose(furthest, displacement, rtol=0.01)


def test_errors_are_in_pixels() -> None:
    exact = np.zeros((1, 1, 2))
    np.testing.assert_allclose(pixel_errors(np.array([[[3 / 28, 4 / 28]]]), exact), [[5.0]])


def test_points_outside_the_domain_count_as_failed() -> None:
    moved = np.array([[[0.5], [-1.0]]])
    row = distance_row("some", "input", moved, np.array([[[0.5], [0.5]]]))
    assert (row.largest, row.n_failed) == (0.0, 1)


def test_cells_are_counted_along_paths() -> None:
    space = dw.WarpSpace((4,), "free")
    theta = space.theta_from_vertices(np.full((5, 1), 0.6))  # everything moves right by 0.6
    visited = cells_visited(space, theta[None], np.array([[0.1], [0.3]]))
    np.testing.assert_array_equal(visited, [[3, 3]])


def test_operations_grow_with_dimension() -> None:
    totals = [sum(operations_per_step(ndim).values()) for ndim in (1, 2, 3)]
    assert 0 < totals[0] < totals[1] < totals[2]


# -- reports


@pytest.mark.parametrize(
    ("values", "at_least", "met"),
    [((3.0, 1.0, 2.0), True, True), ((1.0,), True, False), ((1.0,), False, True), ((), True, None)],
)
def test_targets_are_judged_by_the_median(
    values: tuple[float, ...], at_least: bool, met: bool | None
) -> None:
    assert report.Target("some", 1.5, values, at_least=at_least).met is met


def test_exponent_leaves_out_the_cost_of_a_call() -> None:
    sizes = (1, 100, 1000, 10_000)
    costs = tuple(timing(1e-3 + 1e-4 * size, 1e-3 + 2e-4 * size) for size in sizes)
    exponents = report.Curve("points", "some", sizes, costs).exponents()
    np.testing.assert_allclose(exponents, 1.0, atol=0.05)


def test_exponent_needs_two_sizes() -> None:
    costs = (timing(1.0), timing(1.1), timing(20.0))
    assert report.Curve("points", "some", (1, 2, 3), costs).exponents() == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.01234, "0.0123"),
        (1.0, "1.00"),
        (99.96, "100"),
        (12345.6, "12,346"),
        (1e-7, "1e-07"),
    ],
)
def test_numbers_keep_three_digits(value: float, text: str) -> None:
    assert report.significant(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.50 s"), (0.0025, "2.50 ms"), (2.5e-6, "2.50 µs"), (2e-8, "20.0 ns")],
)
def test_durations_choose_their_unit(seconds: float, text: str) -> None:
    assert report.duration(seconds) == text


def test_busy_machines_are_noticed() -> None:
    assert report.is_busy({"load": 1.9, "cores": 2})
    assert not report.is_busy({"load": 0.1, "cores": 2})
    assert not report.is_busy({"load": None, "cores": 2})


# -- the command


def run_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m ...`` in a new process."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a quick run without peers."""
    folder = tmp_path_factory.mktemp("results")
    done = run_module("benchmarks", "--quick", "--without-peers", "-o", str(folder))
    assert done.returncode == 0, done.stderr
    assert "how fast and how right is the 2-D flow" in done.stdout
    return folder


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_benchmark_writes_its_result(results: Path, name: str) -> None:
    result = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    assert result["name"] == name
    assert result["quick"]
    assert result["environment"]["versions"]["dreamwarp"] == dw.__version__
    for group in result["groups"]:
        for one in group["timings"]:
            assert all(seconds > 0 for seconds in one["seconds"])
            assert one["fastest"] <= one["median"]


def test_own_errors_are_small(results: Path) -> None:
    for name in ("flow1d", "flow2d", "flow3d", "images", "scaling"):
        result = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        assert result["errors"]
        assert all(row["largest"] < 0.01 and row["n_failed"] == 0 for row in result["errors"])


def test_a_plot_is_drawn(results: Path) -> None:
    assert (results / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["flow4d"])
    assert "no benchmark is called 'flow4d'; there are flow2d" in capsys.readouterr().err


def test_too_few_threads_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--threads", "0"])
    assert "--threads must be at least 1, got 0" in capsys.readouterr().err


def test_a_quick_run_leaves_full_results_alone() -> None:
    assert QUICK_RESULTS.resolve() != RESULTS.resolve()


# -- the README


@pytest.fixture
def full_results(results: Path, tmp_path: Path) -> Path:
    """The quick results, passed off as full ones."""
    for path in results.glob("*.json"):
        text = path.read_text(encoding="utf-8").replace('"quick": true', '"quick": false')
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    return tmp_path


def write_pages(folder: Path) -> Path:
    """A README and, in docs, pages with the tables that it sums up."""
    page = folder / "README.md"
    page.write_text("first\n<!-- results -->\n<!-- /results -->\nlast\n", encoding="utf-8")
    (folder / "docs").mkdir()
    benchmark = "before\n<!-- benchmark -->\nstale\n<!-- /benchmark -->\nafter\n"
    (folder / "docs" / "benchmarks.md").write_text(benchmark, encoding="utf-8")
    return page


def test_pages_are_filled_between_their_marks(full_results: Path, tmp_path: Path) -> None:
    page = write_pages(tmp_path)
    for _ in range(2):  # filling them again changes nothing
        done = run_module(
            "benchmarks.readme", "--results", str(full_results), "--readme", str(page)
        )
        assert done.returncode == 0, done.stderr
        text = (tmp_path / "docs" / "benchmarks.md").read_text(encoding="utf-8")
        assert text.startswith("before\n<!-- benchmark -->\n| measured |")
        assert text.endswith("<!-- /benchmark -->\nafter\n")
        assert "stale" not in text
        assert "| 2-D flow against libcpab, natural strength | not measured | ≥ 100 × |" in text


def test_readme_refuses_quick_results(results: Path, tmp_path: Path) -> None:
    """As a command, so that what people type is what is tested."""
    page = tmp_path / "README.md"
    page.write_text("<!-- benchmark -->\n<!-- /benchmark -->\n", encoding="utf-8")
    done = run_module("benchmarks.readme", "--results", str(results), "--readme", str(page))
    assert done.returncode == 1
    assert "come from a quick run, whose figures mean nothing" in done.stderr


def test_readme_refuses_missing_results(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no results of flow2d, .*Run `python -m benchmarks`"):
        readme.load_results(tmp_path)


def test_readme_refuses_results_of_different_runs(full_results: Path) -> None:
    path = full_results / "images.json"
    other = json.loads(path.read_text(encoding="utf-8"))
    other["environment"]["started"] = "at another time"
    path.write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(ValueError, match="must come from one run, got 2"):
        readme.load_results(full_results)


def test_readme_gives_a_task_no_error_but_its_own() -> None:
    error = {"contestant": "a", "setting": "natural strength", "quantity": "distance, pixels of 28"}
    errors = [{**error, "largest": 0.5, "n_failed": 0}]
    assert readme._largest_error("Flow, natural strength", "a", errors) == "0.500 px"
    assert readme._largest_error("Flow, natural strength, one θ per call", "a", errors) == ""
    assert readme._largest_error("Flow, natural strength", "b", errors) == ""


def test_readme_needs_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    for text in ("nothing here", "<!-- benchmark -->", 2 * "<!-- benchmark --><!-- /benchmark -->"):
        page.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match="must have one <!-- benchmark -->"):
            readme.fill(page, "benchmark", "text")


# -- the peers


def build(adapter: Any, *inputs: Any, **options: Any) -> Any:
    """What an adapter builds; skips the test if the package is not there."""
    try:
        return adapter(*inputs, **options)
    except peers.PeerMissing as missing:
        pytest.skip(str(missing))


def test_missing_peers_say_so() -> None:
    with pytest.raises(peers.PeerMissing, match="no_such_package is left out: it is not installed"):
        peers._import("no_such_package.part")


def test_silence_covers_child_processes(capfd: pytest.CaptureFixture[str]) -> None:
    with peers._silence():
        print("from here")
        os.system("echo from a child")
    print("after")
    assert capfd.readouterr().out == "after\n"


def test_libcpab_gets_the_same_fields_and_points() -> None:
    space, points = dw.WarpSpace((2, 3), "slip"), pixel_centers((7, 9))
    problem = Problem.draw(space, 3, points, "natural", 0.1, 0)
    task = build(peers.libcpab_flow, space, problem.theta, problem.points, n_threads=1)
    (distance,) = flow_errors([task], problem)
    (gradient,) = gradient_errors([task], problem)
    assert distance.largest < 0.02
    assert gradient.largest < 0.02


def test_libcpab_refuses_fields_it_can_not_hold() -> None:
    space = dw.WarpSpace((2, 2), "free")
    with pytest.raises(ValueError, match="libcpab can't hold these fields: they differ by"):
        build(peers.libcpab_flow, space, np.eye(space.dim), pixel_centers((4, 4)), n_threads=1)


def test_libcpab_in_3d_moves_points_as_far_as_asked() -> None:
    fields = SmoothFields.draw(2, 3, slip=True, rng=np.random.default_rng(0))
    points = pixel_centers((12, 12, 12))
    peer = build(peers.libcpab_own_fields, fields, (2, 2, 2), 0.1, points, n_threads=1)
    moved = peer.task.moved()
    furthest = np.linalg.norm(moved - points, axis=-1).max(axis=1)
    np.testing.assert_allclose(furthest, 0.1, rtol=0.02)
    # Over a short time the points go where the velocities point.
    velocity = peer.velocity(0, points)
    assert np.corrcoef(velocity.ravel(), (moved[0] - points).ravel())[0, 1] > 0.95


def test_difw_gets_the_same_fields() -> None:
    space, points = dw.WarpSpace((10,), "zero"), pixel_centers((50,))
    problem = Problem.draw(space, 3, points, "natural", 0.1, 0)
    transformer = build(peers.difw_transformer, 10)
    theta, grid = peers.difw_inputs(transformer, space, problem.theta, problem.points)
    velocity = transformer.calc_velocity(grid, theta).numpy()
    np.testing.assert_allclose(velocity, space.velocity(problem.theta, points)[..., 0], atol=1e-6)


def test_difw_is_measured_as_published_whatever_was_measured_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space, points = dw.WarpSpace((10,), "zero"), pixel_centers((5,))
    _, module, published = build(peers.load_difw)
    monkeypatch.setattr(module, "cpab_cpu", "a library that another task put there")
    task = peers.difw_flow(space, np.zeros((1, space.dim)), points, n_threads=1)
    np.testing.assert_allclose(task.moved()[0], points, atol=1e-6)
    assert module.cpab_cpu is published


@pytest.mark.slow
def test_difw_built_without_fast_math_is_right() -> None:
    space, points = dw.WarpSpace((10,), "zero"), pixel_centers((50,))
    problem = Problem.draw(space, 3, points, "natural", 0.1, 0)
    inputs = (space, problem.theta, problem.points)
    task = build(peers.difw_flow, *inputs, n_threads=1, flags=("-O3",))
    (distance,) = flow_errors([task], problem)
    (gradient,) = gradient_errors([task], problem)
    assert distance.largest < 1e-3
    assert gradient.largest < 1e-3


@pytest.mark.parametrize(
    "adapter", [peers.kornia_images, peers.albumentations_images, peers.torchvision_images]
)
def test_image_peers_warp(adapter: Any) -> None:
    dtype = np.float32 if adapter is peers.kornia_images else np.uint8
    task = build(adapter, np.ones((2, 28, 28), dtype), n_threads=1, seed=0)
    task.warp()
    assert task.n_images == 2


def test_peers_are_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise peers.PeerMissing("difw is left out: it is not installed.")

    monkeypatch.setattr(flow1d, "PUBLISHED", Rival("difw", missing, 2.0, 5.0))
    found = flow1d.run(Settings(tmp_path, quick=True))
    assert found.notes == ["difw is left out: it is not installed."]
    assert [target.met for target in found.targets] == [None] * 4
