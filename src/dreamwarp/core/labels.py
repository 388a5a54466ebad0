"""Reading of labels. All public functions use these.

A label is an integer, a string or a boolean. Integral floats become integers, bytes become strings,
and a column (n, 1) becomes (n,). Booleans stay booleans; True equals 1 and False equals 0.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Label: TypeAlias = "str | int | bool"

MAX_LABEL = 2**63 - 2
# Integers below this are exact in float64.
MAX_WHOLE = 2**53
# Largest number of labels that a message lists.
MAX_LISTED = 10


def check_label(label: Any) -> Label:
    """Return a label as a plain str, int or bool; raise if it is something else."""
    plain = label.item() if isinstance(label, np.generic) else label
    if type(plain) not in (str, int, bool):
        raise TypeError(
            f"labels must be strings, integers or booleans, got {label!r} "
            f"({type(label).__name__}). Convert float labels with y.astype(int)."
        )
    if type(plain) is int and abs(plain) > MAX_LABEL:
        raise ValueError(f"integer labels must be below 2^63 - 1 in magnitude, got {plain}.")
    if type(plain) is str and plain.endswith("\0"):
        raise ValueError(
            f"labels must not end in a zero character (\\0), which NumPy drops, got {plain!r}."
        )
    return plain


def list_labels(labels: Any) -> str:
    """Labels (n,) as text, at most ``MAX_LISTED`` of them."""
    few = ", ".join(repr(check_label(label)) for label in labels[:MAX_LISTED])
    more = len(labels) - MAX_LISTED
    return f"{few} and {more} more" if more > 0 else few


def as_labels(y: ArrayLike, n_samples: int, name: str = "`y`") -> NDArray[Any]:
    """Labels (n,) or (n, 1) as an array (n,) of integers, strings or booleans."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n_samples,):
        raise ValueError(
            f"{name} must have shape ({n_samples},), a label for each sample, got {labels.shape}: "
            "inconsistent numbers of samples. Pass one-hot labels as `y.argmax(axis=1)`."
        )
    if labels.dtype.kind == "O":
        labels = _as_plain(labels, name)
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    if labels.dtype.kind == "f":
        are_whole = (labels == np.rint(labels)) & (abs(labels) < MAX_WHOLE)
        labels = labels.astype(np.int64) if are_whole.all() else labels
    if labels.dtype.kind not in "biuU":
        value, remedy = _find_wrong(labels)
        raise ValueError(
            f"{name} must hold classes: integers, strings or booleans. Unknown label type: "
            f"{labels.dtype}, with values such as {value!r}. {remedy}"
        )
    return labels


def _as_plain(labels: NDArray[Any], name: str) -> NDArray[Any]:
    """Labels of dtype object as an array of a plain dtype."""
    types = sorted({type(label).__name__ for label in labels})
    words = {isinstance(label, str) for label in labels}
    plain = np.array(labels.tolist()) if len(words) == 1 else labels
    if plain.ndim != 1 or plain.dtype.kind == "O":
        raise ValueError(
            f"{name} must hold labels of one type, words or numbers, and none may be missing. "
            f"Unknown label type: {' and '.join(types)}."
        )
    return plain


def _find_wrong(labels: NDArray[Any]) -> tuple[Any, str]:
    """The first invalid label, and a remedy."""
    if labels.dtype.kind == "c":
        return labels[0].item(), "Complex data not supported."
    if labels.dtype.kind != "f":
        return labels[0].item(), "Give every class a number or a name."
    if not np.isfinite(labels).all():
        return labels[~np.isfinite(labels)][0].item(), "Leave out samples without a label."
    wrong = labels[(labels != np.round(labels)) | (abs(labels) >= MAX_WHOLE)]
    return wrong[0].item(), "Bin continuous values into classes first."
