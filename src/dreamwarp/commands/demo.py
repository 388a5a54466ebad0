"""``dreamwarp demo``: learn warps of MNIST digits, compare classifiers, write a page."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from dreamwarp.commands import options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dreamwarp.augment.augmenter import Augmenter
    from dreamwarp.commands.contest import Outcome, Sizes
    from dreamwarp.data.dataset import Part
    from dreamwarp.report.page import Page

# Number of warped versions of each digit, and of test digits that only learned warps get right.
N_VERSIONS, N_SAVED = 3, 8


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Page to write, .html; replaced if it exists.")
    ] = Path("dreamwarp-demo.html"),
    picture: Annotated[
        Path | None,
        typer.Option(help="Also write the picture of new digits to this file: .png, .svg or .pdf."),
    ] = None,
    seed: options.Seed = 0,
) -> None:
    """Learn warps of real digits, make new ones, and compare classifiers with and without them.

    [bold]Examples[/bold]

    dreamwarp demo
    dreamwarp demo --seed 7 --output out/seven.html
    """
    from dreamwarp.commands import contest
    from dreamwarp.data import mnist_small
    from dreamwarp.report.figures import check_picture_path, save_figure
    from dreamwarp.report.page import check_page_path

    check_page_path(output)
    if picture is not None:
        check_picture_path(picture)
    sizes, start = contest.Sizes(), time.perf_counter()
    train, test = contest.as_digits(mnist_small())
    typer.echo(f"{len(train.X):,} MNIST digits to learn from, {len(test.X):,} to test on")
    augmenter = learn(train, seed)
    typer.echo(f"training classifiers on the digits and {sizes.n_new:,} new ones")
    outcome = contest.run_contest(train, test, augmenter, sizes=sizes, seed=seed)
    for line in contest.format_table(outcome):
        typer.echo(line)
    for name in contest.CLASSIFIERS:
        typer.echo(contest.claim(outcome, name))
    versions = draw_versions(train, augmenter, outcome)
    if picture is not None:
        save_figure(versions, picture, dpi=90)
    model_path = output.with_suffix(".dwm")
    save_for_explore(augmenter, model_path)

    def add_comparison(page: Page) -> None:
        page.heading("Do new digits help?")
        page.figure(
            versions,
            "Training digits; the same digits under elastic noise, tuned for the network; and "
            "under learned warps.",
        )
        write_comparison(page, test, outcome, augmenter, sizes)
        saved = contest.find_saved(outcome, test, N_SAVED)
        if len(saved):
            page.subheading("Test digits that learned warps rescue")
            page.figure(
                draw_saved(train, test.X[saved], augmenter, sizes),
                "Top: test digits. Middle: the nearest training digit, of the wrong class. Bottom: "
                "the nearest among training and new digits, of the right class.",
            )

    from dreamwarp.report.story import write_report
    from dreamwarp.report.study import study_of

    write_report(
        study_of(augmenter), output, model_name=os.fspath(model_path), data_name="mnist-small",
        preface=add_comparison,
    )  # fmt: skip
    typer.echo(f"done in {time.perf_counter() - start:.0f} s; the report is {output}")
    typer.echo(f"to explore the model: dreamwarp explore {model_path} mnist-small")


def learn(train: Part, seed: int) -> Augmenter:
    """Fit an augmenter with default settings."""
    from dreamwarp.augment.augmenter import Augmenter

    typer.echo("aligning neighbours and learning their warps")
    augmenter = Augmenter(seed=seed).fit(train.X, train.y)
    alignments = augmenter.alignments_
    left = alignments.loss_after.sum() / alignments.loss_before.sum()
    typer.echo(f"{len(alignments):,} pairs aligned: {left:.0%} of their squared difference remains")
    typer.echo(
        f"strength for a nearest neighbour: {augmenter.strength_:g}, for networks: "
        f"{augmenter.model_.network_strength:.3g}"
    )
    return augmenter


def save_for_explore(augmenter: Augmenter, path: Path) -> None:
    """Save the model for ``dreamwarp explore``, which loads digits as uint8.

    The model was fitted to float32 copies in the same order. It stores the fingerprint of the
    samples it was fitted to, which is replaced by that of the uint8 digits.
    """
    from dreamwarp.augment.source import fingerprint
    from dreamwarp.data import mnist_small

    augmenter.model_.with_settings(samples=fingerprint(mnist_small().X)).save(path)


# -- the page


def write_comparison(
    page: Page, test: Part, outcome: Outcome, augmenter: Augmenter, sizes: Sizes
) -> None:
    """Write the errors as a table, and how they were measured."""
    from dreamwarp.commands.contest import CLASSIFIERS, claim

    errors = outcome.error_table()
    page.table(
        ("trained on", *CLASSIFIERS),
        [
            (kind, *(f"{error:.2f} %" for error in row))
            for kind, row in zip(outcome.mistakes, errors, strict=True)
        ],
        best=errors.argmin(axis=0).tolist(),
    )
    claims = ". ".join(claim(outcome, name).capitalize() for name in CLASSIFIERS)
    page.text(
        f"Error on {len(test.X):,} test digits. {claims}. ± is one standard error over the test "
        "digits."
    )
    chosen = ", ".join(
        f"{width:g} px wide and {amplitude:g} px strong for the {name}"
        for name, (width, amplitude) in outcome.elastic.items()
    )
    page.text(
        f"{sizes.n_new:,} new digits in each case. Elastic noise: the best of {len(sizes.elastic)} "
        f"settings on {sizes.held_out:.0%} of the training digits, held out: {chosen}. "
        "Learned warps have the strengths that the augmenter found on held-out training digits: "
        f"{augmenter.strength_:g} for the nearest neighbour, "
        f"{augmenter.model_.network_strength:.3g} for the network."
    )


def draw_versions(train: Part, augmenter: Augmenter, outcome: Outcome) -> Figure:
    """Draw a training digit of each class, and versions by elastic noise and by learned warps."""
    from dreamwarp.commands.contest import NETWORK, deform, warp_by_class
    from dreamwarp.data.dataset import Part

    firsts = np.unique(train.y, return_index=True)[1]
    originals, n = Part(train.X[firsts], train.y[firsts]), len(firsts)
    rows = [("original", originals.X)]
    for k in range(N_VERSIONS):
        made = deform(originals, outcome.elastic[NETWORK], n, seed=k)
        rows.append(("" if k else "elastic noise", made.X))
    for k in range(N_VERSIONS):
        made = warp_by_class(originals, augmenter, n, first=k * n)
        rows.append(("" if k else "learned warps", made.X))
    return _draw_rows(rows)


def draw_saved(train: Part, digits: NDArray[Any], augmenter: Augmenter, sizes: Sizes) -> Figure:
    """Draw test digits, their nearest training digits, and the nearest with new digits added."""
    from sklearn.neighbors import NearestNeighbors

    rows = [("test digits", digits)]
    everything = np.concatenate([train.X, augmenter.sample(sizes.n_new)[0]])
    for name, X in (("nearest before", train.X), ("nearest after", everything)):
        finder = NearestNeighbors(n_neighbors=1).fit(X.reshape(len(X), -1))
        nearest = finder.kneighbors(digits.reshape(len(digits), -1), return_distance=False)
        rows.append((name, X[nearest[:, 0]]))
    return _draw_rows(rows)


def _draw_rows(rows: list[tuple[str, NDArray[Any]]]) -> Figure:
    """Draw rows of images (n, rows, columns) with labels."""
    from dreamwarp.augment.subject import Look
    from dreamwarp.report.sheets import draw_sample, draw_table

    show = partial(draw_sample, look=Look(0.0, 1.0, True))
    cells = [(name, [partial(show, values=image[None]) for image in X]) for name, X in rows]
    return draw_table((1.0, 1.0), cells, height=0.62)
