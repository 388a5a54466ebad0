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

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dreamwarp.augment.augmenter import Augmenter
    from dreamwarp.model import WarpModel
    from dreamwarp.report.page import Page

Say = Callable[[str], None]

# Versions of each digit, and digits in the pictures.
N_VERSIONS, N_SAVED = 3, 8


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
    say(f"done in {time.perf_counter() - start:.0f} s; the report is {path}")
    say(f"to play with it: dreamwarp explore {path.with_suffix('.dwm')} mnist-small")
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
    """Write the report on what was learned, what came of the contest before the rest of it.

    The model is kept beside it, for ``dreamwarp explore``.
    """
    from dreamwarp.report.story import write_report
    from dreamwarp.report.study import study_of

    model = Path(output).with_suffix(".dwm")
    as_shipped(augmenter.model_).save(model)

    def tell_contest(page: Page) -> None:
        page.heading("Do new digits help?")
        page.figure(
            versions,
            "Training digits; the same under elastic noise, tuned for the network; and under "
            "learned warps.",
        )
        _write_comparison(page, test, outcome, plan)
        saved = contest.find_saved(outcome, test, N_SAVED)
        if len(saved):
            page.subheading("Test digits that learned warps save")
            page.figure(
                draw_saved(train, test, augmenter, saved, plan),
                "Top: test digits. Middle: the nearest training digit, of another class. Bottom: "
                "the nearest of the training digits and the new ones, of the right class.",
            )

    return write_report(
        study_of(augmenter), output, model_name=os.fspath(model), data_name="mnist-small",
        preface=tell_contest,
    )  # fmt: skip


def as_shipped(model: WarpModel) -> WarpModel:
    """The model as one of the shipped digits: the same in whole numbers, in the same order."""
    from dreamwarp.augment.source import fingerprint
    from dreamwarp.data import mnist_small

    if "samples" not in model.settings:
        return model
    return model.with_settings(samples=fingerprint(mnist_small().X))


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
    noisy, warped = [], []
    for version in range(N_VERSIONS):
        noisy.append(
            contest.deform(originals, outcome.elastic[NETWORK], len(firsts), seed=version).X
        )
        n = len(firsts)
        warped.append(contest.warp_by_class(originals, augmenter, n, first=version * n).X)
    return _draw_blocks(
        [
            ("training digits", [originals.X]),
            ("under elastic noise, tuned", noisy),
            ("under learned warps", warped),
        ]
    )


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
