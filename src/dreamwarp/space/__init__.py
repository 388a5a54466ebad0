"""Warps: tessellation, basis, velocity, flow and its derivatives, and warped samples.

tessellation, mesh  cells; as arrays for kernels
basis, velocities   from θ to velocities at the nodes, and back
fields              flows of many fields: ``fast`` (``passes``) or ``exact`` (``line``)
warpspace           WarpSpace: the above for one tessellation and boundary
resample            values of a sample at moved points
warp                Warp: θ applied to samples, points and boxes
"""

from dreamwarp.core.listing import public_names
from dreamwarp.space.warp import Warp
from dreamwarp.space.warpspace import WarpSpace

__all__ = ["Warp", "WarpSpace"]


def __dir__() -> list[str]:
    return public_names(globals())
