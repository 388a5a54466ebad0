"""``dreamwarp demo``: the whole job on scikit-learn's digits, with a page of what came of it.

Some digits are for training, some to choose by, and the rest to test on. The training digits are
aligned with their neighbours, the warps of each class are learned, and two classifiers are trained
on more digits made from them; on digits deformed by random elastic noise, at the strength that does
best for each on the validation digits; and on the training digits alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dreamwarp.augment.rivals.elastic import deform_elastically
from dreamwarp.space.warp import Warp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dreamwarp.augment.augmenter import Augmenter

Images = NDArray[np.float32]
Labels = NDArray[np.int64]
Say = Callable[[str], None]

# Digits of each class to train on, and to choose the rival's strength by.
N_TRAIN, N_VALIDATION = 20, 20
# The digits touch the border of their 8 x 8 pixels, where warps move nothing.
MARGIN = 2
# Digits made, by warps or by noise.
N_NEW = 6000
# Widths and amplitudes in pixels that the elastic rival may choose from.
WIDTHS, AMPLITUDES = (1.0, 2.0), (0.2, 0.3, 0.5, 0.8)
# Updates of the network; and where several are trained, to choose the rival's strength.
N_UPDATES, N_UPDATES_TO_CHOOSE = 2400, 1200
# Versions of each digit, and deviations of the first component, in the pictures.
N_VERSIONS, DEVIATIONS = 4, (-3.0, -1.5, 0.0, 1.5, 3.0)


class Split(NamedTuple):
    """Digits and labels: to train on, to choose by, to test on."""

    X: Images
    y: Labels
    X_validation: Images
    y_validation: Labels
    X_test: Images
    y_test: Labels


class Elastic(NamedTuple):
    """Elastic noise: its width and amplitude in pixels."""

    width: float
    amplitude: float

    def __str__(self) -> str:
        return f"{self.width:g} px wide and {self.amplitude:g} px strong"


class Rivals(NamedTuple):
    """The elastic noise that does best on the validation digits, for each classifier."""

    neighbor: Elastic
    network: Elastic


class Row(NamedTuple):
    """Test errors, in percent, of both classifiers after one kind of training."""

    name: str
    neighbor: float
    network: float


def run_demo(output: str | os.PathLike[str], *, seed: int = 0, say: Say = print) -> Path:
    """Do the whole job, print a table and write a page.

    Parameters
    ----------
    output : path
        Page to write, .html.
    seed : int
        Fixes the split, the warps and the network.
    say : callable
        Receives what was done, line by line.

    Returns
    -------
    Path of the page.
    """
    from dreamwarp.augment.augmenter import Augmenter
    from dreamwarp.report.page import check_page_path

    check_page_path(output)
    start = time.perf_counter()
    split = split_digits(seed)
    say(
        f"{len(split.X)} handwritten digits to train on, {len(split.X_validation)} to choose by, "
        f"{len(split.X_test)} to test on"
    )
    say("aligning neighbours and learning")
    augmenter = Augmenter(cells=(4, 4), seed=seed).fit(split.X, split.y)
    alignments = augmenter.alignments_
    left = alignments.loss_after.sum() / alignments.loss_before.sum()
    say(f"{len(alignments)} pairs aligned: {left:.0%} of their squared difference is left")
    say(f"strength {augmenter.strength_:g}; {augmenter.verdict_}")
    rows, rivals = compare(split, augmenter, seed=seed, say=say)
    for line in format_table(rows):
        say(line)
    path = write_page(output, split, augmenter, rows, rivals)
    say(f"done in {time.perf_counter() - start:.0f} s; the page is {path}")
    return path


def split_digits(seed: int) -> Split:
    """scikit-learn's digits with a margin, in [0, 1], divided at random by class."""
    from dreamwarp.data import digits

    data = digits()
    margins = ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))
    X = np.pad(data.X, margins)
    y = data.y.astype(np.int64)
    random = np.random.default_rng(seed)
    parts: list[list[Any]] = [[], [], []]
    for label in data.classes:
        members = random.permutation(np.flatnonzero(y == label))
        divided = np.split(members, [N_TRAIN, N_TRAIN + N_VALIDATION])
        for part, chosen in zip(parts, divided, strict=True):
            part.append(chosen)
    indices = [np.concatenate(part) for part in parts]
    return Split(*(array[index] for index in indices for array in (X, y)))


# -- classifiers


def neighbor_error(X: Images, y: Labels, X_new: Images, y_new: Labels) -> float:
    """Mistakes of the nearest neighbour, in percent."""
    from sklearn.neighbors import KNeighborsClassifier

    classifier = KNeighborsClassifier(1).fit(X.reshape(len(X), -1), y)
    return 100.0 * float(np.mean(classifier.predict(X_new.reshape(len(X_new), -1)) != y_new))


def network_error(
    X: Images, y: Labels, X_new: Images, y_new: Labels, *, seed: int, n_updates: int = N_UPDATES
) -> float:
    """Mistakes of a small network, in percent, trained for as many updates whatever the data."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    batch = 100
    network = MLPClassifier(
        (128,), batch_size=batch, max_iter=max(1, n_updates * batch // len(X)),
        n_iter_no_change=n_updates, random_state=seed,
    )  # fmt: skip
    with warnings.catch_warnings(), threadpool_limits(1):  # so small, threads would only wait
        warnings.simplefilter("ignore", ConvergenceWarning)  # it ends when it is told to
        network.fit(X.reshape(len(X), -1), y)
    return 100.0 * float(np.mean(network.predict(X_new.reshape(len(X_new), -1)) != y_new))


def compare(split: Split, augmenter: Augmenter, *, seed: int, say: Say) -> tuple[list[Row], Rivals]:
    """Test errors after each kind of training, and the noise that the rival was given."""
    rivals = choose_elastic(split, seed=seed)
    say(
        f"elastic noise does best on the validation digits when {rivals.neighbor} for the nearest "
        f"neighbour, {rivals.network} for the network"
    )
    nothing, learned = (split.X[:0], split.y[:0]), augmenter.sample(N_NEW)
    # What is added to the training digits for the nearest neighbour, and for the network.
    kinds: dict[str, list[Any]] = {
        "training digits alone": [nothing, nothing],
        "with random elastic noise": [deform(split, rival, seed=seed) for rival in rivals],
        "with learned warps": [learned, learned],
    }
    test = split.X_test, split.y_test
    rows = []
    for name, (for_neighbor, for_network) in kinds.items():
        neighbor = neighbor_error(*_join(split, for_neighbor), *test)
        network = network_error(*_join(split, for_network), *test, seed=seed)
        rows.append(Row(name, neighbor, network))
    return rows, rivals


def choose_elastic(split: Split, *, seed: int) -> Rivals:
    """The elastic noise at which each classifier errs least on the validation digits."""
    validation = split.X_validation, split.y_validation
    neighbor, network = {}, {}
    for width in WIDTHS:
        for amplitude in AMPLITUDES:
            elastic = Elastic(width, amplitude)
            X, y = _join(split, deform(split, elastic, seed=seed + 1))
            neighbor[elastic] = neighbor_error(X, y, *validation)
            network[elastic] = network_error(
                X, y, *validation, seed=seed + 1, n_updates=N_UPDATES_TO_CHOOSE
            )
    return Rivals(min(neighbor, key=neighbor.__getitem__), min(network, key=network.__getitem__))


def deform(split: Split, elastic: Elastic, *, seed: int) -> tuple[Images, Labels]:
    """Training digits deformed by elastic noise, ``N_NEW`` of them, and their labels."""
    copies = np.arange(N_NEW) % len(split.X)
    made = deform_elastically(
        split.X[copies], width=elastic.width, amplitude=elastic.amplitude, seed=seed
    )
    return made, split.y[copies]


def _join(split: Split, new: tuple[Images, Labels]) -> tuple[Images, Labels]:
    """The training digits and, after them, new ones."""
    return np.concatenate([split.X, new[0]]), np.concatenate([split.y, new[1]])


def format_table(rows: list[Row]) -> list[str]:
    """The table as lines of text."""
    width = max(len(row.name) for row in rows)
    head = f"{'test error':{width}}  nearest neighbour  small network"
    return [head] + [
        f"{row.name:{width}}  {row.neighbor:15.2f} %  {row.network:11.2f} %" for row in rows
    ]


# -- the page


def write_page(
    output: str | os.PathLike[str],
    split: Split,
    augmenter: Augmenter,
    rows: list[Row],
    rivals: Rivals,
) -> Path:
    """Write what was done, and pictures of it."""
    from dreamwarp.report.page import Page

    page = Page("dreamwarp: learned augmentation of handwritten digits")
    page.text(
        f"{len(split.X)} digits to train on, {N_TRAIN} of each class. Every one is aligned with "
        "its nearest neighbours in its class by smooth, invertible warps; the distribution of "
        f"those warps is learned for each class; {N_NEW:,} new digits are training digits under "
        f"warps drawn from it. Tested on {len(split.X_test):,} other digits."
    )
    page.heading("Does it help?")
    errors = np.array([(row.neighbor, row.network) for row in rows])
    page.table(
        ("training", "nearest neighbour", "small network"),
        [(row.name, f"{row.neighbor:.2f} %", f"{row.network:.2f} %") for row in rows],
        best=errors.argmin(axis=0).tolist(),
    )
    page.text(
        f"Elastic noise was given the best of {len(WIDTHS) * len(AMPLITUDES)} settings on "
        f"{len(split.X_validation)} validation digits: {rivals.neighbor} for the nearest "
        f"neighbour, {rivals.network} for the network. The strength of learned warps, "
        f"{augmenter.strength_:g}, is chosen on the training digits."
    )
    page.text(f"Judged by the training digits alone: {augmenter.verdict_}")
    page.heading("New digits")
    page.figure(draw_versions(split, augmenter), "Top: training digits. Below: new ones from them.")
    page.heading("What was learned")
    page.figure(
        draw_components(split, augmenter),
        "A digit of each class along the first principal component of its class's warps: "
        f"{', '.join(f'{deviation:g}' for deviation in DEVIATIONS)} standard deviations.",
    )
    page.heading("One alignment")
    page.figure(draw_pair(split, augmenter), "A pair of neighbours before and after alignment.")
    return page.save(output)


def draw_versions(split: Split, augmenter: Augmenter) -> Figure:
    """A training digit of each class, and some new ones made from it."""
    firsts = np.array([np.flatnonzero(split.y == label)[0] for label in augmenter.classes_])
    images = [split.X[firsts]]
    for version in range(N_VERSIONS):
        first = version * len(firsts)
        images.append(augmenter.transform(split.X[firsts], split.y[firsts], first=first))
    return _draw_table(images)


def draw_components(split: Split, augmenter: Augmenter) -> Figure:
    """A training digit of each class along the first component of its warps."""
    images = []
    for deviation in DEVIATIONS:
        row = []
        for label in augmenter.classes_:
            components = augmenter.model_.components(int(label))
            theta = deviation * components.standard_deviations[0] * components.directions[:, 0]
            image = split.X[np.flatnonzero(split.y == label)[0]]
            row.append(Warp(augmenter.space_, theta).image(image))
        images.append(np.stack(row))
    return _draw_table(images)


def _draw_table(rows: list[Images]) -> Figure:
    from dreamwarp.report import figures

    figure = figures.new_figure(0.9 * len(rows[0]), 0.9 * len(rows))
    all_axes = figure.subplots(len(rows), len(rows[0]))
    for row, images in enumerate(rows):
        for column, image in enumerate(images):
            figures.prepare_axes(all_axes[row, column])
            figures.draw_image(all_axes[row, column], image)
    return figure


def draw_pair(split: Split, augmenter: Augmenter) -> Figure:
    """The pair whose difference the alignment reduced most."""
    from dreamwarp.report.pairs import draw_alignment

    alignments = augmenter.alignments_
    index = int(np.argmax(alignments.loss_before - alignments.loss_after))
    source, target = augmenter.edges_[index]
    return draw_alignment(
        augmenter.space_, split.X[source], split.X[target], alignments, index=index
    )
