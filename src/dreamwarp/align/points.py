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

from dreamwarp.align.evidence import Array, Evidence, Frame
from dreamwarp.align.noise import check_sigma
from dreamwarp.align.prior import Prior, check_prior
from dreamwarp.core.compiled import limit_algebra
from dreamwarp.core.progress import ProgressOption, silenced, track, without_callback
from dreamwarp.core.samples import spaced
from dreamwarp.core.validation import as_finite_array, check_choice, check_integer, warn_user
from dreamwarp.space import WarpSpace

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
# The components of least displacement are left out, up to this fraction of the mean square.
LEFT_OUT = 1e-4


@dataclass(frozen=True, eq=False)
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
        Standard deviation of a coordinate of a matched point; the root mean square over pairs.
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
    match: Match | Sequence[Match] = "auto",
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
    match : {"auto", "known", "nearest"}, or a sequence of these
        ``"known"``: point k of a source belongs to point k of its target. ``"nearest"``: each point
        belongs to the nearest point of the other set, in both directions (Chamfer distance).
        ``"auto"``: ``"known"`` if the sets of every pair have equal numbers of points. A sequence
        has one for each pair.
    prior : Prior, optional
        Default: ``SmoothPrior(space)``.
    sigma : float or "auto"
        Standard deviation of a coordinate of a matched point, as a fraction of the domain.
        ``"auto"`` estimates it from some of the pairs; if only some have known correspondence, from
        these and from the others.
    max_points : int
        Larger sets are reduced to this many points, evenly spaced by index.
    max_steps : int
        Largest number of search steps per noise level.
    """
    frame = Frame.of(check_prior(space, prior), LEFT_OUT)
    return measure_points(
        frame, sources, targets, match=match, sigma=sigma, max_points=max_points,
        max_steps=max_steps, progress=progress,
    )[0]  # fmt: skip


def measure_points(
    frame: Frame,
    sources: Sequence[ArrayLike] | NDArray[Any],
    targets: Sequence[ArrayLike] | NDArray[Any],
    *,
    match: Match | Sequence[Match] = "auto",
    sigma: float | Literal["auto"] = "auto",
    max_points: int = 400,
    max_steps: int = 50,
    progress: ProgressOption = None,
) -> tuple[PointAlignments, Evidence]:
    """Align pairs as :func:`align_points` does, and compute their evidence at the modes."""
    max_points = check_integer("max_points", max_points, 1)
    max_steps = check_integer("max_steps", max_steps, 1)
    pairs = _check_pairs(frame.space, sources, targets)
    searches = []
    for is_known, (source, target) in zip(_choose_known(pairs, match), pairs, strict=True):
        # Known pairs keep equal indices. Otherwise a target keeps more points, so that every source
        # point has one nearby.
        near = thin(target, max_points if is_known else 4 * max_points)
        searches.append(_Search(frame, thin(source, max_points), near, is_known, max_steps))
    # Matrices are small: threads of the linear algebra would mostly wait for each other.
    with silenced(progress), limit_algebra():
        noise = check_sigma(sigma)
        levels = np.full(len(searches), np.nan if noise == "auto" else noise)
        for kind in (True, False) if noise == "auto" else ():
            own = [k for k, search in enumerate(searches) if search.is_known is kind]
            if own:
                levels[own] = _estimate_sigma([searches[k] for k in own], progress)
        return _align_all(frame, searches, levels, progress)


# -- the work


def _align_all(
    frame: Frame, searches: list[_Search], levels: Array, progress: ProgressOption
) -> tuple[PointAlignments, Evidence]:
    n = len(searches)
    before, after, converged = np.zeros(n), np.zeros(n), np.zeros(n, bool)
    zero, parts = np.zeros(frame.rank), []
    with track(n, "aligning points", progress) as advance:
        for k, (search, sigma) in enumerate(zip(searches, levels.tolist(), strict=True)):
            found = search.run(sigma)
            before[k], after[k] = search.loss(zero), search.loss(found.u)
            # Matches may get worse in the last step; the identity is better then.
            is_better = after[k] <= before[k]
            after[k], converged[k] = min(after[k], before[k]), found.converged
            # A pair that fits worse than others, as where a search found a wrong match, tells less.
            own = np.sqrt(found.total / max(found.n_free, 1.0))
            parts.append(search.measure(found.u if is_better else zero, max(sigma, own)))
            advance(1)
    if not converged.all():
        warn_user(
            f"{(~converged).sum()} of {n} alignments have not converged: see `converged` of the "
            "result. A larger `max_steps` may help.",
            RuntimeWarning,
        )
    evidence, mean = Evidence.join(parts), float(np.sqrt(np.mean(levels**2)))
    return PointAlignments(evidence.theta, before, after, converged, mean), evidence


def _estimate_sigma(searches: list[_Search], progress: ProgressOption) -> float:
    """Fixed point of σ² = Σ |residual|² / (number of coordinates - effective parameters)."""
    some = [searches[k] for k in spaced(len(searches), N_PAIRS)]
    zero = np.zeros(some[0].frame.rank)
    sigma = max(float(np.sqrt(np.mean([s.loss(zero) for s in some]) / 2.0)), LEAST_SIGMA)
    with track(N_ROUNDS * len(some), "estimating noise", without_callback(progress)) as advance:
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

    u: Array  # (r,)
    total: float  # sum of squared residuals
    n_free: float  # number of residual coordinates minus effective number of parameters
    converged: bool


class _Search:
    """Levenberg-Marquardt for one pair over u, with θ = F u and u standard normal a priori.

    The source is moved by T^{-θ}.
    """

    def __init__(
        self, frame: Frame, source: Array, target: Array, is_known: bool, max_steps: int
    ) -> None:
        self.frame, self.source, self.target = frame, source, target
        self.is_known, self.max_steps = is_known, max_steps
        self.tree = None if is_known else cKDTree(target)

    def run(self, sigma: float) -> Found:
        """The posterior mode, with noise reduced to ``sigma`` in stages."""
        u = np.zeros(self.frame.rank)
        start = sigma if self.tree is None else max(sigma, np.sqrt(self.loss(u)))
        for noise in _cool(start, sigma):
            found = self._climb(u, noise)
            u = found.u
        return found

    def loss(self, u: Array) -> float:
        """Mean squared distance of matched points."""
        return float((self._residuals(u)[1] ** 2).sum(axis=1).mean())

    def measure(self, u: Array, sigma: float) -> Evidence:
        """The Gauss-Newton approximation of the log-likelihood at u."""
        which, residuals = self._residuals(u)
        hessian, gradient = self._derivatives(u, which, residuals, sigma)
        linear = hessian @ u - gradient
        constant = -0.5 * (residuals**2).sum() / sigma**2 + (gradient - 0.5 * hessian @ u) @ u
        return Evidence(
            (self.frame.matrix @ u)[None], linear[None], hessian[None], np.array([constant])
        )

    def _residuals(self, u: Array) -> tuple[NDArray[np.int64], Array]:
        """Indices of matched points (k,), and their differences to the target (k, ndim)."""
        theta = -(self.frame.matrix @ u)
        moved = np.asarray(self.frame.space.flow(theta, self.source, method="exact"))
        everyone = np.arange(len(moved))
        if self.tree is None:
            return everyone, moved - self.target
        nearest = self.tree.query(moved)[1]
        back = cKDTree(moved).query(self.target)[1]
        differences = moved - self.target[nearest], moved[back] - self.target
        return np.concatenate([everyone, back]), np.concatenate(differences)

    def _climb(self, u: Array, sigma: float) -> Found:
        damping, converged = 1e-3, False
        which, residuals = self._residuals(u)
        hessian, gradient = self._derivatives(u, which, residuals, sigma)
        for _ in range(self.max_steps):
            damped = hessian + np.eye(len(u)) + damping * np.diag(np.diag(hessian))
            step = -_solve(damped, gradient + u)
            predicted = -0.5 * float((gradient + u) @ step)
            is_last = predicted < SMALLEST_GAIN or damping > LARGEST_DAMPING
            # New matches can only reduce distances, and so the energy.
            trial = u + step
            matched, found = self._residuals(trial)
            if _energy(trial, found, sigma) < _energy(u, residuals, sigma):
                u, which, residuals = trial, matched, found
                damping *= 0.2
                if not is_last:
                    hessian, gradient = self._derivatives(u, which, residuals, sigma)
            else:
                damping *= 4.0
            if is_last:
                converged = True
                break
        n_effective = float(np.trace(_solve(hessian + np.eye(len(u)), hessian)))
        return Found(u, float((residuals**2).sum()), residuals.size - n_effective, converged)

    def _derivatives(
        self, u: Array, which: NDArray[np.int64], residuals: Array, sigma: float
    ) -> tuple[Array, Array]:
        """Of minus the log-likelihood: Gauss-Newton Hessian (r, r) and gradient (r,)."""
        slopes = self.frame.space.flow_gradient(-(self.frame.matrix @ u), self.source)
        m, ndim, d = slopes.shape
        rows = -(slopes.reshape(m * ndim, d) @ self.frame.matrix)
        counts = np.bincount(which, minlength=m).astype(np.float64)
        pulls = np.zeros((m, ndim))
        np.add.at(pulls, which, residuals)
        weighted = np.sqrt(np.repeat(counts, ndim))[:, None] * rows
        return weighted.T @ weighted / sigma**2, rows.T @ pulls.ravel() / sigma**2


def _energy(u: Array, residuals: Array, sigma: float) -> float:
    """Minus the log-posterior."""
    return float(0.5 * (residuals**2).sum() / sigma**2 + 0.5 * u @ u)


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


def _choose_known(pairs: list[tuple[Array, Array]], match: Match | Sequence[Match]) -> list[bool]:
    """Whether the correspondence of each pair is known."""
    words: list[Any] = list(match) if isinstance(match, (list, tuple)) else [match] * len(pairs)
    for word in words:
        check_choice("match", word, MATCHES)
    if len(words) != len(pairs):
        raise ValueError(
            f"`match` must be one word, or one for each of {len(pairs)} pairs, got {len(words)}."
        )
    are_equal = [source.shape == target.shape for source, target in pairs]
    for k, (word, (source, target)) in enumerate(zip(words, pairs, strict=True)):
        if word == "known" and not are_equal[k]:
            raise ValueError(
                f"`sources[{k}]` and `targets[{k}]` must have equal numbers of points for "
                f"match='known', got {len(source)} and {len(target)}. Use match='nearest'."
            )
    return [word == "known" or (word == "auto" and all(are_equal)) for word in words]


def thin(points: Array, most: int) -> Array:
    """At most ``most`` of the points (m, ndim), evenly spaced by index."""
    return points[spaced(len(points), most)]
