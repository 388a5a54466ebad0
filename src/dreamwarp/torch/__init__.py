"""Warps for torch: differentiable by θ, points and images, on any device."""

from dreamwarp.torch.images import warp
from dreamwarp.torch.paths import flow

__all__ = ["flow", "warp"]
