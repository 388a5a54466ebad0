"""Pictures of aligned pairs show what the result says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from dreamwarp import Alignments, SmoothPrior, Warp, WarpSpace
from dreamwarp.align.similarity import MutualInformation, SquaredError
from dreamwarp.report import figures
from dreamwarp.report.one_pair import MAX_DRAWS, displacement_spread, draw_alignment

SPACE = WarpSpace((3, 2))
SOURCE, TARGET = np.random.default_rng(0).integers(0, 256, size=(2, 12, 16)).astype(np.uint8)
PANELS = ["source", "target", "source, warped", "velocity"]
PANELS += ["difference before", "difference after", "grid", "summary"]


def alignments(space: WarpSpace, n_draws: int = 0, **changes: Any) -> Alignments:
    """Results for two pairs, with two chains each if there are draws."""
    prior = SmoothPrior(space)
    diagnostics: dict[str, Any] = {"n_steps": np.array([3, 4])}
    chains, traces = [], []
    if n_draws:
        values = {"r_hat": 1.25, "ess": 87.0, "acceptance": 0.61, "n_sweeps": 150}
        diagnostics |= {name: np.array([value, value]) for name, value in values.items()}
        chains = [prior.sample(2 * n_draws, k).reshape(2, n_draws, -1) for k in (5, 6)]
        traces = [np.random.default_rng(k).normal(size=(2, n_draws)) for k in (5, 6)]
    fields: dict[str, Any] = {
        "theta": prior.sample(2, 1), "loss_before": np.array([40.0, 20.0]),
        "loss_after": np.array([10.0, 3.0]), "converged": np.array([True, False]),
        "usable": np.array([True, False]), "diagnostics": diagnostics,
        "similarity": SquaredError(0.125), "chains": chains, "log_posteriors": traces,
    }  # fmt: skip
    return Alignments(**{**fields, **changes})


def panels(figure: Figure) -> dict[str, Axes]:
    return {axes.get_title(): axes for axes in figure.axes if axes.get_title()}


def curves(axes: Axes) -> list[Any]:
    return [c.get_segments() for c in axes.collections if isinstance(c, LineCollection)]


def image(axes: Axes) -> Any:
    return axes.images[0].get_array()


def scaled(*samples: Any) -> list[Any]:
    low, high = np.min(samples), np.max(samples)
    return [(sample.astype(float) - low) / (high - low) for sample in samples]


def test_images_before_and_after_the_warp() -> None:
    result = alignments(SPACE)
    found = panels(draw_alignment(SPACE, SOURCE, TARGET, result, 1))
    assert list(found) == PANELS
    source, target = scaled(SOURCE, TARGET)
    warped = Warp(SPACE, result.theta[1]).image(source)
    expected = {
        "source": source, "target": target, "source, warped": warped,
        "difference before": source - target, "difference after": warped - target,
    }  # fmt: skip
    for title, values in expected.items():
        np.testing.assert_allclose(image(found[title]), values, atol=1e-6)
    limits = {found[f"difference {when}"].images[0].get_clim() for when in ("before", "after")}
    assert len(limits) == 1


def test_grid_and_arrows_follow_the_content() -> None:
    result = alignments(SPACE)
    found = panels(draw_alignment(SPACE, SOURCE, TARGET, result))
    (lines,) = (c for c in found["grid"].collections if isinstance(c, LineCollection))
    n = figures.POINTS_PER_LINE
    row = np.stack([np.full(n, 0.5), np.linspace(0.0, 1.0, n)], axis=1)
    moved = SPACE.flow(-result.theta[0], row)
    np.testing.assert_allclose(lines.get_segments()[8][:, ::-1], moved, atol=1e-5)
    arrows = found["velocity"].collections[-1]
    assert arrows.get_array().max() > 0


def test_chains_add_spread_and_traces() -> None:
    result = alignments(SPACE, 20)
    figure = draw_alignment(SPACE, SOURCE, TARGET, result, 1)
    found = panels(figure)
    assert set(found) == {*PANELS, "posterior spread, pixels", "log-posterior of chains"}
    draws = result.chains[1].reshape(-1, SPACE.dim)
    np.testing.assert_array_equal(
        image(found["posterior spread, pixels"]), displacement_spread(SPACE, draws, (12, 16))
    )
    traces = [line.get_ydata() for line in found["log-posterior of chains"].lines]
    np.testing.assert_array_equal(traces, result.log_posteriors[1])
    figure.draw_without_rendering()


def test_spread_is_that_of_moved_pixels() -> None:
    draws = SmoothPrior(SPACE).sample(30, 2)
    spread = displacement_spread(SPACE, draws, (4, 8))
    pixel = np.array([[2.5 / 4, 6.5 / 8]])
    moved = SPACE.flow(draws, pixel)[:, 0] * (4, 8)
    assert spread[2, 6] == pytest.approx(np.sqrt(moved.var(axis=0).sum()), rel=1e-4)


def test_long_chains_are_thinned() -> None:
    draws = np.repeat(SmoothPrior(SPACE).sample(2, 2), MAX_DRAWS, axis=0)
    few = displacement_spread(SPACE, draws[:: len(draws) - 1], (4, 4))
    np.testing.assert_allclose(displacement_spread(SPACE, draws, (4, 4)), few, atol=1e-6)


@pytest.mark.parametrize(
    ("n_draws", "index", "words"),
    [
        (0, 0, "loss before  40\nloss after  10\nremaining  25%\nnoise σ  0.125\nsteps  3\nconv"),
        (0, 1, "steps  4\nnot converged\nnot usable"),
        (20, 0, "R-hat  1.250\neffective draws  87\nacceptance  0.61\nsweeps  150\nconverged"),
    ],
)
def test_the_summary_says_what_the_result_says(n_draws: int, index: int, words: str) -> None:
    figure = draw_alignment(SPACE, SOURCE, TARGET, alignments(SPACE, n_draws), index)
    assert words in panels(figure)["summary"].texts[0].get_text()


def test_no_share_is_given_of_other_losses() -> None:
    result = alignments(SPACE, similarity=MutualInformation(), loss_before=np.zeros(2))
    words = panels(draw_alignment(SPACE, SOURCE, TARGET, result))["summary"].texts[0].get_text()
    assert "remaining" not in words and "noise" not in words


def test_colours_are_shown_as_such() -> None:
    source = np.random.default_rng(1).random((3, 6, 9))
    target = source[:, ::-1]
    found = panels(draw_alignment(SPACE, source, target, alignments(SPACE)))
    (expected,) = scaled(source)
    np.testing.assert_allclose(image(found["source"]), np.moveaxis(expected, 0, -1))
    before = np.sqrt(((expected - expected[:, ::-1]) ** 2).mean(axis=0))
    np.testing.assert_allclose(image(found["difference before"]), before)


def test_other_channels_are_shown_by_their_mean() -> None:
    source = np.random.default_rng(1).random((2, 6, 9))
    found = panels(draw_alignment(SPACE, source, source, alignments(SPACE)))
    np.testing.assert_allclose(image(found["source"]), scaled(source)[0].mean(axis=0))


@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (6, 90)])
def test_pixels_are_square(shape: tuple[int, int]) -> None:
    source = np.random.default_rng(1).random(shape)
    figure = draw_alignment(SPACE, source, source, alignments(SPACE, 4))
    figure.draw_without_rendering()
    for title in [*PANELS[:7], "posterior spread, pixels"]:
        box = panels(figure)[title].get_window_extent()
        assert box.height / box.width == pytest.approx(shape[0] / shape[1], rel=0.02)


def test_a_free_border_stays_in_the_picture() -> None:
    space = WarpSpace((2, 2), "free")
    result = alignments(space)
    axes = panels(draw_alignment(space, SOURCE, TARGET, result))["grid"]
    lines = np.concatenate(axes.collections[0].get_segments())
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert bottom > top
    assert left <= lines[:, 0].min() and lines[:, 0].max() <= right
    assert top <= lines[:, 1].min() and lines[:, 1].max() <= bottom


@pytest.mark.parametrize("n_draws", [0, 10])
@pytest.mark.parametrize("n_channels", [1, 2])
def test_signals_are_drawn_as_curves(n_draws: int, n_channels: int) -> None:
    space = WarpSpace((4,))
    result = alignments(space, n_draws)
    source, target = np.random.default_rng(0).random((2, n_channels, 30))
    figure = draw_alignment(space, source, target, result)
    figure.draw_without_rendering()
    found = panels(figure)
    assert len(found) == (10 if n_draws else 8)
    (lines,) = curves(found["source"])
    assert len(lines) == n_channels
    behind, lines = curves(found["source, warped, on target"])
    assert len(behind) == n_channels
    # Sheets count rows from the top, and leave a margin of 5 %.
    heights = (0.95 - np.array(lines)[:, :, 1]) / 0.9
    expected = Warp(space, result.theta[0]).image(scaled(source, target)[0])
    np.testing.assert_allclose(heights, expected, atol=1e-6)
    _, (moved,) = curves(found["where points go"])
    expected = space.flow(-result.theta[0], moved[:, :1])
    np.testing.assert_allclose(1.0 - moved[:, 1:], expected, atol=1e-6)


def test_a_pair_of_one_sample_can_be_drawn() -> None:
    result = alignments(SPACE, theta=np.zeros((2, SPACE.dim)), loss_before=np.zeros(2))
    draw_alignment(SPACE, np.ones((4, 4)), np.ones((4, 4)), result).draw_without_rendering()


@pytest.mark.parametrize(
    ("source", "target", "index", "error", "words"),
    [
        (SOURCE, TARGET[1:], 0, ValueError,
         r"must have the same shape, got \(12, 16\) and \(11, 16\)"),
        (SOURCE[0], TARGET, 0, ValueError,
         r"`source` must be one sample .* 2 spatial axes .*, got \(16,\)"),
        (SOURCE, TARGET[None, None], 0, ValueError, r"`target` must be one sample"),
        (SOURCE, np.full((12, 16), np.nan), 0, ValueError, "`target` must be finite"),
        (SOURCE, TARGET, 2, IndexError, "`index` must be from 0 to 1 for 2 pairs, got 2"),
        (SOURCE, TARGET, -1, IndexError, "got -1"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(
    source: Any, target: Any, index: int, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        draw_alignment(SPACE, source, target, alignments(SPACE), index)


def test_volumes_are_drawn_as_slices() -> None:
    space = WarpSpace((2, 1, 1))
    source, target = np.random.default_rng(0).random((2, 4, 5, 6))
    figure = draw_alignment(space, source, target, alignments(space, 20))
    found = panels(figure)
    assert {*found} >= {*PANELS, "posterior spread, voxels"}
    low, high = min(source.min(), target.min()), max(source.max(), target.max())
    slices = [shown.get_array() for shown in found["target"].images]
    expected = (target - low) / (high - low)
    for shown, values in zip(slices, [expected[2], expected[:, 2], expected[:, :, 3]], strict=True):
        np.testing.assert_allclose(shown, values)
    figure.draw_without_rendering()
