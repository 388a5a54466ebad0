"""Checks of arguments. Messages state the rule, the value and the remedy."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.defaults import DEFAULT_CELLS, suit_cells

PACKAGE = Path(__file__).parents[1]

Choice = TypeVar("Choice", bound=str)


def as_finite_array(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return ``values`` as a C-ordered float64 array; raise if any is NaN or infinite."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` must be an array of real numbers, got dtype {array.dtype}.")
    with np.errstate(over="ignore"):  # long doubles may overflow to infinity, caught below
        # Copy read-only arrays: numba would compile another kernel for them.
        array = np.require(array, np.float64, ["C", "W"])
    if not np.isfinite(array).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"`{name}` must be finite, got {array[first]} at index {first}.")
    return array


def check_choice(name: str, value: Choice, choices: Sequence[str]) -> Choice:
    """Return ``value``; raise unless it is one of ``choices``."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}, got {value!r}.")
    return value


def check_integer(name: str, value: Any, lowest: int) -> int:
    """Return ``value`` as int; raise unless it is an integer of at least ``lowest``."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < lowest:
        raise ValueError(f"`{name}` must be an integer of at least {lowest}, got {value!r}.")
    return int(value)


def is_real(value: Any) -> bool:
    """Whether a value is a real number, and not a boolean."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_positive(name: str, value: Any, or_else: str = "") -> float:
    """Return a float; raise unless above 0 and finite. Errors list ``or_else`` as allowed too."""
    if not is_real(value) or not 0.0 < float(value) < np.inf:
        raise ValueError(f"`{name}` must be a positive number{or_else}, got {value!r}.")
    return float(value)


def check_factor(name: str, value: Any, or_else: str = "") -> float:
    """Return a float; raise if negative or not finite. ``or_else`` as above."""
    if not is_real(value) or not 0.0 <= float(value) < np.inf:
        raise ValueError(f"`{name}` must be a finite, non-negative number{or_else}, got {value!r}.")
    return float(value)


def check_fraction(name: str, value: Any, or_else: str = "") -> float:
    """Return a float; raise unless it is from 0 to 1. ``or_else`` as above."""
    if not is_real(value) or not 0.0 <= float(value) <= 1.0:
        raise ValueError(f"`{name}` must be a number from 0 to 1{or_else}, got {value!r}.")
    return float(value)


# Largest number of parameters of warps that are learned. Aligning a pair with half of them takes
# about half a minute of one core, and time grows with the cube.
MAX_PARAMETERS = 4000


def check_parameters(cells: Sequence[int], dim: int) -> None:
    """Raise if warps of ``dim`` parameters are too many to learn in sensible time."""
    if dim > MAX_PARAMETERS:
        raise ValueError(
            f"`cells` must give warps of at most {MAX_PARAMETERS:,} parameters to be learned in "
            f"sensible time, got {dim:,} for {' x '.join(map(str, cells))} cells. Use fewer, such "
            f"as {'x'.join(map(str, DEFAULT_CELLS[len(cells)]))}."
        )


def check_resolution(name: str, shape: Sequence[int], cells: Sequence[int]) -> None:
    """Raise if samples have a single pixel along some warped axes, but not along all.

    Samples have shape (n, ..., *spatial); the last ``len(cells)`` axes are spatial.
    """
    spatial = tuple(shape)[len(shape) - len(cells) :]
    size = " x ".join(map(str, spatial))
    if min(spatial) < 2 <= max(spatial):
        is_series = sum(n > 1 for n in spatial) == 1
        raise ValueError(
            f"`{name}` must have at least 2 pixels along every warped axis, got shape "
            f"{tuple(shape)}: with {len(cells)} numbers in `cells`, samples have {size} pixels. "
            "Give `cells` one number per axis of more than 1 pixel: "
            f"{'cells=(10,) for series' if is_series else 'cells=(4, 4) for images'}."
        )


def warn_of_fine_cells(shape: Sequence[int], cells: Sequence[int]) -> None:
    """Warn if samples of shape (n, ..., *spatial) have fewer pixels than cells along an axis."""
    spatial = tuple(shape)[len(shape) - len(cells) :]
    if any(n < k for n, k in zip(spatial, cells, strict=True)):
        size, asked = (" x ".join(map(str, sizes)) for sizes in (spatial, cells))
        warn_user(
            f"samples of {size} pixels have fewer pixels than cells ({asked}) along an axis: warps "
            "finer than a pixel are slow and can't be learned. Use fewer `cells`, each of several "
            f"pixels, such as {'x'.join(map(str, suit_cells(spatial)))}.",
            UserWarning,
        )


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the innermost caller outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def none_if_auto(
    check: Callable[..., float], name: str, value: Any, words: tuple[str, ...] = ()
) -> Any:
    """Return None for "auto", other ``words`` as they are, or a number that passes ``check``."""
    if isinstance(value, str) and value in ("auto", *words):
        return None if value == "auto" else value
    listed = " or ".join(f'"{word}"' for word in ("auto", *words))
    return check(name, value, or_else=f", or {listed}")
