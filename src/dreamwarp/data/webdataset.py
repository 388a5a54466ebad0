"""WebDataset: tar archives in which the files of a sample share a name and differ by ending."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.data.dataset import (
    Labeled,
    as_words,
    check_forms,
    choose_field,
    list_some,
    read_files,
)
from dreamwarp.data.guards import reading_as
from dreamwarp.data.images import decode_all
from dreamwarp.data.numpy_files import decode_npy

# Endings of samples and labels that are tried, and endings that mean an integer.
SAMPLE_ENDINGS = ("png", "jpg", "jpeg", "npy")
LABEL_ENDINGS = ("cls", "txt")
NUMBER_ENDINGS = ("cls", "class", "id", "index")
WHOLE = re.compile(rb"\s*[+-]?\d{1,19}\s*")
# Largest size of an extended header in bytes. It holds little more than a long name.
MAX_HEADER = 2**14
# What tarfile raises for malformed headers, besides its own errors.
TAR_ERRORS = (tarfile.TarError, ValueError, LookupError, ArithmeticError, RecursionError)


def _read_archive(
    file: Path,
    *,
    fields: tuple[str, str] | None = None,
    resize: tuple[int, int] | None = None,
) -> Labeled:
    """Samples and labels of a tar archive that is not compressed. Nothing is unpacked to disk.

    Samples are PNG or JPEG images, or arrays in ``.npy`` files. Labels are integers (``.cls``) or
    text (``.txt``), used as it is. ``fields`` are their endings; without it, the usual ones are
    tried.
    """
    names: list[str] = []
    contents: tuple[list[bytes], list[bytes]] = ([], [])
    with file.open("rb") as stream:
        for key, members in _list_samples(file):
            fields = fields or (
                choose_field(file, members, SAMPLE_ENDINGS, "samples"),
                choose_field(file, members, LABEL_ENDINGS, "labels"),
            )
            for ending, part in zip(fields, contents, strict=True):
                if ending not in members:
                    raise ValueError(
                        f"`{file}` must have .{fields[0]} and .{fields[1]} for every sample, but "
                        f"`{key}` has {list_some([f'.{name}'[:40] for name in members])}. Make or "
                        "fetch it again, or name others with `--fields png,cls` "
                        "(`fields=('png', 'cls')`)."
                    )
                stream.seek(members[ending].offset_data)
                part.append(stream.read(members[ending].size))
            names.append(f"{file}[{members[fields[0]].name}]")
    if fields is None or not names:
        raise ValueError(f"`{file}` must hold samples, got no files with an ending.")
    samples, labels = contents
    X = _decode_samples(file, fields[0], names, samples, resize)
    return Labeled(X, _decode_labels(file, fields[1], labels))


# Reads a tar archive, or all archives of a folder in order, with options of `_read_archive`.
read_webdataset = partial(read_files, suffix=".tar", read_fn=_read_archive)


# -- the archive


class _BoundedReader(io.BufferedReader):
    """Raises on long reads: tarfile would allocate any size that an extended header declares."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= MAX_HEADER:
            raise ValueError(f"a header declares {size:,} bytes")
        return super().read(size)


def list_members(file: Path) -> Iterator[tarfile.TarInfo]:
    """The plain files of an archive; ValueError if it is damaged or truncated."""
    n_bytes = file.stat().st_size
    with (
        reading_as("an uncompressed tar archive", file, TAR_ERRORS),
        _BoundedReader(io.FileIO(file)) as stream,
    ):
        archive = tarfile.TarFile(fileobj=stream)
        while (info := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # else tarfile keeps them all
            if info.issparse() or info.type not in tarfile.SUPPORTED_TYPES:
                raise ValueError(f"`{info.name}` is of type {info.type!r}, not a plain file")
            if info.isreg():  # not a folder, link or device
                if not 0 <= info.size <= n_bytes - info.offset_data:
                    raise ValueError(f"`{info.name}` declares {info.size:,} bytes, beyond the end")
                yield info
        # tarfile takes a damaged header for the end of the archive.
        stream.seek(archive.offset)
        block = stream.read(tarfile.BLOCKSIZE)
        if len(block) < tarfile.BLOCKSIZE or any(block):
            raise ValueError(f"no header and no end mark at byte {archive.offset:,}")


# -- samples


def _list_samples(file: Path) -> Iterator[tuple[str, dict[str, tarfile.TarInfo]]]:
    """Name of each sample, and its files by ending. Files of a sample are adjacent."""
    named = ((*_split(member.name), member) for member in list_members(file))
    for key, group in groupby((entry for entry in named if entry[1]), lambda entry: entry[0]):
        members: dict[str, tarfile.TarInfo] = {}
        for _, ending, member in group:
            if members.setdefault(ending, member) is not member:
                raise ValueError(f"`{file}` has `{member.name}` twice. Make or fetch it again.")
        yield key, members


def _split(name: str) -> tuple[str, str]:
    """Name of a sample, and its ending without the dot, which is empty if either is missing."""
    folder, slash, base = name.rpartition("/")
    stem, _, ending = base.partition(".")
    return folder + slash + stem, ending.lower() if stem else ""


def _decode_samples(
    file: Path, ending: str, names: list[str], contents: list[bytes], resize: Any
) -> NDArray[Any]:
    if ending.rpartition(".")[2] != "npy":
        return decode_all(contents, names, resize=resize)
    if resize is not None:
        raise ValueError(f"`--resize` (`resize`) is for images, got arrays in `{file}`.")
    arrays = list(map(decode_npy, names, contents))
    check_forms(file, ((array.dtype, array.shape) for array in arrays))
    return np.stack(arrays)


def _decode_labels(file: Path, ending: str, contents: list[bytes]) -> NDArray[Any]:
    if ending.rpartition(".")[2] not in NUMBER_ENDINGS:
        try:
            words = [content.decode() for content in contents]
        except UnicodeDecodeError as error:
            raise ValueError(f"`{file}` has a label that is not UTF-8 text: {error}.") from error
        return as_words(file, words)
    for content in contents:
        if not WHOLE.fullmatch(content) or abs(int(content)) >= 2**63:
            raise ValueError(
                f"`{file}` must have integers as .{ending}, got {content[:40]!r}. Store "
                "labels that are words as .txt."
            )
    return np.array([int(content) for content in contents], np.int64)
