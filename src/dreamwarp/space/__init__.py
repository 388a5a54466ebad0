"""Warps: tessellation, basis, velocity, flow and its derivatives, and warped samples."""

from dreamwarp.core.listing import public_names
from dreamwarp.space.warp import Warp
from dreamwarp.space.warpspace import WarpSpace

__all__ = ["Warp", "WarpSpace"]


def __dir__() -> list[str]:
    return public_names(globals())
