"""What a warp is: tessellation, basis, velocity, flow and its derivatives."""

from dreamwarp.listing import public_names
from dreamwarp.space.warpspace import WarpSpace

__all__ = ["WarpSpace"]


def __dir__() -> list[str]:
    return public_names(globals())
