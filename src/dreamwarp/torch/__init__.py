"""Differentiable warps for torch on any device, and learned warps for training loops."""

from dreamwarp.core.listing import public_names
from dreamwarp.torch.averaging import average_over_warps
from dreamwarp.torch.choosing import choose_strength
from dreamwarp.torch.functional import flow, warp
from dreamwarp.torch.learned import LearnedWarp
from dreamwarp.torch.loading import Indexed, WarpCollate, WarpedDataset, WithIndex
from dreamwarp.torch.streaming import SampleStream

__all__ = [
    "Indexed",
    "LearnedWarp",
    "SampleStream",
    "WarpCollate",
    "WarpedDataset",
    "WithIndex",
    "average_over_warps",
    "choose_strength",
    "flow",
    "warp",
]


def __dir__() -> list[str]:
    return public_names(globals())
