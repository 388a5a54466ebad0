"""WebDataset: tar archives in which the files of a sample share a name, and differ by ending."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.progress import Meter
from dreamwarp.data.dataset import DataSet, Part, as_words, check_forms, join_parts
from dreamwarp.data.guards import check_file
from dreamwarp.data.images import decode_all
from dreamwarp.data.numpy_files import decode_npy
from dreamwarp.data.tar_files import Member, list_members

# Endings that samples and labels go by, and those that mean a whole number.
SAMPLE_ENDINGS = ("png", "jpg", "jpeg", "npy")
LABEL_ENDINGS = ("cls", "txt")
NUMBER_ENDINGS = ("cls", "class", "id", "index")
WHOLE = re.compile(rb"\s*[+-]?\d{1,19}\s*")
# Endings that an error lists before it gives up.
MAX_LISTED = 20


def read_webdataset(
    path: str | os.PathLike[str],
    *,
    fields: tuple[str, str] | None = None,
    resize: tuple[int, int] | None = None,
) -> DataSet:
    """Samples and labels of a tar archive, or of all tar archives of a folder in order.

    Parameters
    ----------
    path : path
        Not compressed. Nothing is unpacked to disk.
    fields : (str, str)
        Endings of samples and labels, such as ``("png", "cls")``. Without it, the usual ones are
        tried.
    resize : (rows, columns)
        Bring pictures to this size.

    Returns
    -------
    DataSet
        Samples are PNG or JPEG pictures, or arrays in ``.npy`` files. Labels are whole numbers
        (``.cls``) or text (``.txt``), which is taken as it is.
    """
    given = Path(path)
    files = sorted(given.glob("*.tar")) if given.is_dir() else [given]
    if not files:
        raise FileNotFoundError(f"`{given}` must hold .tar files, and holds none.")
    with Meter("reading archives", len(files)) as meter:
        parts = []
        for file in files:
            parts.append(_read_archive(check_file(file), fields, resize))
            meter.advance(1)
    return DataSet(str(given), *join_parts(str(given), parts))


def _read_archive(
    file: Path, fields: tuple[str, str] | None, resize: tuple[int, int] | None
) -> Part:
    names: list[str] = []
    contents: tuple[list[bytes], list[bytes]] = ([], [])
    with file.open("rb") as stream:
        for key, members in _list_samples(file, stream):
            fields = fields or _choose_fields(file, members)
            for ending, part in zip(fields, contents, strict=True):
                if ending not in members:
                    raise ValueError(
                        f"`{file}` must have .{fields[0]} and .{fields[1]} for every sample, and "
                        f"`{key}` has {_listed(members)}. Make or fetch it again, or name others "
                        "with `--fields png,cls` (`fields=('png', 'cls')`)."
                    )
                stream.seek(members[ending].offset)
                part.append(stream.read(members[ending].size))
            names.append(f"{file}[{members[fields[0]].name}]")
    if fields is None or not names:
        raise ValueError(f"`{file}` must hold samples, and holds no files with an ending.")
    samples, labels = contents
    X = _decode_samples(file, fields[0], names, samples, resize)
    return Part(X, _decode_labels(file, fields[1], labels))


def _list_samples(file: Path, stream: BinaryIO) -> Iterator[tuple[str, dict[str, Member]]]:
    """Names of samples, and their files by ending. Files of one sample follow one another."""
    named = ((*_split(member.name), member) for member in list_members(file, stream))
    for key, group in groupby((entry for entry in named if entry[1]), lambda entry: entry[0]):
        members: dict[str, Member] = {}
        for _, ending, member in group:
            if members.setdefault(ending, member) is not member:
                raise ValueError(f"`{file}` has `{member.name}` twice. Make or fetch it again.")
        yield key, members


def _split(name: str) -> tuple[str, str]:
    """Name of a sample, and ending without its dot; what has no name or no ending has none."""
    folder, slash, base = name.rpartition("/")
    stem, _, ending = base.partition(".")
    return folder + slash + stem, ending.lower() if stem else ""


def _choose_fields(file: Path, members: dict[str, Member]) -> tuple[str, str]:
    chosen = []
    for what, usual in (("samples", SAMPLE_ENDINGS), ("labels", LABEL_ENDINGS)):
        found = [ending for ending in usual if ending in members]
        if not found:
            raise ValueError(
                f"`{file}` has no {what} under a known ending ({', '.join(usual)}). Its first "
                f"sample has {_listed(members)}. Name the endings of samples and labels with "
                "`--fields png,cls` (`fields=('png', 'cls')`)."
            )
        chosen.append(found[0])
    return chosen[0], chosen[1]


def _listed(members: dict[str, Member]) -> str:
    few = ", ".join(f".{ending}"[:40] for ending in list(members)[:MAX_LISTED])
    return f"{few}, ..." if len(members) > MAX_LISTED else few


def _decode_samples(
    file: Path, ending: str, names: list[str], contents: list[bytes], resize: Any
) -> NDArray[Any]:
    if ending.rpartition(".")[2] != "npy":
        return decode_all(contents, names, resize=resize)
    if resize is not None:
        raise ValueError(f"`--resize` (`resize`) is for pictures, and `{file}` holds arrays.")
    arrays = list(map(decode_npy, names, contents))
    check_forms(file, ((array.dtype, array.shape) for array in arrays))
    return np.stack(arrays)


def _decode_labels(file: Path, ending: str, contents: list[bytes]) -> NDArray[Any]:
    if ending.rpartition(".")[2] not in NUMBER_ENDINGS:
        try:
            words = [content.decode() for content in contents]
        except UnicodeDecodeError as error:
            raise ValueError(f"`{file}` has a label that is no text: {error}.") from error
        return as_words(file, words)
    for content in contents:
        if not WHOLE.fullmatch(content) or abs(int(content)) >= 2**63:
            raise ValueError(
                f"`{file}` must have whole numbers as .{ending}, got {content[:40]!r}. Labels "
                "that are words go by .txt."
            )
    return np.array([int(content) for content in contents], np.int64)
