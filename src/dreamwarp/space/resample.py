"""Linear, nearest and cubic interpolation of samples at arbitrary points.

A sample is a grid of values in the unit domain, pixel i of n at (i + 0.5) / n. A fill rule extends
it to an infinite grid of pixels, and interpolation works on that grid. With ``"constant"`` an image
therefore fades into the fill value over the width of a pixel (two if cubic), as with
``grid-constant`` of scipy or the zero padding of torch.

``"linear"`` and ``"cubic"`` interpolate the pixel values, and a constant region stays exactly
constant. Cubic is the Catmull-Rom spline, the cubic of four pixels that is exact for parabolas. A
cubic B-spline is slightly sharper, but through its prefilter every value depends on the whole
image: one NaN would spread everywhere, integers would need a floating-point copy, and the gradient
with respect to the image would need the transposed filter.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core import interpolation as kernels
from dreamwarp.core.compiled import count_chunks, spread
from dreamwarp.core.samples import as_array
from dreamwarp.core.validation import check_choice

if TYPE_CHECKING:
    from dreamwarp.space.warpspace import WarpSpace

Interpolation = Literal["linear", "nearest", "cubic"]
Smooth = Literal["linear", "cubic"]
Fill = Literal["edge", "constant", "reflect"]
FillRule = Literal["edge", "constant", "reflect", "wrap"]

INTERPOLATIONS = ("linear", "nearest", "cubic")
SMOOTH = ("linear", "cubic")
FILLS = ("edge", "constant", "reflect")
FILL_RULES = (*FILLS, "wrap")
STENCILS = {"linear": kernels.LINEAR, "cubic": kernels.CUBIC}
MAX_AXES = 3


def resample(
    values: ArrayLike,
    positions: ArrayLike,
    *,
    interpolation: Interpolation = "linear",
    fill: FillRule = "edge",
    fill_value: float = 0,
    n_threads: int | None = None,
) -> NDArray[Any]:
    """Values of samples at arbitrary points.

    Parameters
    ----------
    values : (n or 1, channels, *spatial)
        One, two or three spatial axes; any real dtype of up to 64 bits.
    positions : (n or 1, m, ndim)
        Points in the unit domain: coordinate k belongs to spatial axis k.
    fill : {"edge", "constant", "reflect", "wrap"}
        Pixels beyond the border: the nearest one (a a | a b c | c c), ``fill_value``, mirrored at
        the border (b a | a b c | c b), or from the other side (b c | a b c | a b).
    fill_value : number
        Must be representable in the dtype of ``values``.

    Returns
    -------
    (n, channels, m), in the dtype of ``values``. Integers are rounded, halves up, and clipped to
    the range of their dtype.

    Notes
    -----
    Arithmetic is float32 for integers of up to 16 bits and for float16 and float32, if the
    positions are float32 too; else float64, so 64-bit integers above 2^53 are rounded. Nearest
    interpolation copies.
    """
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    samples, points, n = _check_inputs(values, positions, fill)
    out = np.empty((n, samples.shape[1], points.shape[1]), samples.dtype)
    resample_into(
        out, samples, points, start=0, interpolation=interpolation, fill=fill,
        fill_value=fill_value, n_threads=n_threads,
    )  # fmt: skip
    return out


def resample_into(
    out: NDArray[Any],
    values: NDArray[Any],
    positions: NDArray[Any],
    *,
    start: int,
    interpolation: Interpolation,
    fill: FillRule,
    fill_value: float,
    n_threads: int | None,
) -> None:
    """:func:`resample` to ``out[:, :, start : start + m]``, of inputs already checked.

    ``out`` (n, channels, start + m or more) must be C-ordered and have the dtype of ``values``.
    """
    if interpolation == "nearest":
        # Values are copied as bits, so that one kernel serves all dtypes of the same size.
        bits = np.dtype(f"u{values.dtype.itemsize}")
        number = np.array(fill_number(fill, fill_value, values.dtype), values.dtype)
        shape = values.shape[2:]
        spread(
            kernels.pick, len(out) * _n_chunks(positions.shape[1]), shape,
            np.array(shape, positions.dtype), FILL_RULES.index(fill), number.view(bits)[()],
            _rows(values, 2).view(bits), _rows(positions, 1), start, out.view(bits),
            n_threads=n_threads,
        )  # fmt: skip
        return
    grid = _grid(values, positions, interpolation, fill, fill_value)
    images, numbers, first = values, out, start
    is_direct = values.dtype in (np.uint8, np.float32, np.float64)
    if not is_direct:
        images = values.astype(np.result_type(values.dtype, np.float32))
        numbers, first = np.empty((*out.shape[:2], positions.shape[1]), images.dtype), 0
    # For uint8 add one half, because storing truncates.
    limits = (0, 255, 0.5) if numbers.dtype == np.uint8 else (-np.inf, np.inf, 0)
    spread(
        kernels.interpolate, len(out) * _n_chunks(positions.shape[1]), *grid,
        tuple(map(grid.sizes.dtype.type, limits)), _rows(images, 2), _rows(positions, 1),
        first, numbers, n_threads=n_threads,
    )  # fmt: skip
    if not is_direct:
        out[:, :, start : start + positions.shape[1]] = _as_type(numbers, out.dtype)


def resample_vjp(
    values: ArrayLike,
    positions: ArrayLike,
    cotangent: ArrayLike,
    *,
    interpolation: Smooth = "linear",
    fill: FillRule = "edge",
    fill_value: float = 0,
    by_values: bool = True,
    by_positions: bool = True,
    n_threads: int | None = None,
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """Gradients of Σ cotangent · resample(values, positions) with respect to both arguments.

    Parameters
    ----------
    cotangent : (n, channels, m)
        Derivative of a loss with respect to the sampled values.
    by_values, by_positions : bool
        Which of the two to compute; the other is None.
    others
        As for :func:`resample`, except ``"nearest"``, which has no derivative.

    Returns
    -------
    by_values : shape of ``values``
    by_positions : shape of ``positions``
        Per unit of the domain, not per pixel. At pixel centres, where linear interpolation has a
        kink, the derivative from the right.

    If one image or one set of points is used for all samples, its gradient is the sum over them.
    """
    check_choice("interpolation", interpolation, SMOOTH)
    samples, points, n = _check_inputs(values, positions, fill)
    grid = _grid(samples, points, interpolation, fill, fill_value)
    number, m = grid.sizes.dtype, points.shape[1]
    cotangents = as_array("cotangent", cotangent)
    if cotangents.shape != (n, samples.shape[1], m):
        raise ValueError(
            "`cotangent` must have the shape of the sampled values, "
            f"{(n, samples.shape[1], m)}, got {cotangents.shape}."
        )
    cotangents = _frozen(np.ascontiguousarray(cotangents, dtype=number))
    value_gradient = position_gradient = None
    if by_values:
        value_gradient = np.zeros(samples.shape, number)
        rows = value_gradient.reshape(*samples.shape[:2], math.prod(grid.shape))
        spread(
            kernels.pull_values, len(samples) * samples.shape[1], *grid[:4], _rows(points, 1),
            cotangents, rows, n_threads=n_threads,
        )  # fmt: skip
    if by_positions:
        position_gradient = np.zeros((n, m, points.shape[2]), number)
        spread(
            kernels.pull_positions, n * _n_chunks(m), *grid,
            _rows(samples.astype(number, copy=False), 2), _rows(points, 1),
            cotangents, position_gradient, n_threads=n_threads,
        )  # fmt: skip
        if len(points) != n:
            position_gradient = position_gradient.sum(axis=0, keepdims=True)
    return value_gradient, position_gradient


# -- helpers


class Grid(NamedTuple):
    """Kernel arguments that come after the range of tasks and before the arrays."""

    stencil: tuple[int, ...]
    shape: tuple[int, ...]
    sizes: NDArray[Any]
    rule: int
    fill: Any


def _grid(
    values: NDArray[Any],
    positions: NDArray[Any],
    interpolation: Interpolation,
    fill: FillRule,
    fill_value: float,
) -> Grid:
    number = np.result_type(values.dtype, positions.dtype, np.float32).type
    shape = values.shape[2:]
    return Grid(
        STENCILS[interpolation], shape, np.array(shape, number), FILL_RULES.index(fill),
        number(fill_number(fill, fill_value, values.dtype)),
    )  # fmt: skip


def _n_chunks(n_points: int) -> int:
    return count_chunks(n_points, kernels.CHUNK)


def _rows(array: NDArray[Any], n_axes: int) -> NDArray[Any]:
    """Axes after the first ``n_axes`` flattened into one, C-ordered and read-only."""
    kept, joined = array.shape[:n_axes], array.shape[n_axes:]
    return _frozen(np.ascontiguousarray(array).reshape(*kept, math.prod(joined)))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view.

    Numba compiles a kernel for each type, and read-only arrays are another type: all inputs are
    made read-only, so that one kernel serves both.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def _as_type(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert to another dtype. Integers are rounded, halves up, and clipped to its range."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # float16 overflows to infinity
            return numbers.astype(dtype)
    if dtype.kind == "b":
        return numbers >= 0.5
    low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
    if int(high) > np.iinfo(dtype).max:  # float64 can't represent the largest 64-bit integer
        high = float(np.nextafter(high, 0.0))
    return np.clip(np.floor(numbers + 0.5), low, high).astype(dtype)


# -- checks


def check_spatial_shape(shape: tuple[int, ...]) -> None:
    """Raise if samples have no pixels, or more than the kernels can index."""
    if min(shape) < 1 or math.prod(shape) > kernels.MAX_PIXELS:
        raise ValueError(
            f"samples must have between 1 and {kernels.MAX_PIXELS} pixels per channel, got spatial "
            f"shape {shape}."
        )


def fill_rule(space: WarpSpace, fill: Fill) -> FillRule:
    """How samples warped in a space are extended: periodically if it is periodic, else as given."""
    check_choice("fill", fill, FILLS)
    return "wrap" if space.boundary == "periodic" else fill


def fill_number(fill: FillRule, fill_value: float, dtype: np.dtype[Any]) -> Any:
    """The fill value as a scalar of the dtype; zero if the rule needs none."""
    if fill != "constant":
        return dtype.type(0)
    value = np.asarray(fill_value)
    if value.ndim > 0 or value.dtype.kind not in "biuf":
        raise TypeError(f"`fill_value` must be one real number, got {fill_value!r}.")
    number = value.item()
    if dtype.kind != "f":
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not low <= number <= high or number != int(number):
            raise ValueError(
                f"`fill_value` must be an integer between {low} and {high} for samples of "
                f"dtype {dtype}, got {fill_value!r}. Convert the samples to a wider dtype."
            )
    return dtype.type(number)


def _check_inputs(
    values: ArrayLike, positions: ArrayLike, fill: FillRule
) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return samples (n or 1, channels, *spatial), points (n or 1, m, ndim), and n."""
    check_choice("fill", fill, FILL_RULES)
    points = as_array("positions", positions)
    if points.ndim != 3 or not 1 <= points.shape[2] <= MAX_AXES:
        raise ValueError(
            f"`positions` must have shape (n, m, ndim) with 1 to {MAX_AXES} axes, got "
            f"{points.shape}. Use `positions[None]` for one set of points."
        )
    if points.dtype != np.float32:
        points = points.astype(np.float64, copy=False)
    if not np.isfinite(points).all():
        raise ValueError("`positions` must be finite, got NaN or infinity.")
    samples, ndim = as_array("values", values), points.shape[2]
    if samples.ndim != ndim + 2:
        raise ValueError(
            f"`values` must have shape (n, channels, *spatial) with {ndim} spatial axes, as many "
            f"as `positions` has coordinates, got {samples.shape}."
        )
    check_spatial_shape(samples.shape[2:])
    n = len(samples) if len(points) == 1 else len(points)
    if len(samples) not in (1, n):
        raise ValueError(
            f"`values` and `positions` must have equal lengths, or one of them length 1, got "
            f"{len(samples)} and {len(points)}."
        )
    return samples, points, n
