"""From samples and labels to the warps of each class: neighbours, alignments, distributions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import Alignments, SmoothPrior, align_pairs, neighbor_pairs
from dreamwarp.align.alignment import METHODS, is_flat, scale_images
from dreamwarp.align.evidence import EvidenceFinder, spread_evenly
from dreamwarp.core.defaults import DISPLACEMENT
from dreamwarp.core.progress import ProgressOption, show_waiting
from dreamwarp.core.validation import check_choice, check_whole
from dreamwarp.model import WarpModel, alignment_weights, empirical_bayes
from dreamwarp.model.empirical_bayes import DISPLACEMENTS, Pool
from dreamwarp.model.fitting import Recipe, check_enough, choose_recipe, fit_by, warn_of_fallbacks
from dreamwarp.model.kinds import KINDS, Amounts
from dreamwarp.model.moments import Pairs, Rule, Spread
from dreamwarp.space import WarpSpace

if TYPE_CHECKING:
    from distributed import Client

LearningMethod = Literal["eb", "map", "laplace", "metropolis", "hmc"]
LEARNING_METHODS = ("eb", *METHODS)

# As many pairs, over all classes, are needed to learn anything: the least that a model takes.
MIN_PAIRS = 5
# Pairs that empirical Bayes learns from, at most, for samples that are no templates: so many, and
# more where there are many classes.
MAX_EB_PAIRS, MAX_EB_PAIRS_PER_CLASS = 1000, 50
# Template-conditional warps beside it: how many neighbours the class counts as, the drift toward
# them, and the pairs that all classes count as for a class, as held-out likelihood chooses them for
# 100 labels of MNIST. The prior counts as few pairs, so that no covariance is singular.
CLASS_PAIRS, DRIFT, POOL_PAIRS, SMOOTH_PAIRS = 7.0, 1.0, 50.0, 5.0


@dataclass(frozen=True)
class Settings:
    """How warps are learned; each is an option of ``Augmenter``."""

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
                "`discount_poor` must be False with method='eb' and model='gaussian', where every "
                "pair counts by what it shows. Use method='map'."
            )

    def prior(self, space: WarpSpace) -> SmoothPrior:
        """The prior of alignments, or where empirical Bayes starts from."""
        return SmoothPrior(
            space,
            displacement=DISPLACEMENT if self.displacement == "auto" else self.displacement,
            length=self.length,
        )

    def describe(self) -> dict[str, str | int | float]:
        """What a model file says of them: words and numbers."""
        kind = type(self.similarity).__name__
        name = getattr(self.similarity, "__name__", kind)
        return {
            "n_neighbors": int(self.n_neighbors),
            "method": self.method,
            "similarity": self.similarity if isinstance(self.similarity, str) else name,
            "sigma": _amount(self.sigma),
            "displacement": _amount(self.displacement),
            "length": float(self.length),
            "keep_unusable": int(self.keep_unusable),
            "discount_poor": int(self.discount_poor),
            "max_steps": int(self.max_steps),
            "max_draws": int(self.max_draws),
            "max_pairs": "all" if self.max_pairs is None else int(self.max_pairs),
        }


def _amount(value: Any) -> str | float:
    return value if isinstance(value, str) else float(value)


@dataclass(frozen=True, eq=False)
class AlignedPairs:
    """Pairs of samples, and the warps between them.

    Attributes
    ----------
    labels : list
        Of the classes, as a model knows them.
    codes : (n_pairs,)
        Class of each pair.
    theta : (n_pairs, d)
    edges : (n_pairs, 2)
    weights : (n_pairs,)
    spread : Spread or None
        Where θ are posterior means: their covariances.
    recipe : Recipe or None
        How distributions are made of them, once that is settled.
    general : AlignedPairs or None
        What the distribution for samples that are no templates is made of, if not of the same.
    """

    labels: list[Any]
    codes: NDArray[np.int64]
    theta: NDArray[np.float64]
    edges: NDArray[np.int64]
    weights: NDArray[np.float64]
    spread: Spread | None = None
    recipe: Recipe | None = None
    general: AlignedPairs | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def among(self, kept: NDArray[np.bool_]) -> AlignedPairs:
        """The pairs that join two samples of those that are kept (n_samples,); no general ones."""
        some = np.flatnonzero(kept[self.edges].all(axis=1))
        spread = None if self.spread is None else self.spread.only(some)
        return AlignedPairs(
            self.labels, self.codes[some], self.theta[some], self.edges[some], self.weights[some],
            spread, self.recipe,
        )  # fmt: skip

    def by_class(self) -> dict[Any, Pairs]:
        """The pairs of every class, by its label."""
        everything = Pairs(self.theta, self.weights, self.edges, self.spread)
        members = (np.flatnonzero(self.codes == code) for code in range(len(self.labels)))
        return {
            label: everything.only(some) for label, some in zip(self.labels, members, strict=True)
        }


def learn_pairs(
    space: WarpSpace,
    images: NDArray[Any],
    codes: NDArray[np.int64],
    labels: list[Any],
    settings: Settings,
    *,
    seed: int,
    progress: ProgressOption,
    n_threads: int | None,
    client: Client | None,
) -> tuple[NDArray[np.int64], Alignments, AlignedPairs]:
    """Edges (e, 2) between neighbours of each class, their alignments, and what to learn from.

    Each pair is aligned once. Of more than ``max_pairs`` some are taken, as many of every class,
    unless the model needs those of every sample.
    """
    edges = neighbor_pairs(
        images, np.array(labels)[codes], n_neighbors=settings.n_neighbors, n_threads=n_threads
    )
    if settings.max_pairs is not None and settings.model != "template":
        edges = edges[spread_evenly(codes[edges[:, 0]], settings.max_pairs)]
    by_evidence = settings.method == "eb" and settings.model != "kde"
    options: Any = {"progress": progress, "n_threads": n_threads}
    prior, pool = settings.prior(space), None
    how: Any = {
        "method": "map" if settings.method == "eb" else settings.method, "prior": prior,
        "sigma": settings.sigma, "similarity": settings.similarity,
    }  # fmt: skip
    if by_evidence and settings.model == "gaussian":
        pool = find_pool(prior, images, edges, codes, settings, **options)
        how |= {"prior": pool.prior, "sigma": "auto", "similarity": pool.similarity}
    alignments = align_pairs(
        space, images, images, edges=edges, seed=seed, max_steps=settings.max_steps,
        max_draws=settings.max_draws, client=client, **how, **options,
    )  # fmt: skip
    some = np.flatnonzero(alignments.usable | settings.keep_unusable)
    check_number(len(some), len(edges))
    weights = np.ones(len(some))
    if settings.discount_poor:
        weights = alignment_weights(alignments.loss_before[some], alignments.loss_after[some])
    pairs = AlignedPairs(
        labels, codes[edges[some, 0]], alignments.theta[some], edges[some], weights
    )
    if not by_evidence:
        return edges, alignments, pairs
    few = np.flatnonzero(alignments.usable)
    n_most = max(MAX_EB_PAIRS, MAX_EB_PAIRS_PER_CLASS * len(labels))
    few = few[spread_evenly(codes[edges[few, 0]], settings.max_pairs or n_most)]
    if pool is None:
        options |= {"similarity": alignments.similarity, "start": alignments.theta[few]}
        pool = find_pool(prior, images, edges[few], codes, settings, **options)
    general = learn_posteriors(
        pool, edges[few], alignments.theta[few], codes, labels, n_threads, client
    )
    if settings.model == "gaussian":
        return edges, alignments, general
    rule = Rule(0.0, prior_pairs=POOL_PAIRS, smooth=prior.covariance, smooth_pairs=SMOOTH_PAIRS)
    amounts = Amounts("template", class_pairs=CLASS_PAIRS, drift=DRIFT)
    recipe = Recipe(rule, amounts, MIN_PAIRS)
    return edges, alignments, replace(pairs, general=general, recipe=recipe)


def find_pool(
    prior: SmoothPrior,
    images: NDArray[Any],
    edges: NDArray[np.int64],
    codes: NDArray[np.int64],
    settings: Settings,
    *,
    similarity: Any = None,
    start: NDArray[np.float64] | None = None,
    progress: ProgressOption,
    n_threads: int | None,
) -> Pool:
    """The noise and the distribution of warps of all classes, from pairs that have structure.

    Where pairs were aligned before, the search begins at those θ (n_pairs, d), ``start``, with the
    similarity that was calibrated then.
    """
    flat = is_flat(scale_images(prior.space, "X", images))
    kept = np.flatnonzero(~flat[edges].any(axis=1))
    check_number(len(kept), len(edges))
    edges = edges[kept]
    finder = EvidenceFinder.for_images(
        prior, images, edges, similarity=similarity or settings.similarity, sigma=settings.sigma,
        max_steps=settings.max_steps, progress=progress, n_threads=n_threads,
    )  # fmt: skip
    with show_waiting("estimating noise and scale", progress):
        return empirical_bayes.find_pool(
            finder, edges, codes[edges[:, 0]], start=None if start is None else start[kept],
            displacements=DISPLACEMENTS if settings.displacement == "auto" else (),
            fixed_sigma=settings.sigma != "auto", n_threads=n_threads,
        )  # fmt: skip


def learn_posteriors(
    pool: Pool,
    edges: NDArray[np.int64],
    theta: NDArray[np.float64],
    codes: NDArray[np.int64],
    labels: list[Any],
    n_threads: int | None,
    client: Client | None,
) -> AlignedPairs:
    """What pairs say of their warps by empirical Bayes; ``theta`` (n_pairs, d) are the modes."""
    pair_codes, frame = codes[edges[:, 0]], pool.finder.frame
    learned = empirical_bayes.learn(
        pool, edges, pair_codes, start=theta, n_threads=n_threads, client=client
    )
    rule = Rule(
        0.0, prior_pairs=learned.pool_pairs, smooth=pool.smooth.covariance,
        smooth_pairs=empirical_bayes.PRIOR_PAIRS * frame.rank,
    )  # fmt: skip
    return AlignedPairs(
        labels, pair_codes, learned.means @ frame.matrix.T, edges, np.ones(len(edges)),
        Spread(learned.spreads, frame.matrix, frame.rest),
        Recipe(rule, Amounts("gaussian"), MIN_PAIRS),
    )  # fmt: skip


def check_number(n_usable: int, n_pairs: int) -> None:
    """Raise if there are too few pairs to learn from."""
    if n_usable < MIN_PAIRS:
        raise ValueError(
            f"`X` must have at least {MIN_PAIRS} pairs of neighbours of the same class that can be "
            f"aligned, got {n_usable} of {n_pairs}. Give more samples of a class, or larger "
            "`n_neighbors`; samples without structure can't be aligned."
        )


def fit_model(
    space: WarpSpace, pairs: AlignedPairs, settings: Settings, *, seed: int
) -> tuple[WarpModel, AlignedPairs]:
    """The distributions of warps, and the pairs with the recipe that they were made by.

    What the recipe leaves open is chosen by held-out likelihood.
    """
    classes = pairs.by_class()
    check_enough(classes, MIN_PAIRS)
    recipe = pairs.recipe or choose_recipe(
        classes, "auto", "auto", Amounts(settings.model), MIN_PAIRS, space.dim
    )
    fitted = fit_by(classes, recipe)
    warn_of_fallbacks(fitted, MIN_PAIRS)
    if pairs.general is not None and pairs.general.recipe is not None:
        fitted = fitted.with_general(fit_by(pairs.general.by_class(), pairs.general.recipe))
    model = WarpModel(space, *fitted).with_settings(**settings.describe(), seed=seed)
    return model, replace(pairs, recipe=recipe)


def refit(model: WarpModel, pairs: AlignedPairs) -> WarpModel:
    """The model of other pairs, by their recipe; without one for samples that are no templates."""
    assert pairs.recipe is not None
    return WarpModel(model.space, *fit_by(pairs.by_class(), pairs.recipe))
