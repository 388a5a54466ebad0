"""A small ConvNet for samples of any shape: the default network that strengths are judged by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

# Channels of the two convolutions and units of the hidden layer.
CHANNELS, N_HIDDEN = (16, 32), 128
# Values that enter the hidden layer, at most: larger maps are averaged down.
MOST_FEATURES = 32 * 128
DROPOUT = 0.5
# By the number of spatial axes: convolutions, and means down to a given size.
CONVOLUTIONS: tuple[Any, ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
POOLS: tuple[Any, ...] = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


def make_network(n_channels: int, spatial: Sequence[int], n_classes: int) -> nn.Module:
    """Two convolutions that halve each axis, a hidden layer with dropout, logits.

    Takes (n, n_channels, *spatial) and returns (n, n_classes). Kernels have 5 pixels per axis, 3 in
    3-D; an axis of fewer than 4 pixels is not halved.
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
