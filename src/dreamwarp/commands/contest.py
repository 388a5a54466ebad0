"""The demo: two classifiers, each trained without and with two kinds of new digits.

Elastic noise is tuned for each classifier on held-out training digits. `Augmenter` finds two
strengths of learned warps on held-out training digits: one for the nearest-neighbour classifier,
and one for networks, the default of `LearnedWarp`.
"""

from __future__ import annotations

import os
import shlex
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from dreamwarp.augment.augmenter import Augmenter
from dreamwarp.augment.rivals.elastic import deform_elastically
from dreamwarp.augment.source import fingerprint_samples
from dreamwarp.core import compiled
from dreamwarp.core.defaults import NETWORK_INTERPOLATION, NETWORK_SPECTRUM_POWER
from dreamwarp.core.progress import tracked
from dreamwarp.core.samples import choose_balanced
from dreamwarp.data.dataset import Labeled, join_labeled
from dreamwarp.data.named import mnist_small
from dreamwarp.report.figures import save_figure
from dreamwarp.report.page import Page
from dreamwarp.report.sheets import draw_sample, draw_table
from dreamwarp.report.story import write_report
from dreamwarp.report.study import study_of
from dreamwarp.report.subject import Layout, Look

# A classifier's name, training digits and test digits.
Task = tuple[str, Labeled, Labeled]

NONE, ELASTIC, LEARNED = "training digits alone", "and elastic noise", "and learned warps"
CLASSIFIERS = NEIGHBOR, NETWORK = "nearest neighbour", "small network"
BATCH = 100
# Differences below this many standard errors are called unclear.
CLEAR = 2.0
# Number of warped versions of each digit, and of test digits that only learned warps get right.
N_VERSIONS, N_SAVED = 3, 8


class Sizes(NamedTuple):
    """Sizes of the experiment."""

    n_new: int = 20_000  # new digits that each classifier is trained on
    n_updates: int = 2400  # gradient steps of the network
    held_out: float = 0.25  # fraction of the training digits, to tune elastic noise
    n_new_tuning: int = 7500  # for each setting tried
    n_updates_tuning: int = 800
    # Settings of elastic noise to try: width and amplitude in pixels.
    elastic: tuple[tuple[float, float], ...] = (
        (4.0, 0.7), (4.0, 1.0), (4.0, 1.4), (7.0, 0.7), (7.0, 1.0), (7.0, 1.4),
    )  # fmt: skip


class Outcome(NamedTuple):
    """Test errors (n_test,) by kind of digits and classifier, and the elastic noise chosen."""

    mistakes: dict[str, dict[str, NDArray[np.bool_]]]
    elastic: dict[str, tuple[float, float]]
    sizes: Sizes

    def error_table(self) -> NDArray[np.float64]:
        """Test errors in percent: a row for each kind of digits, a column for each classifier."""
        rows = self.mistakes.values()
        return np.array([[100.0 * row[name].mean() for name in CLASSIFIERS] for row in rows])


def run_demo(output: Path, picture: Path | None, seed: int) -> None:
    """Learn from digits, compare classifiers, and write the page, the model and the picture."""
    start, digits = time.perf_counter(), mnist_small()
    train, test = (
        Labeled(X.astype(np.float32) / np.float32(255.0), y.astype(np.int64))
        for X, y in ((digits.X, digits.y), (digits.X_test, digits.y_test))
    )
    typer.echo(f"{len(train.X):,} MNIST digits to learn from, {len(test.X):,} to test on")
    augmenter, sizes = learn(train, seed), Sizes()
    typer.echo(f"training classifiers on the digits and {sizes.n_new:,} new ones")
    outcome = run_contest(train, test, augmenter, sizes=sizes, seed=seed)
    for line in (*format_table(outcome), *(claim(outcome, name) for name in CLASSIFIERS)):
        typer.echo(line)
    versions = draw_versions(train, augmenter, outcome)
    if picture is not None:
        save_figure(versions, picture, dpi=90)
    model_path = output.with_suffix(".dwm")
    # `dreamwarp explore` loads digits as uint8: those are the samples that the model will know,
    # rather than their float32 copies, which have the same order.
    augmenter.model_.with_settings(samples=fingerprint_samples(digits.X)).save(model_path)
    write_report(
        study_of(augmenter), output, model_name=os.fspath(model_path), data_name="mnist-small",
        preface=lambda page: write_comparison(page, versions, train, test, outcome, augmenter),
    )  # fmt: skip
    typer.echo(f"done in {time.perf_counter() - start:.0f} s; the report is {output}")
    typer.echo(
        f"to explore the model: dreamwarp explore {shlex.quote(str(model_path))} mnist-small"
    )


def learn(train: Labeled, seed: int) -> Augmenter:
    """Fit an augmenter with default settings."""
    typer.echo("aligning neighbours and learning their warps")
    augmenter = Augmenter(seed=seed).fit(train.X, train.y)
    alignments = augmenter.alignments_
    typer.echo(
        f"{len(alignments):,} pairs aligned: {alignments.median_left_over:.0%} of the squared "
        "difference remains in the median pair"
    )
    typer.echo(
        f"strength for a nearest neighbour: {augmenter.strength_:g}, for networks: "
        f"{augmenter.model_.network_strength:.3g}"
    )
    return augmenter


def run_contest(
    train: Labeled, test: Labeled, augmenter: Augmenter, *, sizes: Sizes, seed: int
) -> Outcome:
    """Tune elastic noise, then train and test every classifier on every kind of digits.

    Digits are float32 in [0, 1]. The augmenter is fitted to ``train``.
    """
    elastic = tune_elastic(train, sizes=sizes, seed=seed + 1)
    more = {
        NONE: dict.fromkeys(CLASSIFIERS, Labeled(train.X[:0], train.y[:0])),
        ELASTIC: {
            name: deform(train, setting, sizes.n_new, seed=seed)
            for name, setting in elastic.items()
        },
        LEARNED: {
            NEIGHBOR: Labeled(*augmenter.sample(sizes.n_new)),
            NETWORK: warp_by_class(train, augmenter, sizes.n_new),
        },
    }
    tasks = [
        (name, join_labeled("digits", [train, digits[name]]), test)
        for digits in more.values() for name in CLASSIFIERS
    ]  # fmt: skip
    found = iter(_mistakes_of_all(tasks, sizes.n_updates, seed, "testing"))
    mistakes = {kind: {name: next(found) for name in CLASSIFIERS} for kind in more}
    return Outcome(mistakes, elastic, sizes)


# -- digits


def warp_by_class(train: Labeled, augmenter: Augmenter, n: int, first: int = 0) -> Labeled:
    """Warp ``n`` digits, taken in turn, as ``LearnedWarp`` does; warps count from ``first``."""
    which = np.arange(n) % len(train.X)
    source = augmenter.source_.with_options(
        model=augmenter.model_.flattened(NETWORK_SPECTRUM_POWER),
        strength=augmenter.model_.network_strength,
        interpolation=NETWORK_INTERPOLATION[augmenter.space_.ndim],
    )
    X = source.warp_samples(train.X, train.y[which], first + np.arange(n), indices=which)
    return Labeled(X, train.y[which])


def hold_out(train: Labeled, share: float, seed: int) -> tuple[Labeled, Labeled]:
    """Split digits into kept and held out, stratified by class, at random."""
    random = np.random.default_rng(seed)
    is_held_out = np.zeros(len(train.y), bool)
    for label in np.unique(train.y):
        members = random.permutation(np.flatnonzero(train.y == label))
        is_held_out[members[: max(1, round(share * len(members)))]] = True
    kept, held_out = (Labeled(train.X[some], train.y[some]) for some in (~is_held_out, is_held_out))
    return kept, held_out


def deform(digits: Labeled, setting: tuple[float, float], n: int, *, seed: int) -> Labeled:
    """Make ``n`` digits by elastic noise, from all originals in turn."""
    width, amplitude = setting
    copies = np.arange(n) % len(digits.X)
    made = deform_elastically(digits.X[copies], width=width, amplitude=amplitude, seed=seed)
    return Labeled(made, digits.y[copies])


def tune_elastic(train: Labeled, *, sizes: Sizes, seed: int) -> dict[str, tuple[float, float]]:
    """Choose, for each classifier, the setting with the lowest held-out error."""
    kept, held_out = hold_out(train, sizes.held_out, seed)
    more = [deform(kept, setting, sizes.n_new_tuning, seed=seed) for setting in sizes.elastic]
    sets = [join_labeled("digits", [kept, each]) for each in more]
    best = {}
    for name in CLASSIFIERS:
        tasks = [(name, digits, held_out) for digits in sets]
        title = f"tuning noise for the {name}"
        found = _mistakes_of_all(tasks, sizes.n_updates_tuning, seed, title)
        best[name] = sizes.elastic[int(np.argmin([mistakes.sum() for mistakes in found]))]
    return best


# -- classifiers


def _mistakes_of_all(
    tasks: Sequence[Task], n_updates: int, seed: int, title: str
) -> list[NDArray[np.bool_]]:
    """Train and test each task, one per core; return which test samples are wrong (n_test,).

    A network has one hidden layer and takes about ``n_updates`` steps.
    """

    def work(task: Task) -> NDArray[np.bool_]:
        name, (X, y), test = task
        n_passes = max(1, n_updates * BATCH // len(X))
        classifier = KNeighborsClassifier(1) if name == NEIGHBOR else MLPClassifier(
            (128,), batch_size=min(BATCH, len(X)), max_iter=n_passes, n_iter_no_change=n_updates,
            random_state=seed,
        )  # fmt: skip
        classifier.fit(X.reshape(len(X), -1), y)
        return np.asarray(classifier.predict(test.X.reshape(len(test.X), -1)) != test.y)

    n_workers = min(len(tasks), os.cpu_count() or 1)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.filterwarnings("ignore", message=".*Maximum iterations.*")  # as intended
        return list(tracked(compiled.map_ahead(work, tasks, n_workers), len(tasks), title))


# -- results in words


def claim(outcome: Outcome, classifier: str) -> str:
    """State the errors in a sentence, and whether the difference to elastic noise is clear."""
    mistakes = [outcome.mistakes[kind][classifier] for kind in (NONE, ELASTIC, LEARNED)]
    errors = [100.0 * float(each.mean()) for each in mistakes]
    gain, spread = mean_gain(*mistakes[1:])
    if abs(gain) <= CLEAR * spread:
        versus = f"no clear difference from tuned elastic noise ({errors[1]:.2f} %)"
    else:
        which = "better" if gain > 0 else "worse"
        versus = f"clearly {which} than tuned elastic noise ({errors[1]:.2f} %)"
    return (
        f"{classifier}: error from {errors[0]:.2f} % to {errors[2]:.2f} % with learned warps; "
        f"{versus}, {abs(gain):.2f} ± {spread:.2f} points"
    )


def mean_gain(theirs: NDArray[np.bool_], ours: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the mean gain in percentage points, and its standard error over the test digits."""
    gains = 100.0 * (theirs.astype(np.float64) - ours)
    return float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))


def format_table(outcome: Outcome) -> list[str]:
    """Format the test errors as a table, line by line."""
    lines = [f"test error after training on  {'  '.join(CLASSIFIERS)}"]
    for kind, errors in zip(outcome.mistakes, outcome.error_table(), strict=True):
        cells = [f"{e:{len(name) - 2}.2f} %" for e, name in zip(errors, CLASSIFIERS, strict=True)]
        lines.append(f"{kind:28}  {'  '.join(cells)}")
    return lines


def find_saved(outcome: Outcome, test: Labeled, n: int) -> NDArray[Any]:
    """Up to ``n`` test digits of many classes that 1-NN gets right only with learned warps."""
    without, learned = (outcome.mistakes[kind][NEIGHBOR] for kind in (NONE, LEARNED))
    saved = np.flatnonzero(without & ~learned)
    return saved[choose_balanced(test.y[saved], n)]


# -- the page


def write_comparison(
    page: Page,
    versions: Figure,
    train: Labeled,
    test: Labeled,
    outcome: Outcome,
    augmenter: Augmenter,
) -> None:
    """Write the errors as a table, how they were measured, and digits that warps rescue."""
    page.heading("Do new digits help?")
    page.figure(
        versions,
        "Training digits; the same digits under elastic noise, tuned for the network; and under "
        "learned warps.",
    )
    sizes, errors = outcome.sizes, outcome.error_table()
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
    saved = find_saved(outcome, test, N_SAVED)
    if len(saved):
        page.subheading("Test digits that learned warps rescue")
        page.figure(
            draw_saved(train, test.X[saved], augmenter, sizes),
            "Top: test digits. Middle: the nearest training digit, of the wrong class. Bottom: "
            "the nearest among training and new digits, of the right class.",
        )


def draw_versions(train: Labeled, augmenter: Augmenter, outcome: Outcome) -> Figure:
    """Draw a training digit of each class, and versions by elastic noise and by learned warps."""
    firsts = np.unique(train.y, return_index=True)[1]
    originals, n = Labeled(train.X[firsts], train.y[firsts]), len(firsts)
    rows = [("original", originals.X)]
    for k in range(N_VERSIONS):
        made = deform(originals, outcome.elastic[NETWORK], n, seed=k)
        rows.append(("" if k else "elastic noise", made.X))
    for k in range(N_VERSIONS):
        made = warp_by_class(originals, augmenter, n, first=k * n)
        rows.append(("" if k else "learned warps", made.X))
    return _draw_rows(rows)


def draw_saved(train: Labeled, digits: NDArray[Any], augmenter: Augmenter, sizes: Sizes) -> Figure:
    """Draw test digits, their nearest training digits, and the nearest with new digits added."""
    rows = [("test digits", digits)]
    everything = np.concatenate([train.X, augmenter.sample(sizes.n_new)[0]])
    for name, X in (("nearest before", train.X), ("nearest after", everything)):
        finder = NearestNeighbors(n_neighbors=1).fit(X.reshape(len(X), -1))
        nearest = finder.kneighbors(digits.reshape(len(digits), -1), return_distance=False)
        rows.append((name, X[nearest[:, 0]]))
    return _draw_rows(rows)


def _draw_rows(rows: list[tuple[str, NDArray[Any]]]) -> Figure:
    """Draw rows of images (n, rows, columns) with labels."""
    show = partial(draw_sample, look=Look(0.0, 1.0, True))
    cells = [(name, [partial(show, values=image[None]) for image in X]) for name, X in rows]
    return draw_table(Layout((1.0, 1.0)), cells, height=0.62)
