"""dreamwarp: learned augmentation by diffeomorphisms."""

from dreamwarp.space import WarpSpace
from dreamwarp.warp import Warp

__version__ = "0.1.0"

__all__ = ["Warp", "WarpSpace", "__version__"]
