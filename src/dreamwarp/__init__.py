"""dreamwarp: learned augmentation by diffeomorphisms."""

from dreamwarp.space import WarpSpace
from dreamwarp.warp import Warp

from dreamwarp import data  # isort: skip
from dreamwarp.align import Alignments, GMRFPrior, SmoothPrior, align_pairs, neighbor_pairs
from dreamwarp.model import WarpModel, alignment_weights, held_out_log_likelihood

__version__ = "0.1.0"

__all__ = [
    "Alignments",
    "GMRFPrior",
    "SmoothPrior",
    "Warp",
    "WarpModel",
    "WarpSpace",
    "__version__",
    "align_pairs",
    "alignment_weights",
    "data",
    "held_out_log_likelihood",
    "neighbor_pairs",
]
