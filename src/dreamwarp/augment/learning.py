"""Learn the warps of each class from samples: find neighbours, align them, fit distributions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import Alignments, SmoothPrior, align_pairs, neighbor_pairs
from dreamwarp.align.alignment import METHODS, is_flat, scale_images
from dreamwarp.align.evidence import EvidenceFinder, spread_evenly
from dreamwarp.core.defaults import DISPLACEMENT, MAX_DRAWS, MAX_STEPS
from dreamwarp.core.labels import Label
from dreamwarp.core.progress import ProgressOption, show_waiting
from dreamwarp.core.validation import check_choice, check_whole
from dreamwarp.model import WarpModel, alignment_weights, empirical_bayes
from dreamwarp.model.fitting import (
    KINDS,
    HyperParameters,
    check_enough,
    fit_classes,
    warn_of_fallbacks,
)
from dreamwarp.model.pairs import Pairs, PosteriorCovariances
from dreamwarp.model.selection import choose_hyperparameters
from dreamwarp.space import WarpSpace

if TYPE_CHECKING:
    from distributed import Client

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
LearningMethod = Literal["eb", "map", "laplace", "metropolis", "hmc"]
LEARNING_METHODS = ("eb", *METHODS)

# Fewest pairs, over all classes, that a model is fitted to.
MIN_PAIRS = 5
# Most pairs that empirical Bayes learns from: in all, or per class if that is more.
MAX_EB_PAIRS, MAX_EB_PAIRS_PER_CLASS = 1000, 50
# Hyper-parameters of template warps with method="eb". The first three are what held-out likelihood
# chooses for 100 labels of MNIST. The smooth prior counts as few pairs: enough that no covariance
# is singular.
CLASS_PAIRS, DRIFT, POOL_PAIRS, SMOOTH_PAIRS = 7.0, 1.0, 50.0, 5.0


@dataclass(frozen=True)
class Settings:
    """How warps are learned; see the options of ``Augmenter``."""

    n_neighbors: int
    method: LearningMethod
    similarity: Any
    sigma: Any
    displacement: float | Literal["auto"]
    length: float
    model: str
    keep_unusable: bool
    discount_poor: bool
    max_steps: int = MAX_STEPS
    max_draws: int = MAX_DRAWS
    max_pairs: int | None = None

    def __post_init__(self) -> None:
        check_choice("model", self.model, KINDS)
        check_choice("method", self.method, LEARNING_METHODS)
        if self.max_pairs is not None:
            check_whole("max_pairs", self.max_pairs, MIN_PAIRS)
        for name in ("keep_unusable", "discount_poor"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"`{name}` must be True or False, got {getattr(self, name)!r}.")
        if self.discount_poor and self.similarity != "ssd":
            raise ValueError(
                "`discount_poor` needs similarity='ssd', whose losses can be compared, got "
                f"{self.similarity!r}."
            )
        if self.method == "eb" and self.model == "gaussian" and self.discount_poor:
            raise ValueError(
                "`discount_poor` must be False with method='eb' and model='gaussian', which weigh "
                "pairs by their information. Use method='map'."
            )

    def prior(self, space: WarpSpace) -> SmoothPrior:
        """The prior of alignments; empirical Bayes starts from it."""
        displacement = DISPLACEMENT if self.displacement == "auto" else self.displacement
        return SmoothPrior(space, displacement=displacement, length=self.length)

    def describe(self) -> dict[str, str | int | float]:
        """The settings as words and numbers, for a model file."""
        kind = type(self.similarity).__name__
        name = getattr(self.similarity, "__name__", kind)
        return {
            "n_neighbors": int(self.n_neighbors),
            "method": self.method,
            "similarity": self.similarity if isinstance(self.similarity, str) else name,
            "sigma": self.sigma if isinstance(self.sigma, str) else float(self.sigma),
            "displacement": "auto" if self.displacement == "auto" else float(self.displacement),
            "length": float(self.length),
            "keep_unusable": int(self.keep_unusable),
            "discount_poor": int(self.discount_poor),
            "max_steps": int(self.max_steps),
            "max_draws": int(self.max_draws),
            "max_pairs": "all" if self.max_pairs is None else int(self.max_pairs),
        }


@dataclass(frozen=True, eq=False)
class TrainingPairs:
    """Aligned pairs by class, and the hyper-parameters to fit a model to them."""

    space: WarpSpace
    pairs_by_class: dict[Label, Pairs]
    hyper: HyperParameters

    def __len__(self) -> int:
        return sum(map(len, self.pairs_by_class.values()))

    def among(self, kept: NDArray[np.bool_]) -> TrainingPairs:
        """The pairs of which both samples are kept, a mask (n_samples,)."""
        some = {
            label: pairs.only(np.flatnonzero(kept[pairs.edges].all(axis=1)))
            for label, pairs in self.pairs_by_class.items()
        }
        return replace(self, pairs_by_class=some)

    def fit(self) -> WarpModel:
        """Fit a model."""
        return WarpModel.from_parts(self.space, fit_classes(self.pairs_by_class, self.hyper))


class Learned(NamedTuple):
    """Edges (e, 2), their alignments, the model, and the pairs to fit it again without some."""

    edges: Integers
    alignments: Alignments
    model: WarpModel
    pairs: TrainingPairs


def learn_model(
    space: WarpSpace,
    images: NDArray[Any],
    codes: Integers,
    classes: list[Label],
    settings: Settings,
    *,
    seed: int,
    progress: ProgressOption,
    n_threads: int | None,
    client: Client | None,
) -> Learned:
    """Learn the warps of each class, in one of three ways.

    - method not "eb", or model "kde": align under the smooth prior, and fit to modes or draws.
    - "eb", "gaussian": estimate noise and pool, align under them, and fit to the posteriors.
    - "eb", "template": templates get MAP modes under the smooth prior; EB only gives the Gaussian
      of each class, for samples that are not templates and for networks.

    Parameters
    ----------
    images : (n, *spatial) or (n, channels, *spatial)
    codes : (n,)
        Class of each image, an index into ``classes``.
    classes : list of label
    """
    learner = _Learner(
        space, images, codes, classes, settings, seed, progress=progress, n_threads=n_threads,
        client=client,
    )  # fmt: skip
    edges = learner.find_edges()
    if settings.method != "eb" or settings.model == "kde":
        return learner.learn_from_alignments(edges)
    if settings.model == "gaussian":
        return learner.learn_gaussians(edges)
    return learner.learn_templates(edges)


@dataclass(frozen=True, eq=False)
class _Learner:
    """The arguments of ``learn_model``, and the steps of its three ways."""

    space: WarpSpace
    images: NDArray[Any]
    codes: Integers
    classes: list[Label]
    settings: Settings
    seed: int
    progress: ProgressOption
    n_threads: int | None
    client: Client | None

    # -- the three ways

    def learn_from_alignments(self, edges: Integers) -> Learned:
        """Fit to posterior modes or draws, with hyper-parameters of highest held-out likelihood."""
        alignments = self.align(edges)
        pairs_by_class = self.select_pairs(edges, alignments)
        check_enough(pairs_by_class, MIN_PAIRS)
        given = HyperParameters(self.settings.model, min_pairs=MIN_PAIRS)
        hyper = choose_hyperparameters(pairs_by_class, given, self.space.dim)
        pairs = TrainingPairs(self.space, pairs_by_class, hyper)
        return Learned(edges, alignments, self.fit_model(pairs), pairs)

    def learn_gaussians(self, edges: Integers) -> Learned:
        """Align under the prior and noise that empirical Bayes finds, and fit to posteriors."""
        pool = self.estimate_pool(edges)
        alignments = self.align(edges, pool)
        self.select_usable(alignments)  # raises if there are too few
        chosen = self.select_for_eb(edges, alignments)
        pairs = self.learn_posteriors(pool, edges[chosen], alignments.theta[chosen])
        return Learned(edges, alignments, self.fit_model(pairs), pairs)

    def learn_templates(self, edges: Integers) -> Learned:
        """Fit templates to modes under the smooth prior, and Gaussians by empirical Bayes."""
        alignments = self.align(edges)
        pairs_by_class = self.select_pairs(edges, alignments)
        chosen = self.select_for_eb(edges, alignments)
        theta = alignments.theta[chosen]
        pool = self.estimate_pool(edges[chosen], similarity=alignments.similarity, start=theta)
        others = self.learn_posteriors(pool, edges[chosen], theta)
        hyper = HyperParameters(
            "template", shrinkage=0.0, pool_pairs=POOL_PAIRS, smooth=self.prior.covariance,
            smooth_pairs=SMOOTH_PAIRS, class_pairs=CLASS_PAIRS, drift=DRIFT, min_pairs=MIN_PAIRS,
        )  # fmt: skip
        pairs = TrainingPairs(self.space, pairs_by_class, hyper)
        return Learned(edges, alignments, self.fit_model(pairs, others), pairs)

    # -- pairs

    def find_edges(self) -> Integers:
        """Pairs of neighbours of the same class."""
        settings = self.settings
        labels = np.array(self.classes)[self.codes]
        edges = neighbor_pairs(
            self.images, labels, n_neighbors=settings.n_neighbors, n_threads=self.n_threads
        )
        if settings.max_pairs is None or settings.model == "template":
            return edges
        return edges[spread_evenly(self.codes[edges[:, 0]], settings.max_pairs)]

    @cached_property
    def prior(self) -> SmoothPrior:
        """The smooth prior of alignments."""
        return self.settings.prior(self.space)

    def align(self, edges: Integers, pool: empirical_bayes.Pool | None = None) -> Alignments:
        """Align pairs under the smooth prior, or under the prior and noise of a pool."""
        settings = self.settings
        if pool is None:
            under: Any = {
                "prior": self.prior, "similarity": settings.similarity, "sigma": settings.sigma,
            }  # fmt: skip
        else:
            under = {"prior": pool.prior, "similarity": pool.similarity, "sigma": "auto"}
        return align_pairs(
            self.space, self.images, self.images, edges=edges, **under,
            method="map" if settings.method == "eb" else settings.method, seed=self.seed,
            max_steps=settings.max_steps, max_draws=settings.max_draws, client=self.client,
            progress=self.progress, n_threads=self.n_threads,
        )  # fmt: skip

    def select_usable(self, alignments: Alignments) -> Integers:
        """Indices of the pairs that could be aligned, or of all with ``keep_unusable``."""
        usable = np.flatnonzero(alignments.usable | self.settings.keep_unusable)
        check_number(len(usable), len(alignments.usable))
        return usable

    def select_pairs(self, edges: Integers, alignments: Alignments) -> dict[Label, Pairs]:
        """The pairs to learn from, with their weights, by class."""
        some = self.select_usable(alignments)
        weights = np.ones(len(some))
        if self.settings.discount_poor:
            weights = alignment_weights(alignments.loss_before[some], alignments.loss_after[some])
        return self.split_by_class(Pairs(alignments.theta[some], weights, edges[some]))

    def select_for_eb(self, edges: Integers, alignments: Alignments) -> Integers:
        """Indices of the pairs that empirical Bayes learns from, balanced over classes."""
        usable = np.flatnonzero(alignments.usable)
        n_most = max(MAX_EB_PAIRS, MAX_EB_PAIRS_PER_CLASS * len(self.classes))
        pair_codes = self.codes[edges[usable, 0]]
        return usable[spread_evenly(pair_codes, self.settings.max_pairs or n_most)]

    def split_by_class(self, pairs: Pairs) -> dict[Label, Pairs]:
        """The pairs of every class."""
        assert pairs.edges is not None
        pair_codes = self.codes[pairs.edges[:, 0]]
        return {
            label: pairs.only(np.flatnonzero(pair_codes == code))
            for code, label in enumerate(self.classes)
        }

    # -- the model

    def fit_model(self, pairs: TrainingPairs, others: TrainingPairs | None = None) -> WarpModel:
        """Fit a model; ``others``: the pairs for samples that are not templates."""
        check_enough(pairs.pairs_by_class, MIN_PAIRS)
        fitted = fit_classes(pairs.pairs_by_class, pairs.hyper)
        warn_of_fallbacks(fitted)
        if others is not None:
            fitted = fitted.with_general(fit_classes(others.pairs_by_class, others.hyper))
        model = WarpModel.from_parts(self.space, fitted)
        return model.with_settings(**self.settings.describe(), seed=self.seed)

    # -- empirical Bayes

    def estimate_pool(
        self, edges: Integers, *, similarity: Any = None, start: Array | None = None
    ) -> empirical_bayes.Pool:
        """Estimate the noise and the pool from pairs of images that are not constant.

        For pairs that were aligned before: the calibrated ``similarity``, and θ (n_pairs, d) to
        start at.
        """
        settings = self.settings
        flat = is_flat(scale_images(self.space, "X", self.images))
        kept = np.flatnonzero(~flat[edges].any(axis=1))
        check_number(len(kept), len(edges))
        edges = edges[kept]
        finder = EvidenceFinder.for_images(
            self.prior, self.images, edges, similarity=similarity or settings.similarity,
            sigma=settings.sigma, max_steps=settings.max_steps, progress=self.progress,
            n_threads=self.n_threads,
        )  # fmt: skip
        candidates = empirical_bayes.DISPLACEMENTS if settings.displacement == "auto" else ()
        with show_waiting("estimating noise and scale", self.progress):
            return empirical_bayes.find_pool(
                finder, edges, self.codes[edges[:, 0]],
                start=None if start is None else start[kept], displacements=candidates,
                fixed_sigma=settings.sigma != "auto", n_threads=self.n_threads,
            )  # fmt: skip

    def learn_posteriors(
        self, pool: empirical_bayes.Pool, edges: Integers, theta: Array
    ) -> TrainingPairs:
        """Posterior means and covariances of pairs; ``theta`` (n_pairs, d) are their modes."""
        frame = pool.finder.frame
        learned = empirical_bayes.learn(
            pool, edges, self.codes[edges[:, 0]], start=theta, n_threads=self.n_threads,
            client=self.client,
        )  # fmt: skip
        posterior = PosteriorCovariances(learned.covariances, frame.matrix, frame.rest)
        pairs = Pairs(learned.means @ frame.matrix.T, np.ones(len(edges)), edges, posterior)
        smooth_pairs = empirical_bayes.SMOOTH_PAIRS_PER_COMPONENT * frame.rank
        hyper = HyperParameters(
            "gaussian", shrinkage=0.0, pool_pairs=learned.pool_pairs,
            smooth=pool.smooth.covariance, smooth_pairs=smooth_pairs, min_pairs=MIN_PAIRS,
        )  # fmt: skip
        return TrainingPairs(self.space, self.split_by_class(pairs), hyper)


def check_number(n_usable: int, n_pairs: int) -> None:
    """Raise if there are too few pairs to learn from."""
    if n_usable < MIN_PAIRS:
        raise ValueError(
            f"`X` must have at least {MIN_PAIRS} pairs of neighbours of the same class that can be "
            f"aligned, got {n_usable} of {n_pairs}. Give more samples of a class, or larger "
            "`n_neighbors`; samples without structure can't be aligned."
        )
