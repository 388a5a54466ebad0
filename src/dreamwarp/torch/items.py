"""One item of a sample, (channels, *spatial), warped: for adapters of other packages."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dreamwarp.space import Warp, WarpSpace
from dreamwarp.space.resample import Interpolation
from dreamwarp.torch.images import warp


def warp_item(
    space: WarpSpace,
    theta: NDArray[np.float64],
    values: Tensor,
    *,
    interpolation: Interpolation = "linear",
    fill: Literal["edge", "constant", "reflect"] = "edge",
) -> Tensor:
    """``values`` (channels, *spatial) pulled back by T^θ, of the same dtype and on its device.

    On the CPU in blocks, so that a volume of any size takes hardly more memory than itself twice.
    """
    plain = values.detach() if not values.requires_grad else values
    if plain.device.type == "cpu" and not plain.requires_grad and plain.dtype != torch.bfloat16:
        options = {"interpolation": interpolation, "fill": fill}
        moved = Warp(space, theta).image(plain.numpy(), **options)  # type: ignore[arg-type]
        return torch.from_numpy(moved)
    parameters = torch.as_tensor(theta, dtype=torch.float32, device=plain.device)
    return warp(space, parameters[None], plain[None], interpolation=interpolation, fill=fill)[0]
