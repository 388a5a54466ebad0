"""TrainingPairs: aligned pairs of samples, and how a model is fitted to them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.evidence import Frame, Integers
from dreamwarp.align.prior import Prior
from dreamwarp.core.labels import Label
from dreamwarp.model import WarpModel, empirical_bayes
from dreamwarp.model.fitting import HyperParameters, check_enough, fit_classes, warn_of_fallbacks
from dreamwarp.model.pairs import Pairs, PosteriorCovariances
from dreamwarp.space import WarpSpace

# Smallest number of pairs, over all classes, to fit a model; and of a class, to get a distribution
# of its own.
MIN_PAIRS = 5
NEIGHBOR_PAIRS = "pairs of neighbours"
# If samples differ from the centre of their class with covariance Σ, two of them differ with 2 Σ.
TO_CENTER = 0.5**0.5


@dataclass(frozen=True, eq=False)
class TrainingPairs:
    """Aligned pairs by class, and the hyper-parameters to fit a model to them.

    ``gaussian_pairs`` are random pairs, to which the class covariances are fitted. Their warps are
    scaled to those from the centre of a class to a sample. None: ``pairs_by_class`` are used.
    ``prior`` is the one of ``Augmenter.alignments_``; None: the smooth prior of the settings.
    """

    space: WarpSpace
    pairs_by_class: dict[Label, Pairs]
    hyper: HyperParameters
    gaussian_pairs: TrainingPairs | None = None
    prior: Prior | None = None

    @classmethod
    def of_posteriors(
        cls,
        frame: Frame,
        learned: empirical_bayes.ClassPosteriors,
        edges: Integers,
        pair_codes: Integers,
        classes: list[Label],
    ) -> TrainingPairs:
        """Posteriors of pairs, scaled to warps from the centre of a class."""
        matrix, share = TO_CENTER * frame.matrix, TO_CENTER**2
        posterior = PosteriorCovariances(learned.covariances, matrix, share * frame.rest)
        pairs = Pairs(learned.means @ matrix.T, np.ones(len(edges)), edges, posterior)
        hyper = HyperParameters(
            "gaussian", shrinkage=0.0, pool_pairs=learned.pool_pairs,
            smooth_covariance=share * frame.prior.covariance,
            smooth_pairs=empirical_bayes.count_smooth(frame.rank), min_pairs=MIN_PAIRS,
        )  # fmt: skip
        return cls(frame.space, split_by_class(pairs, pair_codes, classes), hyper)

    def __len__(self) -> int:
        return sum(map(len, self.pairs_by_class.values()))

    def __repr__(self) -> str:
        return f"TrainingPairs({len(self):,} pairs of {len(self.pairs_by_class)} classes)"

    def among(self, kept: NDArray[np.bool_]) -> TrainingPairs:
        """The pairs of two samples in the mask ``kept`` (n_samples,)."""
        some = {
            label: pairs.only(np.flatnonzero(kept[pairs.edges].all(axis=1)))
            for label, pairs in self.pairs_by_class.items()
        }
        random = self.gaussian_pairs
        return replace(
            self, pairs_by_class=some, gaussian_pairs=None if random is None else random.among(kept)
        )

    def fit(self, *, checked: bool = False) -> WarpModel:
        """Fit a model; ``checked``: raise if pairs are too few, warn of classes with few."""
        if checked:
            check_enough(self.pairs_by_class, MIN_PAIRS)
        random = self.gaussian_pairs
        gaussians = None if random is None else fit_classes(random.pairs_by_class, random.hyper)
        fitted = fit_classes(self.pairs_by_class, self.hyper, gaussians)
        if checked:
            warn_of_fallbacks(fitted)
        return WarpModel(self.space, *fitted)


def split_by_class(pairs: Pairs, pair_codes: Integers, classes: list[Label]) -> dict[Label, Pairs]:
    """The pairs of every class; ``pair_codes`` (n_pairs,) index ``classes``."""
    return {
        label: pairs.only(np.flatnonzero(pair_codes == code)) for code, label in enumerate(classes)
    }


def check_pair_count(n_pairs: int, what: str) -> None:
    """Raise if there are too few pairs to learn from."""
    if n_pairs < MIN_PAIRS:
        raise ValueError(
            f"there must be at least {MIN_PAIRS} {what} within classes, got {n_pairs}. Give more "
            "samples per class. Constant samples do not count: they can't be aligned."
        )
