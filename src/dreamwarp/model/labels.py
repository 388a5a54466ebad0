"""The classes of a model: labels of one type, strings, integers or booleans."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.labels import MAX_LABEL, Label, check_label, list_labels

# Remedies for an unknown label.
USE_POOL = 'Use unknown="pool" for the warps of all classes.'
USE_NONE = "Use label=None for the warps of all classes."


def check_classes(labels: Iterable[Any]) -> tuple[Label, ...]:
    """Return labels as a tuple; raise unless they have one type and differ."""
    classes = tuple(check_label(label) for label in labels)
    if not classes:
        raise ValueError("there must be at least one class, got none.")
    types = sorted({type(label).__name__ for label in classes})
    if len(types) > 1:
        raise TypeError(f"labels must be of one type, got {' and '.join(types)}. Convert them.")
    if len(set(classes)) < len(classes):
        twice = next(label for label in classes if classes.count(label) > 1)
        raise ValueError(f"labels must differ, got {twice!r} twice.")
    return classes


def encode(labels: Any, classes: Sequence[Label]) -> NDArray[np.int64]:
    """Index of each label (n,) among the classes; -1 if unknown.

    True and 1 are the same label, and False and 0.
    """
    are_words, values = type(classes[0]) is str, np.asarray(labels)
    if values.ndim != 1:
        raise ValueError(f"`labels` must have shape (n,), got {values.shape}.")
    if values.dtype == object or (isinstance(labels, list | tuple) and values.dtype.kind == "U"):
        # One by one: numpy turns numbers among strings into strings.
        table = {label: place for place, label in enumerate(classes)}
        return np.array([table.get(check_label(label), -1) for label in labels], np.int64)
    if values.size and values.dtype.kind not in "Uiub":
        raise TypeError(
            f"`labels` must be strings, integers or booleans, got dtype {values.dtype}. "
            "Convert float labels with y.astype(int)."
        )
    if are_words != (values.dtype.kind == "U"):
        return np.full(len(values), -1)
    if values.dtype.kind == "u":  # no label is larger than MAX_LABEL
        values = np.minimum(values, np.uint64(MAX_LABEL + 1))
    known = np.array(classes)
    if not are_words:
        values, known = values.astype(np.int64), known.astype(np.int64)
    order = np.argsort(known)
    places = order[np.minimum(np.searchsorted(known[order], values), len(known) - 1)]
    return np.where(known[places] == values, places, -1)


def label_key(key: int, label: Label | None) -> int:
    """The 64-bit random key of a class; None: of the pool.

    A hash of (key, type of the label, label). It must never change: results depend on it.
    """
    name = f"{type(label).__name__} {label}".encode(errors="surrogatepass")
    digest = hashlib.blake2b(name, digest_size=8, key=key.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


def refuse_unknown(label: Any, classes: Sequence[Label], remedy: str = USE_POOL) -> None:
    """Raise for an unknown label."""
    known = list_labels(classes)
    raise ValueError(f"label {label!r} is not one of the model's classes, {known}. {remedy}")
