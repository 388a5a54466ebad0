"""The default network of ``choose_strength``: a small ConvNet for samples of any shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

# Channels of the two convolutions and units of the hidden layer.
CHANNELS, N_HIDDEN = (16, 32), 128
# Largest input of the hidden layer: larger feature maps are pooled.
MOST_FEATURES = 32 * 128
DROPOUT = 0.5
# Layers by the number of spatial axes.
CONVOLUTIONS: tuple[Any, ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
POOLS: tuple[Any, ...] = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


def make_network(n_channels: int, spatial: Sequence[int], n_classes: int) -> nn.Module:
    """Two convolutions with stride 2, a hidden layer with dropout, logits.

    Maps (n, n_channels, *spatial) to (n, n_classes). Kernels have 5 pixels per axis, 3 in 3-D; the
    stride is 1 along axes of fewer than 4 pixels.
    """
    ndim = len(spatial)
    width = 3 if ndim == 3 else 5
    sizes, layers, n_in = list(spatial), list[nn.Module](), n_channels
    for n_out in CHANNELS:
        stride = tuple(2 if size >= 4 else 1 for size in sizes)
        layers += [
            CONVOLUTIONS[ndim - 1](n_in, n_out, width, stride=stride, padding=width // 2),
            nn.ReLU(),
        ]
        sizes, n_in = [-(-size // step) for size, step in zip(sizes, stride, strict=True)], n_out
    while n_in * math.prod(sizes) > MOST_FEATURES:
        sizes = [-(-size // 2) for size in sizes]
    layers += [
        POOLS[ndim - 1](tuple(sizes) if ndim > 1 else sizes[0]), nn.Flatten(),
        nn.Linear(n_in * math.prod(sizes), N_HIDDEN), nn.ReLU(), nn.Dropout(DROPOUT),
        nn.Linear(N_HIDDEN, n_classes),
    ]  # fmt: skip
    return nn.Sequential(*layers)
