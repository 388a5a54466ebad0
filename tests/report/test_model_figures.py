"""Figures of models show what the model and its samples say, for signals, images and volumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from dreamwarp import Warp, WarpModel, report
from dreamwarp.report import aligned, catalog, model_plots, warped
from dreamwarp.report.subject import Subject
from tests.report import cases


def images(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]


def words(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_samples_and_components_of_every_kind(ndim: int) -> None:
    model, data = cases.model(ndim), cases.data(ndim)
    for figure in (
        report.draw_samples(model, data, n_versions=3),
        report.draw_samples(model, data, label="right", n_versions=2),
        report.draw_components(model, data),
        report.draw_components(model, data, label="left", n_components=2),
    ):
        figure.draw_without_rendering()


def test_samples_are_the_originals_under_drawn_warps() -> None:
    model, (X, y) = cases.model(2), cases.data(2)
    found = images(report.draw_samples(model, (X, y), n_versions=2, strength=0.5, seed=7))
    for row, label in enumerate(("left", "right")):
        members = np.flatnonzero(y == label)
        distances = ((X[members] - X[members].mean(axis=0)) ** 2).sum(axis=(1, 2))
        original = X[members[distances.argmin()]]
        theta = 0.5 * model.draw(label, [0, 1], seed=7)
        expected = [original, *Warp(model.space, theta).image(original)]
        for image, values in zip(found[3 * row :], expected, strict=False):
            np.testing.assert_allclose(image, values / 255.0)


def test_components_move_a_sample_by_deviations() -> None:
    model, (X, y) = cases.model(2), cases.data(2)
    figure = report.draw_components(model, (X, y), label="right", component=2, n_components=1)
    typical = X[Subject.of(model, (X, y)).typical(1)[0]]
    found = model.components("right")
    step = found.standard_deviations[1] * found.directions[:, 1]
    expected = [Warp(model.space, k * step).image(typical) / 255.0 for k in range(-3, 4)]
    np.testing.assert_allclose(images(figure), expected)
    assert {"−3 σ", "0", "+3 σ", "PC 2", f"{found.share[1]:.0%} of variance"} <= {*words(figure)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "up"}, "`label` must be a class of the data: left, right, got 'up'"),
        ({"component": 99, "label": "left"}, r"`component` must be from 1 to \d+, .* got 99"),
        ({"component": 0}, "`component` must be an integer of at least 1, got 0"),
    ],
)
def test_components_that_are_not_there(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        report.draw_components(cases.model(2), cases.data(2), **options)


def test_data_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="with 2 spatial axes"):
        report.draw_samples(cases.model(2), (np.zeros((4, 9)), np.repeat("left", 4)))
    with pytest.raises(ValueError, match="must have every class"):
        report.draw_samples(cases.model(2), (np.zeros((4, 9, 9)), np.repeat("up", 4)))


def test_a_strength_of_zero_is_shown_as_one() -> None:
    still = cases.model(2).with_strength(0.0)
    assert warped.shown_strength(still, None) == 1.0
    assert warped.shown_strength(still, 0.0) == 0.0


def test_the_spectrum_has_a_line_for_each_class() -> None:
    model = cases.model(2)
    left, right = report.draw_spectrum(model).axes
    for lines, expected in ((left.lines, "standard_deviations"), (right.lines, "share")):
        assert len(lines) == 3
        values = getattr(model.components("right"), expected)
        values = values.cumsum() if expected == "share" else values
        np.testing.assert_allclose(lines[1].get_ydata(), values)


def test_classes_of_a_spectrum_are_told_apart() -> None:
    prior = cases.SmoothPrior(cases.SPACES[2])
    for n in (9, 30):
        theta = {f"class {k}": (1 + k) * prior.sample(40, 0) for k in range(n)}
        model = WarpModel.fit(cases.SPACES[2], theta, shrinkage=0.1, pooling=0.1)
        figure = report.draw_spectrum(model)
        figure.draw_without_rendering()
        lines = [line for line in figure.axes[0].lines if not line.get_label().startswith("_")]
        styles = {(line.get_color(), str(line.get_linestyle()), line._unscaled_dash_pattern)
                  for line in lines}  # fmt: skip
        assert len(styles) == len(lines) == (10 if n == 9 else 8)
        names = [text.get_text() for text in figure.legends[0].get_texts()]
        if n == 30:
            assert names == ["24 others", *(f"class {k}" for k in (29, 28, 27, 2, 1, 0)),
                             "all pooled"]  # fmt: skip


def test_similarity_is_the_cosine_of_covariances() -> None:
    model = cases.model(2)
    first, second = (model.covariance(label) for label in ("left", "right"))
    cosine = (first * second).sum() / np.sqrt((first**2).sum() * (second**2).sum())
    np.testing.assert_allclose(model_plots.class_similarities(model), [[1, cosine], [cosine, 1]])
    assert f"{cosine:.2f}".removeprefix("0") in words(report.draw_class_similarity(model))


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_pairs_of_every_kind(ndim: int) -> None:
    study = cases.study(ndim)
    figure = report.draw_gallery(study, n=4)
    figure.draw_without_rendering()
    (worst,) = (text for text in words(figure) if text.startswith("the worst:"))
    assert "90% remaining" in worst
    assert sum(text.startswith("typical to good:") for text in words(figure)) == 1
    source, target = study.subject.X[0], study.subject.X[1]
    space = study.model.space
    report.draw_field(space, source, target, study.alignments.theta[0]).draw_without_rendering()


def test_a_single_pair_is_not_called_the_worst() -> None:
    study = cases.study(2, usable=np.arange(14) == 3)
    figure = report.draw_gallery(study)
    assert "worst" not in "\n".join(words(figure)) and "left" in words(figure)


def test_the_worst_pairs_come_first() -> None:
    study = cases.study(2)
    worst, typical = aligned.choose_pairs(study, None, 6)
    assert worst.tolist() == [13, 12, 11]
    assert len(typical) == 3 and not {*worst} & {*typical}
    worst, _ = aligned.choose_pairs(study, "left", 2)
    assert worst.tolist() == [6]


def test_pairs_that_cant_be_aligned_are_not_shown() -> None:
    study = cases.study(2, usable=np.zeros(14, bool))
    with pytest.raises(ValueError, match="must have pairs that can be aligned"):
        report.draw_gallery(study)
    # Nor is one of another class shown instead.
    study = cases.study(2, usable=np.arange(14) >= 7)
    aligned.draw_best(study, label="right")
    with pytest.raises(ValueError, match="must have pairs that can be aligned"):
        aligned.draw_best(study, label="left")


def test_fields_need_samples_of_one_shape() -> None:
    with pytest.raises(ValueError, match=r"must have the same shape, got \(4, 4\) and \(4, 5\)"):
        report.draw_field(cases.SPACES[2], np.zeros((4, 4)), np.zeros((4, 5)), np.zeros(1))
    with pytest.raises(ValueError, match=r"`target` must be one sample .* 2 spatial axes"):
        report.draw_field(cases.SPACES[2], np.zeros((4, 4)), np.zeros(4), np.zeros(1))


def test_strengths_are_drawn_with_the_one_chosen() -> None:
    judgement = cases.judgement()
    figure = report.draw_strength(judgement)
    (axes,) = figure.axes
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [(0.0, 0.14), (0.8, 0.08)])
    assert axes.get_title(loc="left") == "it helps."
    assert "chosen: 0.8" in [text.get_text() for text in axes.texts]


def test_errors_that_are_nearly_0_are_drawn_so() -> None:
    tiny = replace(cases.judgement(), errors={0.0: 1e-9, 0.8: 0.0, 1.4: np.nan}, spreads={})
    (axes,) = report.draw_strength(tiny).axes
    assert axes.get_ylim() == (0.0, 0.01)


def test_traces_need_chains() -> None:
    with pytest.raises(ValueError, match="`alignments` must have chains"):
        report.draw_traces(cases.study(2).alignments)


def test_traces_are_those_of_the_chains() -> None:
    traces = [np.random.default_rng(k).normal(size=(2, 30)) for k in range(2)]
    known = {"r_hat": np.array([1.01, 1.5]), "ess": np.array([99.0, 3.0])}
    study = cases.study(2, chains=[None], log_posteriors=traces, diagnostics=known)
    figure = report.draw_traces(study.alignments, titles=["good", "bad"] + 12 * [""])
    drawn = [line.get_ydata() for line in figure.axes[2].lines]
    np.testing.assert_array_equal(drawn, traces[1])
    assert figure.axes[2].get_title(loc="left") == "bad: R-hat 1.500, 3 effective draws"


# -- moving pictures


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_frames_run_from_end_to_end(ndim: int) -> None:
    frames = report.component_frames(
        cases.model(ndim), cases.data(ndim), n_frames=3, dpi=40, progress=False
    )
    assert frames.dtype == np.uint8 and len(frames) == 3
    assert not np.array_equal(frames[0], frames[2])


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_animations_play_forth_and_back(tmp_path: Path, suffix: str) -> None:
    frames = np.zeros((4, 20, 30, 3), np.uint8)
    frames[np.arange(4), 5 * np.arange(4)] = 255
    path = report.save_animation(frames, tmp_path / f"moving{suffix}")
    with Image.open(path) as picture:
        assert picture.n_frames == 6
        assert picture.info["loop"] == 0
        picture.seek(4)
        shown = np.asarray(picture.convert("L"))
    assert shown[10].mean() > 128 > shown[5].mean()


# -- figures by name


def test_every_figure_is_written_by_its_name(tmp_path: Path) -> None:
    for name in catalog.NAMES:
        if name != "traces":  # takes a sampler
            path = catalog.write_figure(
                name, cases.model(2), cases.data(2), tmp_path / f"{name}.svg", study=cases.study(2)
            )
            assert path.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("nothing", "a.png", "`name` must be one of 'samples', 'warp'"),
        ("samples", "a.gif", "only the figure components can be animated"),
        ("components", "a.mp4", "can be animated: .gif, .webp"),
        ("samples", "a.bmp", "must end in one of .pdf, .png, .svg.* can be animated: .gif"),
    ],
)
def test_figures_that_cant_be_written(name: str, path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        catalog.check_figure(name, path)
