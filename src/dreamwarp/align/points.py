"""align_points: warps between point sets, with or without known correspondence.

The posterior of a pair of point sets is p(θ | s, t) ∝ exp(-Σ |T^{-θ}(s_i) - t_c(i)|² / 2σ²) p(θ).
For landmarks c(i) = i. Otherwise each point is matched to the nearest of the other set, in both
directions as in the Chamfer distance, and again after every step. The noise is then reduced in
stages from the distance of the sets to σ, so that the first and worst matches weigh least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from dreamwarp.align.noise import check_sigma
from dreamwarp.align.prior import Prior, check_prior
from dreamwarp.core.compiled import single_threaded_algebra
from dreamwarp.core.progress import ProgressOption, silenced, track
from dreamwarp.core.validation import as_finite_array, check_choice, check_integer, warn_user
from dreamwarp.space import WarpSpace

Array = NDArray[np.float64]
Match = Literal["auto", "known", "nearest"]
MATCHES = ("auto", "known", "nearest")

# Noise is reduced by this factor per stage.
COOLING = 2.0
# A search ends when the predicted gain of a step in log-density is less than this.
SMALLEST_GAIN = 0.05
# Iterations of the estimate of σ, and pairs that are aligned for it.
N_ROUNDS, N_PAIRS = 3, 12
# Lowest estimate of σ, as a fraction of the domain: meshes are float32.
LEAST_SIGMA = 1e-4
LARGEST_DAMPING = 1e6
# The directions of least prior variance are left out, up to this fraction of the total variance. A
# quarter of the directions remain, at a tenth of the cost per step.
LEFT_OUT = 1e-3


@dataclass(frozen=True)
class PointAlignments:
    """Warps between pairs of point sets.

    Attributes
    ----------
    theta : (n, d)
        ``Warp(space, theta).points(source)`` looks like the target.
    loss_before, loss_after : (n,)
        Mean squared distance of matched points, without and with the warp.
    converged : (n,)
    sigma : float
        Standard deviation of a coordinate of a matched point.
    """

    theta: Array
    loss_before: Array
    loss_after: Array
    converged: NDArray[np.bool_]
    sigma: float

    def __len__(self) -> int:
        return len(self.theta)


def align_points(
    space: WarpSpace,
    sources: Sequence[ArrayLike] | NDArray[Any],
    targets: Sequence[ArrayLike] | NDArray[Any],
    *,
    match: Match = "auto",
    prior: Prior | None = None,
    sigma: float | Literal["auto"] = "auto",
    max_points: int = 400,
    max_steps: int = 50,
    progress: ProgressOption = None,
) -> PointAlignments:
    """Find warps that move each source onto its target.

    Parameters
    ----------
    space : WarpSpace
    sources, targets : sequences of (m_k, ndim)
        In the unit domain.
    match : {"auto", "known", "nearest"}
        ``"known"``: point k of a source belongs to point k of its target. ``"nearest"``: each point
        belongs to the nearest point of the other set, in both directions (Chamfer distance).
        ``"auto"``: ``"known"`` if the sets of every pair have equal numbers of points.
    prior : Prior, optional
        Default: ``SmoothPrior(space)``.
    sigma : float or "auto"
        Standard deviation of a coordinate of a matched point, as a fraction of the domain.
        ``"auto"`` estimates it from some of the pairs.
    max_points : int
        Larger sets are reduced to this many points, evenly spaced by index.
    max_steps : int
        Largest number of search steps per noise level.

    Returns
    -------
    PointAlignments
    """
    check_choice("match", match, MATCHES)
    max_points = check_integer("max_points", max_points, 1)
    max_steps = check_integer("max_steps", max_steps, 1)
    pairs = _check_pairs(space, sources, targets)
    if match == "auto":
        match = "known" if all(s.shape == t.shape for s, t in pairs) else "nearest"
    elif match == "known":
        _check_counts(pairs)
    pairs = [_thin_pair(s, t, max_points, match) for s, t in pairs]
    root = _leading_root(check_prior(space, prior))
    searches = [_Search(space, s, t, match == "known", root, max_steps) for s, t in pairs]
    # Matrices are small: threads of the linear algebra would mostly wait for each other.
    with silenced(progress), single_threaded_algebra():
        noise = check_sigma(sigma)
        if noise == "auto":
            noise = _estimate_sigma(searches, progress)
        return _align_all(space, searches, noise, progress)


def chamfer_distance(first: Array, second: Array) -> float:
    """Mean squared distance to the nearest point of the other set, over both directions."""
    there = cKDTree(second).query(first)[0]
    back = cKDTree(first).query(second)[0]
    return float(0.5 * ((there**2).mean() + (back**2).mean()))


# -- the work


def _align_all(
    space: WarpSpace, searches: list[_Search], sigma: float, progress: ProgressOption
) -> PointAlignments:
    n = len(searches)
    theta, before, after = np.zeros((n, space.dim)), np.zeros(n), np.zeros(n)
    converged = np.zeros(n, bool)
    zero = np.zeros(searches[0].root.shape[1])
    with track(n, "aligning points", progress) as advance:
        for k, search in enumerate(searches):
            found = search.run(sigma)
            theta[k], converged[k] = -search.root @ found.z, found.converged
            before[k], after[k] = search.loss(zero), search.loss(found.z)
            advance(1)
    # Matches may get worse in the last step; the identity is better then.
    worse = after > before
    theta[worse], after[worse] = 0.0, before[worse]
    if not converged.all():
        warn_user(
            f"{(~converged).sum()} of {n} alignments have not converged: see `converged` of the "
            "result. A larger `max_steps` may help.",
            RuntimeWarning,
        )
    return PointAlignments(theta, before, after, converged, sigma)


def _estimate_sigma(searches: list[_Search], progress: ProgressOption) -> float:
    """Fixed point of σ² = Σ |residual|² / (number of coordinates - effective parameters)."""
    some = [searches[k] for k in np.linspace(0, len(searches) - 1, N_PAIRS).round().astype(int)]
    some = list(dict.fromkeys(some))
    zero = np.zeros(some[0].root.shape[1])
    sigma = max(float(np.sqrt(np.mean([s.loss(zero) for s in some]) / 2.0)), LEAST_SIGMA)
    shown = None if progress is None or progress is True else False
    with track(N_ROUNDS * len(some), "estimating noise", shown) as advance:
        for _ in range(N_ROUNDS):
            total = count = 0.0
            for search in some:
                found = search.run(sigma)
                total += found.total
                count += max(found.n_free, 1.0)
                advance(1)
            sigma = max(float(np.sqrt(total / count)), LEAST_SIGMA)
    return sigma


class Found(NamedTuple):
    """Result of a search."""

    z: Array  # (k,)
    total: float  # sum of squared residuals
    n_free: float  # number of residual coordinates minus effective number of parameters
    converged: bool


class _Search:
    """Levenberg-Marquardt for one pair over z, with -θ = root z and z standard normal a priori.

    The source is moved by T^{root z}.
    """

    def __init__(
        self,
        space: WarpSpace,
        source: Array,
        target: Array,
        is_known: bool,
        root: Array,
        max_steps: int,
    ) -> None:
        self.space, self.source, self.target = space, source, target
        self.is_known, self.root, self.max_steps = is_known, root, max_steps
        self.tree = None if self.is_known else cKDTree(target)

    def run(self, sigma: float) -> Found:
        """The posterior mode, with noise reduced to ``sigma`` in stages."""
        z = np.zeros(self.root.shape[1])
        start = sigma if self.is_known else max(sigma, np.sqrt(self.loss(z)))
        for noise in _cool(start, sigma):
            found = self._climb(z, noise)
            z = found.z
        return found

    def loss(self, z: Array) -> float:
        """Mean squared distance of matched points."""
        return float((self._residuals(self._move(z))[1] ** 2).sum(axis=1).mean())

    def _move(self, z: Array) -> Array:
        return np.asarray(self.space.flow(self.root @ z, self.source, method="exact"))

    def _residuals(self, moved: Array) -> tuple[NDArray[np.int64], Array]:
        """Indices of matched points (k,), and their differences to the target (k, ndim)."""
        everyone = np.arange(len(moved))
        if self.tree is None:
            return everyone, moved - self.target
        nearest = self.tree.query(moved)[1]
        back = cKDTree(moved).query(self.target)[1]
        differences = moved - self.target[nearest], moved[back] - self.target
        return np.concatenate([everyone, back]), np.concatenate(differences)

    def _climb(self, z: Array, sigma: float) -> Found:
        damping, converged = 1e-3, False
        which, residuals = self._residuals(self._move(z))
        hessian, gradient = self._derivatives(z, which, residuals, sigma)
        for _ in range(self.max_steps):
            step = -_solve(hessian + np.eye(len(z)) + damping * np.diag(np.diag(hessian)), gradient)
            predicted = -0.5 * float(gradient @ step)
            is_last = predicted < SMALLEST_GAIN or damping > LARGEST_DAMPING
            # New matches can only reduce distances, and so the energy.
            trial = z + step
            matched, found = self._residuals(self._move(trial))
            if _energy(trial, found, sigma) < _energy(z, residuals, sigma):
                z, which, residuals = trial, matched, found
                damping *= 0.2
                if not is_last:
                    hessian, gradient = self._derivatives(z, which, residuals, sigma)
            else:
                damping *= 4.0
            if is_last:
                converged = True
                break
        n_effective = float(np.trace(_solve(hessian + np.eye(len(z)), hessian)))
        return Found(z, float((residuals**2).sum()), residuals.size - n_effective, converged)

    def _derivatives(
        self, z: Array, which: NDArray[np.int64], residuals: Array, sigma: float
    ) -> tuple[Array, Array]:
        """Gauss-Newton Hessian of the likelihood (k, k), and gradient of the energy (k,)."""
        slopes = self.space.flow_gradient(self.root @ z, self.source)
        m, ndim, d = slopes.shape
        rows = slopes.reshape(m * ndim, d) @ self.root
        counts = np.bincount(which, minlength=m).astype(np.float64)
        pulls = np.zeros((m, ndim))
        np.add.at(pulls, which, residuals)
        weighted = np.sqrt(np.repeat(counts, ndim))[:, None] * rows
        hessian = weighted.T @ weighted / sigma**2
        return hessian, rows.T @ pulls.ravel() / sigma**2 + z


def _energy(z: Array, residuals: Array, sigma: float) -> float:
    """Minus the log-posterior."""
    return float(0.5 * (residuals**2).sum() / sigma**2 + 0.5 * z @ z)


def _leading_root(prior: Prior) -> Array:
    """Root (d, k) of the prior's covariance along the directions of most variance."""
    values, directions = np.linalg.eigh(prior.covariance)
    n_out = int((np.cumsum(np.maximum(values, 0.0)) <= LEFT_OUT * values.sum()).sum())
    return np.ascontiguousarray(directions[:, n_out:] * np.sqrt(values[n_out:]))


def _solve(matrix: Array, right: Array) -> Array:
    """Solve with a symmetric positive definite matrix."""
    factor = scipy.linalg.cho_factor(matrix, check_finite=False)
    return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False))


def _cool(start: float, end: float) -> list[float]:
    """Noise levels from ``start`` down to ``end``, which is always the last."""
    n_levels = int(np.ceil(np.log(start / end) / np.log(COOLING))) if start > end else 0
    return [end * COOLING**k for k in range(n_levels, 0, -1)] + [end]


# -- checks


def _check_pairs(space: WarpSpace, sources: Any, targets: Any) -> list[tuple[Array, Array]]:
    if len(sources) != len(targets):
        raise ValueError(
            f"`sources` and `targets` must have equal lengths, got {len(sources)} and "
            f"{len(targets)}."
        )
    if not len(sources):
        raise ValueError("`sources` must hold at least one set of points, got none.")
    return [
        (_check_set(space, f"sources[{k}]", s), _check_set(space, f"targets[{k}]", t))
        for k, (s, t) in enumerate(zip(sources, targets, strict=True))
    ]


def _check_set(space: WarpSpace, name: str, points: ArrayLike) -> Array:
    array = as_finite_array(name, points)
    if array.ndim != 2 or array.shape[1] != space.ndim or not len(array):
        raise ValueError(
            f"`{name}` must have shape (m, {space.ndim}), at least one point, for {space!r}, got "
            f"{array.shape}."
        )
    if array.min() < -0.5 or array.max() > 1.5:
        raise ValueError(
            f"`{name}` must lie in the unit domain, got coordinates from {array.min():g} to "
            f"{array.max():g}. Use `dreamwarp.data.Box` to convert."
        )
    return array


def _check_counts(pairs: list[tuple[Array, Array]]) -> None:
    for k, (source, target) in enumerate(pairs):
        if source.shape != target.shape:
            raise ValueError(
                f"`sources[{k}]` and `targets[{k}]` must have equal numbers of points for "
                f"match='known', got {len(source)} and {len(target)}. Use match='nearest'."
            )


def _thin_pair(source: Array, target: Array, most: int, match: Match) -> tuple[Array, Array]:
    """Reduce both sets, to equal indices if correspondence is known.

    Otherwise the target keeps more points, so that every source point has one nearby.
    """
    return thin(source, most), thin(target, most if match == "known" else 4 * most)


def thin(points: Array, most: int) -> Array:
    """At most ``most`` of the points (m, ndim), evenly spaced by index."""
    if len(points) <= most:
        return points
    return points[np.linspace(0, len(points) - 1, most).round().astype(int)]
