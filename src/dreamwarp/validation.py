"""Checks of what users pass in. Messages say what must hold, what came, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Choice = TypeVar("Choice", bound=str)


def as_finite_array(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """A C-ordered float64 array without NaN or infinity."""
    array = np.asarray(values)
    if array.dtype == object or not (
        np.issubdtype(array.dtype, np.number) or array.dtype == bool
    ):
        raise TypeError(f"`{name}` must be an array of numbers, got dtype {array.dtype}.")
    if np.iscomplexobj(array):
        raise TypeError(f"`{name}` must be real, got dtype {array.dtype}.")
    array = np.ascontiguousarray(array, dtype=np.float64)
    if not np.isfinite(array).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"`{name}` must be finite, got {array[first]} at index {first}.")
    return array


def check_choice(name: str, value: Choice, choices: Sequence[str]) -> Choice:
    """``value``, if it is one of ``choices``."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}, got {value!r}.")
    return value
