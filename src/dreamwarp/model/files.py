"""Model files: safetensors, with a description of the model in the header.

The header lists type, shape and offset of each array; ``__metadata__`` describes the model. Files
are not trusted: before arrays are read, safetensors checks the layout against the file size, and
``headers`` checks the arrays against the model and its space. The fingerprint is checked before the
space is made, which takes time cubic in its size.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.files import as_path, write_beside
from dreamwarp.core.labels import Label
from dreamwarp.core.version import __version__
from dreamwarp.data.guards import check_file
from dreamwarp.model.distribution import Distribution
from dreamwarp.model.fitting import DISTRIBUTIONS, ClassFit
from dreamwarp.model.headers import (
    FORMAT,
    MAX_DESCRIPTION,
    MAX_NUMBER,
    VERSION,
    Record,
    check_arrays,
    check_model,
    check_space,
    make_space,
    malformed,
    open_file,
    read_description,
)

if TYPE_CHECKING:
    from dreamwarp.model.warpmodel import WarpModel

# Fields of the description that the fingerprint covers: all but the versions.
DESCRIBED = ("space", "settings", "strength", "pool", "classes")


# -- writing


def save_model(model: WarpModel, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, atomically."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    description, arrays = describe(model), arrays_of(model)
    text = _describe_file(description, fingerprint(description, arrays))
    with write_beside(path) as temporary:
        try:
            save_file(arrays, temporary, {FORMAT: text})
        except SafetensorError as error:
            raise OSError(
                f"`{path}` can't be written: {error}. Choose a folder that has room for it."
            ) from error


def _describe_file(description: Record, digest: str) -> str:
    """The description in the header, as JSON."""
    contents = {
        "version": VERSION,
        **description,
        "library_version": __version__,
        "fingerprint": digest,
    }
    text = json.dumps(contents, allow_nan=False)
    if len(text) > MAX_DESCRIPTION:
        raise ValueError(
            f"the labels of {len(description['classes'])} classes take {len(text)} characters, too "
            "many for a model file. Use shorter labels, such as numbers."
        )
    return text


def describe(model: WarpModel) -> dict[str, Any]:
    """All of a model but its arrays: the fields in ``DESCRIBED``."""
    space = model.space
    return {
        "space": {
            "cells": list(space.cells),
            "boundary": space.boundary,
            "volume_preserving": False,  # part of the fingerprint
        },
        "settings": model.settings,
        "strength": model.strength,
        "pool": _describe_part(model.pooled),
        "classes": [_describe_class(model, label) for label in model.classes],
    }


def _describe_class(model: WarpModel, label: Label) -> dict[str, Any]:
    fit = model.fits[label]
    record = {
        "label": label,
        "n_pairs": fit.n_pairs,
        "shrinkage": fit.shrinkage,
        "pooling": fit.pooling,
        "fell_back": fit.fell_back,
    }
    return record if fit.fell_back else record | _describe_part(model.distribution(label))


def _describe_part(part: Distribution) -> dict[str, Any]:
    return {"kind": part.kind, "parameters": part.parameters()}


def arrays_of(model: WarpModel) -> dict[str, NDArray[Any]]:
    """The arrays of a model by their names in a file: classes by number, and the pool."""
    parts: dict[str, Distribution] = {
        str(number): model.distribution(label)
        for number, label in enumerate(model.classes)
        if not model.fits[label].fell_back
    }
    parts["pool"] = model.pooled
    return {
        f"{prefix}.{name}": np.ascontiguousarray(array)
        for prefix, part in parts.items()
        for name, array in part.arrays().items()
    }


def fingerprint(description: Record, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Hexadecimal SHA-256 of the description and the arrays of a model."""
    described = {name: description[name] for name in DESCRIBED}
    digest = hashlib.sha256()
    digest.update(json.dumps(described, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {little.dtype.str} {little.shape}\n".encode())
        digest.update(little.data)
    return digest.hexdigest()


# -- reading


def load_model(path: str | os.PathLike[str]) -> WarpModel:
    """Read a model; a ValueError names the file and what is wrong with it."""
    from dreamwarp.model.warpmodel import WarpModel

    file = check_file(as_path(path))
    with open_file(file) as stored:
        record = read_description(file, stored.metadata())
        check_model(file, record)
        dim = check_arrays(file, stored, record)
        check_space(file, record["space"], dim)
        arrays = {name: np.array(stored.get_tensor(name)) for name in stored.keys()}  # noqa: SIM118
    _check_numbers(file, arrays)
    pooled = _make_part(file, "pool", record["pool"], arrays)
    distributions, fits = {}, {}
    for number, part in enumerate(record["classes"]):
        fell_back = part["fell_back"]
        label, prefix = part["label"], str(number)
        distributions[label] = pooled if fell_back else _make_part(file, prefix, part, arrays)
        fits[label] = ClassFit(part["n_pairs"], part["shrinkage"], part["pooling"], fell_back)
    if not _is_intact(record, arrays):
        raise malformed(file, "its contents do not match its fingerprint, so it was damaged")
    space = make_space(file, record["space"], dim)
    return WarpModel(space, distributions, pooled, fits, record["settings"], record["strength"])


def _is_intact(record: Record, arrays: Mapping[str, NDArray[Any]]) -> bool:
    try:
        return fingerprint(record, arrays) == record["fingerprint"]
    except RecursionError:  # deeply nested JSON where a label or a number should be
        return False


def _check_numbers(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, array in arrays.items():
        if not (np.abs(array) <= MAX_NUMBER).all():  # false for NaN too
            raise malformed(file, f"array {name!r} holds numbers that are not finite, or too large")


def _make_part(file: Path, prefix: str, record: Record, arrays: dict[str, NDArray[Any]]) -> Any:
    kind = DISTRIBUTIONS[record["kind"]]
    fields = {name: arrays[f"{prefix}.{name}"] for name in kind.shapes}
    part = kind(**fields, **{name: record["parameters"][name] for name in kind.scalars})
    try:
        part.check()
    except ValueError as error:
        raise malformed(file, f"part {prefix!r} has {error}") from None
    return part
