"""Warp: one or many θ, applied to images, masks, signals, volumes, points and boxes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.samples import (
    are_channels_last,
    as_array,
    pixel_centers,
    refuse_channels_last,
)
from dreamwarp.core.validation import as_finite_array, check_choice, warn_user
from dreamwarp.space.fast import Starts
from dreamwarp.space.resample import (
    INTERPOLATIONS,
    Fill,
    Interpolation,
    check_spatial_shape,
    fill_rule,
    resample_into,
)
from dreamwarp.space.warpspace import FLOW_TOLERANCE, Method, WarpSpace, check_tolerance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Memory for one block of samples: enough to keep all threads busy, and small enough that positions
# are still in the cache when samples are interpolated there.
BLOCK_BYTES = 16 * 2**20
# Points of a sample that are processed at a time, and largest number of pixels whose starts are
# cached: in 3-D, finding the start of a path takes as long as following it. A start takes 40 bytes.
BLOCK_POINTS, KEPT_POINTS = 2**20, 2**19
# Largest error of the fast flow in pixels: invisible after resampling.
PIXEL_TOLERANCE = 0.05
# Steps per edge of a bounding box, by the number of axes, and factor of refinement near the extreme
# points.
OUTLINE_STEPS = {1: 1, 2: 128, 3: 32}
FINER_STEPS = {1: 1, 2: 8, 3: 4}


class Warp:
    """One or many warps T^θ of a space, applied to data in the unit domain.

    Samples (images, masks, signals, volumes) are pulled back, (x ∘ T)(p) = x(T(p)): the value at p
    in the result was at T(p). Points and boxes of a sample therefore move by the inverse, T^{-θ}.

    Parameters
    ----------
    space : WarpSpace
    theta : (d,) or (n, d)

    Notes
    -----
    Axes of samples: batch, then channels if any, then the spatial axes, as many as the space has.
    Coordinate k of a point belongs to spatial axis k, and pixel i of n has its centre at
    (i + 0.5) / n.

    =====================  ======================================  =========================
    θ                      sample                                  result
    =====================  ======================================  =========================
    one: (d,) or (1, d)    (k, *spatial), (k, channels, *spatial)  of the same shape
    one, as (d,)           (*spatial)                              (*spatial)
    many: (n, d)           (*spatial), (n or 1, *spatial)          (n, *spatial)
    many: (n, d)           (n or 1, channels, *spatial)            (n, channels, *spatial)
    =====================  ======================================  =========================

    With many θ, a single axis before the spatial ones is the batch: pass one sample with channels
    as ``x[None]``. Where θ is zero, the result is an exact copy.

    Examples
    --------
    >>> space = WarpSpace((4, 4))
    >>> warp = Warp(space, np.zeros((3, 50)))
    >>> warp
    Warp(WarpSpace((4, 4), boundary='zero'), 3 θ)
    >>> warp.image(np.zeros((28, 20), np.uint8)).shape
    (3, 28, 20)
    """

    def __init__(self, space: WarpSpace, theta: ArrayLike) -> None:
        if not isinstance(space, WarpSpace):
            raise TypeError(f"`space` must be a WarpSpace, got {type(space).__name__}.")
        values, is_single = space.check_theta(theta)
        values = values.copy()
        values.flags.writeable = False
        self.space = space
        self.theta = values[0] if is_single else values

    def __len__(self) -> int:
        return 1 if self.theta.ndim == 1 else len(self.theta)

    def __getitem__(self, index: Any) -> Warp:
        return Warp(self.space, np.atleast_2d(self.theta)[index])

    def __iter__(self) -> Iterator[Warp]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Warp({self.space!r}, {'one' if self.theta.ndim == 1 else len(self)} θ)"

    def inverse(self) -> Warp:
        """The inverse warp, T^{-θ}."""
        return Warp(self.space, -self.theta)

    # -- plots

    def plot(self, x: ArrayLike | None = None) -> Figure:
        """Plot the grid and velocity of the warp and, if given, a sample before and after."""
        from dreamwarp.report.notebooks import plot_warp

        return plot_warp(self, x)

    def _repr_html_(self) -> str:
        from dreamwarp.report.notebooks import summarize_warp

        return summarize_warp(self)

    # -- samples

    def image(
        self,
        x: ArrayLike,
        *,
        interpolation: Interpolation = "linear",
        fill: Fill = "edge",
        fill_value: float = 0,
        keep_range: bool = False,
        method: Method = "fast",
        tolerance: float | None = None,
        n_threads: int | None = None,
    ) -> NDArray[Any]:
        """The sample pulled back by the warp, x ∘ T^θ.

        Parameters
        ----------
        x : (*spatial), (n, *spatial) or (n, channels, *spatial)
            Booleans, integers or floating-point numbers. The notes of the class say how batches of
            samples and of θ combine.
        interpolation : {"linear", "nearest", "cubic"}
            See :mod:`dreamwarp.space.resample`.
        fill : {"edge", "constant", "reflect"}
            Pixels beyond the border: the nearest one, ``fill_value``, or mirrored at the border.
            Ignored in a periodic space, where the sample is continued periodically.
        fill_value : number
            Must be representable in the dtype of ``x``.
        keep_range : bool
            Whether to clip cubic interpolation, which overshoots, to the range of each sample.
        method : {"fast", "exact"}
            See :meth:`WarpSpace.flow`. Use ``"exact"`` if an axis has more than 100,000 pixels:
            the float32 positions of ``"fast"`` are then too coarse.
        tolerance : float, optional
            Largest error of the fast flow in the unit domain. Default: 1e-4, and at most a
            twentieth of a pixel.
        n_threads : int, optional
            Default: every core that ``NUMBA_NUM_THREADS`` allows. Results do not depend on it.

        Returns
        -------
        Array of the dtype of ``x``; for its shape see the notes of the class. Integers are rounded
        and clipped to the range of their dtype.
        """
        check_choice("interpolation", interpolation, INTERPOLATIONS)
        rule = fill_rule(self.space, fill)
        samples, shape = self.check_samples(x)
        theta, spatial = np.atleast_2d(self.theta), samples.shape[2:]
        n = len(samples) if len(theta) == 1 else len(theta)
        out = np.empty((n, samples.shape[1], math.prod(spatial)), samples.dtype)
        tolerance = default_tolerance(spatial) if tolerance is None else tolerance
        tolerance = check_tolerance(method, tolerance)
        for pixels in _divide_pixels(self.space, spatial):
            n_bytes = 8 * (pixels.centers.size + samples.shape[1] * len(pixels.centers))
            for block in _blocks(n, n_bytes):
                if len(theta) > 1 or block.start == 0:  # blocks share the positions of one θ
                    some = theta if len(theta) == 1 else theta[block]
                    fields = self.space.fields(some, n_threads)
                    positions = fields.flow(pixels.centers[None], method, tolerance, pixels.starts)
                resample_into(
                    out[block], samples if len(samples) == 1 else samples[block], positions,
                    start=pixels.first, interpolation=interpolation, fill=rule,
                    fill_value=fill_value, n_threads=n_threads,
                )  # fmt: skip
        out = out.reshape(n, *samples.shape[1:])
        if keep_range and interpolation == "cubic":
            clip_to_samples(out, samples, (fill_value,) if rule == "constant" else ())
        is_still = np.broadcast_to(~theta.any(axis=1), n)
        out[is_still] = np.broadcast_to(samples, out.shape)[is_still]
        return out.reshape(shape)

    def mask(self, x: ArrayLike, **options: Any) -> NDArray[Any]:
        """The label map pulled back by the warp: :meth:`image` with nearest interpolation.

        Every label in the result is one of ``x``, or ``fill_value``. Pixels come from outside the
        domain only with a ``"free"`` boundary. Other options as for :meth:`image`.
        """
        return self.image(x, interpolation="nearest", **options)

    # -- points and boxes

    def points(self, p: ArrayLike, *, n_threads: int | None = None) -> NDArray[np.float64]:
        """Positions of points of a sample in the warped sample: T^{-θ}(p), by the exact method.

        Parameters
        ----------
        p : (m, ndim) or (n, m, ndim)
            In the unit domain: the centre of pixel i of n is (i + 0.5) / n.

        Returns
        -------
        (n, m, ndim), or (m, ndim) for a single θ. In a periodic space, modulo 1.
        """
        self._warn_if_far(as_finite_array("points", p))
        moved = self.space.flow(-self.theta, p, method="exact", n_threads=n_threads)
        return moved % 1.0 if self.space.boundary == "periodic" else moved

    def normals(
        self, p: ArrayLike, normals: ArrayLike, *, n_threads: int | None = None
    ) -> NDArray[np.float64]:
        """Unit normals of a curve or surface at points of a sample, after :meth:`points`.

        Tangents are multiplied by the Jacobian J of T^{-θ}, and so normals by J^{-T}. Shapes as for
        :meth:`points`. Zero normals stay zero.
        """
        before = as_finite_array("normals", normals)
        slopes = self.space.flow_jacobian(-self.theta, p, n_threads=n_threads)
        if np.shape(p) != before.shape:
            raise ValueError(
                f"`normals` must have the shape of the points, {np.shape(p)}, got {before.shape}."
            )
        moved = np.linalg.solve(np.swapaxes(slopes, -1, -2), before[..., None])[..., 0]
        lengths = np.linalg.norm(moved, axis=-1, keepdims=True)
        return np.divide(moved, lengths, out=np.zeros_like(moved), where=lengths > 0.0)

    def boxes(self, b: ArrayLike, *, n_threads: int | None = None) -> NDArray[np.float64]:
        """Bounding boxes, in the warped sample, of boxes of a sample.

        Parameters
        ----------
        b : (k, 2 * ndim) or (n, k, 2 * ndim)
            Lower corner, then upper corner, both in the unit domain and in the order of the array
            axes: (row, column, row, column) for images.

        Returns
        -------
        (n, k, 2 * ndim), or (k, 2 * ndim) for a single θ. In a periodic space, boxes may extend
        beyond the border.

        Notes
        -----
        The outline is moved at 128 points per edge (32 in 3-D). Near the extreme points it is then
        moved by the exact method, at 8 (4 in 3-D) times that density. For displacements of a tenth
        of the domain, the error is less than 1e-4 of the domain. Exact in 1-D.
        """
        corners, is_single = self._check_boxes(b)
        self._warn_if_far(corners)
        theta = -np.atleast_2d(self.theta)
        n = len(corners) if len(theta) == 1 else len(theta)
        out = np.empty((n, *corners.shape[1:]))
        for block in _blocks(n, 8 * len(_outline(self.space.ndim)) * corners[:1].size):
            some = theta if len(theta) == 1 else theta[block]
            flow = partial(self.space.flow, some, n_threads=n_threads)
            out[block] = _move_boxes(flow, corners if len(corners) == 1 else corners[block])
        out = out.reshape(n, corners.shape[1], 2 * self.space.ndim)
        return out[0] if is_single else out

    # -- checks

    def check_samples(self, x: ArrayLike) -> tuple[NDArray[Any], tuple[int, ...]]:
        """Return samples (n or 1, channels, *spatial), and the shape of the result."""
        array, ndim = as_array("x", x), self.space.ndim
        lead, spatial = array.shape[: array.ndim - ndim], array.shape[array.ndim - ndim :]
        if not 0 <= array.ndim - ndim <= 2:
            raise ValueError(
                f"`x` must have shape (*spatial), (n, *spatial) or (n, channels, *spatial) with "
                f"{ndim} spatial axes, as many as the space has, got {array.shape}."
            )
        check_spatial_shape(spatial)
        # An image with channels last looks like a batch of images with few columns. Only images are
        # checked: a signal does not look like a batch, and volumes may have few slices.
        is_batch = self.theta.ndim == 2 and len(lead) == 1 and len(self) in (1, lead[0])
        may_be_one = ndim == 2 and len(lead) > 0 and not is_batch
        if may_be_one and are_channels_last(array.shape[-ndim - 1 :], ndim):
            refuse_channels_last("x", array.shape, -ndim - 1)
        n = lead[0] if lead else 1
        if n not in (1, len(self)) and len(self) != 1:
            raise ValueError(
                f"`x` must hold one sample or as many as there are θ, {len(self)}, got {n} in "
                f"shape {array.shape}. Pass one sample with channels as `x[None]`."
            )
        samples = array.reshape(n, *(lead[1:] or (1,)), *spatial)
        if self.theta.ndim == 1:
            return samples, array.shape
        return samples, (n if len(self) == 1 else len(self), *lead[1:], *spatial)

    def _warn_if_far(self, coordinates: NDArray[np.float64]) -> None:
        """Warn if coordinates seem to be pixels: they are far outside the unit domain."""
        far = (coordinates < -1.0) | (coordinates > 2.0)
        if far.any() and self.space.boundary != "periodic":
            warn_user(
                f"coordinates should be in the unit domain, got {coordinates[far][0]:g}. If they "
                "are pixels, pass (i + 0.5) / n for the centre of pixel i of n.",
                UserWarning,
            )

    def _check_boxes(self, b: ArrayLike) -> tuple[NDArray[np.float64], bool]:
        """Return corners (n or 1, k, 2, ndim), and whether the result has no batch axis."""
        values, ndim = as_finite_array("b", b), self.space.ndim
        if values.ndim not in (2, 3) or values.shape[-1] != 2 * ndim:
            raise ValueError(
                f"`b` must have shape (k, {2 * ndim}) or (n, k, {2 * ndim}), lower corner then "
                f"upper corner, for a space of {ndim} axes, got {values.shape}."
            )
        corners = values.reshape(*values.shape[:-1], 2, ndim)
        corners = corners if values.ndim == 3 else corners[None]
        if (corners[:, :, 0] > corners[:, :, 1]).any():
            raise ValueError(
                "`b` must list lower corners before upper ones, got a box whose lower corner is "
                "above its upper one. Boxes are (lower, ..., upper, ...), in unit coordinates."
            )
        if len(corners) not in (1, len(self)) and len(self) != 1:
            raise ValueError(
                f"`b` must hold one set of boxes or as many as there are θ, {len(self)}, got "
                f"{len(corners)}."
            )
        return corners, self.theta.ndim == 1 and values.ndim == 2


# -- helpers


def clip_to_samples(
    out: NDArray[Any], samples: NDArray[Any], others: tuple[float, ...] = ()
) -> None:
    """Clip every warped sample, in place, to the range of its sample and of ``others``."""
    if samples.dtype != np.bool_ and samples.size:
        axes = tuple(range(1, samples.ndim))
        low, high = (f.reduce(samples, axis=axes, keepdims=True) for f in (np.fmin, np.fmax))
        for value in others:
            low, high = np.minimum(low, value), np.maximum(high, value)
        # Faster than np.clip, whose inner loop is one row of pixels.
        np.maximum(out, low, out=out, casting="unsafe")
        np.minimum(out, high, out=out, casting="unsafe")


def default_tolerance(spatial: Sequence[int]) -> float:
    """Largest error of the fast flow, in the unit domain, for samples of a spatial shape."""
    return min(FLOW_TOLERANCE, PIXEL_TOLERANCE / max(spatial))


def _blocks(n: int, n_bytes: int) -> Iterator[slice]:
    """Slices of ``range(n)`` for items of ``n_bytes`` each."""
    size = max(1, BLOCK_BYTES // max(n_bytes, 1))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


class Pixels(NamedTuple):
    """Some pixels of a sample."""

    first: int  # index of the first one
    centers: NDArray[np.float64]  # (m, ndim)
    starts: Starts | None  # where paths from the centres start, if that is known


def _divide_pixels(space: WarpSpace, spatial: tuple[int, ...]) -> Iterator[Pixels]:
    """All pixels of a sample; in blocks if they are many, to limit memory."""
    n_pixels = math.prod(spatial)
    if n_pixels <= KEPT_POINTS:
        yield _locate_pixels(space, spatial)
        return
    for first in range(0, n_pixels, BLOCK_POINTS):
        centers = pixel_centers(spatial, first, min(first + BLOCK_POINTS, n_pixels))
        yield Pixels(first, centers, None)


@lru_cache(maxsize=4)
def _locate_pixels(space: WarpSpace, spatial: tuple[int, ...]) -> Pixels:
    centers = pixel_centers(spatial)
    return Pixels(0, centers, space.fields(np.zeros((1, space.dim))).locate(centers[None]))


def _lattice(ndim: int, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points whose coordinates are all among ``steps``: (len(steps)**ndim, ndim)."""
    return np.stack(np.meshgrid(*[steps] * ndim, indexing="ij"), axis=-1).reshape(-1, ndim)


@cache
def _outline(ndim: int) -> NDArray[np.float64]:
    """Points on the border of the unit box."""
    points = _lattice(ndim, np.linspace(0.0, 1.0, OUTLINE_STEPS[ndim] + 1))
    return points[((points == 0.0) | (points == 1.0)).any(axis=1)]


@cache
def _patch(ndim: int) -> NDArray[np.float64]:
    """Offsets from an outline point to a finer grid on all faces that may meet there."""
    steps = np.linspace(-1.0, 1.0, 2 * FINER_STEPS[ndim] + 1)
    points = _lattice(ndim, steps / OUTLINE_STEPS[ndim])
    return points[(points == 0.0).any(axis=1)]


def _move_boxes(
    flow: Callable[..., NDArray[Any]], corners: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Corners of the bounding boxes of moved boxes: (n or 1, k, 2, ndim) to (n, k, 2, ndim)."""
    k, _, ndim = corners.shape[1:]
    low, sides = corners[:, :, :1], corners[:, :, 1:] - corners[:, :, :1]

    def move(places: NDArray[np.float64], method: Method) -> NDArray[Any]:
        """Flow of points given in box coordinates (n or 1, k or 1, m, ndim)."""
        points = low + places * sides
        points = points.reshape(len(points), k * places.shape[2], ndim)
        moved = flow(points=points[0] if len(points) == 1 else points, method=method)
        return moved.reshape(len(moved), k, places.shape[2], ndim)

    outline, patch = _outline(ndim), _patch(ndim)
    rough = move(outline[None, None], "fast")
    furthest = outline[np.stack([rough.argmin(axis=2), rough.argmax(axis=2)], axis=2)]
    places = np.clip(furthest[..., None, :] + patch, 0.0, 1.0)
    patches = places.reshape(len(rough), k, 2 * ndim * len(patch), ndim)
    fine = move(patches, "exact").reshape(places.shape)
    # For the extreme point along each axis, keep only the coordinate of its patch along that axis.
    fine = np.diagonal(fine, axis1=3, axis2=5)
    return np.stack([fine[:, :, 0].min(axis=2), fine[:, :, 1].max(axis=2)], axis=2)
