"""What a warp is: tessellation, basis, velocity, flow and its derivatives."""

from dreamwarp.space.warpspace import WarpSpace

__all__ = ["WarpSpace"]
