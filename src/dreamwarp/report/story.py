"""The report: what the data is, what was learned, how well pairs aligned, whether it helps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dreamwarp.core.labels import Label
from dreamwarp.core.progress import track
from dreamwarp.report import aligned, figures, judged, learned, warped
from dreamwarp.report.animation import component_frames
from dreamwarp.report.catalog import most_gained
from dreamwarp.report.galleries import Gallery
from dreamwarp.report.oddities import Odd, find_odd
from dreamwarp.report.page import Page, check_page_path
from dreamwarp.report.sheets import shorten
from dreamwarp.report.study import Study

# Pairs of a class below which its own warps are little known.
FEW_PAIRS = 30
# Share of the difference left over at which a class counts as poorly aligned: its median pair.
POOR = 0.6
# Moving pictures: how many components, and frames from one end to the other.
N_MOVING, N_FRAMES, MOVING_DPI = 3, 17, 100
# Odd samples shown, and neighbours beside each.
N_ODD, N_NEIGHBORS = 10, 3
# Members of each class shown as data.
N_MEMBERS = 10


def write_report(
    study: Study,
    path: str | os.PathLike[str],
    *,
    model_name: str = "",
    data_name: str = "",
    preface: Callable[[Page], None] | None = None,
) -> Path:
    """Write the report on a model as one HTML file.

    Parameters
    ----------
    study : Study
        See :func:`dreamwarp.report.make_study`.
    path : path
        Must end in .html.
    model_name, data_name : str
        Of the files, for the commands that the report proposes.
    preface : callable, optional
        Adds sections to the page before the others.

    Returns
    -------
    Path of the page.
    """
    target = check_page_path(path)
    study.judgement  # noqa: B018  (which shows progress of its own)
    odd = find_odd(study)
    name = data_name or study.subject.source.data.name
    page = Page(f"What dreamwarp learned from {Path(name).name or name}")
    names = (model_name or "MODEL", data_name or "DATA")
    sections: list[Callable[[], None]] = [
        lambda: tell_summary(page, study, odd),
        lambda: None if preface is None else preface(page),
        lambda: tell_data(page, study),
        lambda: tell_new(page, study),
        lambda: tell_learned(page, study),
        lambda: tell_aligned(page, study),
        lambda: tell_strength(page, study),
        lambda: tell_warnings(page, study, odd),
        lambda: tell_next(page, study, odd, *names),
    ]
    with track(len(sections), "drawing") as advance:
        for tell in sections:
            tell()
            advance(1)
    return page.save(target)


# -- the story


def tell_summary(page: Page, study: Study, odd: list[Odd]) -> None:
    """What matters most, in a few lines."""
    verdict = study.judgement.verdict
    page.note(_sentence(str(verdict)), "good" if verdict.probably else "")
    n_warnings = len(list(find_warnings(study, odd)))
    page.facts(
        [
            (f"{study.n_all:,}", "samples"),
            (f"{len(study.subject.labels):,}", "classes"),
            (f"{len(study.edges):,}", "pairs aligned for this report"),
            (f"{study.model.strength:g}", "recommended strength"),
            (f"{n_warnings:,}", "warning" if n_warnings == 1 else "warnings"),
        ]
    )
    page.contents()


def tell_data(page: Page, study: Study) -> None:
    """The samples."""
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
            f"For pairs and strengths, {len(subject.X):,} of them were looked at, as many of every "
            "class. Larger --max-samples look at more."
        )
    page.figure(
        draw_members(study),
        "Members of each class, taken at random.",
        alternative=f"A table of {kind}: a row for each class, {_listed(subject.labels)}.",
        is_photo=subject.is_color,
    )


def draw_members(study: Study) -> Figure:
    """Some members of each class."""
    subject, rng = study.subject, np.random.default_rng(0)
    rows = []
    for code in warped.shown_classes(subject):
        members = rng.permutation(subject.members(code))[:N_MEMBERS]
        cells = [warped.show(subject, subject.sample(int(index))) for index in members]
        rows.append((str(subject.labels[code]), cells[: _n_columns(study)]))
    return Gallery(subject.spatial, rows, height=0.7).draw()


def tell_new(page: Page, study: Study) -> None:
    """New samples, made of old ones."""
    page.heading("New samples")
    strength = warped.shown_strength(study.model, None)
    page.text(
        "A new sample is a sample under a random warp of its class. Warps bend and stretch; they "
        "never tear or fold."
    )
    figure = warped.draw_samples(
        study.model, study.subject.source.data, n_versions=min(8, _n_columns(study))
    )
    page.figure(
        figure,
        "Left: a typical sample of each class. Right: random warps of it, at strength "
        f"{strength:g}.",
        alternative="A table: a typical sample of each class, and random warps of it, which look "
        "like further members of the class.",
        is_photo=study.subject.is_color,
    )


def tell_learned(page: Page, study: Study) -> None:
    """Components of each class, moving; spectra; how alike classes are."""
    subject, model = study.subject, study.model
    page.heading("What was learned, class by class")
    page.text(
        "Warps of a class vary most along its principal components (PC). Each picture sways from "
        "three standard deviations on one side to three on the other."
    )
    page.pause_button()
    page.moving(
        [_moving(study, code) for code in warped.shown_classes(subject)],
        is_photo=subject.is_color, units=96 / MOVING_DPI,
    )  # fmt: skip
    page.figure(
        warped.draw_components(model, subject.source.data),
        "The first component of each class, from −3 to +3 standard deviations.",
        alternative="A table: a typical sample of each class, warped along the first principal "
        "component, from minus three to plus three standard deviations.",
        is_photo=subject.is_color,
    )
    page.subheading("How much classes vary, and in how many ways")
    page.figure(
        learned.draw_spectrum(model),
        "Left: standard deviation of each component. Right: share of the variance that the first "
        "components have together.",
        alternative=_describe_spectrum(study),
    )
    page.table(
        (
            "class",
            "samples",
            "pairs",
            "first component",
            "components for 90 %",
            "shared with others",
        ),
        [_class_row(study, code) for code in range(len(subject.labels))][:50],
    )
    if len(model.classes) > 1:
        page.subheading("Which classes warp alike")
        page.figure(
            learned.draw_class_similarity(model),
            "The cosine between the covariances of two classes: 1 if they vary alike.",
            alternative=_describe_similarity(study),
        )


def _moving(study: Study, code: int) -> tuple[np.ndarray, str]:
    label = study.subject.labels[code]
    n = min(N_MOVING if study.model.space.ndim == 2 else 2, study.model.space.dim)
    frames = component_frames(
        study.model, study.subject.source.data, label=label, n_components=n, n_frames=N_FRAMES,
        dpi=MOVING_DPI, progress=False,
    )  # fmt: skip
    shares = study.model.components(label).share[:n].sum()
    return frames, f"Class {label}: {shares:.0%} of its variance"


def _class_row(study: Study, code: int) -> list[str]:
    label, model = study.subject.labels[code], study.model
    share, fit = model.components(label).share, model.fits[label]
    return [
        shorten(label, 24),
        f"{study.counts[code]:,}",
        f"{fit.n_pairs:,}",
        f"{share[0]:.0%}",
        str(int(np.searchsorted(share.cumsum(), 0.9)) + 1),
        f"{fit.pooling:.0%}",
    ]


def tell_aligned(page: Page, study: Study) -> None:
    """What alignments leave over, and the worst of them."""
    page.heading("How well pairs aligned")
    left = study.left_over[study.alignments.usable]
    n_open = int((~study.alignments.converged).sum())
    middle = float(np.nanmedian(left)) if len(left) else float("nan")
    facts = [(f"{len(study.edges):,}", "pairs of neighbours")]
    if study.alignments.sigma is not None:
        facts += [
            (f"{middle:.0%}", "of the difference left, median pair"),
            (f"{float(np.nanmax(left)):.0%}", "left, worst pair"),
        ]
    facts += [(f"{n_open:,}", "not converged")]
    page.facts(facts)
    pair = most_gained(study)
    source, target = (study.subject.X[end] for end in study.edges[pair])
    page.figure(
        aligned.draw_field(study.model.space, source, target, study.alignments.theta[pair]),
        "The pair that gained most: the source with the cells of the warp, the target, the "
        "velocity of the warp, the grid it moves, and the source warped.",
        is_photo=study.subject.is_color,
    )
    if study.alignments.sigma is not None:
        page.figure(
            draw_left_over(study),
            "Share of the squared difference that is left after alignment: the middle half of the "
            "pairs of each class, their median, and all but the outermost tenth.",
            alternative=f"Boxes by class. Over all classes the median is {middle:.0%}.",
        )
    page.figure(
        aligned.draw_gallery(study),
        "The worst pairs on top, then from typical to good. Before and after: where the source has "
        "too little (red) and too much (blue).",
        is_photo=study.subject.is_color,
    )


def draw_left_over(study: Study) -> Figure:
    """What alignments of each class leave over, as boxes."""
    subject = study.subject
    classes, left = subject.codes[study.edges[:, 0]], study.left_over
    kept = np.isfinite(left) & study.alignments.usable
    shown = [code for code in range(len(subject.labels)) if (kept & (classes == code)).any()][:40]
    figure = figures.new_figure(7.0, 0.9 + 0.24 * len(shown))
    axes = figure.subplots()
    axes.boxplot(
        [left[kept & (classes == code)] for code in shown], orientation="horizontal",
        whis=(5, 95), showfliers=False, widths=0.55, patch_artist=True,
        boxprops={"facecolor": "#cfe0ee", "edgecolor": figures.GRID},
        medianprops={"color": figures.MARKS[0], "linewidth": 1.6},
        whiskerprops={"color": figures.GRID}, capprops={"color": figures.GRID},
        tick_labels=[shorten(subject.labels[code]) for code in shown],
    )  # fmt: skip
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("left after alignment", fontsize=9, color=figures.INK)
    axes.set_ylabel("class", fontsize=9, color=figures.INK)
    figures.plain_axes(axes)
    return figure


def tell_strength(page: Page, study: Study) -> None:
    """Errors by strength, and the verdict."""
    page.heading("How strong, and does it help?")
    judgement, model = study.judgement, study.model
    page.text(_sentence(str(judgement.verdict)))
    if judgement.errors:
        errors = ", ".join(f"{error:.1%} at {s:g}" for s, error in sorted(judgement.errors.items()))
        page.figure(
            judged.draw_strength(judgement, with_verdict=False),
            "Errors of a nearest neighbour on held-out samples, by strength of the warps.",
            alternative=f"Error by strength: {errors}.",
        )
    page.text(
        f"The model recommends strength {model.strength:g}. That is for a nearest neighbour; "
        "networks are often best with stronger warps."
    )


def tell_warnings(page: Page, study: Study, odd: list[Odd]) -> None:
    """What to look at in the data."""
    page.heading("Warnings")
    found = list(find_warnings(study, odd))
    if not found:
        page.text("None: every class has enough pairs, they align, and no sample stands out.")
    for words in found:
        page.note(words, "warning")
    if odd:
        page.subheading("Samples to look at")
        page.text(
            "Their warps to their neighbours are extreme for their class, or leave much over. "
            "Where most of the nearest samples have another label, this one may be wrong."
        )
        page.figure(
            draw_odd(study, odd[:N_ODD]),
            "Left: the sample. Right: its nearest neighbours in its class."
            + (f" The first {N_ODD} of {len(odd)}." if len(odd) > N_ODD else ""),
            alternative="; ".join(_name_odd(study, each) for each in odd[:N_ODD]),
            is_photo=study.subject.is_color,
        )


def draw_odd(study: Study, odd: list[Odd]) -> Figure:
    """Odd samples, their neighbours, and why they are shown."""
    subject, rows, notes = study.subject, [], []
    for each in odd:
        ends = study.edges[(study.edges == each.sample).any(axis=1)]
        others = [int(a if b == each.sample else b) for a, b in ends][:N_NEIGHBORS]
        cells = [warped.show(subject, subject.sample(index)) for index in (each.sample, *others)]
        rows.append((str(subject.labels[subject.codes[each.sample]]), cells))
        notes.append(_reason(study, each))
    titles = [(0, "sample"), (1, "its neighbours")]
    return Gallery(subject.spatial, rows, titles, gaps=(1,), height=0.7, notes=notes).draw()


def _reason(study: Study, odd: Odd) -> str:
    lines = [
        f"sample {study.numbers[odd.sample]:,} of the data",
        f"{odd.score:.1f} deviations above its class",
    ]
    if odd.looks_like is not None:
        label = shorten(study.subject.labels[odd.looks_like])
        lines.append(f"{odd.votes} of 5 nearest samples: {label}")
    return "\n".join(lines)


def _name_odd(study: Study, odd: Odd) -> str:
    label = study.subject.labels[study.subject.codes[odd.sample]]
    like = "" if odd.looks_like is None else f", looks like {study.subject.labels[odd.looks_like]}"
    return f"sample {study.numbers[odd.sample]} of class {label}{like}"


def find_warnings(study: Study, odd: list[Odd]) -> Iterator[str]:
    """What stands out, in words."""
    model, subject = study.model, study.subject
    if model.fallbacks:
        yield (
            f"{_count(len(model.fallbacks), 'class has', 'classes have')} too few pairs and got "
            f"the warps of all classes: {_listed(model.fallbacks)}. Give more samples of them."
        )
    few = [
        label for label, fit in model.fits.items()
        if fit.n_pairs < FEW_PAIRS and not fit.fell_back
    ]  # fmt: skip
    if few:
        yield (
            f"{_count(len(few), 'class has', 'classes have')} fewer than {FEW_PAIRS} pairs: "
            f"{_listed(few)}. What is learned of them comes mostly from the others."
        )
    poor = poor_classes(study)
    if poor:
        yield (
            f"In {_count(len(poor), 'class', 'classes')} most pairs keep over {POOR:.0%} of their "
            f"difference: {_listed(poor)}. Their members differ by more than smooth warps. More "
            "cells, or classes divided by kind, may help."
        )
    n_open, n = int((~study.alignments.converged).sum()), len(study.edges)
    if n_open > 0.01 * n:
        yield f"{n_open:,} of {n:,} alignments did not converge. Use more --max-steps."
    n_flat = int((~study.alignments.usable).sum())
    if n_flat:
        yield (
            f"{n_flat:,} of {n:,} pairs could not be aligned: one of the two has no structure. "
            "Look for empty samples."
        )
    suspects = [each for each in odd if each.looks_like is not None]
    if suspects:
        n_suspects = _count(len(suspects), "sample looks", "samples look")
        yield (
            f"{n_suspects} like another class, and may be mislabelled or hard to tell: see below."
        )
    others = len(odd) - len(suspects)
    if others:
        stand = _count(others, "sample stands", "samples stand")
        yield f"{stand} out from {'its class' if others == 1 else 'their class'}: see below."
    if study.judgement.errors and not study.judgement.verdict.probably:
        yield "Held-out samples don't show that warps help a nearest neighbour here."
    if len(subject.labels) < len(model.classes):
        yield f"The data has {len(subject.labels)} of the model's {len(model.classes)} classes."


def poor_classes(study: Study) -> list[Label]:
    """Classes whose median pair keeps most of its difference."""
    if study.alignments.sigma is None:
        return []
    classes, left = study.subject.codes[study.edges[:, 0]], study.left_over
    found = []
    for code, label in enumerate(study.subject.labels):
        some = left[(classes == code) & np.isfinite(left)]
        if len(some) and np.median(some) > POOR:
            found.append(label)
    return found


def tell_next(page: Page, study: Study, odd: list[Odd], model: str, data: str) -> None:
    """What to do with the model, or about the data."""
    page.heading("What to try next")
    advice = list(give_advice(study, odd))
    for words in advice:
        page.text(words)
    page.code(
        f"dreamwarp explore {model} {data}\n"
        f"dreamwarp sample {model} {data} -n 100000 -o more\n"
        f"dreamwarp figure components {model} {data} --label {study.subject.labels[0]} -o class.gif"
    )


def give_advice(study: Study, odd: list[Odd]) -> Iterator[str]:
    """Steps that follow from what was found."""
    judgement, model = study.judgement, study.model
    if any(each.looks_like is not None for each in odd):
        yield "Check the labels of the samples shown above, and fit again."
    if judgement.verdict.probably:
        n = judgement.verdict.n_enough
        yield (
            "Make new samples and train on them with the old ones"
            + (f"; {n} copies of each are enough." if n else ", as many as you can.")
        )
    elif judgement.errors:
        yield (
            "Try a classifier of your own with Augmenter.judge(estimator), or networks with "
            "dreamwarp.torch.choose_strength: what does not help a nearest neighbour may help them."
        )
    if judgement.errors and judgement.strength >= 1.5:
        yield (
            "Strong warps do best, so those learned are too small. Fit with --method eb, which "
            "learns them in full size."
        )
    if model.fallbacks or any(fit.n_pairs < FEW_PAIRS for fit in model.fits.values()):
        yield "Collect more samples of the classes with few pairs, or fit with more --neighbors."
    if poor_classes(study):
        yield "Fit with finer --cells, such as 6x6, or with --boundary free."
    if model.kind == "gaussian" and len(study.edges) >= 50 * len(study.subject.labels):
        yield (
            "With this many pairs, --kind template, warps toward a sample's own neighbours, may "
            "fit better."
        )
    yield "Drag the components yourself, align pairs and place landmarks on the interactive page:"


# -- words


def _n_columns(study: Study) -> int:
    return {1: 7, 2: 10, 3: 3}[study.model.space.ndim]


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _count(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def _listed(labels: object, most: int = 12) -> str:
    names = [str(label) for label in labels]  # type: ignore[attr-defined]
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _describe_spectrum(study: Study) -> str:
    model = study.model
    first = {label: model.components(label).share[0] for label in model.classes}
    most = max(first, key=first.__getitem__)
    return (
        "Two charts with a line for each class, falling from component to component. The first "
        f"component has most of the variance in class {most}, {first[most]:.0%}."
    )


def _describe_similarity(study: Study) -> str:
    values = learned.class_similarities(study.model)
    np.fill_diagonal(values, np.nan)
    classes = study.model.classes
    low, high = (np.unravel_index(f(values), values.shape) for f in (np.nanargmin, np.nanargmax))
    return (
        f"A table of similarities. Most alike: {classes[high[0]]} and {classes[high[1]]}, "
        f"{values[high]:.2f}. Least: {classes[low[0]]} and {classes[low[1]]}, {values[low]:.2f}."
    )
