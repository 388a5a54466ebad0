"""warp_distance: an elastic distance between samples.

d(a, b)² = min over θ of |a ∘ T^θ - b|² / σ² + θᵀ Q θ: the residual after alignment in units of the
noise, plus the size of the warp under the prior. Compared to dynamic time warping, warps are
smooth, a prior takes the place of a window, and time is linear in the length.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from dreamwarp.align.alignment import align_quietly
from dreamwarp.align.noise import check_sigma
from dreamwarp.align.prior import Array, Prior, check_prior
from dreamwarp.core.progress import ProgressOption, silenced, track
from dreamwarp.core.samples import spaced
from dreamwarp.core.validation import as_finite_array, check_integer
from dreamwarp.space import WarpSpace

# Pairs for the estimate of σ, and pairs aligned at a time.
N_CALIBRATION, CHUNK = 64, 8192
# Search steps. Distances need no higher precision, and few pairs improve with more steps.
MAX_STEPS = 12


def warp_distance(
    a: ArrayLike,
    b: ArrayLike,
    *,
    space: WarpSpace,
    prior: Prior | None = None,
    sigma: float | Literal["auto"] = "auto",
    n_candidates: int | None = None,
    max_steps: int = MAX_STEPS,
    progress: ProgressOption = None,
    n_threads: int | None = None,
) -> Any:
    """Elastic distances between samples: the matrix, or a number for two single samples.

    Parameters
    ----------
    a : (*spatial), (n, *spatial) or (n, channels, *spatial)
    b : (*spatial), (m, *spatial) or (m, channels, *spatial)
    space : WarpSpace
        For example ``WarpSpace((10,))`` for series.
    prior : Prior, optional
        Default: ``SmoothPrior(space)``.
    sigma : float or "auto"
        Standard deviation of the noise of a value. ``"auto"`` estimates it from neighbouring pairs.
        Distances with different σ are not comparable: pass a number to compare several calls.
    n_candidates : int, optional
        Align only this many samples of b per sample of a, the nearest without warps. The others
        keep their distance without warps, which is an upper bound. This is enough to find nearest
        neighbours.
    max_steps : int
        Largest number of search steps.

    Returns
    -------
    (n, m), or a float. Not symmetric: a is warped onto b.

    Examples
    --------
    >>> time = np.linspace(0.0, 1.0, 100)
    >>> early, late = (np.exp(-(((time - c) / 0.1) ** 2)) for c in (0.45, 0.55))
    >>> space = WarpSpace((10,))
    >>> warped = warp_distance(early, late, space=space, sigma=0.1)
    >>> bool(warped < np.linalg.norm(early - late) / 0.1)
    True
    """
    first, second, is_single = _check_samples(space, a, b)
    prior = check_prior(space, prior)
    flat = [x.reshape(len(x), -1) for x in (first, second)]
    plain = cdist(*flat)
    options = {"prior": prior, "n_threads": n_threads}
    noise = check_sigma(sigma)
    if noise == "auto":
        noise = _estimate(space, first, second, plain, options)
    rows, columns = _choose_pairs(plain, n_candidates)
    out = plain / noise
    with silenced(progress), track(len(rows), "warp distances", progress) as advance:
        for start in range(0, len(rows), CHUNK):
            i, j = rows[start : start + CHUNK], columns[start : start + CHUNK]
            found = align_quietly(
                space, first[i], second[j], sigma=noise, max_steps=max_steps, **options
            )
            size = np.einsum("nd,de,ne->n", found.theta, prior.precision, found.theta)
            # The identity is a candidate, so a distance is at most the one without a warp.
            warped = np.sqrt(found.loss_after / noise**2 + size)
            out[i, j] = np.minimum(out[i, j], warped)
            advance(len(i))
    return float(out[0, 0]) if is_single else out


def estimate_sigma(space: WarpSpace, X: ArrayLike) -> float:
    """σ for ``warp_distance``, estimated from samples (n, ...) and their nearest neighbours."""
    samples, _, _ = _check_samples(space, X, X)
    flat = samples.reshape(len(samples), -1)
    plain = cdist(flat, flat)
    np.fill_diagonal(plain, np.inf)
    return _estimate(space, samples, samples, plain, {})


def _estimate(space: WarpSpace, first: Array, second: Array, plain: Array, options: Any) -> float:
    """σ estimated from samples and their nearest different neighbours."""
    nearest = np.where(plain > 0.0, plain, np.inf).argmin(axis=1)
    rows = spaced(len(first), N_CALIBRATION)
    found = align_quietly(space, first[rows], second[nearest[rows]], max_steps=MAX_STEPS, **options)
    return float(found.sigma or 0.0)


def _choose_pairs(plain: Array, n_candidates: int | None) -> tuple[Any, Any]:
    """Rows and columns of the pairs to align: all different ones, or the nearest of each row."""
    if n_candidates is None:
        rows, columns = np.nonzero(plain > 0.0)
        return rows, columns
    n = min(check_integer("n_candidates", n_candidates, 1), plain.shape[1])
    columns = np.argpartition(plain, n - 1, axis=1)[:, :n]
    rows = np.repeat(np.arange(len(plain)), n)
    return rows, columns.ravel()


def _check_samples(space: WarpSpace, a: ArrayLike, b: ArrayLike) -> tuple[Array, Array, bool]:
    arrays = [as_finite_array(name, x) for name, x in (("a", a), ("b", b))]
    ndim = space.ndim
    if arrays[0].ndim != arrays[1].ndim or arrays[0].ndim not in (ndim, ndim + 1, ndim + 2):
        raise ValueError(
            f"`a` and `b` must have shape (*spatial), (n, *spatial) or (n, channels, *spatial) "
            f"with {ndim} spatial axes, both with the same number of axes, got "
            f"{arrays[0].shape} and {arrays[1].shape}."
        )
    is_single = arrays[0].ndim == ndim
    first, second = (x[None] if is_single else x for x in arrays)
    if first.shape[1:] != second.shape[1:] or not len(first) or not len(second):
        raise ValueError(
            f"`a` and `b` must have samples of one shape, at least one each, got {first.shape} and "
            f"{second.shape}."
        )
    return first, second, is_single
