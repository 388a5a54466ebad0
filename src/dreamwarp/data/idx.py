"""IDX, the format of MNIST: a header of dtype and shape, then values, big-endian.

Also data sets of IDX files: pairs of images and labels with matching names.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.data import guards
from dreamwarp.data.dataset import DataSet, Labeled, check_forms

# Type codes of the format and their dtypes.
TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
# Their names in file names, as in MNIST's "train-images-idx3-ubyte".
WORDS = {"u1": "ubyte", "i1": "byte", ">i2": "short", ">i4": "int", ">f4": "float", ">f8": "double"}
CODES = {np.dtype(name).newbyteorder("="): code for code, name in TYPES.items()}
GZIP_MAGIC = b"\x1f\x8b"
GZIP_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)
# Names of IDX files: MNIST's "images-idx3-ubyte", others' "images.idx".
IDX_NAME = re.compile(r"[-_.]idx\d?([-_.]|$)", re.IGNORECASE)
# Names of the files of a test part.
TEST_NAME = re.compile(r"(^|[-_.])(t10k|test)([-_.]|$)", re.IGNORECASE)
# The type at the end of a name.
TYPE_WORD = re.compile(rf"(?<=[-_.])({'|'.join(WORDS.values())})$")


class IdxHeader(NamedTuple):
    """Header of an IDX file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{' x '.join(map(str, self.shape))} values of {self.dtype.name}"


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of an IDX file, plain or gzip; compression is detected by the content.

    ValueError if the file is not IDX, or its size differs from that in its header.
    """
    return read_idx_files(path, [path])


def read_idx_files(name: object, paths: Sequence[str | os.PathLike[str]]) -> NDArray[Any]:
    """The arrays of IDX files, concatenated along the first axis.

    All sizes are checked before memory is allocated, once.
    """
    files = [guards.check_file(path) for path in paths]
    headers = []
    for file in files:
        with _open_plain(file) as stream:
            headers.append(_read_header(file, stream))
    dtype, (_, *rest) = headers[0]
    check_forms(name, ((header.dtype, header.shape[1:]) for header in headers))
    shape = (sum(header.shape[0] for header in headers), *rest)
    packed = sum(file.stat().st_size for file in files)
    guards.refuse_bomb(name, packed=packed, unpacked=guards.count_bytes(name, shape, dtype))
    array, first = np.empty(shape, dtype), 0
    for file, header in zip(files, headers, strict=True):
        with _open_plain(file) as stream:
            if _read_header(file, stream) != header:
                raise ValueError(
                    f"`{file}` has changed while it was read. Wait until it is complete."
                )
            guards.fill_array(file, header, stream, array[first : first + header.shape[0]])
            if stream.read(1):
                raise ValueError(f"`{file}` declares {header}, but holds more.")
        first += header.shape[0]
    if not array.dtype.isnative:
        array = array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))
    return array


def is_idx(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the name or the first bytes of an IDX file, plain or gzip."""
    file = guards.check_file(path)
    if IDX_NAME.search(file.name):
        return True
    try:
        with _open_plain(file) as stream:
            return _is_start(stream.read(4))
    except ValueError:
        return False


# -- data sets


def read_idx_set(path: str | os.PathLike[str]) -> DataSet:
    """Images and labels from IDX files, plain or gzip: a file of images, or a folder of them.

    Names of images contain ``images``; their labels are beside them under the same name with
    ``labels`` and ``idx1``, and their own type, such as ``ubyte``. In a folder, files named
    ``t10k`` or ``test`` are the test part, and numbered files are joined.
    """
    given = Path(path)
    if not given.is_dir():
        return DataSet(str(given), *_read_pairs(given, [given]))
    files = list_images(given)
    tests = [file for file in files if TEST_NAME.search(file.name)]
    rest = [file for file in files if file not in tests]
    parts = [_read_pairs(given, part) for part in (rest, tests) if part]
    return DataSet(str(given), *parts[0], *parts[1:])


def list_images(folder: Path) -> list[Path]:
    """IDX files of images in a folder; the plain file if there is a gzip copy too."""
    named = sorted(file for file in folder.glob("*images*") if not file.name.startswith("."))
    return [
        file
        for file in named
        if file.is_file()
        and is_idx(file)
        and not (file.suffix == ".gz" and file.with_suffix("") in named)
    ]


def _read_pairs(given: Path, files: list[Path]) -> Labeled:
    patterns = {re.sub(r"\d+", "#", file.name.removesuffix(".gz")) for file in files}
    if len(patterns) > 1:
        raise ValueError(
            f"`{given}` must hold one data set, got {', '.join(f.name for f in files)}. Give "
            "one of these files."
        )
    images = read_idx_files(given, files)
    labels = [_find_labels(file) for file in files]
    return Labeled(images, read_idx_files(f"{given} (labels)", labels))


def _find_labels(images: Path) -> Path:
    plain = images.name.removesuffix(".gz")
    if "images" not in plain:
        raise ValueError(
            f"`{images}` must have the word 'images' in its name, so that its labels can be found "
            "beside it under the same name with 'labels'."
        )
    name = re.sub(r"idx\d", "idx1", plain.replace("images", "labels"))
    # Labels are mostly bytes, whatever the type of the images.
    stem = TYPE_WORD.sub("", name)
    names = [name] if stem == name else [name, *(stem + word for word in WORDS.values())]
    for candidate in names:
        for file in (images.with_name(candidate), images.with_name(f"{candidate}.gz")):
            if file.is_file():
                return file
    other = "" if stem == name else f", or with another of the words {', '.join(WORDS.values())}"
    raise FileNotFoundError(
        f"`{images}` needs its labels beside it, as `{name}` or `{name}.gz`{other}."
    )


# -- reading


@contextmanager
def _open_plain(file: Path) -> Iterator[BufferedIOBase]:
    """The content of a file, decompressed if it is gzip."""
    with file.open("rb") as raw:
        if raw.peek(2)[:2] != GZIP_MAGIC:
            yield raw
            return
        with guards.reading_as("gzip", file, GZIP_ERRORS), gzip.GzipFile(fileobj=raw) as stream:
            yield stream


def _read_header(file: Path, stream: BufferedIOBase) -> IdxHeader:
    """The header, checked against the size of the file."""
    start = stream.read(4)
    if not _is_start(start):
        raise ValueError(
            f"`{file}` is not an IDX file: it must begin with two zero bytes, an element type (08, "
            "09, 0b, 0c, 0d or 0e) and the number of axes, got "
            f"{start.hex(' ') or 'nothing'}."
        )
    n_axes = start[3]
    if not 1 <= n_axes <= guards.MAX_AXES:
        raise ValueError(f"`{file}` must have 1 to {guards.MAX_AXES} axes, got {n_axes}.")
    sizes = stream.read(4 * n_axes)
    if len(sizes) < 4 * n_axes:
        raise ValueError(
            f"`{file}` declares {n_axes} axes, but ends before their sizes. It is truncated: make "
            "or fetch it again."
        )
    header = IdxHeader(np.dtype(TYPES[start[2]]), tuple(np.frombuffer(sizes, ">u4").tolist()))
    declared = guards.count_bytes(file, header.shape, header.dtype)
    n_bytes = os.fstat(stream.fileno()).st_size
    if isinstance(stream, gzip.GzipFile):
        guards.check_expansion(file, packed=n_bytes, unpacked=declared)
    else:
        guards.check_size(file, header, declared=declared, found=n_bytes - 4 - 4 * n_axes)
    return header


def _is_start(start: bytes) -> bool:
    """Whether these are the first four bytes of an IDX file."""
    return len(start) == 4 and start[:2] == b"\0\0" and start[2] in TYPES


# -- writing


def encode_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header for an array of a dtype of ``CODES``, with axes of less than 2^32 elements."""
    return bytes((0, 0, CODES[dtype], len(shape))) + np.array(shape, ">u4").tobytes()
