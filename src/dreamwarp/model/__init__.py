"""Distributions over warps per class, and the files that keep them."""

from dreamwarp.core.listing import public_names
from dreamwarp.model.comparison import HeldOut, held_out_log_likelihood
from dreamwarp.model.fitting import ClassFit
from dreamwarp.model.gaussian import Components
from dreamwarp.model.labels import Label
from dreamwarp.model.moments import alignment_weights
from dreamwarp.model.warpmodel import WarpModel

__all__ = [
    "ClassFit",
    "Components",
    "HeldOut",
    "Label",
    "WarpModel",
    "alignment_weights",
    "held_out_log_likelihood",
]


def __dir__() -> list[str]:
    return public_names(globals())
