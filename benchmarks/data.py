"""Points and velocity fields that all contestants get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp import WarpSpace

Array = NDArray[np.float64]

# Furthest any point moves, in widths of the domain: 2.8 pixels of 28, as warps between digits of a
# class do, and the strongest that the fast flow is tested at.
STRENGTHS = {"natural": 0.1, "strong": 1.0 / 3.0}
# Errors are given in pixels of an image this wide.
PIXELS = 28
# Waves per axis, and how fast their amplitude falls with the wave number.
N_WAVES = 3
DECAY = 0.5


def pixel_centers(shape: Sequence[int]) -> Array:
    """Pixel centres of an array of this shape: (pixels, ndim)."""
    axes = [(np.arange(n) + 0.5) / n for n in shape]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(shape))


@dataclass(frozen=True)
class SmoothFields:
    """Random smooth velocity fields that do not cross the border of the unit domain.

    Component k is a sum of products of waves, a sine along axis k and cosines along the others, so
    that points slide along the border; or sines along all of them, so that the border rests.

    Parameters
    ----------
    amplitudes : (n, ndim, N_WAVES, ...)
        One axis of waves per axis of the domain.
    slip : bool
        Whether points slide along the border.
    """

    amplitudes: Array
    slip: bool

    @classmethod
    def draw(cls, n: int, ndim: int, *, slip: bool, rng: np.random.Generator) -> SmoothFields:
        waves = np.stack(np.meshgrid(*[np.arange(N_WAVES)] * ndim, indexing="ij"))
        falling = np.exp(-0.5 * DECAY * (waves**2).sum(axis=0))
        return cls(rng.normal(size=(n, ndim, *falling.shape)) * falling, slip)

    @property
    def ndim(self) -> int:
        return int(self.amplitudes.shape[1])

    def __call__(self, points: Array) -> Array:
        """Velocities at points (m, ndim): (n, m, ndim)."""
        counts = np.arange(N_WAVES)
        sines = np.sin(np.pi * (counts + 1) * points[..., None])
        cosines = np.cos(np.pi * counts * points[..., None]) if self.slip else sines
        out = np.empty((len(self.amplitudes), *points.shape))
        for k in range(self.ndim):
            values = self.amplitudes[:, k]
            waves = [sines[:, j] if j == k else cosines[:, j] for j in range(self.ndim)]
            values = np.einsum("n...w,mw->nm...", values, waves.pop())
            while waves:
                values = np.einsum("nm...w,mw->nm...", values, waves.pop())
            out[..., k] = values
        return out


def theta_of(space: WarpSpace, fields: SmoothFields) -> Array:
    """θ (n, d) of the piecewise-affine fields that take the fields' values at the vertices."""
    return space.theta_from_vertices(fields(space.tessellation.vertices))


def scale_to(displacement: float, theta: Array, space: WarpSpace, points: Array) -> Array:
    """Factors (n,) that make the furthest move of any point ``displacement``."""
    scale = np.full(len(theta), 0.1)
    for _ in range(8):  # a fixed-point iteration; the move is nearly proportional to the scale
        moved = space.flow(theta * scale[:, None], points, tolerance=1e-3)
        scale *= displacement / np.linalg.norm(moved - points, axis=-1).max(axis=1)
    return scale


def draw_theta(
    space: WarpSpace, n: int, displacement: float, points: Array, *, seed: int
) -> NDArray[np.float32]:
    """θ (n, d) of smooth fields that move some point by ``displacement``, and none further.

    float32, which every contestant can hold as it is.
    """
    slip = space.boundary == "slip"
    fields = SmoothFields.draw(n, space.ndim, slip=slip, rng=np.random.default_rng(seed))
    theta = theta_of(space, fields)
    return (theta * scale_to(displacement, theta, space, points)[:, None]).astype(np.float32)


def pixel_errors(moved: NDArray[Any], exact: Array) -> Array:
    """Distances between moved points (..., m, ndim) and where they should be, in pixels."""
    return PIXELS * np.linalg.norm(np.asarray(moved, dtype=np.float64) - exact, axis=-1)
