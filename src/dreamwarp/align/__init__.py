"""Alignment of pairs: neighbour graphs, priors, posteriors and their inference."""

from dreamwarp.align.alignment import Alignments, align_pairs
from dreamwarp.align.distance import warp_distance
from dreamwarp.align.mean import FrechetMean, frechet_mean
from dreamwarp.align.pairs import neighbor_pairs
from dreamwarp.align.points import PointAlignments, align_points
from dreamwarp.align.prior import GMRFPrior, SmoothPrior
from dreamwarp.core.listing import public_names

__all__ = [
    "Alignments",
    "FrechetMean",
    "GMRFPrior",
    "PointAlignments",
    "SmoothPrior",
    "align_pairs",
    "align_points",
    "frechet_mean",
    "neighbor_pairs",
    "warp_distance",
]


def __dir__() -> list[str]:
    return public_names(globals())
