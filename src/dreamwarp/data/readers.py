"""``load`` reads data of all supported kinds."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.files import is_address, local_copy
from dreamwarp.core.samples import are_channels_last
from dreamwarp.data import images, meshes, numpy_files, series, volumes
from dreamwarp.data.dataset import DataSet, Labeled, has_class_folders, has_suffix
from dreamwarp.data.idx import is_idx, list_images, read_idx_set
from dreamwarp.data.named import NAMED
from dreamwarp.data.parquet import read_parquet
from dreamwarp.data.sample_sets import find_set
from dreamwarp.data.webdataset import read_webdataset

ACCEPTED = (
    f"a name ({', '.join(NAMED)}); a folder with a folder per class of images (PNG, JPEG, TIFF, "
    "WebP), NIfTI volumes or meshes (.obj, .ply, .stl); IDX files, plain or gzip; .npz; X.npy with "
    "y.npy beside it; .parquet; .tar of WebDataset; .ts, .tsv or .txt of time series; a folder of "
    "one of these; or the output of `dreamwarp sample`, in any format"
)


@dataclass(frozen=True)
class DataKind:
    """A kind of data: its reader, and the options of the reader."""

    title: str
    read_fn: Callable[..., DataSet]
    options: tuple[str, ...] = ()


NAME = DataKind("named data sets", lambda name: NAMED[name]())
IDX = DataKind("IDX files", read_idx_set)
PICTURES = DataKind("image folders", images.read_folder, ("resize",))
NPZ = DataKind(".npz files", numpy_files.read_npz, ("fields", "shape"))
NPY = DataKind(".npy files", numpy_files.map_npy, ("fields", "shape"))
PARQUET = DataKind("Parquet files", read_parquet, ("fields", "resize", "shape"))
WEBDATASET = DataKind("WebDataset files", read_webdataset, ("fields", "resize", "shape"))
SERIES = DataKind("time series", series.read_series, ("missing", "pad"))
VOLUMES = DataKind("folders of NIfTI volumes", volumes.read_nifti_folder, ("resize",))
MESHES = DataKind("folders of meshes", meshes.refuse_as_arrays)
DATA_KINDS = (NAME, IDX, PICTURES, NPZ, NPY, PARQUET, WEBDATASET, SERIES, VOLUMES, MESHES)
# Sets written by `generate`, by format.
SET_KINDS = {
    "idx": IDX,
    "npz": NPZ,
    "parquet": PARQUET,
    "webdataset": WEBDATASET,
    "folder": replace(PICTURES, read_fn=partial(images.read_folder, numbered=True)),
    "nifti": replace(VOLUMES, read_fn=partial(volumes.read_nifti_folder, numbered=True)),
}
# Kinds by the suffix of a file. If a folder holds several, the first is read.
SUFFIXES = {
    ".npy": NPY,
    ".npz": NPZ,
    ".parquet": PARQUET,
    ".tar": WEBDATASET,
    ".ts": SERIES,
    ".tsv": SERIES,
    ".txt": SERIES,
}
# Kinds with a folder per class, and the suffixes of their files.
CLASS_FOLDERS = (
    (VOLUMES, volumes.SUFFIXES),
    (MESHES, meshes.SUFFIXES),
    (PICTURES, images.SUFFIXES + images.OTHER_SUFFIXES),
)
# Kinds that can be read from URLs. Not .npy: its labels are in another file.
SINGLE_FILES = tuple(suffix for suffix in SUFFIXES if suffix != ".npy")


def load(
    source: str | os.PathLike[str],
    *,
    fields: tuple[str, str] | None = None,
    shape: tuple[int, ...] | None = None,
    resize: tuple[int, ...] | None = None,
    pad: series.Pad | None = None,
    missing: series.Missing | None = None,
) -> DataSet:
    """Read samples and labels.

    Parameters
    ----------
    source : str or path
        The name of a data set (``"mnist"``, ``"mnist-small"``, ``"fashion-mnist"``,
        ``"digits"``), or a path: a folder with a folder per class of PNG, JPEG, TIFF or WebP
        images or of NIfTI volumes (``.nii``, ``.nii.gz``); IDX files, plain or gzip; ``.npz``;
        ``X.npy`` with ``y.npy`` beside it; ``.parquet``; ``.tar`` of WebDataset; ``.ts``, ``.tsv``
        or ``.txt``; or a folder of one of these. A folder written by :func:`generate` or
        ``dreamwarp sample`` is read as a whole, in any format, with samples in the order of their
        numbers. Write a path that is also a name as ``./mnist``, or pass a ``pathlib.Path``. A
        single ``.npz``, ``.parquet``, ``.tar``, ``.ts``, ``.tsv`` or ``.txt`` file may be at a URL
        that fsspec supports, such as ``s3://bucket/data.npz``; it is copied while it is read.
    fields : (str, str)
        Names of samples and labels in ``.npz`` and Parquet files, of two ``.npy`` files, or their
        endings in WebDataset files.
    shape : tuple of int
        Shape of one sample, for samples stored flat in ``.npz``, ``.npy``, Parquet and WebDataset
        files.
    resize : (rows, columns), or (x, y, z) for volumes
        Resize images or volumes to this size.
    pad : {"edge", "zero", "stretch"}
        Extend time series to the length of the longest: repeat the last value, append zeros, or
        interpolate over the whole length.
    missing : {"interpolate"}
        Interpolate missing values of time series. Without it, they are an error.

    Returns
    -------
    DataSet
        Samples (n, *spatial) or (n, channels, *spatial), in the stored dtype. Up to 4 channels
        of series or images, stored last, are moved before the spatial axes. ``.npy`` samples are
        memory-mapped.

    Notes
    -----
    Files may be malicious: sizes are checked before memory is allocated, and nothing is unpickled.
    """
    given: dict[str, Any] = {
        "fields": fields, "shape": shape, "resize": resize, "pad": pad, "missing": missing,
    }  # fmt: skip
    options = {name: value for name, value in given.items() if value is not None}
    if is_address(source):
        if not str(source).lower().endswith(SINGLE_FILES):
            raise ValueError(
                f"`{source}` is an address: data at an address must be one file, "
                f"{', '.join(SINGLE_FILES)}. Copy folders and pairs of files to this machine first."
            )
        with local_copy(source) as copy:
            return replace(load(copy, **options), name=str(source))
    found = find_set(source) if os.fspath(source) and not _is_name(source) else None
    kind = find_kind(source) if found is None else SET_KINDS[found.format]
    for name in options:
        if name not in kind.options:
            takers = ", ".join(other.title for other in DATA_KINDS if name in other.options)
            raise ValueError(
                f"`--{name}` (`{name}`) is for {takers}; `{source}` is read as {kind.title}. Leave "
                "it out."
            )
    sample_shape = options.pop("shape", None)
    data = kind.read_fn(source, **options)
    if found is not None:
        data = found.restore(data, is_resized="resize" in options)
    if sample_shape is not None:
        data = _map_samples(data, lambda X: _reshape(data.name, X, sample_shape))
    # A manifest states the shape: channels need not be guessed.
    return _map_samples(data, _move_channels) if "shape" in kind.options and found is None else data


def find_kind(source: str | os.PathLike[str]) -> DataKind:
    """The kind of data at a name or path."""
    if not os.fspath(source):
        raise ValueError(f"the data must have a name, got an empty one. Data can be {ACCEPTED}.")
    if _is_name(source):
        return NAME
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(
            f"`{source}` is neither the name of a data set nor a file or folder. Data can be "
            f"{ACCEPTED}."
        )
    if path.is_dir():
        kind = _find_folder_kind(path)
    else:
        kind = SUFFIXES.get(path.suffix.lower()) or (IDX if is_idx(path) else None)
    if kind is None:
        _refuse_without_classes(path)
        raise ValueError(f"`{source}` holds no data that can be read. Data can be {ACCEPTED}.")
    return kind


def are_meshes(source: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder of meshes, which :func:`load` can't read."""
    is_folder = not _is_name(source) and not is_address(source) and Path(source).is_dir()
    return is_folder and find_set(source) is None and _find_folder_kind(Path(source)) is MESHES


def _is_name(source: str | os.PathLike[str]) -> bool:
    return isinstance(source, str) and source in NAMED


def _find_folder_kind(path: Path) -> DataKind | None:
    if list_images(path):
        return IDX
    for suffix, kind in SUFFIXES.items():
        # Other text files may be notes.
        if any(path.glob(f"*_TRAIN{suffix}" if kind is SERIES else f"*{suffix}")):
            return kind
    for kind, suffixes in CLASS_FOLDERS:
        if has_class_folders(path, suffixes):
            return kind
    return None


def _refuse_without_classes(path: Path) -> None:
    """Raise if a folder holds files that belong into a folder per class."""
    suffixes = tuple(suffix for _, some in CLASS_FOLDERS for suffix in some)
    files = sorted(path.iterdir()) if path.is_dir() else []
    for file in files:
        if has_suffix(file, suffixes):
            raise ValueError(
                f"`{path}` must hold a folder per class, and holds `{file.name}` itself. Put the "
                "files of each class into a folder with the name of the class, such as "
                f"`{path / 'CLASS' / file.name}`."
            )


def _map_samples(data: DataSet, function: Callable[[NDArray[Any]], NDArray[Any]]) -> DataSet:
    """Apply a function to the samples of both parts."""
    test = data.test and Labeled(function(data.test.X), data.test.y)
    return replace(data, X=function(data.X), test=test)


def _reshape(name: str, X: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if min(shape, default=0) < 1 or np.prod(shape) != X[0].size:
        raise ValueError(
            f"`--shape` (`shape`) must have as many values as a sample of `{name}`, "
            f"{X[0].size}, got {shape}."
        )
    return X.reshape(len(X), *shape)


def _move_channels(X: NDArray[Any]) -> NDArray[Any]:
    """Move channels before the axes of series or images, if they seem to be last."""
    if are_channels_last(X.shape[1:], 1) or are_channels_last(X.shape[1:], 2):
        X = np.moveaxis(X, -1, 1)
        X = X if isinstance(X, np.memmap) else np.ascontiguousarray(X)
    return X
