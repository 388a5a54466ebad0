"""Check the headers of model files, which may be malicious.

safetensors checks the layout: arrays fill the file without gap or overlap, and their sizes match
their shapes. This module checks the JSON description, and the arrays against it, before any array
is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from dreamwarp.model.distribution import Shapes
from dreamwarp.model.fitting import DISTRIBUTIONS, KINDS
from dreamwarp.model.labels import check_classes
from dreamwarp.space import WarpSpace
from dreamwarp.space.basis import BOUNDARIES
from dreamwarp.space.tessellation import MAX_AXES

# Metadata entry that holds the description. There is only one: safetensors writes several in random
# order, and equal models should give equal files.
FORMAT = "dreamwarp.WarpModel"
# Versions of the format. 1: warps multiplied by the strength. 2: warps as learned. 3: with a
# Gaussian for samples that are not templates. 4: Gaussians of warps from the centre of a class,
# which are also the noise of templates.
VERSION = 4
# Largest number of characters of a description: enough for 100,000 classes, and half of what
# safetensors reads.
MAX_DESCRIPTION = 2**25
# Sums of squares of larger numbers may overflow float64.
MAX_NUMBER = 1e100

Record = Mapping[str, Any]


def malformed(file: Path, what: str) -> ValueError:
    """The error for a bad file."""
    return ValueError(f"`{file}` is not a usable model file: {what}. Save the model again.")


@contextmanager
def open_file(file: Path) -> Iterator[Any]:
    """Open a model file with safetensors; reads no array."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as stored:
            yield stored
    except SafetensorError as error:
        raise malformed(file, f"its layout is damaged, or not ours ({str(error)[:200]})") from None


# -- the description of a model


def read_description(file: Path, metadata: Mapping[str, str] | None) -> Record:
    """Parse the description and check its format version."""
    text = (metadata or {}).get(FORMAT)
    if text is None or len(text) > MAX_DESCRIPTION:
        raise malformed(file, "it was not written by dreamwarp")
    try:
        model = json.loads(text)
    except (ValueError, RecursionError):
        raise malformed(file, "its description of the model is not JSON") from None
    if not isinstance(model, dict):
        raise malformed(file, "its description of the model is not a JSON object")
    version = model.get("version")
    if type(version) is not int or version < 1:
        raise malformed(file, f"its format version is {version!r:.40}")
    if version < VERSION:
        raise ValueError(
            f"`{file}` has format {version}, of an older dreamwarp, but this one reads format "
            f"{VERSION}. Fit the model again."
        )
    if version > VERSION:
        raise ValueError(
            f"`{file}` has format {version!r:.40}, but this dreamwarp reads format {VERSION}. "
            "Upgrade dreamwarp, or fit the model again with this one."
        )
    return model


def check_model(file: Path, model: Record) -> None:
    """Raise if a description lacks a field or has one of a wrong type."""
    wanted = {
        "space": dict, "settings": dict, "strength": float, "pool": dict, "classes": list,
        "library_version": str, "fingerprint": str,
    }  # fmt: skip
    _check_fields(file, "the model", model, wanted)
    _check_settings(file, model["settings"])
    if model["strength"] < 0.0:
        raise malformed(file, f"its strength is {model['strength']}")
    _check_part(file, "the pool", model["pool"], "gaussian")
    for number, record in enumerate(model["classes"]):
        _check_class(file, f"class number {number}", record, model["settings"]["kind"])
    try:
        check_classes(record["label"] for record in model["classes"])
    except (TypeError, ValueError) as error:
        raise malformed(file, str(error).rstrip(".")) from None


def _check_settings(file: Path, settings: Record) -> None:
    if settings.get("kind") not in KINDS:
        raise malformed(file, f"its kind {settings.get('kind')!r:.40} is unknown")
    for name, value in settings.items():
        if not isinstance(value, str) and not _is_number(value):
            raise malformed(file, f"its setting {name!r:.40} is neither a word nor a number")
    given = settings.get("network_strength", 1.0)
    if not _is_number(given) or given < 0.0:
        raise malformed(file, f"its strength for networks is {given!r:.40}")


def _check_class(file: Path, where: str, record: Any, kind: str) -> None:
    wanted = {"n_pairs": int, "shrinkage": float, "pooling": float, "fell_back": bool}
    _check_fields(file, where, record, wanted)
    if "label" not in record:
        raise malformed(file, f"{where} lacks a 'label'")
    if not record["fell_back"]:
        _check_part(file, where, record, kind)


def _check_part(file: Path, where: str, record: Any, kind: str) -> None:
    _check_fields(file, where, record, {"kind": str, "parameters": dict})
    if record["kind"] != kind:
        raise malformed(file, f"{where} is of kind {record['kind']!r:.40} instead of {kind!r}")
    names = DISTRIBUTIONS[kind].scalars
    _check_fields(file, where, record["parameters"], dict.fromkeys(names, float))


def _check_fields(file: Path, where: str, record: Any, wanted: Mapping[str, type]) -> None:
    if not isinstance(record, dict):
        raise malformed(file, f"{where} is not described")
    for name, kind in wanted.items():
        if name not in record:
            raise malformed(file, f"{where} lacks a {name!r}")
        right = _is_number(record[name]) if kind is float else type(record[name]) is kind
        if not right:
            raise malformed(file, f"{name!r} of {where} is {record[name]!r:.40}")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -MAX_NUMBER <= value <= MAX_NUMBER


# -- arrays and space


def check_arrays(file: Path, stored: Any, model: Record) -> int:
    """Raise if the arrays do not match the description; return d."""
    parts = {"pool": model["pool"]} | {
        str(number): record
        for number, record in enumerate(model["classes"])
        if not record["fell_back"]
    }
    shapes = {prefix: DISTRIBUTIONS[record["kind"]].shapes for prefix, record in parts.items()}
    names = {f"{prefix}.{name}" for prefix in parts for name in shapes[prefix]}
    if names != (there := set(stored.keys())):
        odd = sorted(names ^ there)[0]
        state = "lacks" if odd in names else "must not have"
        raise malformed(file, f"it {state} an array {odd!r:.80}")
    dims = {_check_shapes(file, prefix, shapes[prefix], stored) for prefix in parts}
    if len(dims) > 1:
        raise malformed(file, f"its parts differ in their number of parameters: {sorted(dims)}")
    return dims.pop()


def _check_shapes(file: Path, prefix: str, shapes: Shapes, stored: Any) -> int:
    """Raise if dtypes or shapes do not match; return d."""
    sizes: dict[str, int] = {}
    for name, (kind, *words) in shapes.items():
        array = stored.get_slice(f"{prefix}.{name}")
        got_kind, got = array.get_dtype(), array.get_shape()
        expected = [
            sizes.setdefault(word, size) if isinstance(word, str) else word
            for word, size in zip(words, got, strict=False)
        ]
        if got_kind != kind or len(got) != len(words) or got != expected or 0 in got:
            raise malformed(
                file,
                f"array '{prefix}.{name}' should be {kind} of shape "
                f"({', '.join(map(str, words))}), got {got_kind} of {tuple(got)!s:.80}",
            )
    return sizes["dim"]


def check_space(file: Path, record: Any, dim: int) -> None:
    """Raise if the described space is invalid or can't have d parameters, without building it."""
    wanted = {"cells": list, "boundary": str, "volume_preserving": bool}
    _check_fields(file, "the space", record, wanted)
    cells: Sequence[Any] = record["cells"]
    are_sizes = all(type(size) is int and 1 <= size < 2**48 for size in cells)
    if not are_sizes or not 1 <= len(cells) <= MAX_AXES:
        raise malformed(file, f"its space has cells {cells!r:.40}")
    if record["boundary"] not in BOUNDARIES:
        raise malformed(file, f"its space has boundary {record['boundary']!r:.40}")
    if record["volume_preserving"]:  # spaces of earlier versions
        raise malformed(file, "its space preserves volumes, which is no longer supported")
    if prod(cells) > dim + 1:
        raise _other_dim(file, dim, cells, "far more")


def make_space(file: Path, record: Record, dim: int) -> WarpSpace:
    """Build a space that passed ``check_space``; raise if it does not have d parameters."""
    cells = record["cells"]
    try:
        space = WarpSpace(cells, record["boundary"])
    except ValueError as error:
        raise malformed(file, str(error).rstrip(".")) from None
    if space.dim != dim:
        raise _other_dim(file, dim, cells, str(space.dim))
    return space


def _other_dim(file: Path, dim: int, cells: Sequence[int], found: str) -> ValueError:
    return malformed(
        file, f"its arrays have {dim} parameters, but its space {tuple(cells)} has {found}"
    )
