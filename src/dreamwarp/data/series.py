"""Time series of the UCR and UEA archives: ``.ts``, ``.tsv`` and ``.txt``."""

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

Pad = Literal["edge", "zero", "stretch"]
PADS = ("edge", "zero", "stretch")
Missing = Literal["interpolate"]
SUFFIXES = (".ts", ".tsv", ".txt")
# As the archives write whole numbers; "01" and "+1" are names.
INTEGER = re.compile(r"0|-?[1-9]\d{0,17}")


class Line(NamedTuple):
    """One series as it stands in a file."""

    number: int
    channels: list[NDArray[np.float64]]
    label: str


def read_series(
    path: str | os.PathLike[str], *, pad: Pad | None = None, missing: Missing | None = None
) -> DataSet:
    """Labelled series of a ``.ts``, ``.tsv`` or ``.txt`` file, or of a folder of train and test.

    Parameters
    ----------
    path : path
        A file, or a folder that holds ``NAME_TRAIN.ts`` (or ``.tsv``) and ``NAME_TEST.ts``.
    pad : {"edge", "zero", "stretch"}
        Bring series to the length of the longest: by repeating their last value, by zeros, or by
        linear interpolation over the whole length. Without it, all must have one length.
    missing : {"interpolate"}
        Fill in values that are missing (NaN or ``?``) between their neighbours. Without it, they
        are refused.

    Returns
    -------
    DataSet
        X is (n, length), or (n, channels, length) for several channels, float64. y are integers
        if all labels are whole numbers, else strings.
    """
    if pad is not None:
        check_choice("pad", pad, PADS)
    if missing is not None:
        check_choice("missing", missing, ("interpolate",))
    given = Path(path)
    files = _find_parts(given) if given.is_dir() else [check_file(given)]
    lines = [_fill_all(file, _read_lines(file), missing) for file in files]
    n_channels, length = _check_forms(files, lines, pad)
    labels = _as_labels([line.label for part in lines for line in part])
    parts, first = [], 0
    for part in lines:
        X = np.stack([_stack_channels(line, length, pad) for line in part])
        parts.append(Part(X[:, 0] if n_channels == 1 else X, labels[first : first + len(part)]))
        first += len(part)
    return DataSet(str(given), *parts[0], *parts[1:], n_axes=1)


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
    raise ValueError(
        f"`{folder}` must hold a file NAME_TRAIN.ts, NAME_TRAIN.tsv or NAME_TRAIN.txt, and has "
        "none."
    )


def _read_lines(file: Path) -> list[Line]:
    read = _read_ts if file.suffix.lower() == ".ts" else _read_columns
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


def _read_columns(file: Path, text: Iterator[str]) -> Iterator[Line]:
    """The label, then one value per column. NaN after the last value pads shorter series.

    Columns are apart by tabs or, in ``.txt``, by blanks; labels are then numbers such as 1.0e+00.
    """
    by_tabs = file.suffix.lower() == ".tsv"
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        label, *words = line.rstrip("\r\n").split("\t") if by_tabs else line.split()
        where = f"`{file}`, line {number}"
        while words and words[-1].strip().lower() in ("nan", ""):
            words.pop()
        if not words or not label.strip():
            raise ValueError(
                f"{where} must hold a label and values, apart by {'tabs' if by_tabs else 'blanks'},"
                f" got {line.strip()[:60]!r}."
            )
        label = label.strip() if by_tabs else _as_whole(label)
        yield Line(number, [_read_values(where, words)], label)


def _as_whole(label: str) -> str:
    """A label in scientific notation as a whole number, where it is one."""
    try:
        value = float(label)
    except ValueError:
        return label
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else label


def _read_values(where: str, words: list[str]) -> NDArray[np.float64]:
    """Values, NaN where one is missing."""
    try:
        return np.array(["nan" if word.strip() == "?" else word for word in words], np.float64)
    except ValueError:
        raise ValueError(f"{where} must hold numbers, got {_first_odd(words)[:60]!r}.") from None


# -- missing values


def _fill_all(file: Path, lines: list[Line], missing: Missing | None) -> list[Line]:
    return [
        line._replace(
            channels=[
                fill_missing(f"`{file}`, line {line.number}", channel, missing)
                for channel in line.channels
            ]
        )
        for line in lines
    ]


def fill_missing(
    where: str, values: NDArray[np.float64], missing: Missing | None
) -> NDArray[np.float64]:
    """Values (time,) with those that are missing filled in between their neighbours.

    Before the first value and after the last, that value is repeated.
    """
    known = np.isfinite(values)
    if known.all():
        return values
    first = int(np.argmin(known))
    if missing is None or not known.any() or np.isinf(values).any():
        raise ValueError(
            f"{where} has no finite value at position {first + 1}. "
            + (
                "Fill missing values in with `--missing interpolate` (`missing='interpolate'`)."
                if known.any() and not np.isinf(values).any()
                else "Leave the series out."
            )
        )
    times = np.arange(len(values))
    return np.interp(times, times[known], values[known])


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
                        "Use `--pad edge`, `--pad zero` or `--pad stretch` (`pad='edge'`, ...) to "
                        "bring all to the longest."
                    )
                longest = max(longest, len(channel))
    if longest < 2:
        raise ValueError(
            f"`{files[0]}` has series of one value, which no warp can change. Series need at least "
            "2 values."
        )
    return n_channels, longest


def _stack_channels(line: Line, length: int, pad: Pad | None) -> NDArray[np.float64]:
    """(channels, length)."""
    return np.stack([_bring_to(channel, length, pad) for channel in line.channels])


def _bring_to(values: NDArray[np.float64], length: int, pad: Pad | None) -> NDArray[np.float64]:
    if len(values) == length:
        return values
    if pad == "stretch":
        times = np.linspace(0.0, len(values) - 1, length)
        return np.interp(times, np.arange(len(values)), values)
    mode: Any = {"mode": "edge"} if pad == "edge" else {"mode": "constant"}
    return np.pad(values, (0, length - len(values)), **mode)


def _as_labels(labels: list[str]) -> NDArray[Any]:
    if all(INTEGER.fullmatch(label) for label in labels):
        return np.array(labels, np.int64)
    return np.array(labels)
