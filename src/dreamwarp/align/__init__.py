"""Alignment of pairs: neighbour graphs, priors, posteriors and their inference.

Steps from ``neighbor_pairs`` through ``align_pairs`` to the θ of a pair:

pairs, nearest         which samples to align
alignment              checks; calibrates the similarity (``noise``); divides pairs into blocks
block, results         aligns a block of pairs, from coarse to fine (``images``: reduces them)
posterior              log-density and derivatives (``prior``, ``similarity``, ``image_kernels``)
search, algebra        its mode
chains, samplers       draws from it (``surrogate``: its Gaussian approximation)
evidence               its quadratic approximation, from which empirical Bayes learns
"""

from dreamwarp.align.alignment import align_pairs
from dreamwarp.align.distance import warp_distance
from dreamwarp.align.mean import FrechetMean, frechet_mean
from dreamwarp.align.pairs import neighbor_pairs
from dreamwarp.align.points import PointAlignments, align_points
from dreamwarp.align.prior import GMRFPrior, SmoothPrior
from dreamwarp.align.results import Alignments
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
