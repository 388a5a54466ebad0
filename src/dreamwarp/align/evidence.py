"""Evidence of pairs about their warps: quadratic approximations of log-likelihoods.

Warps are expressed in the leading components of a prior, θ = F u with u standard normal under it.
The Gauss-Newton approximation of a pair's log-likelihood at its mode is

    log p(target | source, u) ≈ c + w (bᵀu - ½ uᵀH u),

where w = 1 for the noise at which H was computed, and w scales with its inverse variance. Under
u ~ N(0, S) the posterior is N(V w b, V) with V = (S⁻¹ + w H)⁻¹, and the marginal log-likelihood is

    c - ½ log |I + w S H| + ½ w² bᵀ V b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import algebra, noise
from dreamwarp.align.alignment import calibrate_problem, set_up
from dreamwarp.align.block import PairedImages, Problem, map_blocks, search_block, split_pairs
from dreamwarp.align.images import Images, scale_images
from dreamwarp.align.prior import Prior, mass_matrix
from dreamwarp.align.similarity import SquaredError
from dreamwarp.core.compiled import count_chunks, limit_algebra, map_on_threads, thread_count
from dreamwarp.core.defaults import LEARNING_TOLERANCE
from dreamwarp.core.progress import ProgressOption, track
from dreamwarp.space import WarpSpace

if TYPE_CHECKING:
    from distributed import Client

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Largest number of components. The others are almost undetermined by pairs and keep the prior's
# distribution.
N_COMPONENTS = 128
# The last components are left out too, as long as at least MIN_COMPONENTS remain and those left out
# have at most the fraction NEGLIGIBLE of the prior's mean square displacement. With (4, 4) cells
# and a free boundary, 50 of 82 remain, which takes a quarter of the time.
MIN_COMPONENTS, NEGLIGIBLE = 50, 1e-3
# Largest number of pairs per block of posteriors: their factors stay in the cache, and threads get
# equal shares of a small class.
BLOCK = 32


@dataclass(frozen=True, eq=False)
class Frame:
    """Coordinates u of the leading components of a prior, θ = F u.

    The other components keep the prior's distribution.
    """

    prior: Prior
    matrix: Array  # (d, r), F, ordered by decreasing mean square displacement
    inverse: Array  # (r, d): u = inverse θ
    rest_matrix: Array  # (d, d - r), F of the other components
    rest_inverse: Array  # (d - r, d)
    squares: Array  # (r,), mean square displacement of each component

    @classmethod
    def of(cls, prior: Prior, negligible: float = 0.0, n_least: int = 1) -> Frame:
        """The leading components of a prior, by mean square displacement; at least ``n_least``.

        Drops the last ones that together have at most a fraction ``negligible`` of it.
        """
        root, whitener = prior.root, prior.whitener
        with limit_algebra():
            squares, turn = np.linalg.eigh(root.T @ mass_matrix(prior.space) @ root)
        n_out = int((np.cumsum(np.maximum(squares, 0.0)) <= negligible * squares.sum()).sum())
        n_lead = min(max(len(squares) - n_out, n_least), N_COMPONENTS, len(squares))
        turn = turn[:, ::-1]
        lead, others = turn[:, :n_lead], turn[:, n_lead:]
        return cls(
            prior, root @ lead, lead.T @ whitener, root @ others, others.T @ whitener,
            squares[::-1][:n_lead].copy(),
        )  # fmt: skip

    def scaled(self, factor: float, prior: Prior) -> Frame:
        """The frame of ``prior``, which has ``factor`` times the displacement of this one's."""
        return Frame(
            prior, factor * self.matrix, self.inverse / factor, factor * self.rest_matrix,
            self.rest_inverse / factor, factor**2 * self.squares,
        )  # fmt: skip

    @property
    def space(self) -> WarpSpace:
        """The space of θ."""
        return self.prior.space

    @property
    def rank(self) -> int:
        """Number of components, r."""
        return self.matrix.shape[1]

    @property
    def rest(self) -> Array:
        """Covariance (d, d), under the prior, of the other components."""
        return self.rest_matrix @ self.rest_matrix.T

    def displacement(self, covariance: Array) -> float:
        """Root mean square displacement of warps with this covariance (r, r) of u."""
        return float(np.sqrt(self.squares @ np.diag(covariance)))

    def gaussian(self, covariance: Array) -> Prior:
        """The distribution of θ from the covariance (r, r) of u."""
        lower = np.linalg.cholesky(covariance)
        root = np.hstack([self.matrix @ lower, self.rest_matrix])
        whitener = np.vstack([np.linalg.solve(lower, self.inverse), self.rest_inverse])
        return Prior(self.space, root, whitener)


class Conditioned(NamedTuple):
    """Posteriors of n pairs under one prior: the result of :meth:`Evidence.condition`."""

    means: Array  # (n, r), of u
    moment: Array  # (r, r), the sum over pairs of the posterior mean of u uᵀ
    log_marginals: Array  # (n,), marginal log-likelihoods without c


@dataclass(frozen=True, eq=False)
class Evidence:
    """Quadratic log-likelihoods of n pairs.

    H is float32 for images, to save memory. It is float64 for points, which determine some
    components a million times better than others.
    """

    theta: Array  # (n, d), points of approximation: the modes
    linear: Array  # (n, r), b
    curvatures: NDArray[np.floating]  # (n, r, r), H
    constants: Array  # (n,), c, up to a term that depends on the noise alone

    def __len__(self) -> int:
        return len(self.linear)

    def only(self, chosen: Any) -> Evidence:
        """Some of the pairs."""
        return Evidence(*(getattr(self, part.name)[chosen] for part in fields(self)))

    def scaled(self, factor: float) -> Evidence:
        """The same in the coordinates of a frame that is scaled by ``factor``."""
        return Evidence(
            self.theta, factor * self.linear, factor**2 * self.curvatures, self.constants
        )

    @classmethod
    def join(cls, parts: Sequence[Evidence]) -> Evidence:
        """The pairs of all parts."""
        names = [part.name for part in fields(cls)]
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))

    def condition(
        self,
        covariance: Array,
        chosen: Integers | None = None,
        *,
        weight: float = 1.0,
        covariances_out: NDArray[np.float32] | None = None,
        n_threads: int | None = None,
    ) -> Conditioned:
        """Posteriors of the chosen pairs under u ~ N(0, covariance).

        Their covariances are written to the rows ``chosen`` of ``covariances_out`` (n, r, r).
        """
        rows = np.arange(len(self)) if chosen is None else chosen
        precision = np.linalg.inv(covariance)
        precision = (precision + precision.T) / 2.0
        log_determinant = np.linalg.slogdet(precision)[1]
        means, log_marginals = np.empty((len(rows), len(precision))), np.empty(len(rows))

        def work(block: slice) -> Array:
            some = rows[block]
            roots = np.zeros((len(some), *precision.shape))
            linear, logs = self.linear[some], np.empty(len(some))
            algebra.condition_gaussians(
                0, len(some), self.curvatures[some], linear, weight, precision, means[block],
                roots, logs,
            )  # fmt: skip
            gain = weight * np.einsum("nr,nr->n", linear, means[block])
            log_marginals[block] = 0.5 * (log_determinant - logs + gain)
            if covariances_out is not None:
                covariances_out[some] = roots @ np.swapaxes(roots, 1, 2)
            flat = np.swapaxes(roots, 0, 1).reshape(len(precision), -1)
            return flat @ flat.T + means[block].T @ means[block]

        size = -(-len(rows) // max(1, count_chunks(len(rows), BLOCK)))  # nearly equal blocks
        blocks = [slice(i, min(i + size, len(rows))) for i in range(0, len(rows), size or 1)]
        with limit_algebra():
            moment = sum(map_on_threads(work, blocks, n_threads), np.zeros_like(precision))
        return Conditioned(means, moment, log_marginals)

    def log_marginals(self, means: Array, covariances: Array) -> Array:
        """Marginal log-likelihoods (n,) without c. Pair i has u ~ N(means[i], covariances[i])."""
        bent = np.einsum("nij,nj->ni", self.curvatures, means)
        linear = self.linear - bent
        inner = np.eye(linear.shape[1]) + covariances @ self.curvatures
        with limit_algebra():
            solved = np.linalg.solve(inner, covariances @ linear[:, :, None])[:, :, 0]
            log_determinants = np.linalg.slogdet(inner)[1]
        at_mean = np.einsum("ni,ni->n", self.linear - 0.5 * bent, means)
        return at_mean + 0.5 * (np.einsum("ni,ni->n", linear, solved) - log_determinants)


class EvidenceFinder:
    """Aligns pairs of images (n, channels, *spatial), and computes their evidence.

    The similarity of ``problem`` is calibrated. Its precision is replaced in every :meth:`find`.
    """

    def __init__(self, problem: Problem, prior: Prior, images: Images) -> None:
        self.problem, self.images = problem, images
        self.frame = Frame.of(prior, NEGLIGIBLE, MIN_COMPONENTS)

    @classmethod
    def for_images(
        cls,
        prior: Prior,
        images: NDArray[Any],
        edges: Integers,
        *,
        similarity: Any,
        sigma: Any,
        max_steps: int,
        progress: ProgressOption = None,
        n_threads: int | None = None,
    ) -> EvidenceFinder:
        """For images (n, *spatial) or (n, channels, *spatial); options as in :func:`align_pairs`.

        The similarity is calibrated on some of the pairs ``edges`` if needed. For squared errors a
        first guess is enough, because empirical Bayes estimates their noise.
        """
        values = scale_images(prior.space, "images", images)
        # At all resolutions, unlike a search for modes alone: noise and curvatures must be those of
        # all pixels.
        problem, calibrated = set_up(
            prior, values.shape, similarity, sigma, max_steps, tolerance=LEARNING_TOLERANCE
        )
        if not calibrated:
            problem = calibrate_problem(
                problem, PairedImages(values, values, edges), np.arange(len(edges)), progress,
                n_threads,
                n_rounds=0 if isinstance(problem.similarity, SquaredError) else noise.N_ROUNDS,
            )  # fmt: skip
        return cls(problem, prior, values)

    def find(
        self,
        edges: Integers,
        covariance: Array,
        *,
        sigma: float | None = None,
        start: Array | None = None,
        progress: ProgressOption = False,
        n_threads: int | None = None,
        client: Client | None = None,
    ) -> Evidence:
        """Evidence of the pairs ``edges`` (n, 2), at their modes under u ~ N(0, covariance).

        ``sigma`` replaces the noise of the problem; for squared errors only. ``start`` (n, d) are
        initial θ, such as modes under a similar prior; default: a search from coarse to fine.
        ``client``: a cluster to run on, with the same results.
        """
        precision = self.problem.coordinates.precision(self.frame.gaussian(covariance).precision)
        problem, dim = replace(self.problem, precision=precision), self.frame.space.dim
        if sigma is not None:
            problem = replace(problem, similarity=SquaredError(sigma))
        threads = 1 if client is not None else thread_count(n_threads)
        tasks = [
            (edges[block], None if start is None else start[block])
            for block in split_pairs(len(edges), dim, threads)
        ]
        shared = problem, self.frame, self.images
        with track(len(edges), "aligning random pairs", progress) as advance:
            parts = map_blocks(
                measure_block, shared, tasks, advance=advance, n_threads=threads, client=client,
            )  # fmt: skip
        return Evidence.join(parts)


def measure_block(
    shared: tuple[Problem, Frame, Images], edges: Integers, start: Array | None
) -> Evidence:
    """Evidence of a block of pairs ``edges`` (n, 2), at their modes."""
    problem, frame, images = shared
    coordinates = problem.coordinates
    fine, maximum = search_block(
        problem, images[edges[:, 0]], images[edges[:, 1]],
        None if start is None else coordinates.from_theta(start),
    )  # fmt: skip
    x, all_pairs = maximum.x, np.arange(len(edges))
    fine.move(x, all_pairs)
    gradients, hessians = fine.derivatives(x, all_pairs)
    gradients -= fine.log_prior(x)[1]
    to_x = coordinates.from_theta(frame.matrix.T).T
    curvatures, theta = to_x.T @ hessians @ to_x, coordinates.to_theta(x)
    # einsum: the order of summation of a matrix product may depend on the number of pairs.
    slopes = np.einsum("nx,xr->nr", gradients, to_x)
    u = np.einsum("nd,rd->nr", theta, frame.inverse)
    # The expansion at u with gradient g and curvature H: b = g + Hu, c = log p - gᵀu - uᵀHu/2.
    hessian_u = np.einsum("nij,nj->ni", curvatures, u)
    likelihoods = problem.similarity.log_likelihood(fine.states.values, fine.pairs.targets)
    constants = likelihoods - np.einsum("ni,ni->n", slopes + 0.5 * hessian_u, u)
    return Evidence(theta, slopes + hessian_u, curvatures.astype(np.float32), constants)
