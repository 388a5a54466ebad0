"""``dreamwarp demo``: learns warps from MNIST digits, makes more, compares, writes a page."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.commands import contest
from dreamwarp.commands.contest import NEIGHBOR, NETWORK, Outcome, Plan
from dreamwarp.data.dataset import Part
from dreamwarp.space.warp import Warp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dreamwarp.augment.augmenter import Augmenter

Say = Callable[[str], None]

# Versions of each digit, deviations along the first component, and digits in the pictures.
N_VERSIONS, DEVIATIONS, N_SAVED = 3, (-2.5, -1.25, 0.0, 1.25, 2.5), 8


def run_demo(
    output: str | os.PathLike[str],
    *,
    picture: str | os.PathLike[str] | None = None,
    seed: int = 0,
    plan: Plan | None = None,
    say: Say = print,
) -> Path:
    """Do the whole job, print a table and write a page.

    Parameters
    ----------
    output : path
        Page to write, .html.
    picture : path, optional
        Where to write the picture of new digits by itself.
    seed : int
        Fixes the warps, the noise and the network.
    plan : Plan, optional
    say : callable
        Receives what was done, line by line.

    Returns
    -------
    Path of the page.
    """
    from dreamwarp.data import mnist_small
    from dreamwarp.report.figures import check_picture_path, save_figure
    from dreamwarp.report.page import check_page_path

    check_page_path(output)
    if picture is not None:
        check_picture_path(picture)
    plan, start = plan or Plan(), time.perf_counter()
    train, test = contest.as_digits(mnist_small())
    say(f"{len(train.X):,} MNIST digits to learn from, {len(test.X):,} to test on")
    augmenter = learn(train, seed=seed, say=say)
    say(f"training classifiers on the digits and {plan.n_new:,} new ones")
    outcome = contest.run_contest(train, test, augmenter, plan=plan, seed=seed)
    for line in contest.format_table(outcome.contestants):
        say(line)
    for name in (NEIGHBOR, NETWORK):
        say(contest.claim(outcome, name))
    drawn = draw_versions(train, augmenter, outcome)
    if picture is not None:
        save_figure(drawn, picture, dpi=90)
    path = write_page(output, train, test, augmenter, outcome, plan, drawn)
    say(f"done in {time.perf_counter() - start:.0f} s; the page is {path}")
    return path


def learn(train: Part, *, seed: int, say: Say) -> Augmenter:
    """Warps of each class, with all defaults."""
    from dreamwarp.augment.augmenter import Augmenter

    say("aligning neighbours and learning their warps")
    augmenter = Augmenter(seed=seed).fit(train.X, train.y)
    alignments = augmenter.alignments_
    left = alignments.loss_after.sum() / alignments.loss_before.sum()
    say(f"{len(alignments):,} pairs aligned: {left:.0%} of their squared difference is left")
    say(f"strength for a nearest neighbour: {augmenter.strength_:g}")
    return augmenter


# -- the page


def write_page(
    output: str | os.PathLike[str],
    train: Part,
    test: Part,
    augmenter: Augmenter,
    outcome: Outcome,
    plan: Plan,
    versions: Figure,
) -> Path:
    """Write what was done, and pictures of it."""
    from dreamwarp.report.page import Page

    page = Page("dreamwarp: new digits by learned warps")
    page.text(
        f"{len(train.X):,} MNIST digits to learn from. Each is aligned with its nearest neighbours "
        "of the same class by smooth, invertible warps. The distribution of these warps is learned "
        "for each class. New digits are training digits under warps drawn from it."
    )
    page.figure(
        versions,
        "Training digits; the same under elastic noise, tuned for the network; and under learned "
        "warps.",
    )
    page.heading("Do new digits help?")
    _write_comparison(page, test, outcome, plan)
    page.text(f"The augmenter's own verdict, from training digits: {augmenter.verdict_}")
    saved = contest.find_saved(outcome, test, N_SAVED)
    if len(saved):
        page.heading("Test digits that learned warps save")
        page.figure(
            draw_saved(train, test, augmenter, saved, plan),
            "Top: test digits. Middle: the nearest training digit, of another class. Bottom: the "
            "nearest of the training digits and the new ones, of the right class.",
        )
    page.heading("What was learned")
    page.figure(
        draw_components(train, augmenter),
        "A digit of each class along the first principal component of its class's warps, at "
        f"{', '.join(f'{deviation:g}' for deviation in DEVIATIONS)} standard deviations.",
    )
    page.heading("One alignment")
    page.figure(draw_pair(train, augmenter), "A pair of neighbours before and after alignment.")
    return page.save(output)


def _write_comparison(page: Any, test: Part, outcome: Outcome, plan: Plan) -> None:
    names = (NEIGHBOR, NETWORK)
    errors = np.array([[one.error(name) for name in names] for one in outcome.contestants])
    page.table(
        ("trained on", *names),
        [
            (one.name, *(f"{error:.2f} %" for error in row))
            for one, row in zip(outcome.contestants, errors, strict=True)
        ],
        best=errors.argmin(axis=0).tolist(),
    )
    page.text(
        f"Mistakes on {len(test.X):,} test digits. " + ". ".join(
            contest.claim(outcome, name).capitalize() for name in names
        ) + ". ± is one standard error over the test digits."
    )  # fmt: skip
    chosen = [f"{contest.describe_setting(outcome.elastic[name])} for the {name}" for name in names]
    page.text(
        f"{plan.n_new:,} new digits in each case. Elastic noise has the best of "
        f"{len(plan.elastic)} settings on {plan.held_out:.0%} of the training digits, held out: "
        f"{', '.join(chosen)}. Learned warps are not tuned: their strength for the nearest "
        "neighbour is the augmenter's own choice, and 1, their natural scale, for the network."
    )


# -- pictures


def draw_versions(train: Part, augmenter: Augmenter, outcome: Outcome) -> Figure:
    """Training digits, one of each class; versions by tuned elastic noise, and by learned warps."""
    firsts = _first_of_each(train)
    originals = Part(train.X[firsts], train.y[firsts])
    noisy, warped, strength = [], [], contest.STRENGTHS[NETWORK]
    for version in range(N_VERSIONS):
        noisy.append(
            contest.deform(originals, outcome.elastic[NETWORK], len(firsts), seed=version).X
        )
        first = version * len(firsts)
        warped.append(
            augmenter.transform(*originals, templates=firsts, first=first, strength=strength)
        )
    return _draw_blocks(
        [
            ("training digits", [originals.X]),
            ("under elastic noise, tuned", noisy),
            ("under learned warps", warped),
        ]
    )


def draw_components(train: Part, augmenter: Augmenter) -> Figure:
    """A training digit of each class along the first component of its warps."""
    firsts = _first_of_each(train)
    rows = []
    for deviation in DEVIATIONS:
        theta = []
        for label in augmenter.classes_:
            components = augmenter.model_.components(int(label))
            theta.append(
                deviation * components.standard_deviations[0] * components.directions[:, 0]
            )
        rows.append(Warp(augmenter.space_, np.stack(theta)).image(train.X[firsts]))
    return _draw_blocks([("", rows)])


def draw_saved(
    train: Part, test: Part, augmenter: Augmenter, saved: NDArray[Any], plan: Plan
) -> Figure:
    """Test digits, the nearest training digits, and the nearest when there are new ones too."""
    from sklearn.neighbors import NearestNeighbors

    digits = test.X[saved]
    rows = [digits]
    for candidates in (train, contest.join(train, Part(*augmenter.sample(plan.n_new)))):
        flat = candidates.X.reshape(len(candidates.X), -1)
        finder = NearestNeighbors(n_neighbors=1).fit(flat)
        nearest = finder.kneighbors(digits.reshape(len(digits), -1), return_distance=False)[:, 0]
        rows.append(candidates.X[nearest])
    return _draw_blocks([("", rows)])


def draw_pair(train: Part, augmenter: Augmenter) -> Figure:
    """The pair whose difference the alignment reduced most."""
    from dreamwarp.report.pairs import draw_alignment

    alignments = augmenter.alignments_
    index = int(np.argmax(alignments.loss_before - alignments.loss_after))
    source, target = augmenter.edges_[index]
    return draw_alignment(
        augmenter.space_, train.X[source], train.X[target], alignments, index=index
    )


def _first_of_each(train: Part) -> NDArray[np.int64]:
    return np.unique(train.y, return_index=True)[1]


def _draw_blocks(blocks: list[tuple[str, list[NDArray[Any]]]]) -> Figure:
    """Blocks of rows of images (n, rows, columns), one below the other, each with its title."""
    from dreamwarp.report import figures

    sizes, n_columns = [len(rows) for _, rows in blocks], len(blocks[0][1][0])
    heights = [0.7 * n + 0.4 for n in sizes]
    figure = figures.new_figure(0.7 * n_columns, sum(heights))
    parts: Any = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)
    for part, (title, rows) in zip(parts[:, 0], blocks, strict=True):
        part.suptitle(title, fontsize=10, color=figures.INK, x=0.01, ha="left")
        axes = part.subplots(len(rows), n_columns, squeeze=False)
        for row, images in enumerate(rows):
            for column, image in enumerate(images):
                figures.prepare_axes(axes[row, column])
                figures.draw_image(axes[row, column], image)
    return figure
