"""Per-class distributions over warps, and model files."""

from dreamwarp.core.labels import Label
from dreamwarp.core.listing import public_names
from dreamwarp.model.fitting import ClassFit
from dreamwarp.model.gaussian import Components
from dreamwarp.model.pairs import alignment_weights
from dreamwarp.model.warpmodel import WarpModel

__all__ = [
    "ClassFit",
    "Components",
    "Label",
    "WarpModel",
    "alignment_weights",
]


def __dir__() -> list[str]:
    return public_names(globals())
