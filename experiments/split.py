"""The paper's division of the training images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# The paper holds out the last images of the training part for validation.
N_VALIDATION = 10_000


@dataclass(frozen=True, eq=False)
class PaperSplit:
    """Indices of the paper's division of a training part.

    Attributes
    ----------
    train : (n_train,)
        For training: 0, 1, ..., 49999 of MNIST's 60,000.
    validation : (n_validation,)
        For the choice of settings: 50000, ..., 59999.
    few : (n_classes * n_per_class,)
        The small training set ("500"), a subset of ``train``, sorted.
    """

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    few: NDArray[np.int64]


def paper_split(
    y: ArrayLike,
    n_per_class: int = 500,
    *,
    seed: int | np.random.Generator | None = None,
    n_validation: int = N_VALIDATION,
) -> PaperSplit:
    """The paper's division of the training images. Its test images are those of the data set.

    Parameters
    ----------
    y : (n,)
        Labels of the training images, in the order of the files.
    n_per_class : int
        Images per class in the small training set.
    seed : int, Generator or None
        ``None``: the first ``n_per_class`` training images of each class. Otherwise they are drawn
        without replacement; with the same seed, a smaller draw is part of a larger one.
    n_validation : int
        Images held out at the end: 10,000 in the paper.

    Examples
    --------
    >>> split = paper_split([0, 1, 0, 1, 1, 0, 0, 1], 1, n_validation=2)
    >>> split.train, split.validation, split.few
    (array([0, 1, 2, 3, 4, 5]), array([6, 7]), array([0, 1]))
    """
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"`y` must be labels of shape (n,), got shape {labels.shape}.")
    if n_per_class < 1:
        raise ValueError(f"`n_per_class` must be at least 1, got {n_per_class}.")
    if not 0 <= n_validation < len(labels):
        raise ValueError(
            f"`n_validation` must be at least 0 and less than the number of labels, "
            f"{len(labels)}, got {n_validation}."
        )
    n_train = len(labels) - n_validation
    few = _choose_few(labels[:n_train], n_per_class, seed)
    return PaperSplit(np.arange(n_train), np.arange(n_train, len(labels)), few)


def _choose_few(
    labels: NDArray[Any], n_per_class: int, seed: int | np.random.Generator | None
) -> NDArray[np.int64]:
    classes = np.unique(labels)
    # One generator per class, so that classes do not affect each other's draws.
    generators = (
        [None] * len(classes) if seed is None else np.random.default_rng(seed).spawn(len(classes))
    )
    chosen = []
    for label, generator in zip(classes, generators, strict=True):
        members = np.flatnonzero(labels == label)
        if len(members) < n_per_class:
            raise ValueError(
                f"`n_per_class` must be at most {len(members)}, the number of training images of "
                f"class {label}, got {n_per_class}."
            )
        order = members if generator is None else generator.permutation(members)
        chosen.append(order[:n_per_class])
    return np.sort(np.concatenate(chosen))
