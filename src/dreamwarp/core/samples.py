"""Reading and checking of samples. All public functions use these.

Samples are arrays of real numbers, (n, *spatial) or (n, channels, *spatial). The number of spatial
axes, ``ndim``, is given by the cells of a warp space.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Channels seem to be last if the last axis has at most MOST_CHANNELS entries (RGBA) and every axis
# before it has at least LEAST_PIXELS, which is more than a channel axis usually has.
MOST_CHANNELS, LEAST_PIXELS = 4, 8
# Bytes checked at a time: samples may be a memory map larger than memory.
CHUNK_BYTES = 16 * 2**20


def as_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return ``values`` as an array; raise unless they are real numbers of up to 64 bits."""
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty((), object)
    if array.dtype == object and isinstance(values, Sequence):
        shapes = sorted({np.shape(sample) for sample in values}, key=str)
        if len(shapes) > 1:
            raise ValueError(
                f"`{name}` must hold samples of one shape, got {', '.join(map(str, shapes))}. "
                "Resize or pad them first."
            )
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(
            f"`{name}` must be an array of booleans, integers or floating-point numbers of at most "
            f"64 bits, got dtype {array.dtype}."
        )
    return array


def check_layout(name: str, shape: Sequence[int], ndim: int, remedy: str = "") -> None:
    """Raise unless ``shape`` is (n, *spatial) or (n, channels, *spatial), channels not last."""
    found = tuple(shape)
    if len(found) not in (ndim + 1, ndim + 2):
        raise ValueError(
            f"`{name}` must have shape (n, *spatial) or (n, channels, *spatial) with {ndim} "
            f"spatial {'axis' if ndim == 1 else 'axes'}, got {found}. "
            f"{remedy or f'Pass one sample as `{name}[None]`.'}"
        )
    if 0 in found[1:]:
        raise ValueError(f"`{name}` must have at least one pixel, got shape {found}.")
    if are_channels_last(found[1:], ndim):
        refuse_channels_last(name, found, 1)


def are_channels_last(sample_shape: Sequence[int], ndim: int) -> bool:
    """Whether the shape of a sample with channels looks like (*spatial, channels)."""
    *others, last = sample_shape
    return len(others) == ndim and last <= MOST_CHANNELS and min(others) >= LEAST_PIXELS


def refuse_channels_last(name: str, shape: tuple[int, ...], axis: int) -> None:
    """Raise the error for channels that must move from the last axis to ``axis``."""
    raise ValueError(
        f"`{name}` must have its channels before its spatial axes, got shape {shape}, "
        f"which seems to have them last. Use `np.moveaxis({name}, -1, {axis})`, or `.movedim` for "
        "tensors."
    )


def check_finite(name: str, values: NDArray[Any], *, at_most: float = math.inf) -> None:
    """Raise if any value is NaN, infinite or larger in magnitude than ``at_most``."""
    if values.dtype.kind != "f":
        return
    for first, chunk in chunks(values):
        # Compare in float64: the bound may overflow to infinity in float16.
        if np.isfinite(chunk).all() and (
            at_most == math.inf or float(np.abs(chunk).max(initial=0)) <= at_most
        ):
            continue
        is_wrong = ~(np.abs(chunk.astype(np.float64)) <= min(at_most, np.finfo(np.float64).max))
        place = np.argwhere(is_wrong)[0].tolist()
        found = chunk[tuple(place)]
        bound = "" if at_most == math.inf else f" and at most {at_most:g} in size"
        raise ValueError(
            f"`{name}` must be finite{bound}, got {'NaN' if np.isnan(found) else found} at index "
            f"{(first + place[0], *place[1:])}. Leave out such samples, or fill in missing values."
        )


def chunks(X: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Chunks of about ``CHUNK_BYTES``: index of the first sample, and the samples."""
    step = max(1, CHUNK_BYTES * len(X) // max(1, X.nbytes))
    return ((first, X[first : first + step]) for first in range(0, len(X), step))


def add_channels(X: NDArray[Any], ndim: int) -> NDArray[Any]:
    """Samples as (n, channels, *spatial)."""
    return X if X.ndim == ndim + 2 else X[:, None]


def pixel_centers(
    shape: Sequence[int], first: int = 0, stop: int | None = None
) -> NDArray[np.float64]:
    """Centres in the unit domain of pixels ``first`` to ``stop`` - 1, row-major: (m, ndim)."""
    numbers = np.arange(first, math.prod(shape) if stop is None else stop)
    return (np.stack(np.unravel_index(numbers, tuple(shape)), axis=-1) + 0.5) / shape


def spaced(n: int, n_most: int) -> NDArray[np.int64]:
    """At most ``n_most`` indices from 0 to n - 1, evenly spaced, with both ends."""
    return np.linspace(0, n - 1, min(n, n_most)).round().astype(np.int64)


def choose_balanced(groups: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Indices, in ascending order, of at most ``n`` items, as even over the groups as possible."""
    if len(groups) <= n:
        return np.arange(len(groups))
    rng = np.random.default_rng(0)
    order = rng.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    codes, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    # The first item of every group, then the second of every group, and so on.
    ranks = np.arange(len(groups)) - np.repeat(starts, counts)
    return np.sort(order[np.argsort(ranks, kind="stable")[:n]])


# -- samples as rows


def unflatten(name: str, X: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Rows (n, features) as samples (n, *shape)."""
    if math.prod(shape) != X.shape[1]:
        raise ValueError(
            f"`{name}` must have rows of {math.prod(shape)} features for image_shape="
            f"{tuple(shape)}, got {X.shape[1]}. Change `image_shape`, or pass samples in their "
            "original shape."
        )
    return X.reshape(len(X), *shape)


def check_image_shape(image_shape: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return ``image_shape`` as (*spatial) or (channels, *spatial); raise if it is neither."""
    sizes = tuple(np.ravel(image_shape).tolist())
    whole = all(isinstance(size, int) and size > 0 for size in sizes)
    if not whole or len(sizes) not in (ndim, ndim + 1):
        raise ValueError(
            f"`image_shape` must list {ndim} sizes, or {ndim + 1} with the number of channels "
            f"first, for `cells` of {ndim} numbers, got {image_shape!r}."
        )
    return sizes
