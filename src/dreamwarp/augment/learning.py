"""From samples and labels to the warps of each class: neighbours, alignments, distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dreamwarp.align import Alignments, SmoothPrior, align_pairs, neighbor_pairs
from dreamwarp.align.alignment import Method
from dreamwarp.core.progress import ProgressOption
from dreamwarp.core.validation import check_choice
from dreamwarp.model import WarpModel, alignment_weights
from dreamwarp.model.fitting import fit_by
from dreamwarp.model.kinds import KINDS, Amounts
from dreamwarp.model.moments import Rule, check_pairs
from dreamwarp.space import WarpSpace

# As many pairs, over all classes, are needed to learn anything: the least that a model takes.
MIN_PAIRS = 5
# Single numbers that a model may have been fitted with.
AMOUNTS = ("bandwidth", "class_pairs", "drift")


@dataclass(frozen=True)
class Settings:
    """How warps are learned; each is an option of ``Augmenter``."""

    n_neighbors: int
    method: Method
    similarity: Any
    sigma: Any
    displacement: float
    length: float
    model: str
    keep_unusable: bool
    discount_poor: bool
    max_steps: int = 50
    max_draws: int = 1600

    def __post_init__(self) -> None:
        check_choice("model", self.model, KINDS)
        for name in ("keep_unusable", "discount_poor"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"`{name}` must be True or False, got {getattr(self, name)!r}.")
        if self.discount_poor and self.similarity != "ssd":
            raise ValueError(
                "`discount_poor` needs similarity='ssd', whose losses can be compared, got "
                f"{self.similarity!r}."
            )

    def describe(self) -> dict[str, str | int | float]:
        """What a model file says of them: words and numbers."""
        kind = type(self.similarity).__name__
        name = getattr(self.similarity, "__name__", kind)
        return {
            "n_neighbors": int(self.n_neighbors),
            "method": self.method,
            "similarity": self.similarity if isinstance(self.similarity, str) else name,
            "sigma": self.sigma if isinstance(self.sigma, str) else float(self.sigma),
            "displacement": float(self.displacement),
            "length": float(self.length),
            "keep_unusable": int(self.keep_unusable),
            "discount_poor": int(self.discount_poor),
            "max_steps": int(self.max_steps),
            "max_draws": int(self.max_draws),
        }


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
    """

    labels: list[Any]
    codes: NDArray[np.int64]
    theta: NDArray[np.float64]
    edges: NDArray[np.int64]
    weights: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.codes)

    def among(self, kept: NDArray[np.bool_]) -> AlignedPairs:
        """The pairs that join two samples of those that are kept (n_samples,)."""
        some = kept[self.edges].all(axis=1)
        return AlignedPairs(
            self.labels, self.codes[some], self.theta[some], self.edges[some], self.weights[some]
        )

    def by_class(self) -> tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any]]:
        """θ, edges and weights of every class, by its label."""
        members = [np.flatnonzero(self.codes == code) for code in range(len(self.labels))]
        theta, edges, weights = (
            {label: values[some] for label, some in zip(self.labels, members, strict=True)}
            for values in (self.theta, self.edges, self.weights)
        )
        return theta, edges, weights


def align_neighbors(
    space: WarpSpace,
    images: NDArray[Any],
    codes: NDArray[np.int64],
    labels: list[Any],
    settings: Settings,
    *,
    seed: int,
    progress: ProgressOption,
    n_threads: int | None,
) -> tuple[NDArray[np.int64], Alignments]:
    """Edges (e, 2) between neighbours of each class, and their alignments, each made once."""
    prior = SmoothPrior(space, displacement=settings.displacement, length=settings.length)
    edges = neighbor_pairs(
        images, np.array(labels)[codes], n_neighbors=settings.n_neighbors, n_threads=n_threads
    )
    alignments = align_pairs(
        space, images[edges[:, 0]], images[edges[:, 1]], method=settings.method, prior=prior,
        sigma=settings.sigma, similarity=settings.similarity, seed=seed,
        max_steps=settings.max_steps, max_draws=settings.max_draws, progress=progress,
        n_threads=n_threads,
    )  # fmt: skip
    return edges, alignments


def choose_pairs(
    edges: NDArray[np.int64],
    alignments: Alignments,
    codes: NDArray[np.int64],
    labels: list[Any],
    settings: Settings,
) -> AlignedPairs:
    """The pairs to learn from, and how much each counts."""
    some = np.flatnonzero(alignments.usable | settings.keep_unusable)
    if len(some) < MIN_PAIRS:
        raise ValueError(
            f"`X` must have at least {MIN_PAIRS} pairs of neighbours of the same class that can be "
            f"aligned, got {len(some)} of {len(edges)}. Give more samples of a class, or larger "
            "`n_neighbors`; samples without structure can't be aligned."
        )
    weights = np.ones(len(some))
    if settings.discount_poor:
        weights = alignment_weights(alignments.loss_before[some], alignments.loss_after[some])
    pair_codes = codes[edges[some, 0]]
    return AlignedPairs(labels, pair_codes, alignments.theta[some], edges[some], weights)


def fit_model(space: WarpSpace, pairs: AlignedPairs, settings: Settings, *, seed: int) -> WarpModel:
    """The distributions of warps; amounts are chosen by held-out likelihood."""
    theta, edges, weights = pairs.by_class()
    kind: Any = settings.model
    model = WarpModel.fit(
        space, theta, kind=kind, edges=edges, weights=weights, min_pairs=MIN_PAIRS
    )
    return model.with_settings(**settings.describe(), seed=seed)


def refit(model: WarpModel, pairs: AlignedPairs) -> WarpModel:
    """The model of other pairs, with every amount as it was chosen."""
    settings = model.settings
    rule = Rule(settings["shrinkage"], settings.get("pooling"), settings.get("prior_pairs", 0.0))
    amounts = Amounts(model.kind, **{name: settings.get(name) for name in AMOUNTS})
    theta, edges, weights = pairs.by_class()
    classes = check_pairs(model.space, theta, weights, edges)
    with threadpool_limits(1):  # small matrices: threads would only wait for each other
        return WarpModel(model.space, *fit_by(classes, rule, amounts, settings["min_pairs"]))
