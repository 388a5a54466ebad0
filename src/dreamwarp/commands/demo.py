"""``dreamwarp demo``: learn warps of MNIST digits, compare classifiers, write a page."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.commands import contest
from dreamwarp.commands.contest import NEIGHBOR, NETWORK, Outcome, Sizes
from dreamwarp.data.dataset import Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dreamwarp.augment.augmenter import Augmenter
    from dreamwarp.report.page import Page

Say = Callable[[str], None]

# Number of warped versions of each digit, and of test digits that only learned warps get right.
N_VERSIONS, N_SAVED = 3, 8


def run_demo(
    output: str | os.PathLike[str],
    *,
    picture: str | os.PathLike[str] | None = None,
    seed: int = 0,
    sizes: Sizes | None = None,
    say: Say = print,
) -> Path:
    """Learn warps, compare classifiers, print a table and write a page.

    Parameters
    ----------
    output : path
        Page to write, .html.
    picture : path, optional
        Also write the picture of new digits to this file.
    seed : int
        Seed of warps, noise and network.
    sizes : Sizes, optional
    say : callable
        Receives the output, line by line.
    """
    from dreamwarp.data import mnist_small
    from dreamwarp.report.figures import check_picture_path, save_figure
    from dreamwarp.report.page import check_page_path

    check_page_path(output)
    if picture is not None:
        check_picture_path(picture)
    sizes, start = sizes or Sizes(), time.perf_counter()
    train, test = contest.as_digits(mnist_small())
    say(f"{len(train.X):,} MNIST digits to learn from, {len(test.X):,} to test on")
    augmenter = learn(train, seed=seed, say=say)
    say(f"training classifiers on the digits and {sizes.n_new:,} new ones")
    outcome = contest.run_contest(train, test, augmenter, sizes=sizes, seed=seed)
    for line in contest.format_table(outcome):
        say(line)
    for name in (NEIGHBOR, NETWORK):
        say(contest.claim(outcome, name))
    drawn = draw_versions(train, augmenter, outcome)
    if picture is not None:
        save_figure(drawn, picture, dpi=90)
    path = write_page(output, train, test, augmenter, outcome, sizes, drawn)
    say(f"done in {time.perf_counter() - start:.0f} s; the report is {path}")
    say(f"to explore the model: dreamwarp explore {path.with_suffix('.dwm')} mnist-small")
    return path


def learn(train: Part, *, seed: int, say: Say) -> Augmenter:
    """Fit an augmenter with default settings."""
    from dreamwarp.augment.augmenter import Augmenter

    say("aligning neighbours and learning their warps")
    augmenter = Augmenter(seed=seed).fit(train.X, train.y)
    alignments = augmenter.alignments_
    left = alignments.loss_after.sum() / alignments.loss_before.sum()
    say(f"{len(alignments):,} pairs aligned: {left:.0%} of their squared difference remains")
    say(
        f"strength for a nearest neighbour: {augmenter.strength_:g}, for networks: "
        f"{augmenter.model_.network_strength:.3g}"
    )
    return augmenter


# -- the page


def write_page(
    output: str | os.PathLike[str],
    train: Part,
    test: Part,
    augmenter: Augmenter,
    outcome: Outcome,
    sizes: Sizes,
    versions: Figure,
) -> Path:
    """Write the report, with the comparison as its first section.

    The model is saved beside the page, for ``dreamwarp explore``.
    """
    from dreamwarp.augment.source import fingerprint
    from dreamwarp.data import mnist_small
    from dreamwarp.report.story import write_report
    from dreamwarp.report.study import study_of

    path, model = Path(output).with_suffix(".dwm"), augmenter.model_
    if "samples" in model.settings:
        # The model was fitted to float32 copies. `dreamwarp explore` loads the uint8 digits, in the
        # same order, so their fingerprint is stored.
        model = model.with_settings(samples=fingerprint(mnist_small().X))
    model.save(path)

    def add_comparison(page: Page) -> None:
        page.heading("Do new digits help?")
        page.figure(
            versions,
            "Training digits; the same digits under elastic noise, tuned for the network; and "
            "under learned warps.",
        )
        _write_comparison(page, test, outcome, augmenter, sizes)
        saved = contest.find_saved(outcome, test, N_SAVED)
        if len(saved):
            page.subheading("Test digits that learned warps rescue")
            page.figure(
                draw_saved(train, test, augmenter, saved, sizes),
                "Top: test digits. Middle: the nearest training digit, of the wrong class. Bottom: "
                "the nearest among training and new digits, of the right class.",
            )

    return write_report(
        study_of(augmenter), output, model_name=os.fspath(path), data_name="mnist-small",
        preface=add_comparison,
    )  # fmt: skip


def _write_comparison(
    page: Any, test: Part, outcome: Outcome, augmenter: Augmenter, sizes: Sizes
) -> None:
    names = (NEIGHBOR, NETWORK)
    errors = np.array([[outcome.error(kind, name) for name in names] for kind in outcome.mistakes])
    rows = [[f"{error:.2f} %" for error in row] for row in errors]
    page.table(
        ("trained on", *names),
        [(kind, *row) for kind, row in zip(outcome.mistakes, rows, strict=True)],
        best=errors.argmin(axis=0).tolist(),
    )
    page.text(
        f"Error on {len(test.X):,} test digits. " + ". ".join(
            contest.claim(outcome, name).capitalize() for name in names
        ) + ". ± is one standard error over the test digits."
    )  # fmt: skip
    chosen = [
        f"{width:g} px wide and {amplitude:g} px strong for the {name}"
        for name, (width, amplitude) in outcome.elastic.items()
    ]
    page.text(
        f"{sizes.n_new:,} new digits in each case. Elastic noise: the best of {len(sizes.elastic)} "
        f"settings on {sizes.held_out:.0%} of the training digits, held out: {', '.join(chosen)}. "
        "Learned warps have the strengths that the augmenter found on held-out training digits: "
        f"{augmenter.strength_:g} for the nearest neighbour, "
        f"{augmenter.model_.network_strength:.3g} for the network."
    )


# -- plots


def draw_versions(train: Part, augmenter: Augmenter, outcome: Outcome) -> Figure:
    """Draw a training digit of each class, and versions by elastic noise and by learned warps."""
    firsts = np.unique(train.y, return_index=True)[1]
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
    train: Part, test: Part, augmenter: Augmenter, saved: NDArray[Any], sizes: Sizes
) -> Figure:
    """Draw test digits, their nearest training digits, and the nearest with new digits added."""
    from sklearn.neighbors import NearestNeighbors

    digits = test.X[saved]
    rows = [digits]
    for candidates in (train, contest.join(train, Part(*augmenter.sample(sizes.n_new)))):
        flat = candidates.X.reshape(len(candidates.X), -1)
        finder = NearestNeighbors(n_neighbors=1).fit(flat)
        nearest = finder.kneighbors(digits.reshape(len(digits), -1), return_distance=False)[:, 0]
        rows.append(candidates.X[nearest])
    return _draw_blocks([("", rows)])


def _draw_blocks(blocks: list[tuple[str, list[NDArray[Any]]]]) -> Figure:
    """Draw titled blocks of rows of images (n, rows, columns), one below the other."""
    from dreamwarp.augment.subject import Look
    from dreamwarp.report import sheets

    step, gap, title_height = 0.7, 0.08, 0.4
    height = sum(step * len(rows) + title_height for _, rows in blocks)
    figure, axes = sheets.new_sheet(step * len(blocks[0][1][0]) + gap, height)
    y = 0.0
    for title, rows in blocks:
        sheets.write(axes, gap, y + title_height / 2, title, size=10, align="left")
        y += title_height
        for images in rows:
            for column, image in enumerate(images):
                box = sheets.Area(gap + step * column, y, step - gap, step - gap)
                sheets.draw_sample(axes, box, image[None], Look(0.0, 1.0, True))
            y += step
    return figure
