"""Time series of the UCR and UEA archives: ``.ts`` and ``.tsv``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.progress import Meter
from dreamwarp.core.validation import check_choice
from dreamwarp.data.dataset import DataSet, Part
from dreamwarp.data.guards import check_file

Pad = Literal["edge", "zero"]
PADS = ("edge", "zero")
SUFFIXES = (".ts", ".tsv")
# As the archives write whole numbers; "01" and "+1" are names.
INTEGER = re.compile(r"0|-?[1-9]\d{0,17}")


class Line(NamedTuple):
    """One series as it stands in a file."""

    number: int
    channels: list[NDArray[np.float64]]
    label: str


def read_series(path: str | os.PathLike[str], *, pad: Pad | None = None) -> DataSet:
    """Labelled series of a ``.ts`` or ``.tsv`` file, or of a folder with a train and a test file.

    Parameters
    ----------
    path : path
        A file, or a folder that holds ``NAME_TRAIN.ts`` (or ``.tsv``) and ``NAME_TEST.ts``.
    pad : {"edge", "zero"}
        Bring series to the length of the longest, by repeating their last value or by zeros.
        Without it, all must have one length.

    Returns
    -------
    DataSet
        X is (n, length), or (n, channels, length) for several channels, float64. y are integers
        if all labels are whole numbers, else strings.
    """
    if pad is not None:
        check_choice("pad", pad, PADS)
    given = Path(path)
    files = _find_parts(given) if given.is_dir() else [check_file(given)]
    lines = [_read_lines(file) for file in files]
    n_channels, length = _check_forms(files, lines, pad)
    labels = _as_labels([line.label for part in lines for line in part])
    parts, first = [], 0
    for part in lines:
        X = np.stack([_stack_channels(line, length, pad) for line in part])
        parts.append(Part(X[:, 0] if n_channels == 1 else X, labels[first : first + len(part)]))
        first += len(part)
    return DataSet(str(given), *parts[0], *parts[1:])


def _find_parts(folder: Path) -> list[Path]:
    """The train file of a folder, then its test file if there is one."""
    for suffix in SUFFIXES:
        trains = sorted(folder.glob(f"*_TRAIN{suffix}"))
        # Archives may hold variants of a data set beside the one that the folder is named after.
        own = folder / f"{folder.resolve().name}_TRAIN{suffix}"
        trains = [own] if own in trains else trains
        if len(trains) > 1:
            raise ValueError(
                f"`{folder}` must hold one data set, and has {', '.join(p.name for p in trains)}. "
                "Give one of these files."
            )
        if trains:
            test = trains[0].with_name(trains[0].name.replace("_TRAIN", "_TEST"))
            return [trains[0], *([test] if test.is_file() else [])]
    raise ValueError(f"`{folder}` must hold a file NAME_TRAIN.ts or NAME_TRAIN.tsv, and has none.")


def _read_lines(file: Path) -> list[Line]:
    read = _read_ts if file.suffix.lower() == ".ts" else _read_tsv
    with (
        Meter(f"reading {file.name}", file.stat().st_size, in_bytes=True) as meter,
        file.open(encoding="utf-8") as text,
    ):
        try:
            lines = list(read(file, _counted(text, meter)))
        except UnicodeDecodeError as error:
            raise ValueError(f"`{file}` is not text: {error}.") from error
    if not lines:
        raise ValueError(f"`{file}` must hold series, and holds none.")
    return lines


def _counted(text: TextIO, meter: Meter) -> Iterator[str]:
    for line in text:
        meter.advance(len(line))
        yield line


# -- the two formats


def _read_ts(file: Path, text: Iterator[str]) -> Iterator[Line]:
    """``@`` lines describe; after ``@data``: channels apart by colons, then the label."""
    in_data = False
    for number, line in enumerate(text, 1):
        content = line.strip()
        if not content or content.startswith(("#", "%")):
            continue
        if in_data:
            *channels, label = content.split(":")
            where = f"`{file}`, line {number}"
            if not channels or not label.strip():
                raise ValueError(
                    f"{where} must hold channels and a label, apart by colons, got "
                    f"{content[:60]!r}."
                )
            yield Line(number, [_read_values(where, c.split(",")) for c in channels], label.strip())
        else:
            in_data = _read_description(f"`{file}`, line {number}", content)
    if not in_data:
        raise ValueError(f"`{file}` has no @data line: it is truncated, or not a .ts file.")


def _read_description(where: str, content: str) -> bool:
    """Whether the data begins here."""
    if not content.startswith("@"):
        raise ValueError(f"{where} must begin with @ before @data, got {content[:60]!r}.")
    key, *values = content.lower().split()
    if key == "@timestamps" and values[:1] == ["true"]:
        raise ValueError(
            f"{where} announces time stamps, which are not read. Save the values at equal steps."
        )
    if key == "@targetlabel" or (key == "@classlabel" and values[:1] == ["false"]):
        raise ValueError(f"{where} announces no classes, which are what dreamwarp learns from.")
    return key == "@data"


def _read_tsv(file: Path, text: Iterator[str]) -> Iterator[Line]:
    """The label, then one value per column. NaN after the last value pads shorter series."""
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        label, *words = line.rstrip("\r\n").split("\t")
        where = f"`{file}`, line {number}"
        while words and words[-1].strip().lower() in ("nan", ""):
            words.pop()
        if not words or not label.strip():
            raise ValueError(
                f"{where} must hold a label and values, apart by tabs, got {line.strip()[:60]!r}."
            )
        yield Line(number, [_read_values(where, words)], label.strip())


def _read_values(where: str, words: list[str]) -> NDArray[np.float64]:
    if "?" in words:
        raise ValueError(_missing(where, words.index("?")))
    try:
        values = np.array(words, np.float64)
    except ValueError:
        raise ValueError(f"{where} must hold numbers, got {_first_odd(words)[:60]!r}.") from None
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(_missing(where, int(bad[0])))
    return values


def _missing(where: str, position: int) -> str:
    return (
        f"{where} has no finite value at position {position + 1}. Fill missing values in, for "
        "example by interpolation, before."
    )


def _first_odd(words: list[str]) -> str:
    for word in words:
        try:
            float(word)
        except ValueError:
            return word
    return ""


# -- to arrays


def _check_forms(files: list[Path], lines: list[list[Line]], pad: Pad | None) -> tuple[int, int]:
    """Channels of every series, and length of the longest."""
    first = lines[0][0]
    n_channels, length = len(first.channels), len(first.channels[0])
    longest = length
    for file, part in zip(files, lines, strict=True):
        for line in part:
            where = f"`{file}`, line {line.number}"
            if len(line.channels) != n_channels:
                raise ValueError(
                    f"{where} has {len(line.channels)} channels, and the first series has "
                    f"{n_channels}. All must have as many."
                )
            for channel in line.channels:
                if len(channel) != length and pad is None:
                    raise ValueError(
                        f"{where} has {len(channel)} values, and the first series has {length}. "
                        "Use `--pad edge` or `--pad zero` (`pad='edge'`, `pad='zero'`) to bring "
                        "all to the longest."
                    )
                longest = max(longest, len(channel))
    return n_channels, longest


def _stack_channels(line: Line, length: int, pad: Pad | None) -> NDArray[np.float64]:
    """(channels, length)."""
    mode: Any = {"mode": "edge"} if pad == "edge" else {"mode": "constant"}
    return np.stack([np.pad(c, (0, length - len(c)), **mode) for c in line.channels])


def _as_labels(labels: list[str]) -> NDArray[Any]:
    if all(INTEGER.fullmatch(label) for label in labels):
        return np.array(labels, np.int64)
    return np.array(labels)
