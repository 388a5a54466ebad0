"""dreamwarp: learned augmentation by diffeomorphisms."""

from typing import TYPE_CHECKING, Any

from dreamwarp.space import WarpSpace
from dreamwarp.warp import Warp

from dreamwarp import data  # isort: skip
from dreamwarp.align import Alignments, GMRFPrior, SmoothPrior, align_pairs, neighbor_pairs
from dreamwarp.model import WarpModel, alignment_weights, held_out_log_likelihood

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dreamwarp.augment.augmenter import Augmenter
    from dreamwarp.augment.generation import generate
    from dreamwarp.augment.streaming import stream
    from dreamwarp.augment.verification import verify

LAZY = ("Augmenter", "generate", "stream", "verify")

__all__ = [
    "Alignments",
    "Augmenter",
    "GMRFPrior",
    "SmoothPrior",
    "Warp",
    "WarpModel",
    "WarpSpace",
    "__version__",
    "align_pairs",
    "alignment_weights",
    "data",
    "generate",
    "held_out_log_likelihood",
    "neighbor_pairs",
    "stream",
    "verify",
]


def __getattr__(name: str) -> Any:
    """What makes samples, when it is first asked for: scikit-learn takes long to load."""
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dreamwarp import augment

    return getattr(augment, name)
