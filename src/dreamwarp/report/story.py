"""The HTML report: data, components, alignments, strength, warnings, next steps."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dreamwarp.augment.learning import Settings
from dreamwarp.core.labels import Label
from dreamwarp.core.progress import tracked
from dreamwarp.report import aligned, figures, model_plots, warped
from dreamwarp.report.outliers import Outlier, find_odd
from dreamwarp.report.page import Page, check_page_path
from dreamwarp.report.sheets import draw_table, shorten
from dreamwarp.report.study import Study
from dreamwarp.report.subject import join_labels

# A class with fewer pairs gets a warning.
FEW_PAIRS = 30
# A class is poorly aligned if its median pair keeps more than this fraction of the difference.
POOR = 0.6
# Animations: components, frames from one end to the other, resolution.
N_MOVING, N_FRAMES, MOVING_DPI = 3, 17, 100
# Volumes have fewer frames: each has three slices.
MAX_VOLUME_FRAMES = 9
# New samples of each that a command writes, if the verdict gives no number.
N_COPIES = 10
# Outliers shown, and neighbours of each.
N_OUTLIERS, N_NEIGHBORS = 10, 3
# Samples shown of each class, by the number of axes.
N_MEMBERS = {1: 7, 2: 10, 3: 3}


def write_report(
    study: Study,
    path: str | os.PathLike[str],
    *,
    model_name: str = "",
    data_name: str = "",
    reading: Sequence[str] = (),
    preface: Callable[[Page], None] | None = None,
) -> Path:
    """Write the report about a model as one HTML file.

    ``model_name``, ``data_name`` and ``reading``, options with which the data is read, are for the
    commands that the report suggests. ``preface`` adds sections to the page after the summary.
    """
    target = check_page_path(path)
    outliers = find_odd(study)
    found = list(find_warnings(study, outliers))
    name = data_name or study.subject.source.data.name
    page = Page(f"What dreamwarp learned from {Path(name).name or name}")
    add_summary(page, study, len(found))
    if preface is not None:
        preface(page)
    sections = (add_data, add_samples, add_components, add_alignments, add_strength)
    for add_section in tracked(sections, len(sections), "drawing"):
        add_section(page, study)
    add_warnings(page, study, found, outliers)
    add_next_steps(page, study, [model_name or "MODEL", data_name or "DATA", *reading])
    return page.save(target)


# -- sections


def add_summary(page: Page, study: Study, n_warnings: int) -> None:
    """Add the verdict, a few numbers and the contents."""
    verdict = study.judgement.verdict
    is_good = verdict.probably and not verdict.is_errorless
    page.note(_sentence(str(verdict)), "good" if is_good else "")
    page.facts(
        [
            (f"{study.n_all:,}", "samples"),
            (f"{len(study.subject.labels):,}", "classes"),
            (f"{len(study.edges):,}", "pairs aligned for this report"),
            (f"{study.model.strength:g}", "strength"),
            (f"{n_warnings:,}", "warning" if n_warnings == 1 else "warnings"),
        ]
    )
    page.contents()


def add_data(page: Page, study: Study) -> None:
    """Describe and show the samples."""
    subject = study.subject
    page.heading("The data")
    shape = " × ".join(map(str, subject.X.shape[1:]))
    kind = {1: "signals", 2: "images", 3: "volumes"}[study.model.space.ndim]
    page.text(
        f"{study.n_all:,} {kind} of shape {shape}, {subject.X.dtype}, in "
        f"{_count(len(subject.labels), 'class', 'classes')}."
    )
    if len(subject.X) < study.n_all:
        page.text(
            f"The pairs below are of {len(subject.X):,} of them, balanced over classes. Use a "
            "larger --max-samples for more."
        )
    page.figure(
        draw_members(study),
        f"Random {kind} of each class. {subject.describe_look()}".strip(),
        is_photo=subject.is_photo,
    )


def draw_members(study: Study) -> Figure:
    """Draw random samples of each class."""
    subject, rng = study.subject, np.random.default_rng(0)
    rows = []
    for code in warped.shown_classes(subject):
        members = rng.permutation(subject.members(code))[: N_MEMBERS[study.model.space.ndim]]
        cells = [warped.show(subject, subject.sample(int(index))) for index in members]
        rows.append((str(subject.labels[code]), cells))
    return draw_table(subject.layout, rows, height=0.7)


def add_samples(page: Page, study: Study) -> None:
    """Show new samples."""
    page.heading("New samples")
    page.text(
        "A new sample is an old one under a random warp of its class. Warps bend and stretch; they "
        "never tear or fold."
    )
    n_versions = min(8, N_MEMBERS[study.model.space.ndim])
    page.figure(
        warped.draw_samples(study.model, study.whole.source.data, n_versions=n_versions),
        "Left: a typical sample of each class. Right: random warps of it, at strength "
        f"{warped.shown_strength(study.model, None):g}.",
        is_photo=study.subject.is_photo,
    )


def add_components(page: Page, study: Study) -> None:
    """Show animated components, spectra, and the similarity of classes."""
    subject, model = study.subject, study.model
    page.heading("What was learned, class by class")
    page.text(
        "The warps of a class vary most along its principal components (PC). Each animation runs "
        "from −3 to +3 standard deviations and back."
    )
    page.moving(
        [_moving(study, code) for code in warped.shown_classes(subject)],
        is_photo=subject.is_photo, units=96 / MOVING_DPI,
    )  # fmt: skip
    page.figure(
        warped.draw_components(model, subject.source.data),
        "A typical sample of each class along its first component, from −3 to +3 standard "
        "deviations.",
        is_photo=subject.is_photo,
    )
    page.subheading("How much each class varies")
    page.figure(
        model_plots.draw_spectrum(model),
        "Left: standard deviation of warps along each component. Right: fraction of the variance "
        "that this component and those before it explain. Scales are logarithmic, except for the "
        "fraction.",
    )
    columns = ("class", "samples", "pairs", "first component", "components for 90 %")
    page.table(
        (*columns, "weight of pooled classes"),
        [_class_row(study, code) for code in range(len(subject.labels))][:50],
    )
    if len(model.classes) > 1:
        page.subheading("Which classes have similar warps")
        page.figure(
            model_plots.draw_class_similarity(model),
            "The cosine of the covariances of two classes: 1 if their warps vary alike."
            + _describe_similarity(study),
        )


def _moving(study: Study, code: int) -> tuple[np.ndarray, str]:
    label = study.subject.labels[code]
    ndim = study.model.space.ndim
    n = min(N_MOVING if ndim == 2 else 2, study.model.space.dim)
    frames = warped.component_frames(
        study.model, study.subject.source.data, label=label, n_components=n,
        n_frames=min(N_FRAMES, MAX_VOLUME_FRAMES) if ndim == 3 else N_FRAMES, dpi=MOVING_DPI,
        progress=False,
    )  # fmt: skip
    shares = study.model.components(label).share[:n].sum()
    components = "first component" if n == 1 else f"first {n} components"
    return frames, f"Class {label} along its {components}, {shares:.0%} of the variance"


def _class_row(study: Study, code: int) -> list[str]:
    label, model = study.subject.labels[code], study.model
    share, fit = model.components(label).share, model.fits[label]
    return [
        shorten(label, 24),
        f"{len(study.whole.members(study.whole.code_of(label))):,}",
        f"{fit.n_pairs:,}",
        f"{share[0]:.0%}",
        str(int(np.searchsorted(share.cumsum(), 0.9)) + 1),
        f"{fit.pooling:.0%}",
    ]


def add_alignments(page: Page, study: Study) -> None:
    """Show how well pairs aligned, and the worst of them."""
    page.heading("How well pairs aligned")
    left, middle = study.left_over[study.alignments.usable], study.alignments.median_left_over
    n_open = int((~study.alignments.converged).sum())
    facts = [(f"{len(study.edges):,}", "pairs of neighbours")]
    if study.alignments.sigma is not None:
        facts += [
            (f"{middle:.0%}", "of the difference remaining, median pair"),
            (f"{float(np.nanmax(left)):.0%}", "remaining, worst pair"),
        ]
    facts += [(f"{n_open:,}", "not converged")]
    page.facts(facts)
    page.figure(
        aligned.draw_best(study),
        f"The pair that improved most. {_describe_field(study)}",
        is_photo=study.subject.is_photo,
    )
    if study.alignments.sigma is not None:
        page.figure(
            draw_left_over(study),
            "Fraction of the squared difference remaining after alignment, by class: median, "
            "quartiles, and 5 % to 95 %.",
            alternative=f"A box plot by class. The median over all classes is {middle:.0%}.",
        )
    page.figure(
        aligned.draw_gallery(study),
        f"{_describe_order(study)} {_describe_difference(study)} Warp size: about 1 for random "
        "warps of the class.",
        is_photo=study.subject.is_photo,
    )


def draw_left_over(study: Study) -> Figure:
    """Draw a box plot of the remaining differences of each class."""
    shown = dict(list(group_left_over(study).items())[:40])
    figure = figures.new_figure(7.0, 0.9 + 0.24 * len(shown))
    axes = figure.subplots()
    axes.boxplot(
        list(shown.values()), tick_labels=[shorten(label) for label in shown],
        orientation="horizontal", whis=(5, 95), showfliers=False, widths=0.55, patch_artist=True,
        boxprops={"facecolor": "#cfe0ee", "edgecolor": figures.GRID},
        medianprops={"color": figures.MARKS[0], "linewidth": 1.6},
        whiskerprops={"color": figures.GRID}, capprops={"color": figures.GRID},
    )  # fmt: skip
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    figures.style_axes(axes, "remaining after alignment", "class")
    return figure


def group_left_over(study: Study) -> dict[Label, NDArray[np.float64]]:
    """What remains of the difference of each pair, by class; without pairs that are not usable."""
    pairs, labels = aligned.find_pairs(study), study.subject.labels
    codes = study.pair_codes[pairs]
    return {labels[code]: study.left_over[pairs[codes == code]] for code in np.unique(codes)}


def add_strength(page: Page, study: Study) -> None:
    """Show errors by strength, and the verdict."""
    page.heading("How strong, and does it help?")
    judgement, model = study.judgement, study.model
    page.text(_sentence(str(judgement.verdict)))
    how = ""
    if judgement.errors:
        is_chosen = judgement.strength == model.strength
        how = ", chosen for a nearest neighbour" if is_chosen else ", set after the fit"
        smoothed = (
            " Smoothed: a held-out sample counts as part of an error if the nearest samples of its "
            "own and of another class are almost equally far. That needs fewer samples to tell "
            "strengths apart."
        )
        page.figure(
            model_plots.draw_strength(judgement, with_verdict=False),
            "Error of a nearest neighbour on held-out samples by strength of the warps, with "
            "standard errors. The lowest of several errors is too optimistic: in the verdict, "
            "strengths are chosen on other samples."
            f"{smoothed if judgement.is_smooth else ''}",
            alternative=f"Error by strength: {judgement.list_errors()}.",
        )
    page.text(
        f"The strength of the model is {model.strength:g}{how}. Networks get "
        f"{model.network_strength:.3g} by default; dreamwarp.torch.choose_strength finds the best "
        "one for yours."
    )


def add_warnings(page: Page, study: Study, found: list[str], outliers: list[Outlier]) -> None:
    """List warnings, and show outliers."""
    page.heading("Warnings")
    if not found:
        page.text("None: every class has enough pairs, they align, and there are no outliers.")
    for words in found:
        page.note(words, "warning")
    if outliers:
        page.subheading("Samples to check")
        page.text(
            "The warps to their neighbours are extreme for their class, or leave a large "
            "difference. If most of the nearest samples have another label, the sample may be "
            "mislabelled."
        )
        shown = outliers[:N_OUTLIERS]
        more = f" The first {N_OUTLIERS} of {len(outliers)}." if len(outliers) > N_OUTLIERS else ""
        page.figure(
            draw_outliers(study, shown),
            "Left: the sample, with its class and its number, from 0. Right: nearest neighbours "
            f"in its class.{more}",
            alternative="; ".join(_reason(study, each).replace("\n", ", ") for each in shown),
            is_photo=study.subject.is_photo,
        )


def draw_outliers(study: Study, outliers: list[Outlier]) -> Figure:
    """Draw outliers, their neighbours, and the reasons."""
    subject, rows, notes = study.subject, [], []
    for each in outliers:
        ends = study.edges[(study.edges == each.sample).any(axis=1)]
        others = [int(a if b == each.sample else b) for a, b in ends][:N_NEIGHBORS]
        cells = [warped.show(subject, subject.sample(index)) for index in (each.sample, *others)]
        rows.append((str(subject.labels[subject.codes[each.sample]]), cells))
        notes.append(_reason(study, each))
    titles = [(0, "sample"), (1, "neighbours")]
    return draw_table(subject.layout, rows, titles, gaps=(1,), height=0.7, notes=notes)


def _reason(study: Study, outlier: Outlier) -> str:
    lines = [
        f"sample {study.numbers[outlier.sample]:,} of the data",
        f"{outlier.score:.1f} standard deviations above its class",
    ]
    if outlier.looks_like is not None:
        label = shorten(study.subject.labels[outlier.looks_like])
        lines.append(f"{outlier.votes} of 5 nearest samples: {label}")
    return "\n".join(lines)


def find_warnings(study: Study, outliers: list[Outlier]) -> Iterator[str]:
    """Yield warnings about the data and the model."""
    model, subject = study.model, study.subject
    if model.fallbacks:
        yield (
            f"{_count(len(model.fallbacks), 'class has', 'classes have')} too few pairs and got "
            f"the warps of all classes: {join_labels(model.fallbacks)}. Add samples of them."
        )
    few = [
        label for label, fit in model.fits.items()
        if fit.n_pairs < FEW_PAIRS and not fit.fell_back
    ]  # fmt: skip
    if few:
        # Gaussians of empirical Bayes are learned from random pairs.
        is_of_random = model.kind == "gaussian" and Settings.of(model).method == "eb"
        more = "" if is_of_random else ", or fit with more --neighbors"
        yield (
            f"{_count(len(few), 'class has', 'classes have')} fewer than {FEW_PAIRS} pairs: "
            f"{join_labels(few)}. What is learned from so few is uncertain. Add samples{more}."
        )
    left = {} if study.alignments.sigma is None else group_left_over(study)
    poor = [label for label, shares in left.items() if np.median(shares) > POOR]
    if poor:
        finer = "x".join(str(n + max(1, n // 2)) for n in model.space.cells)
        yield (
            f"In {_count(len(poor), 'class', 'classes')} most pairs keep over {POOR:.0%} of their "
            f"difference: {join_labels(poor)}. Their samples differ by more than smooth warps. "
            f"Fit with finer --cells, such as {finer}, or split the classes."
        )
    n_open, n = int((~study.alignments.converged).sum()), len(study.edges)
    if n_open > 0.01 * n:
        yield f"{n_open:,} of {n:,} alignments did not converge. Increase --max-steps."
    n_unusable = int((~study.alignments.usable).sum())
    if n_unusable:
        yield (
            f"{n_unusable:,} of {n:,} pairs could not be aligned, usually because a sample is "
            "constant. Look for empty samples."
        )
    suspects = [each for each in outliers if each.looks_like is not None]
    if suspects:
        n_suspects = _count(len(suspects), "sample looks", "samples look")
        yield (
            f"{n_suspects} like another class, and may be mislabelled or ambiguous. Check the "
            "labels of those shown below, and fit again."
        )
    others = len(outliers) - len(suspects)
    if others:
        yield f"{_count(others, 'sample is an outlier', 'samples are outliers')}: see below."
    verdict = study.judgement.verdict
    if study.judgement.errors and not (verdict.probably or verdict.is_errorless):
        yield "Held-out samples do not show that warps help a nearest neighbour."
    if len(subject.labels) < len(model.classes):
        yield f"The data has {len(subject.labels)} of the model's {len(model.classes)} classes."


def add_next_steps(page: Page, study: Study, words: Sequence[str]) -> None:
    """Suggest next steps and commands; ``words`` name the model and the data in them."""
    page.heading("What to try next")
    for advice in give_advice(study):
        page.text(advice)
    page.text("Open the interactive page, write new samples, or draw an animation of a class:")
    verdict = study.judgement.verdict
    n = (verdict.n_enough or verdict.n_copies or N_COPIES) * study.n_all
    # At strength 0, samples would be copies.
    strength = [] if study.model.strength else ["--strength", "1"]
    label = f"--label={study.subject.labels[0]}"  # also if it starts with a dash
    commands = (
        ["explore", *words],
        ["sample", *words, "-n", str(n), *strength, "-o", "more"],
        ["figure", "components", *words, label, "-o", "class.gif"],
    )
    page.code("\n".join(shlex.join(["dreamwarp", *command]) for command in commands))


def give_advice(study: Study) -> Iterator[str]:
    """Yield suggestions that follow from the judgement; warnings have remedies of their own."""
    judgement, verdict = study.judgement, study.judgement.verdict
    if verdict.probably and not verdict.is_errorless:
        n = verdict.n_enough
        yield (
            "Train on old and new samples together"
            + (f"; {n} new ones of each are enough." if n else ": the more new ones, the better.")
        )
    elif judgement.errors:
        yield (
            "Try your own classifier with Augmenter.judge(estimator), or networks with "
            "dreamwarp.torch.choose_strength: warps may help them where they don't help a nearest "
            "neighbour."
        )
    method = Settings.of(study.model).method
    if judgement.strength >= 1.5 and judgement.errors and method != "eb":
        yield (
            "Strong warps do best, so the learned ones are too small. Fit with --method eb, which "
            "learns warps of full size."
        )


# -- text


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _count(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def _describe_field(study: Study) -> str:
    """What the panels of ``aligned.draw_best`` show."""
    if study.model.space.ndim > 1:
        return (
            "Source, with the cells on which velocities are affine; target; velocity of the "
            "content of the source; a regular grid that moves with it; source, warped."
        )
    return (
        "Source, with the cells on which the velocity is linear; target; velocity at each time; "
        "where each time goes, later times higher, compared with no warp (faint); source, warped, "
        "and the target behind it (faint)."
    )


def _describe_order(study: Study) -> str:
    """Which pairs ``aligned.draw_gallery`` shows, from top to bottom."""
    worst, typical = aligned.choose_pairs(study, None, aligned.N_PAIRS)
    if len(typical):
        return "The worst pairs on top, then from typical to good."
    return "All pairs, the worst on top." if len(worst) > 1 else "The only pair."


def _describe_difference(study: Study) -> str:
    """What the differences in ``aligned.draw_gallery`` show."""
    subject, ndim = study.subject, study.model.space.ndim
    if ndim == 1:
        return "Difference: source minus target, up if positive. Behind the warped source: target."
    if ndim == 2 and subject.n_channels > 1:
        return "Difference: root mean square over channels."
    return "Difference: the source is lower than the target (red) or higher (blue)."


def _describe_similarity(study: Study) -> str:
    values = model_plots.class_similarities(study.model)
    np.fill_diagonal(values, np.nan)
    classes = study.model.classes
    if len(classes) == 2:  # the figure has the number
        return ""
    low, high = (np.unravel_index(f(values), values.shape) for f in (np.nanargmin, np.nanargmax))
    return (
        f" Highest: {classes[high[0]]} and {classes[high[1]]}, {values[high]:.2f}. "
        f"Lowest: {classes[low[0]]} and {classes[low[1]]}, {values[low]:.2f}."
    )
