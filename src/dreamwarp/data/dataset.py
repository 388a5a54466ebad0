"""DataSet: samples, their labels, and a test part if there is one. Also the paper's split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.labels import as_labels
from dreamwarp.data.guards import refuse_bomb

Samples = NDArray[Any]
Labels = NDArray[Any]

# The paper holds out the last images of the training part for validation.
N_VALIDATION = 10_000
# Types and shapes that an error lists, at most.
MAX_LISTED = 5


class Part(NamedTuple):
    """Samples ``X`` (n, *spatial) or (n, channels, *spatial) and their labels ``y`` (n,)."""

    X: Samples
    y: Labels


@dataclass(frozen=True, eq=False, repr=False)
class DataSet:
    """Samples and labels, and a test part where the source has one.

    Attributes
    ----------
    name : str
        Of the data set, or where it was read.
    X : (n, *spatial) or (n, channels, *spatial)
        Samples to learn from, in the type they were stored in.
    y : (n,)
        Their labels: integers or strings.
    test : Part or None
        Samples and labels to test with.
    n_axes : int or None
        Spatial axes of a sample, where the source says: 1 for series, 2 images, 3 volumes.
    affine : (4, 4) or None
        Of volumes: from voxel to world coordinates, in millimetres, as NIfTI has them.
    """

    name: str
    X: Samples
    y: Labels
    test: Part | None = None
    n_axes: int | None = field(default=None, kw_only=True)
    affine: NDArray[np.float64] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "y", check_part(self.name, self.X, self.y))
        if self.test is None:
            return
        X, y = self.test
        object.__setattr__(self, "test", Part(X, check_part(f"{self.name} (test)", X, y)))
        if X.shape[1:] != self.X.shape[1:]:
            raise ValueError(
                f"`{self.name}` must have samples of one shape, got {self.X.shape[1:]} to learn "
                f"from and {X.shape[1:]} to test with."
            )

    @property
    def X_test(self) -> Samples:
        """Test samples (n_test, ...)."""
        return self._test.X

    @property
    def y_test(self) -> Labels:
        """Test labels (n_test,)."""
        return self._test.y

    @cached_property
    def classes(self) -> Labels:
        """The labels to learn from, once each, in order."""
        return np.unique(self.y)

    @property
    def _test(self) -> Part:
        if self.test is None:
            raise ValueError(
                f"`{self.name}` has no test part. Hold some of its {len(self.X):,} samples out, "
                "for example with sklearn.model_selection.train_test_split."
            )
        return self.test

    def __repr__(self) -> str:
        return f"<DataSet {self.describe()}>"

    def describe(self) -> str:
        """Name, counts and shape, in a line."""
        test = "" if self.test is None else f" + {len(self.test.X):,} test"
        n_classes = len(self.classes)
        return (
            f"{self.name}: {len(self.X):,}{test} samples of "
            f"{' x '.join(map(str, self.X.shape[1:]))} {self.X.dtype}, "
            f"{n_classes} class{'' if n_classes == 1 else 'es'}"
        )


def join_parts(name: str, parts: Sequence[Part]) -> Part:
    """Parts of one data set, such as shards, one after the other."""
    if len(parts) == 1:
        return parts[0]
    check_forms(name, ((X.dtype, X.shape[1:]) for X, _ in parts))
    labels = [y for _, y in parts]
    if len({y.dtype.kind in "SU" for y in labels}) > 1:
        raise ValueError(
            f"`{name}` must have labels of one kind throughout, and has both words and numbers."
        )
    _refuse_wide(name, [(y.dtype.itemsize, len(y)) for y in labels])
    X, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Part(X, y)


def as_words(name: object, words: Sequence[str]) -> Labels:
    """Strings as an array."""
    _refuse_wide(name, [(4 * len(word), 1) for word in words])
    return np.array(words, str)


def _refuse_wide(name: object, labels: Sequence[tuple[int, int]]) -> None:
    """Raise if labels, by bytes of each and count, would take too much memory as an array.

    An array takes as much memory for each label as for the longest.
    """
    refuse_bomb(
        f"{name} (labels)",
        packed=sum(width * n for width, n in labels),
        unpacked=max(width for width, _ in labels) * sum(n for _, n in labels),
        remedy="shorten the longest label",
    )


def check_forms(name: object, forms: Iterable[tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
    """Raise if parts have samples of different types or shapes."""
    found = sorted({f"{dtype} {shape}" for dtype, shape in forms})
    if len(found) > 1:
        more = ", ..." if len(found) > MAX_LISTED else ""
        raise ValueError(
            f"`{name}` must have samples of one type and shape throughout, got "
            f"{', '.join(found[:MAX_LISTED])}{more}."
        )


def check_part(name: str, X: Samples, y: ArrayLike) -> Labels:
    """The labels (n,) of samples (n, ...); raise if either is malformed."""
    if X.ndim < 2 or X.size == 0 or X.dtype.kind not in "buif":
        raise ValueError(
            f"`{name}` must hold samples of shape (n, *spatial) or (n, channels, *spatial), of "
            f"real numbers, at least one of them, got {X.dtype} of shape {X.shape}."
        )
    labels = as_labels(y, len(X), f"labels of `{name}`")
    # Files know no booleans.
    return labels.astype(np.int64) if labels.dtype.kind == "b" else labels


# -- the paper's split


@dataclass(frozen=True, eq=False)
class PaperSplit:
    """Indices into a training part, as the paper divides it.

    Attributes
    ----------
    train : (n_train,)
        To learn from: 0, 1, ..., 49999 of MNIST's 60,000.
    validation : (n_validation,)
        To choose settings by: 50000, ..., 59999.
    few : (n_classes * n_per_class,)
        The small training set ("500"), a part of ``train``, in ascending order.
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
    """The paper's division of the training images; its test images are the data set's own.

    Parameters
    ----------
    y : (n,)
        Labels of the training images, in the order of the files.
    n_per_class : int
        Images per class in the small training set.
    seed : int, Generator or None
        ``None``: the first ``n_per_class`` images of each class among the training images. Else
        they are drawn without replacement; a smaller draw with the same seed is part of a larger.
    n_validation : int
        Images at the end that are held out: 10,000 in the paper.

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
    labels: Labels, n_per_class: int, seed: int | np.random.Generator | None
) -> NDArray[np.int64]:
    classes = np.unique(labels)
    # One generator per class: draws of a class do not depend on other classes.
    generators = (
        [None] * len(classes) if seed is None else np.random.default_rng(seed).spawn(len(classes))
    )
    chosen = []
    for label, generator in zip(classes, generators, strict=True):
        members = np.flatnonzero(labels == label)
        if len(members) < n_per_class:
            raise ValueError(
                f"`n_per_class` must be at most {len(members)}, as many as class {label} has among "
                f"the training images, got {n_per_class}."
            )
        order = members if generator is None else generator.permutation(members)
        chosen.append(order[:n_per_class])
    return np.sort(np.concatenate(chosen))
