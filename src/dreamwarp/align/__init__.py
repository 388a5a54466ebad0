"""Alignment of pairs: neighbour graphs, priors, posteriors and their inference."""

from dreamwarp.align.alignment import Alignments, align_pairs
from dreamwarp.align.pairs import neighbor_pairs
from dreamwarp.align.prior import GMRFPrior, SmoothPrior
from dreamwarp.core.listing import public_names

__all__ = ["Alignments", "GMRFPrior", "SmoothPrior", "align_pairs", "neighbor_pairs"]


def __dir__() -> list[str]:
    return public_names(globals())
