"""Model files: safetensors, with a JSON description of the model in the header.

Files are not trusted. safetensors checks the layout: arrays fill the file without gap or overlap,
and their sizes match their shapes. Before an array is read, the description is checked, and the
arrays against it. The fingerprint is checked before the space is built, which takes time cubic in
its size.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.files import as_path, write_beside
from dreamwarp.core.version import __version__
from dreamwarp.data.guards import check_file
from dreamwarp.model.fitting import DISTRIBUTIONS, KINDS, ClassFit
from dreamwarp.model.gaussian import Gaussian, Shapes
from dreamwarp.model.labels import check_classes
from dreamwarp.model.settings import AMOUNT, LARGEST_VALUE, RULES, SHARE, Rule, check_settings
from dreamwarp.space import WarpSpace
from dreamwarp.space.basis import BOUNDARIES
from dreamwarp.space.tessellation import MAX_AXES

if TYPE_CHECKING:
    from dreamwarp.model.warpmodel import WarpModel

Record = Mapping[str, Any]

# Metadata entry that holds the description. There is only one: safetensors writes several in random
# order, and equal models should give equal files.
METADATA_KEY = "dreamwarp.WarpModel"
# Versions of the format. 1: warps multiplied by the strength. 2: warps as learned. 3: with a
# Gaussian for samples that are not templates. 4: Gaussians of warps from the centre of a class,
# which are also the noise of templates.
VERSION = 4
# Kinds of models that earlier versions wrote with the same format.
FORMER_KINDS = ("kde",)
# Largest number of characters of a description: enough for 100,000 classes, and half of what
# safetensors reads.
MAX_DESCRIPTION = 2**25
# Fields of the description: their types, or the rules of numbers. The fingerprint covers all but
# the versions.
Fields = dict[str, type | Rule]
DESCRIBED: Fields = {
    "space": dict, "settings": dict, "strength": AMOUNT, "pool": dict, "classes": list,
}  # fmt: skip
FILE_FIELDS: Fields = DESCRIBED | {"library_version": str, "fingerprint": str}
# Those of a class; as in ``ClassFit``.
FIT_FIELDS: Fields = {
    "n_pairs": Rule(low=0, is_whole=True), "shrinkage": SHARE, "pooling": SHARE, "fell_back": bool,
}  # fmt: skip


# -- writing


def save_model(model: WarpModel, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, atomically."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    description, arrays = describe(model), arrays_of(model)
    contents = {
        "version": VERSION,
        **description,
        "library_version": __version__,
        # Not ``model.fingerprint``: a model that was read keeps that of its file.
        "fingerprint": hash_contents(description, arrays),
    }
    text = json.dumps(contents, allow_nan=False)
    if len(text) > MAX_DESCRIPTION:
        raise ValueError(
            f"the labels of {len(model.classes)} classes take {len(text)} characters, too many for "
            "a model file. Use shorter labels, such as numbers."
        )
    with write_beside(path) as temporary:
        try:
            save_file(arrays, temporary, {METADATA_KEY: text})
        except SafetensorError as error:
            raise OSError(
                f"`{path}` can't be written: {error}. Choose a folder that has room for it."
            ) from error


def describe(model: WarpModel) -> dict[str, Any]:
    """All of a model but its arrays: the fields in ``DESCRIBED``."""
    classes = []
    for label, part in zip(model.classes, model.distributions, strict=True):
        fit = model.fits[label]
        record = {"label": label, **asdict(fit)}
        classes.append(record | ({} if fit.fell_back else describe_part(part)))
    return {
        "space": {"cells": list(model.space.cells), "boundary": model.space.boundary},
        "settings": model.settings,
        "strength": model.strength,
        "pool": describe_part(model.pooled),
        "classes": classes,
    }


def describe_part(part: Gaussian) -> dict[str, Any]:
    """Kind and parameters of a distribution."""
    return {"kind": part.kind, "parameters": {name: getattr(part, name) for name in part.scalars}}


def arrays_of(model: WarpModel) -> dict[str, NDArray[Any]]:
    """The arrays of a model by their names in a file."""
    prefixes = _prefixes(model.fits[label].fell_back for label in model.classes)
    parts = dict(zip(prefixes, model.distributions, strict=True)) | {"pool": model.pooled}
    return {
        f"{prefix}.{name}": np.ascontiguousarray(getattr(part, name))
        for prefix, part in parts.items()
        for name in part.shapes
    }


def _prefixes(fell_back: Iterable[bool]) -> list[str]:
    """Prefixes of the arrays of classes: their numbers, or that of the pool they fell back to."""
    return ["pool" if fell else str(number) for number, fell in enumerate(fell_back)]


def hash_contents(description: Record, arrays: Mapping[str, NDArray[Any]]) -> str:
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


class _OtherVersion(ValueError):
    """A file is of another version, but not damaged."""


def load_model(path: str | os.PathLike[str]) -> WarpModel:
    """Read a model; a ValueError names the file and what is wrong with it."""
    from safetensors import SafetensorError

    file = check_file(as_path(path))
    try:
        return _read(file)
    except _OtherVersion as error:
        raise ValueError(str(error)) from None
    except (SafetensorError, RecursionError, TypeError, ValueError) as error:
        what = str(error).rstrip(".")  # recursion: deeply nested JSON
        if isinstance(error, SafetensorError):
            what = f"its layout is damaged, or not ours ({what[:200]})"
        raise ValueError(
            f"`{file}` is not a usable model file: {what}. Save the model again."
        ) from error


def _read(file: Path) -> WarpModel:
    from safetensors import safe_open

    from dreamwarp.model.warpmodel import WarpModel

    with safe_open(file, framework="numpy") as stored:
        description = _read_description(file, stored.metadata() or {})
        _check_description(file, description)
        dim = _check_arrays(stored, description)
        _check_space(description["space"], dim)
        arrays = {name: np.array(stored.get_tensor(name)) for name in stored.keys()}  # noqa: SIM118
    for name, array in arrays.items():
        if not (np.abs(array) <= LARGEST_VALUE).all():  # false for NaN too
            raise ValueError(f"array {name!r} holds numbers that are not finite, or too large")
    parts = {
        prefix: _make_part(prefix, record, arrays) for prefix, record in _parts(description).items()
    }
    if hash_contents(description, arrays) != description["fingerprint"]:
        raise ValueError("its contents do not match its fingerprint, so it was damaged")
    distributions, fits, classes = {}, {}, description["classes"]
    prefixes = _prefixes(record["fell_back"] for record in classes)
    for prefix, record in zip(prefixes, classes, strict=True):
        distributions[record["label"]] = parts[prefix]
        fits[record["label"]] = ClassFit(**{name: record[name] for name in FIT_FIELDS})
    found = WarpModel(
        make_space(description["space"], dim), distributions, parts["pool"], fits,
        description["settings"], description["strength"],
    )  # fmt: skip
    # Keep the stored fingerprint: files may have fields that are no longer used, and sample sets
    # made from them must stay resumable.
    found.fingerprint = description["fingerprint"]
    return found


def _read_description(file: Path, metadata: Mapping[str, str]) -> Record:
    """Parse the description and check its format version."""
    text = metadata.get(METADATA_KEY)
    if text is None or len(text) > MAX_DESCRIPTION:
        raise ValueError("it was not written by dreamwarp")
    try:
        description = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("its description of the model is not JSON") from None
    if not isinstance(description, dict):
        raise ValueError("its description of the model is not a JSON object")
    version = description.get("version")
    if type(version) is not int or version < 1:
        raise ValueError(f"its format version is {version!r:.40}")
    if version != VERSION:
        raise _OtherVersion(
            f"`{file}` has format {version!r:.40}, but this dreamwarp reads format {VERSION}. "
            f"{'Fit' if version < VERSION else 'Upgrade dreamwarp, or fit'} the model again."
        )
    return description


def _parts(description: Record) -> dict[str, Any]:
    """The descriptions of the distributions by the prefix of their arrays."""
    classes = description["classes"]
    prefixes = _prefixes(record["fell_back"] for record in classes)
    return dict(zip(prefixes, classes, strict=True)) | {"pool": description["pool"]}


def _make_part(prefix: str, record: Record, arrays: Mapping[str, NDArray[Any]]) -> Gaussian:
    form = DISTRIBUTIONS[record["kind"]]
    fields = {name: arrays[f"{prefix}.{name}"] for name in form.shapes}
    part = form(**fields, **{name: record["parameters"][name] for name in form.scalars})
    part.check(prefix)
    return part


# -- checks before arrays are read


def _check_description(file: Path, description: Record) -> None:
    """Raise if a description lacks a field or has one of a wrong type."""
    _check_fields("the model", description, FILE_FIELDS)
    settings = description["settings"]
    if settings.get("kind") in FORMER_KINDS:
        raise _OtherVersion(
            f"`{file}` holds a model of kind {settings['kind']!r}, which this version does not "
            f"have. Fit the model again, of kind {' or '.join(map(repr, KINDS))}."
        )
    if settings.get("kind") not in KINDS:
        raise ValueError(f"its kind {settings.get('kind')!r:.40} is unknown")
    check_settings(settings)
    _check_part("the pool", description["pool"], "gaussian")
    for number, record in enumerate(description["classes"]):
        where = f"class number {number}"
        _check_fields(where, record, {"label": object, **FIT_FIELDS})
        if not record["fell_back"]:
            _check_part(where, record, settings["kind"])
    check_classes(record["label"] for record in description["classes"])


def _check_part(where: str, record: Any, kind: str) -> None:
    _check_fields(where, record, {"kind": str, "parameters": dict})
    if record["kind"] != kind:
        raise ValueError(f"{where} is of kind {record['kind']!r:.40} instead of {kind!r}")
    amounts: Fields = {name: RULES[name] for name in DISTRIBUTIONS[kind].scalars}
    _check_fields(where, record["parameters"], amounts)


def _check_fields(where: str, record: Any, wanted: Fields) -> None:
    """Raise unless a record has fields of these types or rules; ``object``: of any type."""
    if not isinstance(record, dict):
        raise ValueError(f"{where} is not described")
    for name, rule in wanted.items():
        if name not in record:
            raise ValueError(f"{where} lacks a {name!r}")
        value = record[name]
        if not (rule.allows(value) if isinstance(rule, Rule) else rule in (object, type(value))):
            raise ValueError(f"{name!r} of {where} is {value!r:.40}")


def _check_arrays(stored: Any, description: Record) -> int:
    """Raise if the arrays do not match the description; return d."""
    shapes = {
        prefix: DISTRIBUTIONS[part["kind"]].shapes for prefix, part in _parts(description).items()
    }
    names = {f"{prefix}.{name}" for prefix in shapes for name in shapes[prefix]}
    if names != (there := set(stored.keys())):
        odd = sorted(names ^ there)[0]
        raise ValueError(f"it {'lacks' if odd in names else 'must not have'} an array {odd!r:.80}")
    dims = {_check_shapes(prefix, of_part, stored) for prefix, of_part in shapes.items()}
    if len(dims) > 1:
        raise ValueError(f"its parts differ in their number of parameters: {sorted(dims)}")
    return dims.pop()


def _check_shapes(prefix: str, shapes: Shapes, stored: Any) -> int:
    """Raise if dtypes or shapes do not match; return d."""
    sizes: dict[str, int] = {}
    for name, (dtype, *words) in shapes.items():
        array = stored.get_slice(f"{prefix}.{name}")
        got_dtype, got = array.get_dtype(), array.get_shape()
        expected = [
            sizes.setdefault(word, size) if isinstance(word, str) else word
            for word, size in zip(words, got, strict=False)
        ]
        if got_dtype != dtype or len(got) != len(words) or got != expected or 0 in got:
            raise ValueError(
                f"array '{prefix}.{name}' should be {dtype} of shape "
                f"({', '.join(map(str, words))}), got {got_dtype} of {tuple(got)!s:.80}"
            )
    return sizes["dim"]


def _check_space(record: Any, dim: int) -> None:
    """Raise if the described space is invalid or can't have d parameters, without building it."""
    _check_fields("the space", record, {"cells": list, "boundary": str})
    cells = record["cells"]
    are_sizes = all(type(size) is int and 1 <= size < 2**48 for size in cells)
    if not are_sizes or not 1 <= len(cells) <= MAX_AXES:
        raise ValueError(f"its space has cells {cells!r:.40}")
    if record["boundary"] not in BOUNDARIES:
        raise ValueError(f"its space has boundary {record['boundary']!r:.40}")
    if prod(cells) > dim + 1:
        raise _other_dim(dim, cells, "far more")


def make_space(record: Record, dim: int) -> WarpSpace:
    """Build a space that passed ``_check_space``; raise if it does not have d parameters."""
    space = WarpSpace(record["cells"], record["boundary"])
    if space.dim != dim:
        raise _other_dim(dim, record["cells"], str(space.dim))
    return space


def _other_dim(dim: int, cells: list[int], found: str) -> ValueError:
    return ValueError(f"its arrays have {dim} parameters, but its space {tuple(cells)} has {found}")
