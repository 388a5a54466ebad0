"""Figures of one aligned pair show the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from dreamwarp import Alignments, SmoothPrior, Warp, WarpSpace
from dreamwarp.align.similarity import MutualInformation, SquaredError
from dreamwarp.report import draw_alignment, sheets
from dreamwarp.report.aligned import MAX_DRAWS, describe_alignment, displacement_spread
from dreamwarp.report.subject import Look

SPACE = WarpSpace((3, 2))
SOURCE, TARGET = np.random.default_rng(0).integers(0, 256, size=(2, 12, 16)).astype(np.uint8)
PANELS = ["source, cells", "target", "source, warped", "difference before", "difference after"]
PANELS += ["velocity", "moved grid", "summary"]


def alignments(space: WarpSpace, n_draws: int = 0, **changes: Any) -> Alignments:
    """Results for two pairs, with two chains each if there are draws."""
    prior = SmoothPrior(space)
    diagnostics: dict[str, Any] = {"n_steps": np.array([3, 4]), "log_posterior": np.ones(2)}
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


def titles(axes: Axes) -> list[str]:
    """Text that stands beside the left edge of a panel: its title, or the summary."""
    return [text.get_text() for text in axes.texts]


def sheet(*arguments: Any) -> Axes:
    (axes,) = draw_alignment(*arguments).axes
    axes.figure.draw_without_rendering()
    return axes


def shown(axes: Axes) -> list[Any]:
    return [image.get_array() for image in axes.images]


def test_images_before_and_after_the_warp() -> None:
    result = alignments(SPACE)
    axes = sheet(SPACE, SOURCE, TARGET, result, 1)
    assert titles(axes)[:-2] == PANELS[:-1] and titles(axes)[-2] == "summary"
    source, target = SOURCE / 255.0, TARGET / 255.0
    warped = Warp(SPACE, result.theta[1]).image(SOURCE) / 255.0
    expected = [source, target, warped, source - target, warped - target]
    np.testing.assert_allclose(shown(axes), expected, atol=1e-12)


def test_the_grid_follows_the_content_and_stays_in_its_panel() -> None:
    space = WarpSpace((2, 2), "free")
    result = alignments(space)
    axes = sheet(space, SOURCE, TARGET, result)
    (lines,) = (
        c for c in axes.collections
        if isinstance(c, LineCollection) and len(c.get_segments()) == 34
    )  # fmt: skip
    n = sheets.POINTS_PER_LINE
    row = np.stack([np.full(n, 0.5), np.linspace(0.0, 1.0, n)], axis=1)
    moved = space.flow(-result.theta[0], row)
    drawn = lines.get_segments()[8][:, ::-1]
    # Up to the place and the size of the panel.
    slope, offset = np.polyfit(moved[:, 1], drawn[:, 1], 1)
    np.testing.assert_allclose(slope * moved[:, 1] + offset, drawn[:, 1], atol=1e-4)
    (place,) = (text.get_position() for text in axes.texts if text.get_text() == "moved grid")
    everything = np.concatenate(lines.get_segments())
    width, height = 2.0 * 16 / 12, 2.0
    assert everything[:, 0].min() >= place[0] - 1e-6
    assert everything[:, 0].max() <= place[0] + width + 1e-6
    assert np.ptp(everything[:, 1]) <= height + 1e-6


def test_chains_add_spread_and_traces() -> None:
    result = alignments(SPACE, 20)
    axes = sheet(SPACE, SOURCE, TARGET, result, 1)
    spread = displacement_spread(SPACE, result.chains[1].reshape(-1, SPACE.dim), (12, 16))
    np.testing.assert_array_equal(shown(axes)[-1], spread)
    assert f"spread, up to {spread.max():.2g} pixels" in titles(axes)
    assert "log-posterior of chains" in titles(axes)
    traces = [c for c in axes.collections if isinstance(c, LineCollection)][-1].get_segments()
    assert len(traces) == 2
    for line, trace in zip(traces, result.log_posteriors[1], strict=True):
        assert np.corrcoef(line[:, 1], trace)[0, 1] == pytest.approx(-1.0)  # rows go down


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
        (0, 0, "before 40, after 10, 25.0% of it noise sigma 0.125 log-posterior 1, 3 steps"),
        (0, 1, "4 steps of the search not converged: a larger `max_steps` may help not usable"),
        (20, 0, "R-hat 1.250, 87 effective draws, acceptance 0.61, 150 sweeps of each chain"),
        (20, 1, "a larger `max_draws` may help"),
    ],
)
def test_the_summary_says_what_the_result_says(n_draws: int, index: int, words: str) -> None:
    result = alignments(SPACE, n_draws)
    assert words in " ".join(describe_alignment(result, index))
    axes = sheet(SPACE, SOURCE, TARGET, result, index)
    assert words in " ".join(titles(axes)[-1].split())


def test_no_share_is_given_of_other_losses() -> None:
    result = alignments(SPACE, similarity=MutualInformation(), loss_before=np.zeros(2))
    words = " ".join(describe_alignment(result))
    assert "minus log-likelihood" in words and "of it" not in words and "sigma" not in words


def test_colours_are_shown_as_such_and_other_channels_by_their_mean() -> None:
    for n_channels in (2, 3):
        source = np.random.default_rng(1).random((n_channels, 6, 9))
        target = source[:, ::-1]
        found = shown(sheet(SPACE, source, target, alignments(SPACE)))
        scaled = (source - source.min()) / np.ptp(source)
        expected = np.moveaxis(scaled, 0, -1) if n_channels == 3 else scaled.mean(axis=0)
        np.testing.assert_allclose(found[0], expected)
        before = np.sqrt(((scaled - scaled[:, ::-1]) ** 2).mean(axis=0))
        np.testing.assert_allclose(found[3], before)


@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (6, 90)])
def test_pixels_are_square(shape: tuple[int, int]) -> None:
    source = np.random.default_rng(1).random(shape)
    axes = sheet(SPACE, source, source, alignments(SPACE, 4))
    assert len(axes.images) == 6
    for image in axes.images:
        left, right, bottom, top = image.get_extent()
        assert (bottom - top) / (right - left) == pytest.approx(shape[0] / shape[1])


@pytest.mark.parametrize("n_draws", [0, 10])
@pytest.mark.parametrize("n_channels", [1, 2])
def test_signals_are_drawn_as_lines(n_draws: int, n_channels: int) -> None:
    space = WarpSpace((4,))
    result = alignments(space, n_draws)
    source, target = np.random.default_rng(0).random((2, n_channels, 30))
    axes = sheet(space, source, target, result)
    lines = [c.get_segments() for c in axes.collections if isinstance(c, LineCollection)]
    warped = Warp(space, result.theta[0]).image(source)
    # Source, cells, target, target behind the warped source, the warped source.
    assert [len(each) for each in lines[:5]] == [n_channels, 3, *3 * [n_channels]]
    for line, values in zip(lines[4], warped, strict=True):
        assert np.corrcoef(line[:, 1], values)[0, 1] == pytest.approx(-1.0)


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
    axes = sheet(space, source, target, alignments(space, 20))
    assert any(words.startswith("spread") and "voxels" in words for words in titles(axes))
    look = Look.of(np.stack([source, target]), 3)
    scaled = np.clip(look.scale(target), 0.0, 1.0)
    for found, values in zip(
        shown(axes)[3:6], [scaled[2], scaled[:, 2], scaled[:, :, 3]], strict=True
    ):
        np.testing.assert_allclose(found, values)
