"""Sets of samples written by ``generate``, recognised by their manifest.

The manifest holds what some formats can't store: integer labels (folder names are strings), a
channel axis of length 1, and the expected number of samples.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from dreamwarp.core.defaults import BALANCES, FORMATS
from dreamwarp.core.draws import MAX_SAMPLE_NUMBER
from dreamwarp.core.labels import check_label
from dreamwarp.core.validation import is_real
from dreamwarp.data.dataset import DataSet
from dreamwarp.data.guards import count_bytes
from dreamwarp.space.resample import INTERPOLATIONS

MANIFEST = "manifest.json"
MANIFEST_KIND, VERSION = "dreamwarp samples", 1
# Larger than any valid manifest, even with the maximum number of shards and the longest class
# names.
MAX_BYTES = 64 * 2**20
MAX_AXES = 4
# Largest size of the array of class names in bytes.
MAX_CLASSES_BYTES = 2**28
# Dtypes of samples.
DTYPE = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class SampleSet:
    """The samples that a manifest describes."""

    format: str
    n: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    classes: list[Any]

    def restore(self, data: DataSet, *, is_resized: bool = False) -> DataSet:
        """The samples and labels that were generated, from ``data`` as its reader returned it."""
        n_axes = data.n_axes or 2
        is_float = is_resized and n_axes == 3  # volumes are interpolated
        found = (len(data.X), self.dtype if is_float else data.X.dtype.newbyteorder("="))
        if found != (self.n, self.dtype):
            raise ValueError(
                f"`{data.name}` must hold {self.n:,} samples of {self.dtype}, as its {MANIFEST} "
                f"says, got {found[0]:,} of {found[1]}. `dreamwarp verify` lists missing and "
                "changed files, and `dreamwarp sample --resume` makes them again."
            )
        stored = data.X.shape[1:]
        shape = (*self.shape[:-n_axes], *stored[-n_axes:]) if is_resized else self.shape
        if np.prod(stored) != np.prod(shape):
            raise ValueError(
                f"`{data.name}` must hold samples of shape {shape}, as its {MANIFEST} says, got "
                f"{stored}. Make it again."
            )
        X = data.X if stored == shape else data.X.reshape(self.n, *shape)
        return replace(data, X=X, y=self._restore_labels(data))

    def _restore_labels(self, data: DataSet) -> Any:
        """Labels of the manifest: folder names may represent integers."""
        known = {str(label): label for label in self.classes}
        names = [str(label) for label in data.classes.tolist()]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(
                f"`{data.name}` must have only labels of its {MANIFEST}, got "
                f"{brief(unknown[0])}. Remove files that do not belong to it, or make it again."
            )
        return np.array([known[name] for name in names])[data.codes]


def find_set(folder: str | os.PathLike[str]) -> SampleSet | None:
    """The set that the manifest in a folder describes; None without a dreamwarp manifest.

    ValueError if the set is incomplete or the manifest is invalid.
    """
    file = Path(folder, MANIFEST)
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        content = stream.read(min(MAX_BYTES, file.stat().st_size) + 1)
    try:
        record = parse_record(file, content)
    except ValueError:  # not ours
        return None
    settings, shards = check_record(file, record)
    if not isinstance(shards, list):
        raise malformed(file, "it must list shards")
    n_done = sum(shard is not None for shard in shards)
    if n_done < len(shards):
        raise ValueError(
            f"`{folder}` is not complete: {n_done} of {len(shards)} shards have been made. Make "
            "the others with `dreamwarp sample --resume` (`resume=True`)."
        )
    names = ("format", "n", "shape", "dtype", "classes")
    format, n, shape, dtype, classes = (settings[name] for name in names)
    return SampleSet(format, n, tuple(shape), np.dtype(dtype), classes)


# -- checks of manifests


def parse_record(title: object, content: bytes) -> dict[str, Any]:
    """Parse a manifest; raise if it is not one of dreamwarp. ``title`` names it in errors."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a number")

    if len(content) > MAX_BYTES:
        raise malformed(title, f"it has more than {MAX_BYTES} bytes")
    try:
        record = json.loads(content, parse_constant=refuse)
    except RecursionError:
        raise malformed(title, "it is nested too deeply") from None
    except ValueError as error:
        raise malformed(title, f"it is not JSON ({error})") from None
    if not isinstance(record, dict) or record.get("kind") != MANIFEST_KIND:
        raise malformed(title, "it is of another kind")
    return record


def check_record(title: object, record: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Settings and shards of a manifest; raise if a setting is invalid. Shards are not checked."""
    if record.get("version") != VERSION:
        raise ValueError(
            f"`{title}` has version {brief(record.get('version'))}, but this library reads version "
            f"{VERSION}. Use the library that wrote it."
        )
    settings = record.get("settings")
    if isinstance(settings, dict):
        settings.setdefault("interpolation", "linear")  # of sets made before there was a choice
    if not isinstance(settings, dict) or set(settings) != set(SETTINGS):
        raise malformed(title, f"its settings must be {', '.join(SETTINGS)}")
    for name, is_good in SETTINGS.items():
        if not is_good(settings[name]):
            raise malformed(title, f"its `{name}` can't be {brief(settings[name])}")
    if settings["first"] + settings["n"] > MAX_SAMPLE_NUMBER:
        raise malformed(title, "its sample numbers are too large")
    try:
        count_bytes("a sample", settings["shape"], np.dtype(settings["dtype"]))
    except ValueError as error:
        raise malformed(title, str(error)) from None
    shards = record.get("shards")
    if record.get("sha256", sha256 := hash_content(settings, shards)) != sha256:
        raise malformed(title, "its contents do not match its SHA-256 hash")
    return settings, shards


def hash_content(settings: dict[str, Any], shards: Any) -> str:
    """SHA-256 of settings and shards. Manifests contain it, except older ones."""
    return hashlib.sha256(json.dumps([settings, shards], sort_keys=True).encode()).hexdigest()


def malformed(title: object, reason: str) -> ValueError:
    """The error for an invalid manifest."""
    return ValueError(
        f"`{title}` is not the manifest of a set of samples: {reason}. Remove the set and make it "
        "again."
    )


def is_count(value: Any) -> bool:
    """Whether a value is a valid number of samples."""
    return type(value) is int and 1 <= value < MAX_SAMPLE_NUMBER


def brief(value: Any) -> str:
    """A value as text, shortened if it is longer than a hash."""
    text = repr(value)
    return text if len(text) <= 70 else f"{text[:67]}..."


def _are_classes(value: Any) -> bool:
    """Whether a value is a list of distinct labels, all strings or all integers."""
    if not isinstance(value, list) or {type(label) for label in value} not in ({str}, {int}):
        return False
    try:
        names = [str(check_label(label)) for label in value]
    except ValueError:
        return False
    # In an array, every name takes as much memory as the longest.
    n_bytes = 4 * len(names) * max(map(len, names))
    return n_bytes <= MAX_CLASSES_BYTES and len(set(names)) == len(names)


def is_hash(value: Any) -> bool:
    """Whether a value is a SHA-256 in hexadecimal."""
    return isinstance(value, str) and SHA256.fullmatch(value) is not None


# All that the bytes of a set depend on, and whether a value is valid.
SETTINGS: dict[str, Callable[[Any], Any]] = {
    "n": is_count,
    "first": lambda value: value == 0 or is_count(value),
    "shard_size": is_count,
    "format": lambda value: value in FORMATS,
    "seed": lambda value: type(value) is int and 0 <= value < 2**64,
    "strength": lambda v: is_real(v) and 0 <= v < (MAX_SAMPLE_NUMBER if type(v) is int else inf),
    "balance": lambda value: value in BALANCES,
    "interpolation": lambda value: value in INTERPOLATIONS,
    "shape": lambda v: isinstance(v, list) and 1 <= len(v) <= MAX_AXES and all(map(is_count, v)),
    "dtype": lambda value: isinstance(value, str) and DTYPE.fullmatch(value),
    "classes": _are_classes,
    "model": is_hash,
    "data": is_hash,
}
