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
from dreamwarp.data.dataset import DataSet, split_off_test
from dreamwarp.data.guards import check_file

Pad = Literal["edge", "zero", "stretch"]
PADS = ("edge", "zero", "stretch")
Missing = Literal["interpolate"]
SUFFIXES = (".ts", ".tsv", ".txt")
# Integers as the archives write them; "01" and "+1" are names.
INTEGER = re.compile(r"0|-?[1-9]\d{0,17}")


class Series(NamedTuple):
    """One series and its place in a file, for errors."""

    where: str
    channels: list[NDArray[np.float64]]
    label: str


def read_series(
    path: str | os.PathLike[str], *, pad: Pad | None = None, missing: Missing | None = None
) -> DataSet:
    """Labelled series of a ``.ts``, ``.tsv`` or ``.txt`` file, or of a folder of train and test.

    The folder holds ``NAME_TRAIN.ts`` (or another suffix) and ``NAME_TEST.ts``. ``pad`` and
    ``missing`` as for :func:`load`; without ``pad``, all series must have the same length. X is
    (n, length), or (n, channels, length) for several channels, float64. y are integers if all
    labels are integers, else strings.
    """
    if pad is not None:
        check_choice("pad", pad, PADS)
    if missing is not None:
        check_choice("missing", missing, ("interpolate",))
    given = Path(path)
    files = _find_parts(given) if given.is_dir() else [check_file(given)]
    parts = [_read_file(file) for file in files]
    every = [series for part in parts for series in part]
    length = _check_lengths(files[0], every, pad)
    filled = [[_fill_missing(where, c, missing) for c in channels] for where, channels, _ in every]
    X = np.stack([[_extend(values, length, pad) for values in channels] for channels in filled])
    X = X[:, 0] if X.shape[1] == 1 else X
    labels = [series.label for series in every]
    are_integers = all(INTEGER.fullmatch(label) for label in labels)
    y = np.array(labels, np.int64 if are_integers else None)
    return split_off_test(given, X, y, len(parts[0]), n_axes=1)


def _find_parts(folder: Path) -> list[Path]:
    """The train file of a folder, then its test file if there is one."""
    for suffix in SUFFIXES:
        trains = sorted(folder.glob(f"*_TRAIN{suffix}"))
        # Folders of the archives may hold variants beside the data set they are named after.
        own = folder / f"{folder.resolve().name}_TRAIN{suffix}"
        trains = [own] if own in trains else trains
        if len(trains) > 1:
            raise ValueError(
                f"`{folder}` must hold one data set, got {', '.join(p.name for p in trains)}. "
                "Give one of these files."
            )
        if trains:
            test = trains[0].with_name(trains[0].name.replace("_TRAIN", "_TEST"))
            return [trains[0], *([test] if test.is_file() else [])]
    raise ValueError(
        f"`{folder}` must hold a file NAME_TRAIN.ts, NAME_TRAIN.tsv or NAME_TRAIN.txt, got none."
    )


def _read_file(file: Path) -> list[Series]:
    read = _read_ts if file.suffix.lower() == ".ts" else _read_columns
    with (
        Meter(f"reading {file.name}", file.stat().st_size, in_bytes=True) as meter,
        file.open(encoding="utf-8") as text,
    ):
        try:
            found = list(read(file, _number_lines(file, text, meter)))
        except UnicodeDecodeError as error:
            raise ValueError(f"`{file}` is not text: {error}.") from error
    if not found:
        raise ValueError(f"`{file}` must hold series, got none.")
    return found


def _number_lines(file: Path, text: TextIO, meter: Meter) -> Iterator[tuple[str, str]]:
    """Place of each line that is not empty, for errors, and the line."""
    for number, line in enumerate(text, 1):
        meter.advance(len(line))
        if line.strip():
            yield f"`{file}`, line {number}", line


# -- the two formats


def _read_ts(file: Path, lines: Iterator[tuple[str, str]]) -> Iterator[Series]:
    """Header lines begin with ``@``. After ``@data``: channels and the label, split by colons."""
    in_data = False
    for where, line in lines:
        content = line.strip()
        if content.startswith(("#", "%")):
            continue
        if not in_data:
            in_data = _read_header_line(where, content)
            continue
        *channels, label = content.split(":")
        if not channels or not label.strip():
            raise ValueError(
                f"{where} must hold channels and a label, split by colons, got {content[:60]!r}."
            )
        yield Series(where, [_read_values(where, c.split(",")) for c in channels], label.strip())
    if not in_data:
        raise ValueError(f"`{file}` has no @data line: it is truncated, or not a .ts file.")


def _read_header_line(where: str, content: str) -> bool:
    """Check a header line; return whether the data begins after it."""
    if not content.startswith("@"):
        raise ValueError(f"{where} must begin with @ before @data, got {content[:60]!r}.")
    key, *values = content.lower().split()
    if key == "@timestamps" and values[:1] == ["true"]:
        raise ValueError(
            f"{where} declares time stamps, which are not supported. Save values at equal steps."
        )
    if key == "@targetlabel" or (key == "@classlabel" and values[:1] == ["false"]):
        raise ValueError(f"{where} declares no classes, which dreamwarp needs.")
    return key == "@data"


def _read_columns(file: Path, lines: Iterator[tuple[str, str]]) -> Iterator[Series]:
    """The label, then one value per column. NaN after the last value pads shorter series.

    Columns are split by tabs in ``.tsv`` and by blanks in ``.txt``. In ``.txt``, labels such as
    1.0e+00 become integers.
    """
    by_tabs = file.suffix.lower() == ".tsv"
    for where, line in lines:
        label, *words = line.rstrip("\r\n").split("\t") if by_tabs else line.split()
        while words and words[-1].strip().lower() in ("nan", ""):
            words.pop()
        if not words or not label.strip():
            raise ValueError(
                f"{where} must hold a label and values, split by {'tabs' if by_tabs else 'blanks'},"
                f" got {line.strip()[:60]!r}."
            )
        label = label.strip() if by_tabs else _as_integer(label)
        yield Series(where, [_read_values(where, words)], label)


def _as_integer(label: str) -> str:
    """A label in scientific notation as an integer, if it is one."""
    try:
        value = float(label)
    except ValueError:
        return label
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else label


def _read_values(where: str, words: list[str]) -> NDArray[np.float64]:
    """Values, NaN where one is missing."""
    try:
        return np.array(["nan" if word.strip() == "?" else word for word in words], np.float64)
    except ValueError as error:  # its message ends with the invalid word
        raise ValueError(f"{where} must hold numbers: {error!s:.100}.") from None


def _fill_missing(
    where: str, values: NDArray[np.float64], missing: Missing | None
) -> NDArray[np.float64]:
    """Interpolate missing values; repeat the first value before it, and the last value after it."""
    known = np.isfinite(values)
    if known.all():
        return values
    can_fill = known.any() and not np.isinf(values).any()
    if missing is None or not can_fill:
        remedy = (
            "Fill missing values in with `--missing interpolate` (`missing='interpolate'`)."
            if can_fill
            else "Leave the series out."
        )
        first = int(np.argmin(known)) + 1
        raise ValueError(f"{where} has no finite value at position {first}. {remedy}")
    times = np.arange(len(values))
    return np.interp(times, times[known], values[known])


# -- to arrays


def _check_lengths(file: Path, every: list[Series], pad: Pad | None) -> int:
    """Length of the longest series; raise if series differ in channels, or in length unpadded."""
    n_channels, length = len(every[0].channels), len(every[0].channels[0])
    for where, channels, _ in every:
        if len(channels) != n_channels:
            raise ValueError(
                f"{where} has {len(channels)} channels, but the first series has {n_channels}. All "
                "must have the same number: leave out channels, or the series."
            )
        for channel in channels:
            if len(channel) != length and pad is None:
                raise ValueError(
                    f"{where} has {len(channel)} values, but the first series has {length}. Use "
                    "`--pad edge`, `--pad zero` or `--pad stretch` (`pad='edge'`, ...) to extend "
                    "all to the longest."
                )
    longest = max(len(channel) for series in every for channel in series.channels)
    if longest < 2:
        raise ValueError(
            f"`{file}` must have series of at least 2 values, got 1: warps act along time."
        )
    return longest


def _extend(values: NDArray[np.float64], length: int, pad: Pad | None) -> NDArray[np.float64]:
    if len(values) == length:
        return values
    if pad == "stretch":
        times = np.linspace(0.0, len(values) - 1, length)
        return np.interp(times, np.arange(len(values)), values)
    mode: Any = {"mode": "edge"} if pad == "edge" else {"mode": "constant"}
    return np.pad(values, (0, length - len(values)), **mode)
