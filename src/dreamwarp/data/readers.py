"""``load``: reads data of all kinds."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.files import is_address, local_copy
from dreamwarp.core.samples import are_channels_last
from dreamwarp.data import images, meshes, numpy_files, series, volumes
from dreamwarp.data.class_folders import has_class_folders
from dreamwarp.data.dataset import DataSet, Part
from dreamwarp.data.idx import is_idx
from dreamwarp.data.idx_sets import list_images, read_idx_set
from dreamwarp.data.named import NAMED, load_named
from dreamwarp.data.parquet import read_parquet
from dreamwarp.data.sample_sets import find_set
from dreamwarp.data.webdataset import read_webdataset

ACCEPTED = (
    f"a name ({', '.join(NAMED)}); a folder with a folder per class of pictures (PNG, JPEG, TIFF, "
    "WebP), NIfTI volumes or meshes (.obj, .ply, .stl); IDX files, plain or gzip; .npz; X.npy with "
    "y.npy beside it; .parquet; .tar as of WebDataset; .ts or .tsv; a folder of one of these; or "
    "what `dreamwarp sample` wrote, in any format"
)


@dataclass(frozen=True)
class Kind:
    """A kind of data: what reads it, and which options that takes."""

    title: str
    read_fn: Callable[..., DataSet]
    options: tuple[str, ...] = ()


NAME = Kind("named data sets", load_named)
IDX = Kind("IDX files", read_idx_set, ("memory_map",))
PICTURES = Kind("image folders", images.read_folder, ("resize",))
NPZ = Kind(".npz files", numpy_files.read_npz, ("fields", "shape"))
NPY = Kind(".npy files", numpy_files.map_npy, ("fields", "shape"))
PARQUET = Kind("Parquet files", read_parquet, ("fields", "resize", "shape"))
WEBDATASET = Kind("WebDataset files", read_webdataset, ("fields", "resize", "shape"))
SERIES = Kind("time series", series.read_series, ("missing", "pad"))
VOLUMES = Kind("folders of NIfTI volumes", volumes.read_nifti_folder, ("resize",))
MESHES = Kind("folders of meshes", meshes.refuse_as_arrays)
KINDS = (NAME, IDX, PICTURES, NPZ, NPY, PARQUET, WEBDATASET, SERIES, VOLUMES, MESHES)
# Sets that `generate` wrote, by their format.
SET_KINDS = {
    "idx": IDX,
    "npz": NPZ,
    "parquet": PARQUET,
    "webdataset": WEBDATASET,
    "folder": replace(PICTURES, read_fn=images.read_numbered),
}
# What is read from addresses: the other kinds have labels beside, or many files.
SINGLE_FILES = (".npz", ".parquet", ".tar", ".ts", ".tsv")
SUFFIXES = {
    ".npz": NPZ,
    ".npy": NPY,
    ".parquet": PARQUET,
    ".tar": WEBDATASET,
    ".ts": SERIES,
    ".tsv": SERIES,
}


def load(
    source: str | os.PathLike[str],
    *,
    fields: tuple[str, str] | None = None,
    shape: tuple[int, ...] | None = None,
    resize: tuple[int, ...] | None = None,
    pad: series.Pad | None = None,
    missing: series.Missing | None = None,
    memory_map: bool = False,
) -> DataSet:
    """Samples and labels, from whatever ``source`` is.

    Parameters
    ----------
    source : str or path
        The name of a data set (``"mnist"``, ``"mnist-small"``, ``"fashion-mnist"``,
        ``"digits"``), or a path: a folder with a folder per class of PNG, JPEG, TIFF or WebP
        pictures or of NIfTI volumes (``.nii``, ``.nii.gz``); IDX files, plain or gzip; ``.npz``;
        ``X.npy`` with ``y.npy`` beside it; ``.parquet``; ``.tar`` as of WebDataset; ``.ts``,
        ``.tsv`` or ``.txt``; or a folder of one of these. The folder of a set that
        :func:`generate` or ``dreamwarp sample`` wrote is read as a whole, whatever its format:
        samples and labels as they were made, in their order. A path that is also a name is written
        ``./mnist``, or given as a ``pathlib.Path``. A single ``.npz``, ``.parquet``, ``.tar``,
        ``.ts`` or ``.tsv`` file may also be at an address that fsspec knows, such as
        ``s3://bucket/data.npz``: it is copied for the time of reading.
    fields : (str, str)
        Names of samples and labels in ``.npz`` and Parquet files, of two ``.npy`` files, or the
        endings of both in WebDataset files.
    shape : tuple of int
        Shape of one sample, for samples stored flat in ``.npz``, ``.npy``, Parquet and WebDataset
        files.
    resize : (rows, columns), or (x, y, z) for volumes
        Bring pictures or volumes to one size.
    pad : {"edge", "zero", "stretch"}
        Bring time series to the length of the longest, by their last value, by zeros or by
        interpolation over the whole length.
    missing : {"interpolate"}
        Fill in missing values of time series; without it they are refused.
    memory_map : bool
        Leave plain IDX images on disk, and read what is touched. ``.npy`` samples always are.

    Returns
    -------
    DataSet
        Samples (n, *spatial) or (n, channels, *spatial), in the type they are stored in. Images
        whose channels, 4 at most, are stored last have them moved.

    Raises
    ------
    ValueError, OSError
        If there is no such data or it is not sound. Files are taken for hostile: sizes are checked
        before memory is taken, and nothing pickled is opened.
    """
    if is_address(source):
        check_address(str(source))
        with local_copy(source) as copy:
            data = load(
                copy, fields=fields, shape=shape, resize=resize, pad=pad, missing=missing,
                memory_map=memory_map,
            )  # fmt: skip
        return replace(data, name=str(source))
    found = find_set(source) if os.fspath(source) and not _is_name(source) else None
    kind = find_kind(source) if found is None else SET_KINDS[found.format]
    given: dict[str, Any] = {
        "fields": fields,
        "shape": shape,
        "resize": resize,
        "pad": pad,
        "missing": missing,
        "memory_map": memory_map or None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if name not in kind.options:
            takers = ", ".join(other.title for other in KINDS if name in other.options)
            words = f"`{name}`" if name == "memory_map" else f"`--{name}` (`{name}`)"
            raise ValueError(
                f"{words} is for {takers}; `{source}` counts among {kind.title}. Leave it out."
            )
    sample_shape = options.pop("shape", None)
    data = kind.read_fn(source, **options)
    if found is not None:
        data = found.restore(data, is_resized="resize" in options)
    if sample_shape is not None:
        data = _arrange(data, lambda X: _reshape(data.name, X, sample_shape))
    # A manifest states shapes, so channels need not be guessed.
    return _arrange(data, _move_colors) if "shape" in kind.options and found is None else data


def check_address(address: str) -> None:
    """Raise if an address is not of a single file."""
    if not address.lower().endswith(SINGLE_FILES):
        raise ValueError(
            f"`{address}` is an address, and data at addresses must be one file: "
            f"{', '.join(SINGLE_FILES)}. Copy folders and pairs of files to this machine first."
        )


def find_kind(source: str | os.PathLike[str]) -> Kind:
    """What kind of data a name or path is."""
    if not os.fspath(source):
        raise ValueError(f"data must be given, and the name is empty. Data can be {ACCEPTED}.")
    if _is_name(source):
        return NAME
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(
            f"`{source}` is neither the name of a data set nor a file or folder. Data can be "
            f"{ACCEPTED}."
        )
    kind = _find_folder_kind(path) if path.is_dir() else _find_file_kind(path)
    if kind is None:
        raise ValueError(f"`{source}` holds no data that can be read. Data can be {ACCEPTED}.")
    return kind


def are_meshes(source: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder of meshes, which :func:`load` does not read."""
    is_folder = not _is_name(source) and not is_address(source) and Path(source).is_dir()
    return is_folder and find_set(source) is None and _find_folder_kind(Path(source)) is MESHES


def _is_name(source: str | os.PathLike[str]) -> bool:
    return isinstance(source, str) and source in NAMED


def _find_file_kind(path: Path) -> Kind | None:
    kind = SUFFIXES.get(path.suffix.lower())
    return IDX if kind is None and is_idx(path) else kind


def _find_folder_kind(path: Path) -> Kind | None:
    if list_images(path):
        return IDX
    for kind, pattern in (
        (NPY, "*.npy"),
        (NPZ, "*.npz"),
        (PARQUET, "*.parquet"),
        (WEBDATASET, "*.tar"),
        (SERIES, "*_TRAIN.ts"),
        (SERIES, "*_TRAIN.tsv"),
        (SERIES, "*_TRAIN.txt"),
    ):
        if any(path.glob(pattern)):
            return kind
    for kind, suffixes in ((VOLUMES, volumes.SUFFIXES), (MESHES, meshes.SUFFIXES)):
        if has_class_folders(path, suffixes):
            return kind
    return PICTURES if images.is_image_folder(path) else None


def _arrange(data: DataSet, arrange_fn: Callable[[NDArray[Any]], NDArray[Any]]) -> DataSet:
    """The samples of both parts, arranged."""
    test = data.test and Part(arrange_fn(data.test.X), data.test.y)
    return replace(data, X=arrange_fn(data.X), test=test)


def _reshape(name: str, X: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if min(shape, default=0) < 1 or np.prod(shape) != X[0].size:
        raise ValueError(
            f"`--shape` (`shape`) must have as many values as a sample of `{name}`, "
            f"{X[0].size}, got {shape}."
        )
    return X.reshape(len(X), *shape)


def _move_colors(X: NDArray[Any]) -> NDArray[Any]:
    """Samples with their channels before their spatial axes."""
    if are_channels_last(X.shape[1:], 2):
        X = np.moveaxis(X, -1, 1)
        X = X if isinstance(X, np.memmap) else np.ascontiguousarray(X)
    return X
