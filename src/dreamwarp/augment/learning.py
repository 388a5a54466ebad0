"""Learn the warps of each class from samples: find pairs, align them, fit distributions."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import Alignments, SmoothPrior, align_pairs, neighbor_pairs
from dreamwarp.align.evidence import Array, Evidence, EvidenceFinder, Integers
from dreamwarp.align.images import PIXELS_PER_CELL, is_flat, simplify
from dreamwarp.align.noise import check_sigma
from dreamwarp.align.pairs import random_pairs
from dreamwarp.align.similarity import SIMILARITIES, SquaredError
from dreamwarp.augment.training_pairs import (
    MIN_PAIRS,
    NEIGHBOR_PAIRS,
    TrainingPairs,
    check_pair_count,
    split_by_class,
)
from dreamwarp.core.defaults import (
    DISPLACEMENT,
    LEARNING_TOLERANCE,
    LENGTH,
    MAX_DRAWS,
    MAX_STEPS,
    N_NEIGHBORS,
    SEARCH_TOLERANCE,
)
from dreamwarp.core.labels import Label
from dreamwarp.core.progress import ProgressOption, track, without_callback
from dreamwarp.core.samples import choose_balanced
from dreamwarp.core.validation import check_choice, check_integer, warn_user
from dreamwarp.model import WarpModel, empirical_bayes
from dreamwarp.model.fitting import KINDS, HyperParameters
from dreamwarp.model.kinds import templates_explain
from dreamwarp.model.pairs import Pairs
from dreamwarp.model.selection import choose_hyperparameters
from dreamwarp.model.settings import LEARNING_METHODS
from dreamwarp.space import WarpSpace

if TYPE_CHECKING:
    from distributed import Client

# Largest number of pairs that empirical Bayes learns from: in total, or per class if that is more.
MAX_EB_PAIRS, MAX_EB_PAIRS_PER_CLASS = 1000, 50
# Number of pairs that decide whether brightness is equalized: as many as have COMPARED_VALUES
# values in total, but from MIN_COMPARED to MAX_COMPARED.
MIN_COMPARED, MAX_COMPARED, COMPARED_VALUES = 20, 500, 10_000_000
# Template warps with method="eb": how many neighbours the Gaussian of the class counts as, and the
# drift. Chosen from a few settings by the error of a nearest neighbour on validation images of
# MNIST, 100 labels per class, three draws; 3 and 5 did equally well with 10 labels.
EB_CLASS_PAIRS, EB_DRIFT = 3.0, 1.0


@dataclass(frozen=True)
class Settings:
    """How warps are learned; see the options of ``Augmenter``.

    Defaults are those assumed for models that don't store a setting.
    """

    n_neighbors: int = N_NEIGHBORS
    method: Literal["eb", "map", "laplace", "metropolis", "hmc"] = "map"
    similarity: Any = "ssd"
    sigma: Any = "auto"
    displacement: float | Literal["auto"] = DISPLACEMENT
    length: float = LENGTH
    kind: str = "gaussian"  # the option ``model``
    max_steps: int = MAX_STEPS
    max_draws: int = MAX_DRAWS
    max_pairs: int | None = None
    pixels_per_cell: int | Literal["auto"] | None = None

    @classmethod
    def of(cls, model: WarpModel) -> Settings:
        """The settings with which a model was learned, as :meth:`describe` stored them.

        Of point sets, "auto" is replaced by what was chosen. Of a custom similarity, only the name
        is stored: squared differences replace it.
        """
        names = {each.name for each in fields(cls)}
        stored = {name: value for name, value in model.settings.items() if name in names}
        for name in ("sigma", "displacement"):
            if (chosen := model.settings.get(f"learned_{name}")) is not None:
                stored[name] = chosen
        if stored.get("similarity") not in SIMILARITIES:
            stored["similarity"] = "ssd"
        if stored["similarity"] != "ssd":  # of models that stored a noise that was ignored
            stored["sigma"] = "auto"
        if stored.get("max_pairs") in ("auto", "all"):
            stored["max_pairs"] = None
        if stored.get("pixels_per_cell") == "all":
            stored["pixels_per_cell"] = None
        return cls(**stored | {"kind": model.kind})

    def __post_init__(self) -> None:
        check_choice("model", self.kind, ("auto", *KINDS))
        check_choice("method", self.method, LEARNING_METHODS)
        object.__setattr__(self, "sigma", check_sigma(self.sigma, self.similarity))
        if isinstance(self.similarity, SquaredError):
            object.__setattr__(self, "sigma", self.similarity.sigma)
            object.__setattr__(self, "similarity", "ssd")
        if self.max_pairs is not None:
            check_integer("max_pairs", self.max_pairs, MIN_PAIRS)
        if self.pixels_per_cell not in ("auto", None):
            check_integer("pixels_per_cell", self.pixels_per_cell, 1)

    @property
    def resolution(self) -> int | None:
        """Pixels per cell and axis to which samples are reduced; None: not reduced."""
        if self.pixels_per_cell != "auto":
            return self.pixels_per_cell
        return PIXELS_PER_CELL if self.method == "eb" else None

    def smooth_prior(self, space: WarpSpace) -> SmoothPrior:
        """The smooth prior of alignments; empirical Bayes starts from it."""
        start = DISPLACEMENT if self.displacement == "auto" else self.displacement
        return SmoothPrior(space, displacement=start, length=self.length)

    def describe(self) -> dict[str, str | int | float]:
        """The settings as words and numbers, for a model file."""
        name = getattr(self.similarity, "__name__", type(self.similarity).__name__)
        return {
            "n_neighbors": int(self.n_neighbors),
            "method": self.method,
            "similarity": self.similarity if isinstance(self.similarity, str) else name,
            "sigma": self.sigma if isinstance(self.sigma, str) else float(self.sigma),
            "displacement": "auto" if self.displacement == "auto" else float(self.displacement),
            "length": float(self.length),
            "max_steps": int(self.max_steps),
            "max_draws": int(self.max_draws),
            "max_pairs": int(self.max_pairs or 0) or ("auto" if self.method == "eb" else "all"),
            "pixels_per_cell": "all" if self.pixels_per_cell is None else self.pixels_per_cell,
        }


# Aligned edges (e, 2), their alignments, and the pairs to fit a model to.
Learned = tuple[Integers, Alignments, TrainingPairs]


@dataclass(frozen=True, eq=False)
class Learner:
    """Learns the warps of each class from images."""

    space: WarpSpace
    images: NDArray[Any]  # (n, *spatial) or (n, channels, *spatial)
    codes: Integers  # (n,), class of each image, an index into ``classes``
    classes: list[Label]
    settings: Settings
    seed: int  # of posterior draws; the choice of pairs does not depend on it
    progress: ProgressOption = None
    n_threads: int | None = None
    client: Client | None = None  # a cluster to align pairs on

    def learn(self) -> Learned:
        """Find the pairs that a model is fitted to, in one of three ways.

        - method not "eb": align neighbours under the smooth prior, and fit to modes or draws.
        - "eb", "gaussian": align random pairs of each class under the noise and the pool that
          empirical Bayes estimates, and fit to the posteriors.
        - "eb", "template": fit Gaussians in the same way, for networks and for samples outside the
          fit. The fitted samples, called templates, get MAP warps toward their neighbours, under
          the smooth prior. With "auto", they do so unless Gaussians explain held-out pairs better.

        Position, slant and size change most pixels, so nearest neighbours are alike in these, and
        their warps lack this variation. Random pairs vary in all ways that members of a class do.
        """
        is_gaussian = self.settings.kind == "gaussian"
        if self.settings.method == "eb" and is_gaussian:
            return self.learn_gaussians()
        edges = self.find_neighbors()
        check_pair_count(int((~self.are_flat[edges]).all(axis=1).sum()), NEIGHBOR_PAIRS)
        if self.settings.method == "eb":
            return self.learn_templates(edges)
        return self.learn_from_alignments(self.limit(edges) if is_gaussian else edges)

    def align_neighbors(self) -> tuple[Integers, Alignments]:
        """Edges (e, 2) of at most ``max_pairs`` neighbours, and their alignments."""
        edges = self.limit(self.find_neighbors())
        check_pair_count(len(edges), NEIGHBOR_PAIRS)
        return edges, self.align(edges)

    # -- the three ways

    def learn_from_alignments(self, edges: Integers) -> Learned:
        """Fit to posterior modes or draws, with hyper-parameters of highest held-out likelihood."""
        alignments = self.align(edges)
        pairs_by_class = self.select_pairs(edges, alignments)
        kind = "template" if self.settings.kind == "auto" else self.settings.kind
        given = HyperParameters(kind, min_pairs=MIN_PAIRS)
        hyper = choose_hyperparameters(pairs_by_class, given, self.space.dim)
        return edges, alignments, TrainingPairs(self.space, pairs_by_class, hyper)

    def learn_gaussians(self) -> Learned:
        """Align under the prior and noise that empirical Bayes finds, and fit to posteriors."""
        edges = self.draw_pairs()
        pool = self.estimate_pool(edges)
        alignments = self.align(edges, pool)  # evidence is found from these modes
        usable = self.select_usable(alignments)
        *_, pairs = self.learn_posteriors(pool, edges[usable], alignments.theta[usable])
        return edges, alignments, replace(pairs, prior=pool.learned_prior)

    def learn_templates(self, edges: Integers) -> Learned:
        """Fit Gaussians by empirical Bayes and, unless these explain pairs better, templates.

        Templates are fitted to modes under the smooth prior. The edges and alignments returned are
        those of neighbours in both cases.
        """
        # Not scaled by TO_CENTER: these warps start at a sample, not at the centre of the class.
        alignments = self.align(edges)
        pairs_by_class = self.select_pairs(edges, alignments)
        drawn = self.draw_pairs()
        pool = self.estimate_pool(drawn, similarity=alignments.similarity)
        evidence, learned, gaussian_pairs = self.learn_posteriors(pool, drawn)
        to_u = pool.finder.frame.inverse.T
        neighbors = [replace(each, theta=each.theta @ to_u) for each in pairs_by_class.values()]
        if self.settings.kind == "auto" and not templates_explain(
            evidence, drawn, self.codes[drawn[:, 0]], learned.folds, learned.pool_pairs,
            neighbors, EB_CLASS_PAIRS, EB_DRIFT,
        ):  # fmt: skip
            return edges, alignments, gaussian_pairs
        # Hyper-parameters of the Gaussians, recorded with those of the templates.
        hyper = replace(
            gaussian_pairs.hyper, kind="template", class_pairs=EB_CLASS_PAIRS, drift=EB_DRIFT
        )
        return edges, alignments, TrainingPairs(self.space, pairs_by_class, hyper, gaussian_pairs)

    # -- pairs

    def find_neighbors(self) -> Integers:
        """Pairs of neighbours of the same class."""
        labels = np.array(self.classes)[self.codes]  # warnings name them
        return neighbor_pairs(
            self.images, labels, n_neighbors=self.settings.n_neighbors, n_threads=self.n_threads
        )

    def limit(self, edges: Integers) -> Integers:
        """At most ``max_pairs`` of the edges, balanced over classes."""
        if self.settings.max_pairs is None:
            return edges
        return edges[choose_balanced(self.codes[edges[:, 0]], self.settings.max_pairs)]

    def draw_pairs(self) -> Integers:
        """Random pairs of the same class, without constant images."""
        n_most = max(MAX_EB_PAIRS, MAX_EB_PAIRS_PER_CLASS * len(self.classes))
        flat, kept = self.are_flat, np.flatnonzero(~self.are_flat)
        pairs = random_pairs(self.codes[kept], self.settings.max_pairs or n_most)
        check_pair_count(len(pairs), "random pairs")
        if flat.any() and self.settings.kind == "gaussian":  # else the neighbours' alignment warns
            warn_user(
                f"{flat.sum()} of {len(flat)} samples are constant: nothing is learned from them.",
                RuntimeWarning,
            )
        return kept[pairs]

    @cached_property
    def are_flat(self) -> NDArray[np.bool_]:
        """Which of the images (n,) are constant."""
        return is_flat(self.simple_images)

    @cached_property
    def simple_images(self) -> NDArray[np.float32]:
        """The images (n, channels, *spatial) as they are aligned; see ``simplify``."""
        n_most = max(MIN_COMPARED, min(MAX_COMPARED, COMPARED_VALUES // self.images[0].size))
        alike = random_pairs(self.codes, n_most)
        return simplify(self.space, self.images, self.settings.resolution, alike=alike)

    @cached_property
    def smooth_prior(self) -> SmoothPrior:
        """The smooth prior of the settings."""
        return self.settings.smooth_prior(self.space)

    def align(self, edges: Integers, pool: empirical_bayes.Pool | None = None) -> Alignments:
        """Align pairs under the smooth prior, or under the prior and noise of a pool."""
        settings = self.settings
        return align_pairs(
            self.space, self.simple_images, self.simple_images, edges=edges,
            prior=self.smooth_prior if pool is None else pool.learned_prior,
            similarity=settings.similarity if pool is None else pool.similarity,
            sigma=settings.sigma if pool is None else "auto",
            method="map" if settings.method == "eb" else settings.method, seed=self.seed,
            max_steps=settings.max_steps,
            tolerance=LEARNING_TOLERANCE if settings.method == "eb" else SEARCH_TOLERANCE,
            max_draws=settings.max_draws, client=self.client, progress=self.progress,
            n_threads=self.n_threads,
        )  # fmt: skip

    def select_usable(self, alignments: Alignments) -> Integers:
        """Indices of the pairs that could be aligned."""
        usable = np.flatnonzero(alignments.usable)
        check_pair_count(len(usable), f"pairs that can be aligned, of {len(alignments.usable)},")
        return usable

    def select_pairs(self, edges: Integers, alignments: Alignments) -> dict[Label, Pairs]:
        """The pairs to learn from, by class."""
        some = self.select_usable(alignments)
        pairs = Pairs(alignments.theta[some], np.ones(len(some)), edges[some])
        return split_by_class(pairs, self.codes[edges[some, 0]], self.classes)

    # -- empirical Bayes

    def estimate_pool(self, edges: Integers, *, similarity: Any = None) -> empirical_bayes.Pool:
        """Estimate the noise and the pool; ``similarity``: one that was calibrated before."""
        settings = self.settings
        finder = EvidenceFinder.for_images(
            self.smooth_prior, self.simple_images, edges,
            similarity=settings.similarity if similarity is None else similarity,
            sigma=settings.sigma if similarity is None else "auto",
            max_steps=settings.max_steps, progress=self.progress, n_threads=self.n_threads,
        )  # fmt: skip
        candidates = empirical_bayes.DISPLACEMENTS if settings.displacement == "auto" else ()
        with track(None, "estimating noise and scale", self.progress):
            return empirical_bayes.find_pool(
                finder, edges, self.codes[edges[:, 0]], displacements=candidates,
                fixed_sigma=settings.sigma != "auto", n_threads=self.n_threads,
            )  # fmt: skip

    def learn_posteriors(
        self, pool: empirical_bayes.Pool, edges: Integers, theta: Array | None = None
    ) -> tuple[Evidence, empirical_bayes.ClassPosteriors, TrainingPairs]:
        """Evidence and posteriors of random pairs, each under the covariance of its class.

        ``theta`` (n_pairs, d): modes to start at.
        """
        codes = self.codes[edges[:, 0]]
        evidence = pool.finder.find(
            edges, pool.covariance, sigma=pool.sigma, start=theta,
            progress=without_callback(self.progress), n_threads=self.n_threads, client=self.client,
        )  # fmt: skip
        learned = empirical_bayes.learn_classes(
            evidence, pool.covariance, edges, codes, self.n_threads
        )
        pairs = TrainingPairs.of_posteriors(pool.finder.frame, learned, edges, codes, self.classes)
        return evidence, learned, pairs
