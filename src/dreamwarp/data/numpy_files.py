"""NumPy's files: ``.npy`` as memory maps, ``.npz`` archives. Nothing pickled is ever opened."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from tokenize import TokenError
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dreamwarp.data.dataset import DataSet, Part, list_some, read_files
from dreamwarp.data.guards import check_expansion, check_file, count_bytes, fill_array

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


class NpyHeader(NamedTuple):
    """Header of a ``.npy`` file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    columns_first: bool
    n_bytes: int

    def __str__(self) -> str:
        return f"{self.dtype.name} of shape {self.shape}"


def read_npz(path: str | os.PathLike[str], *, fields: tuple[str, str] | None = None) -> DataSet:
    """Samples and labels of an ``.npz`` archive, or of all archives of a folder in order.

    Parameters
    ----------
    path : path
        From a folder of archives, test parts are not read.
    fields : (str, str)
        Names of the arrays of samples and labels. Default: the first names in ``FIELD_NAMES`` that
        exist, with their test part.
    """

    def read_training(file: Path) -> Part:
        data = _read_archive(file, fields)
        return Part(data.X, data.y)

    if Path(path).is_dir():
        return read_files(path, suffix=".npz", read_fn=read_training)
    return _read_archive(check_file(path), fields)


def _read_archive(file: Path, fields: tuple[str, str] | None) -> DataSet:
    with _open_zip(file) as archive:
        members = {
            info.filename.removesuffix(".npy"): info
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }
        names = choose_names(file, members, fields)
        arrays = [_read_member(file, archive, members[name]) for name in names]
    return as_data_set(str(file), arrays)


def map_npy(path: str | os.PathLike[str], *, fields: tuple[str, str] | None = None) -> DataSet:
    """Memory-mapped samples of a ``.npy`` file, with labels from another file beside it.

    Parameters
    ----------
    path : path
        The samples' file, such as ``X.npy``, or the folder that holds it and ``y.npy``.
    fields : (str, str)
        Names of the files of samples and labels, without ``.npy``.
    """
    given = Path(path)
    folder = given if given.is_dir() else given.parent
    found = {file.stem for file in folder.glob("*.npy")}
    if fields is None and not given.is_dir():
        names = _fields_with(check_file(given), found)
    else:
        names = choose_names(folder, found, fields)
    arrays = [read_npy(folder / f"{name}.npy", memory_map=True) for name in names]
    return as_data_set(str(given), arrays)


def read_npy(path: str | os.PathLike[str], *, memory_map: bool = False) -> NDArray[Any]:
    """The array of a ``.npy`` file of plain numbers or strings. Its size is checked first."""
    file = check_file(path)
    with file.open("rb") as stream:
        header = _read_header(file, stream)
        declared = count_bytes(file, header.shape, header.dtype)
        _check_size(file, header, declared, os.fstat(stream.fileno()).st_size - header.n_bytes)
        if memory_map and declared > 0:
            order: Literal["C", "F"] = "F" if header.columns_first else "C"
            return np.memmap(stream, header.dtype, "r", header.n_bytes, header.shape, order)
        return _read_values(file, header, stream)


def decode_npy(what: object, content: bytes) -> NDArray[Any]:
    """The array in the content of a ``.npy`` file; a view if possible."""
    header = _read_header(what, io.BytesIO(content))
    declared = count_bytes(what, header.shape, header.dtype)
    _check_size(what, header, declared, len(content) - header.n_bytes)
    values = np.frombuffer(content, header.dtype, offset=header.n_bytes)
    shape = header.shape[::-1] if header.columns_first else header.shape
    return _arrange_values(header, values.reshape(shape))


def choose_names(
    where: Path, found: Collection[str], fields: tuple[str, str] | None
) -> tuple[str, ...]:
    """Names of samples and labels among those found, and of the test part if there is one."""
    listed = list_some(sorted(found))
    if fields is not None:
        missing = [name for name in fields if name not in found]
        if missing:
            raise ValueError(
                f"`{where}` has no {' and no '.join(map(repr, missing))}. It has: {listed}."
            )
        return tuple(fields)
    for names in FIELD_NAMES:
        if set(names) <= set(found):
            return names
        if set(names[:2]) <= set(found):
            return names[:2]
    raise ValueError(
        f"`{where}` has no samples and labels under a known name, such as 'X' and 'y'. It has: "
        f"{listed}. Name two of them with `--fields X,y` (`fields=('X', 'y')`)."
    )


def as_data_set(name: str, arrays: list[NDArray[Any]]) -> DataSet:
    """A data set of two or four arrays: samples, labels, test samples, test labels."""
    X, y, *test = arrays
    return DataSet(name, X, y, Part(*test) if test else None)


def _fields_with(file: Path, found: Collection[str]) -> tuple[str, ...]:
    """The names that belong to a file of samples."""
    usual = {names[1] for names in FIELD_NAMES if names[0] == file.stem} or {"y"}
    labels = sorted(usual & set(found))
    if not labels:
        names = ", ".join(f"{name}.npy" for name in sorted(usual))
        raise FileNotFoundError(
            f"`{file}` needs its labels beside it, as {names}. "
            "For files of other names, give both with `--fields X,y` (`fields=('X', 'y')`)."
        )
    pair = (file.stem, labels[0])
    return next((n for n in FIELD_NAMES if n[:2] == pair and set(n) <= set(found)), pair)


# -- members of an archive


@contextmanager
def _open_zip(file: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; errors in the file become a ValueError."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (
        zipfile.BadZipFile,
        EOFError,
        NotImplementedError,  # unknown compression or zip version
        RuntimeError,  # encryption
        OverflowError,  # impossible sizes and offsets
        struct.error,
        zlib.error,
    ) as error:
        raise ValueError(
            f"`{file}` is not a valid .npz archive: {error or 'it ends too soon'}. Make or fetch "
            "it again."
        ) from error


def _read_member(file: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    what = f"{file}[{member.filename}]"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(
            f"`{what}` is compressed by method {member.compress_type}; .npz archives are stored or "
            "deflated. Save it again with np.savez or np.savez_compressed."
        )
    with archive.open(member) as opened:
        stream = cast(BufferedIOBase, opened)
        header = _read_header(what, stream)
        declared = count_bytes(what, header.shape, header.dtype)
        _check_size(what, header, declared, member.file_size - header.n_bytes)
        packed = min(member.compress_size, file.stat().st_size)
        if member.compress_type == zipfile.ZIP_STORED and declared > packed:
            raise ValueError(f"`{what}` declares {header}, more than the archive's own size.")
        check_expansion(what, packed=packed, unpacked=declared)
        array = _read_values(what, header, stream)
        stream.read(1)  # at its end, the member's checksum is compared
    return array


def _read_header(what: object, stream: BufferedIOBase) -> NpyHeader:
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
    return NpyHeader(dtype, tuple(map(int, shape)), columns_first, stream.tell())


def _check_size(what: object, header: NpyHeader, declared: int, found: int) -> None:
    if found != declared:
        raise ValueError(
            f"`{what}` declares {header}, {declared:,} bytes, but holds {found:,}. It is truncated "
            "or damaged: make or fetch it again."
        )


def _read_values(what: object, header: NpyHeader, stream: BufferedIOBase) -> NDArray[Any]:
    shape = header.shape[::-1] if header.columns_first else header.shape
    array = np.empty(shape, header.dtype)
    _check_size(what, header, array.nbytes, fill_array(what, stream, array))
    return _arrange_values(header, array)


def _arrange_values(header: NpyHeader, array: NDArray[Any]) -> NDArray[Any]:
    """Values in the declared axis order and in native byte order."""
    array = array.T if header.columns_first else array
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
