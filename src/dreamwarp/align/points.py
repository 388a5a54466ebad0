"""align_points: warps that move sets of points onto others, with or without known correspondence.

A pair of point sets has the posterior p(θ | s, t) ∝ exp(-Σ |T^{-θ}(s_i) - t_c(i)|² / 2σ²) p(θ).
With landmarks c(i) = i. Without, points are matched to the nearest of the other set, both ways,
as in Chamfer's distance, and matched anew at every step; noise is brought down from the distance of
the sets to σ meanwhile, so that the first matches, which are the worst, count least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from dreamwarp.align.prior import Prior, SmoothPrior
from dreamwarp.core.progress import ProgressOption, silenced, track
from dreamwarp.core.validation import as_finite_array, check_choice, check_whole, warn_user
from dreamwarp.space import WarpSpace

Array = NDArray[np.float64]
Match = Literal["auto", "known", "nearest"]
MATCHES = ("auto", "known", "nearest")

# Noise is brought down by this factor at a time.
COOLING = 2.0
# A search ends when a step promises less log-density than this, as with images.
SMALLEST_GAIN = 0.05
# Rounds of estimating σ, and pairs that are aligned for it.
N_ROUNDS, N_PAIRS = 3, 12
# σ is never estimated below this share of the domain: meshes hold float32.
LEAST_SIGMA = 1e-4
LARGEST_DAMPING = 1e6
# Directions of the prior are left out, from the least on, while they hold no more of its variance
# than this in all: a quarter of them is left, and a step costs a tenth.
LEFT_OUT = 1e-3


@dataclass(frozen=True)
class PointAlignments:
    """Warps between pairs of point sets.

    Attributes
    ----------
    theta : (n, d)
        Of each pair: ``Warp(space, theta).points(source)`` looks like the target.
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


class Residuals(NamedTuple):
    """Points of the source that are matched (k,), and where they should go (k, ndim)."""

    which: NDArray[np.int64]
    goals: Array

    def differences(self, moved: Array) -> Array:
        """(k, ndim)."""
        return moved[self.which] - self.goals


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
        ``"known"``: point k of a source belongs to point k of its target. ``"nearest"``: to the
        nearest, both ways (Chamfer's distance). ``"auto"``: known if all pairs have as many points.
    prior : Prior, optional
        Default: ``SmoothPrior(space)``.
    sigma : float or "auto"
        Standard deviation of a coordinate of a matched point, as a share of the domain.
        ``"auto"`` estimates it from some of the pairs.
    max_points : int
        Of larger sets, so many points, evenly spread over their numbers, are matched.
    max_steps : int
        Of the search, per level of noise.

    Returns
    -------
    PointAlignments
    """
    check_choice("match", match, MATCHES)
    max_points = check_whole("max_points", max_points, 1)
    max_steps = check_whole("max_steps", max_steps, 1)
    pairs = _check_pairs(space, sources, targets)
    if match == "auto":
        match = "known" if all(s.shape == t.shape for s, t in pairs) else "nearest"
    elif match == "known":
        _check_counts(pairs)
    pairs = [_thin_pair(s, t, max_points, match) for s, t in pairs]
    prior = SmoothPrior(space) if prior is None else prior
    if prior.space != space:
        raise ValueError(f"`prior` must be one of {space!r}, got one of {prior.space!r}.")
    root = _leading_root(prior)
    searches = [_Search(space, s, t, match == "known", root, max_steps) for s, t in pairs]
    with silenced(progress):
        noise = _estimate_sigma(searches, progress) if sigma == "auto" else _check_sigma(sigma)
        return _align_all(space, searches, noise, progress)


def chamfer_distance(first: Array, second: Array) -> float:
    """Mean squared distance to the nearest point of the other set, both ways."""
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
    # Matches may change for the worse between the last two steps; the identity then is better.
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
    """σ² = Σ |residual|² / (count of coordinates - effective parameters), to a fixed point."""
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
                count += max(found.n_coordinates - found.n_effective, 1.0)
                advance(1)
            sigma = max(float(np.sqrt(total / count)), LEAST_SIGMA)
    return sigma


class Found(NamedTuple):
    """Where a search has ended."""

    z: Array  # (k,)
    total: float  # sum of squared residuals
    n_coordinates: int
    n_effective: float  # parameters that the points determine, rather than the prior
    converged: bool


class _Search:
    """Levenberg-Marquardt for one pair, on -θ = root z, which moves the source by T^{root z}.

    A priori z is standard normal.
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
        """The most plausible warp, from coarse to fine noise."""
        z = np.zeros(self.root.shape[1])
        start = sigma if self.is_known else max(sigma, np.sqrt(self.loss(z)))
        for noise in _cool(start, sigma):
            found = self._climb(z, noise)
            z = found.z
        return found

    def loss(self, z: Array) -> float:
        """Mean squared distance of matched points."""
        moved = self._move(z)
        differences = self._matched(moved).differences(moved)
        return float((differences**2).sum(axis=1).mean())

    def _move(self, z: Array) -> Array:
        return np.asarray(self.space.flow(self.root @ z, self.source, method="exact"))

    def _matched(self, moved: Array) -> Residuals:
        everyone = np.arange(len(moved))
        if self.tree is None:
            return Residuals(everyone, self.target)
        nearest = self.tree.query(moved)[1]
        back = cKDTree(moved).query(self.target)[1]
        return Residuals(
            np.concatenate([everyone, back]), np.concatenate([self.target[nearest], self.target])
        )

    def _climb(self, z: Array, sigma: float) -> Found:
        damping, moved, converged = 1e-3, self._move(z), False
        residuals = self._matched(moved)
        energy = self._energy(z, moved, residuals, sigma)
        hessian, gradient = self._derivatives(z, moved, residuals, sigma)
        for _ in range(self.max_steps):
            step = -_solve(hessian + np.eye(len(z)) + damping * np.diag(np.diag(hessian)), gradient)
            promised = -0.5 * float(gradient @ step)
            trial = z + step
            there = self._move(trial)
            # Matched anew, distances are at most as large: energies can only fall further.
            rematched = self._matched(there)
            found = self._energy(trial, there, rematched, sigma)
            is_last = promised < SMALLEST_GAIN or damping > LARGEST_DAMPING
            if found < energy:
                z, moved, residuals, energy = trial, there, rematched, found
                damping *= 0.2
                if not is_last:
                    hessian, gradient = self._derivatives(z, moved, residuals, sigma)
            else:
                damping *= 4.0
            if is_last:
                converged = True
                break
        total = float((residuals.differences(moved) ** 2).sum())
        share = float(np.trace(_solve(hessian + np.eye(len(z)), hessian)))
        return Found(z, total, residuals.goals.size, share, converged)

    def _energy(self, z: Array, moved: Array, residuals: Residuals, sigma: float) -> float:
        """Minus the log-posterior."""
        squares = (residuals.differences(moved) ** 2).sum()
        return float(0.5 * squares / sigma**2 + 0.5 * z @ z)

    def _derivatives(
        self, z: Array, moved: Array, residuals: Residuals, sigma: float
    ) -> tuple[Array, Array]:
        """Gauss-Newton's Hessian of the likelihood (k, k), and the gradient of the energy (k,)."""
        slopes = self.space.flow_gradient(self.root @ z, self.source)
        m, ndim, d = slopes.shape
        rows = slopes.reshape(m * ndim, d) @ self.root
        counts = np.bincount(residuals.which, minlength=m).astype(np.float64)
        pulls = np.zeros((m, ndim))
        np.add.at(pulls, residuals.which, residuals.differences(moved))
        weighted = np.sqrt(np.repeat(counts, ndim))[:, None] * rows
        hessian = weighted.T @ weighted / sigma**2
        return hessian, rows.T @ pulls.ravel() / sigma**2 + z


def _leading_root(prior: Prior) -> Array:
    """(d, k) that takes standard normal numbers to θ, along the directions that vary most."""
    values, directions = np.linalg.eigh(prior.covariance)
    n_out = int((np.cumsum(np.maximum(values, 0.0)) <= LEFT_OUT * values.sum()).sum())
    return np.ascontiguousarray(directions[:, n_out:] * np.sqrt(values[n_out:]))


def _solve(matrix: Array, right: Array) -> Array:
    """For symmetric, positive definite matrices."""
    factor = scipy.linalg.cho_factor(matrix, check_finite=False)
    return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False))


def _cool(start: float, end: float) -> list[float]:
    """Levels of noise from ``start`` down to ``end``, which is always the last."""
    n_levels = int(np.ceil(np.log(start / end) / np.log(COOLING))) if start > end else 0
    return [end * COOLING**k for k in range(n_levels, 0, -1)] + [end]


# -- checks


def _check_pairs(space: WarpSpace, sources: Any, targets: Any) -> list[tuple[Array, Array]]:
    if len(sources) != len(targets):
        raise ValueError(
            f"`sources` and `targets` must be as many, got {len(sources)} and {len(targets)}."
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
            f"{array.max():g}. `dreamwarp.data.Box` takes points there and back."
        )
    return array


def _check_counts(pairs: list[tuple[Array, Array]]) -> None:
    for k, (source, target) in enumerate(pairs):
        if source.shape != target.shape:
            raise ValueError(
                f"`sources[{k}]` and `targets[{k}]` must have as many points for match='known', "
                f"got {len(source)} and {len(target)}. Use match='nearest'."
            )


def _check_sigma(sigma: Any) -> float:
    if not isinstance(sigma, int | float | np.floating) or not 0.0 < sigma < np.inf:
        raise ValueError(f"`sigma` must be a positive number or 'auto', got {sigma!r}.")
    return float(sigma)


def _thin_pair(source: Array, target: Array, most: int, match: Match) -> tuple[Array, Array]:
    """Fewer points: the same of both if they belong together, else of the source alone.

    The target keeps more, so that the nearest of its points is near.
    """
    if match == "known":
        return thin(source, most), thin(target, most)
    return thin(source, most), thin(target, 4 * most)


def thin(points: Array, most: int) -> Array:
    """At most so many points (m, ndim), evenly spread over their numbers."""
    if len(points) <= most:
        return points
    return points[np.linspace(0, len(points) - 1, most).round().astype(int)]
