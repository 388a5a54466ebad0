"""DataSet: samples, labels and an optional test part."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.labels import as_labels
from dreamwarp.core.progress import tracked
from dreamwarp.data.guards import check_file, refuse_bomb

Samples = NDArray[Any]
Labels = NDArray[Any]

# Largest number of names that an error lists.
MAX_LISTED = 20
# A sample with fewer rows than this is taken for a series; its rows are the channels.
MIN_ROWS = 8
# Images have at most this many channels; a longer axis is the depth of a volume.
MAX_COLORS = 4
# Folders that hold the test part, beside one named "train".
TEST_NAMES = ("test", "val", "validation")


class Labeled(NamedTuple):
    """Samples ``X`` (n, *spatial) or (n, channels, *spatial) and their labels ``y`` (n,)."""

    X: Samples
    y: Labels


@dataclass(frozen=True, eq=False, repr=False)
class DataSet:
    """Samples and labels, and a test part if the source has one.

    Attributes
    ----------
    X : (n, *spatial) or (n, channels, *spatial)
        Training samples, in the dtype they were stored in.
    y : (n,)
        Training labels: integers or strings.
    n_axes : int or None
        Spatial axes of a sample, if the source states them: 1 for series, 2 images, 3 volumes.
    affine : (4, 4) or None
        For volumes: maps voxel indices to world coordinates in millimetres, as in NIfTI.
    orientation : str or None
        For volumes: directions in which the axes run, "RAS" (right, front, top), if known.
    """

    name: str  # or the path it was read from
    X: Samples
    y: Labels
    test: Labeled | None = None
    n_axes: int | None = field(default=None, kw_only=True)
    affine: NDArray[np.float64] | None = field(default=None, kw_only=True)
    orientation: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "y", check_part(self.name, self.X, self.y))
        if self.test is None:
            return
        X, y = self.test
        object.__setattr__(self, "test", Labeled(X, check_part(f"{self.name} (test)", X, y)))
        if X.shape[1:] != self.X.shape[1:]:
            raise ValueError(
                f"`{self.name}` must have samples of one shape, got {self.X.shape[1:]} for "
                f"training and {X.shape[1:]} for testing."
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
        """The distinct training labels, sorted."""
        return np.unique(self.y)

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """Class of each training sample (n,), an index into ``classes``."""
        return np.searchsorted(self.classes, self.y)

    @property
    def _test(self) -> Labeled:
        if self.test is None:
            raise ValueError(
                f"`{self.name}` has no test part. Hold out some of its {len(self.X):,} samples, "
                "for example with sklearn.model_selection.train_test_split."
            )
        return self.test

    def __repr__(self) -> str:
        return f"<DataSet {self.describe()}>"

    def describe(self) -> str:
        """Name, counts and shape in one line."""
        test = "" if self.test is None else f" + {len(self.test.X):,} test"
        n_classes = len(self.classes)
        return (
            f"{self.name}: {len(self.X):,}{test} samples of "
            f"{' x '.join(map(str, self.X.shape[1:]))} {self.X.dtype}, "
            f"{n_classes} class{'' if n_classes == 1 else 'es'}"
        )


def check_part(name: str, X: Samples, y: ArrayLike) -> Labels:
    """Return the labels (n,) of samples (n, ...); raise if either is invalid."""
    if X.ndim < 2 or X.size == 0 or X.dtype.kind not in "buif":
        raise ValueError(
            f"`{name}` must hold at least one sample of real numbers, with shape (n, *spatial) or "
            f"(n, channels, *spatial), got {X.dtype} of shape {X.shape}."
        )
    labels = as_labels(y, len(X), f"labels of `{name}`")
    # Most file formats have no booleans.
    return labels.astype(np.int64) if labels.dtype.kind == "b" else labels


def count_spatial_axes(data: DataSet) -> int:
    """1 for series, 2 for images, 3 for volumes: as the source states, else by the shape."""
    return data.n_axes if data.n_axes is not None else guess_axes(data.X.shape[1:])


def guess_axes(shape: Sequence[int]) -> int:
    """Most likely number of spatial axes of samples of a shape.

    A first axis of few entries counts as channels: at most 7 of a series, at most 4 of an image.

    Examples
    --------
    >>> [guess_axes(s) for s in ((150,), (1, 150), (28, 28), (3, 64, 64), (28, 28, 28))]
    [1, 1, 2, 2, 3]
    """
    if len(shape) == 1:
        return 1
    if len(shape) == 2:
        return 1 if shape[0] < MIN_ROWS < shape[1] else 2
    return 2 if len(shape) == 3 and shape[0] <= MAX_COLORS else 3


# -- parts read from several files


def split_off_test(name: object, X: Samples, y: Labels, n_train: int, **more: Any) -> DataSet:
    """The first ``n_train`` samples as a data set; the others, if any, are its test part."""
    test = Labeled(X[n_train:], y[n_train:]) if n_train < len(X) else None
    return DataSet(str(name), X[:n_train], y[:n_train], test, **more)


def read_files(
    path: str | os.PathLike[str], *, suffix: str, read_fn: Callable[..., Labeled], **options: Any
) -> DataSet:
    """Samples of one file, or of all files of a folder with a suffix, sorted by name."""
    given = Path(path)
    files = sorted(given.glob(f"*{suffix}")) if given.is_dir() else [given]
    if not files:
        raise FileNotFoundError(f"`{given}` must hold {suffix} files, got none.")
    parts = [
        read_fn(check_file(file), **options) for file in tracked(files, len(files), "reading files")
    ]
    return DataSet(str(given), *join_labeled(str(given), parts))


def join_labeled(name: str, parts: Sequence[Labeled]) -> Labeled:
    """Concatenate parts; raise if their samples or labels differ in kind."""
    if len(parts) == 1:
        return parts[0]
    check_forms(name, ((X.dtype, X.shape[1:]) for X, _ in parts))
    labels = [y for _, y in parts]
    if len({y.dtype.kind in "SU" for y in labels}) > 1:
        raise ValueError(f"`{name}` must have labels of one type, got both strings and numbers.")
    _refuse_wide(name, [(y.dtype.itemsize, len(y)) for y in labels])
    X, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Labeled(X, y)


def as_words(name: object, words: Sequence[str]) -> Labels:
    """Strings as an array; raise if it would take too much memory."""
    _refuse_wide(name, [(4 * len(word), 1) for word in words])
    return np.array(words, str)


def _refuse_wide(name: object, labels: Sequence[tuple[int, int]]) -> None:
    """Raise if labels, given as (bytes, count), would take too much memory as one array.

    In an array, every label takes as much memory as the longest.
    """
    refuse_bomb(
        f"{name} (labels)",
        packed=sum(width * n for width, n in labels),
        unpacked=max(width for width, _ in labels) * sum(n for _, n in labels),
        remedy="shorten the longest label",
    )


def check_forms(name: object, forms: Iterable[tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
    """Raise if samples have different dtypes or shapes."""
    found = sorted({f"{dtype} {shape}" for dtype, shape in forms})
    if len(found) > 1:
        raise ValueError(
            f"`{name}` must have samples of one dtype and shape throughout, got "
            f"{list_some(found, 5)}. Convert or resize them first."
        )


def choose_field(where: object, found: Collection[str], usual: Sequence[str], what: str) -> str:
    """The first name in ``usual`` that is in ``found``. ``what``: samples or labels, for errors."""
    for name in usual:
        if name in found:
            return name
    raise ValueError(
        f"`{where}` has no {what} under a known name ({', '.join(usual)}). It has: "
        f"{list_some([name[:40] for name in found])}. Name samples and labels with `--fields A,B` "
        "(`fields=('A', 'B')`)."
    )


def list_some(names: Collection[str], n_most: int = MAX_LISTED) -> str:
    """The first names, separated by commas."""
    few = ", ".join(list(names)[:n_most])
    return f"{few}, ..." if len(names) > n_most else few or "nothing"


# -- a folder of files per class


def list_classes(
    root: Path,
    suffixes: tuple[str, ...],
    what: str,
    *,
    refused: tuple[str, ...] = (),
    numbered: bool = False,
) -> tuple[list[Path], NDArray[Any], int]:
    """Files sorted by name, their classes, and how many are training files; those are first.

    If ``root`` holds ``train`` and ``test`` (or ``val``), each with a folder per class, the second
    is the test part. Suffixes in ``refused`` raise an error; others than ``suffixes`` are ignored.
    If ``numbered``, files are sorted by number over all classes, and every folder is a class, even
    ``train`` and ``test``.
    """

    def list_files(folder: Path) -> list[Path]:
        files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
        for file in files:
            if has_suffix(file, refused):
                raise ValueError(
                    f"`{file}` is not supported: {what} must end in "
                    f"{' or '.join(suffixes)}. Convert or remove it."
                )
        return [file for file in files if has_suffix(file, suffixes)]

    def list_part(part: Path) -> list[Path]:
        folders = sorted(p for p in part.iterdir() if p.is_dir() and not p.name.startswith("."))
        listed = [file for folder in folders for file in list_files(folder)]
        if not listed:
            raise ValueError(
                f"`{part}` must hold a folder of {what} ({', '.join(suffixes)}) per class, got "
                "none."
            )
        return listed

    parts = [root]
    if not numbered and (root / "train").is_dir() and not list_files(root / "train"):
        tests = [root / name for name in TEST_NAMES if (root / name).is_dir()]
        parts = [root / "train", *tests[:1]]
    listed = [list_part(part) for part in parts]
    if numbered:
        # Numbers are padded with zeros; longer ones are larger.
        listed[0].sort(key=lambda file: (len(file.name), file.name))
    files = [file for part in listed for file in part]
    return files, np.array([file.parent.name for file in files]), len(listed[0])


def has_class_folders(root: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether any folder in ``root``, or any folder in those, holds such files."""
    return any(
        has_suffix(file, suffixes) for pattern in ("*/*", "*/*/*") for file in root.glob(pattern)
    )


def has_suffix(file: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether a name ends in one of ``suffixes``, in any case."""
    return file.name.lower().endswith(suffixes)
