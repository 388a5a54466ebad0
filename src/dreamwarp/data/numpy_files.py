"""NumPy's files: ``.npy`` as memory maps, ``.npz`` archives. Nothing pickled is ever opened."""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Collection
from io import BufferedIOBase
from pathlib import Path
from tokenize import TokenError
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dreamwarp.data import guards
from dreamwarp.data.dataset import DataSet, Labeled, list_some, read_files

# Names of samples, labels, test samples and test labels: ours, then those of Keras, MedMNIST and
# others.
FIELD_NAMES = (
    ("X", "y", "X_test", "y_test"),
    ("X_train", "y_train", "X_test", "y_test"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("x", "y", "x_test", "y_test"),
    ("images", "labels", "images_test", "labels_test"),
    ("data", "target", "data_test", "target_test"),
    ("arr_0", "arr_1", "arr_2", "arr_3"),
)
# Headers of plain arrays of 32 axes take less than a thousand bytes.
MAX_HEADER = 4096
# Booleans, integers, floats, bytes and strings; no pickled objects and no records.
PLAIN_KINDS = "biufSU"
# What NumPy raises for malformed headers, which it parses as Python. Warnings may be errors.
HEADER_ERRORS = (
    ValueError, TypeError, SyntaxError, LookupError, AttributeError, ArithmeticError, MemoryError,
    RecursionError, TokenError, Warning,
)  # fmt: skip


# What zipfile raises for malformed archives: unknown compression, encryption, impossible sizes.
ZIP_ERRORS = (
    zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OverflowError, struct.error,
    zlib.error,
)  # fmt: skip


class NpyHeader(NamedTuple):
    """Header of a ``.npy`` file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    columns_first: bool
    n_bytes: int

    def __str__(self) -> str:
        return f"{self.dtype.name} of shape {self.shape}"


# -- data sets


def read_npz(path: str | os.PathLike[str], *, fields: tuple[str, str] | None = None) -> DataSet:
    """Samples and labels of an ``.npz`` archive, or of all archives of a folder in order.

    ``fields`` names the two arrays; without it, the first of ``FIELD_NAMES`` that exist are read,
    with their test part. From a folder of archives, test parts are not read.
    """

    def read_training(file: Path) -> Labeled:
        data = _read_archive(file, fields)
        return Labeled(data.X, data.y)

    if Path(path).is_dir():
        return read_files(path, suffix=".npz", read_fn=read_training)
    return _read_archive(guards.check_file(path), fields)


def _read_archive(file: Path, fields: tuple[str, str] | None) -> DataSet:
    with guards.reading_as("an .npz archive", file, ZIP_ERRORS), zipfile.ZipFile(file) as archive:
        members = {
            info.filename.removesuffix(".npy"): info
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }
        names = _choose_names(file, members, fields)
        X, y, *test = (_read_member(file, archive, members[name]) for name in names)
    return DataSet(str(file), X, y, Labeled(*test) if test else None)


def map_npy(path: str | os.PathLike[str], *, fields: tuple[str, str] | None = None) -> DataSet:
    """Memory-mapped samples of a ``.npy`` file, with labels from another file beside it.

    ``path`` is the samples' file, such as ``X.npy``, or the folder that holds it and ``y.npy``.
    ``fields`` names both files, without ``.npy``.
    """
    given = Path(path)
    folder, samples = (given, None) if given.is_dir() else (given.parent, given.stem)
    found = {file.stem for file in folder.glob("*.npy")}
    names = _choose_names(given, found, fields, samples)
    X, y, *test = (read_npy(folder / f"{name}.npy", memory_map=True) for name in names)
    return DataSet(str(given), X, y, Labeled(*test) if test else None)


def _choose_names(
    where: Path,
    found: Collection[str],
    fields: tuple[str, str] | None,
    samples: str | None = None,
) -> tuple[str, ...]:
    """Names of samples and labels among those found, and of the test part if there is one.

    ``samples`` is the name of the samples, if it is known.
    """
    listed = list_some(sorted(found))
    if fields is not None:
        missing = [name for name in fields if name not in found]
        if missing:
            raise ValueError(
                f"`{where}` has no {' and no '.join(map(repr, missing))}. It has: {listed}."
            )
        return tuple(fields)
    usual: list[tuple[str, ...]] = list(FIELD_NAMES)
    if samples is not None:
        usual = [*(names for names in FIELD_NAMES if names[0] == samples), (samples, "y")]
    for names in usual:
        for chosen in (names, names[:2]):
            if set(chosen) <= set(found):
                return chosen
    raise ValueError(
        f"`{where}` must have samples and labels under known names, such as {usual[0][0]!r} and "
        f"{usual[0][1]!r}. It has: {listed}. Name two of them with `--fields A,B` "
        "(`fields=('A', 'B')`)."
    )


# -- arrays


def read_npy(path: str | os.PathLike[str], *, memory_map: bool = False) -> NDArray[Any]:
    """The array of a ``.npy`` file of plain numbers or strings. Its size is checked first."""
    file = guards.check_file(path)
    with file.open("rb") as stream:
        header = _read_header(file, stream, os.fstat(stream.fileno()).st_size)
        if memory_map and 0 not in header.shape:
            order: Literal["C", "F"] = "F" if header.columns_first else "C"
            return np.memmap(stream, header.dtype, "r", header.n_bytes, header.shape, order)
        return _read_values(file, header, stream)


def decode_npy(what: object, content: bytes) -> NDArray[Any]:
    """The array in the content of a ``.npy`` file; a view if possible."""
    header = _read_header(what, io.BytesIO(content), len(content))
    values = np.frombuffer(content, header.dtype, offset=header.n_bytes)
    return _arrange_values(header, values)


def _read_member(file: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    what = f"{file}[{member.filename}]"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(
            f"`{what}` is compressed by method {member.compress_type}; .npz archives are stored or "
            "deflated. Save it again with np.savez or np.savez_compressed."
        )
    with archive.open(member) as opened:
        stream = cast(BufferedIOBase, opened)
        header = _read_header(what, stream, member.file_size)
        guards.check_expansion(
            what,
            packed=min(member.compress_size, file.stat().st_size),
            unpacked=guards.count_bytes(what, header.shape, header.dtype),
            at_most=1 if member.compress_type == zipfile.ZIP_STORED else guards.MOST_EXPANSION,
        )
        array = _read_values(what, header, stream)
        stream.read(1)  # at its end, the member's checksum is compared
    return array


def _read_header(what: object, stream: BufferedIOBase, n_bytes: int) -> NpyHeader:
    """The header of a file of ``n_bytes``; raise if it declares another size."""

    def read(n: int) -> bytes:
        if n > MAX_HEADER:  # do not allocate a false length
            raise ValueError(f"it declares a header of {n:,} bytes")
        return stream.read(n)

    bounded: Any = SimpleNamespace(read=read)
    try:
        is_first = npy.read_magic(bounded) == (1, 0)
        parse = npy.read_array_header_1_0 if is_first else npy.read_array_header_2_0
        shape, columns_first, dtype = parse(bounded)
    except HEADER_ERRORS as error:
        raise ValueError(
            f"`{what}` is not a NumPy array, or has a damaged header: {str(error)[:200]}. Make or "
            "fetch it again."
        ) from error
    if dtype.kind not in PLAIN_KINDS or not dtype.itemsize:
        kind = "pickled Python objects" if dtype.hasobject else f"values of type {dtype!s:.80}"
        raise ValueError(
            f"`{what}` holds {kind}, which are not read: it must hold plain numbers or strings. "
            "Save it again as such an array."
        )
    header = NpyHeader(dtype, tuple(map(int, shape)), columns_first, stream.tell())
    declared = guards.count_bytes(what, header.shape, dtype)
    guards.check_size(what, header, declared=declared, found=n_bytes - header.n_bytes)
    return header


def _read_values(what: object, header: NpyHeader, stream: BufferedIOBase) -> NDArray[Any]:
    values = np.empty(math.prod(header.shape), header.dtype)
    guards.fill_array(what, header, stream, values)
    return _arrange_values(header, values)


def _arrange_values(header: NpyHeader, values: NDArray[Any]) -> NDArray[Any]:
    """Values (n,) in the declared shape and in native byte order."""
    array = values.reshape(header.shape, order="F" if header.columns_first else "C")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
