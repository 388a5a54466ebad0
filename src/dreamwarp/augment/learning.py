"""Learn the warps of each class from samples: find neighbours, align them, fit distributions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import Alignments, SmoothPrior, align_pairs, neighbor_pairs
from dreamwarp.align.alignment import METHODS, is_flat, scale_images
from dreamwarp.align.evidence import EvidenceFinder, spread_evenly
from dreamwarp.core.defaults import DISPLACEMENT
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
    max_steps: int = 50
    max_draws: int = 1600
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
    classes: dict[Label, Pairs]
    hyper: HyperParameters

    def __len__(self) -> int:
        return sum(map(len, self.classes.values()))

    def among(self, kept: NDArray[np.bool_]) -> TrainingPairs:
        """The pairs of which both samples are kept, a mask (n_samples,)."""
        some = {
            label: pairs.only(np.flatnonzero(kept[pairs.edges].all(axis=1)))
            for label, pairs in self.classes.items()
        }
        return replace(self, classes=some)

    def fit(self) -> WarpModel:
        """Fit a model."""
        return WarpModel(self.space, *fit_classes(self.classes, self.hyper))


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
    labels: list[Label],
    settings: Settings,
    *,
    seed: int,
    progress: ProgressOption,
    n_threads: int | None,
    client: Client | None,
) -> Learned:
    """Learn the warps of each class.

    Parameters
    ----------
    images : (n, *spatial) or (n, channels, *spatial)
    codes : (n,)
        Class of each image, an index into ``labels``.
    """
    edges = neighbor_pairs(
        images, np.array(labels)[codes], n_neighbors=settings.n_neighbors, n_threads=n_threads
    )
    if settings.max_pairs is not None and settings.model != "template":
        edges = edges[spread_evenly(codes[edges[:, 0]], settings.max_pairs)]
    prior, similarity, sigma = settings.prior(space), settings.similarity, settings.sigma
    is_eb = settings.method == "eb" and settings.model != "kde"
    options: Any = {"progress": progress, "n_threads": n_threads}
    align_prior: Any = prior
    pool = None
    if is_eb and settings.model == "gaussian":  # aligned under the prior and noise it estimates
        pool = find_pool(prior, images, edges, codes, settings, **options)
        align_prior, similarity, sigma = pool.prior, pool.similarity, "auto"
    alignments = align_pairs(
        space, images, images, edges=edges, prior=align_prior, similarity=similarity, sigma=sigma,
        method="map" if settings.method == "eb" else settings.method, seed=seed,
        max_steps=settings.max_steps, max_draws=settings.max_draws, client=client, **options,
    )  # fmt: skip
    classes = split_by_class(select_pairs(edges, alignments, settings), codes, labels)
    general = None
    if not is_eb:
        check_enough(classes, MIN_PAIRS)
        hyper = HyperParameters(settings.model, min_pairs=MIN_PAIRS)
        pairs = TrainingPairs(space, classes, choose_hyperparameters(classes, hyper, space.dim))
    else:
        few = np.flatnonzero(alignments.usable)
        n_most = max(MAX_EB_PAIRS, MAX_EB_PAIRS_PER_CLASS * len(labels))
        few = few[spread_evenly(codes[edges[few, 0]], settings.max_pairs or n_most)]
        theta = alignments.theta[few]
        if pool is None:
            pool = find_pool(
                prior, images, edges[few], codes, settings, similarity=alignments.similarity,
                start=theta, **options,
            )  # fmt: skip
        pairs = learn_posteriors(pool, edges[few], theta, codes, labels, n_threads, client)
        if settings.model == "template":
            hyper = HyperParameters(
                "template", shrinkage=0.0, prior_pairs=POOL_PAIRS, smooth=prior.covariance,
                smooth_pairs=SMOOTH_PAIRS, class_pairs=CLASS_PAIRS, drift=DRIFT,
                min_pairs=MIN_PAIRS,
            )  # fmt: skip
            pairs, general = TrainingPairs(space, classes, hyper), pairs
    return Learned(edges, alignments, fit_model(pairs, general, settings, seed), pairs)


def select_pairs(edges: Integers, alignments: Alignments, settings: Settings) -> Pairs:
    """The pairs to learn from, with their weights."""
    some = np.flatnonzero(alignments.usable | settings.keep_unusable)
    check_number(len(some), len(edges))
    weights = np.ones(len(some))
    if settings.discount_poor:
        weights = alignment_weights(alignments.loss_before[some], alignments.loss_after[some])
    return Pairs(alignments.theta[some], weights, edges[some])


def split_by_class(pairs: Pairs, codes: Integers, labels: list[Label]) -> dict[Label, Pairs]:
    """The pairs of every class, by its label; ``codes`` (n,) are the classes of the samples."""
    assert pairs.edges is not None
    own = codes[pairs.edges[:, 0]]
    return {label: pairs.only(np.flatnonzero(own == code)) for code, label in enumerate(labels)}


def fit_model(
    pairs: TrainingPairs, general: TrainingPairs | None, settings: Settings, seed: int
) -> WarpModel:
    """Fit a model; ``general``: the pairs for samples that are not templates."""
    check_enough(pairs.classes, MIN_PAIRS)
    fitted = fit_classes(pairs.classes, pairs.hyper)
    warn_of_fallbacks(fitted)
    if general is not None:
        fitted = fitted.with_general(fit_classes(general.classes, general.hyper))
    return WarpModel(pairs.space, *fitted).with_settings(**settings.describe(), seed=seed)


# -- empirical Bayes


def find_pool(
    prior: SmoothPrior,
    images: NDArray[Any],
    edges: Integers,
    codes: Integers,
    settings: Settings,
    *,
    similarity: Any = None,
    start: Array | None = None,
    progress: ProgressOption,
    n_threads: int | None,
) -> empirical_bayes.Pool:
    """Estimate the noise and the pool from pairs of images that are not constant.

    For pairs that were aligned before: the calibrated ``similarity``, and θ (n_pairs, d) to start
    at.
    """
    flat = is_flat(scale_images(prior.space, "X", images))
    kept = np.flatnonzero(~flat[edges].any(axis=1))
    check_number(len(kept), len(edges))
    edges = edges[kept]
    finder = EvidenceFinder.for_images(
        prior, images, edges, similarity=similarity or settings.similarity, sigma=settings.sigma,
        max_steps=settings.max_steps, progress=progress, n_threads=n_threads,
    )  # fmt: skip
    candidates = empirical_bayes.DISPLACEMENTS if settings.displacement == "auto" else ()
    with show_waiting("estimating noise and scale", progress):
        return empirical_bayes.find_pool(
            finder, edges, codes[edges[:, 0]], start=None if start is None else start[kept],
            displacements=candidates, fixed_sigma=settings.sigma != "auto", n_threads=n_threads,
        )  # fmt: skip


def learn_posteriors(
    pool: empirical_bayes.Pool,
    edges: Integers,
    theta: Array,
    codes: Integers,
    labels: list[Label],
    n_threads: int | None,
    client: Client | None,
) -> TrainingPairs:
    """Posterior means and covariances of pairs; ``theta`` (n_pairs, d) are their modes."""
    frame = pool.finder.frame
    learned = empirical_bayes.learn(
        pool, edges, codes[edges[:, 0]], start=theta, n_threads=n_threads, client=client
    )
    posterior = PosteriorCovariances(learned.covariances, frame.matrix, frame.rest)
    pairs = Pairs(learned.means @ frame.matrix.T, np.ones(len(edges)), edges, posterior)
    hyper = HyperParameters(
        "gaussian", shrinkage=0.0, prior_pairs=learned.pool_pairs, smooth=pool.smooth.covariance,
        smooth_pairs=empirical_bayes.PRIOR_PAIRS * frame.rank, min_pairs=MIN_PAIRS,
    )  # fmt: skip
    return TrainingPairs(frame.space, split_by_class(pairs, codes, labels), hyper)


def check_number(n_usable: int, n_pairs: int) -> None:
    """Raise if there are too few pairs to learn from."""
    if n_usable < MIN_PAIRS:
        raise ValueError(
            f"`X` must have at least {MIN_PAIRS} pairs of neighbours of the same class that can be "
            f"aligned, got {n_usable} of {n_pairs}. Give more samples of a class, or larger "
            "`n_neighbors`; samples without structure can't be aligned."
        )
