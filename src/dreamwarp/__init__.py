"""dreamwarp: learned augmentation by diffeomorphisms."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dreamwarp.core.listing import public_names
from dreamwarp.core.version import __version__

if TYPE_CHECKING:
    from dreamwarp import data
    from dreamwarp.align import (
        Alignments,
        GMRFPrior,
        SmoothPrior,
        align_pairs,
        align_points,
        frechet_mean,
        neighbor_pairs,
        warp_distance,
    )
    from dreamwarp.augment.augmenter import Augmenter
    from dreamwarp.augment.shapes import ShapeAugmenter
    from dreamwarp.generation.generating import generate, stream
    from dreamwarp.generation.verification import verify
    from dreamwarp.model import WarpModel, alignment_weights
    from dreamwarp.space import Warp, WarpSpace

# Public names by package, which is imported when a name is first used: numba and scikit-learn are
# slow to load, and a command must handle Ctrl-C before that.
NAMES = {
    "align": (
        "Alignments", "GMRFPrior", "SmoothPrior", "align_pairs", "align_points", "frechet_mean",
        "neighbor_pairs", "warp_distance",
    ),
    "augment": ("Augmenter", "ShapeAugmenter"),
    "generation": ("generate", "stream", "verify"),
    "model": ("WarpModel", "alignment_weights"),
    "space": ("Warp", "WarpSpace"),
}  # fmt: skip
LAZY = {name: module for module, names in NAMES.items() for name in names}
SUBMODULES = (
    "align", "augment", "data", "generation", "model", "report", "space", "torch", "torchvision",
)  # fmt: skip

__all__ = [
    "Alignments",
    "Augmenter",
    "GMRFPrior",
    "ShapeAugmenter",
    "SmoothPrior",
    "Warp",
    "WarpModel",
    "WarpSpace",
    "__version__",
    "align_pairs",
    "align_points",
    "alignment_weights",
    "data",
    "frechet_mean",
    "generate",
    "neighbor_pairs",
    "stream",
    "verify",
    "warp_distance",
]


def __getattr__(name: str) -> Any:
    if name in LAZY:
        return getattr(import_module(f"dreamwarp.{LAZY[name]}"), name)
    if name not in SUBMODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(f"dreamwarp.{name}")
    except Exception as error:  # torch that is missing or broken must not break `help` and `dir`
        raise AttributeError(
            f"`dreamwarp.{name}` can't be imported: {error}. Install what it needs by `pip install "
            f"dreamwarp[{name}]`."
        ) from error


def __dir__() -> list[str]:
    return public_names(globals(), *SUBMODULES)
