"""dreamwarp: learned augmentation by diffeomorphisms."""

from dreamwarp.space import WarpSpace

__all__ = ["WarpSpace"]
