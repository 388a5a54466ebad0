"""A small convolutional network for series, trained with or without warps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dreamwarp import WarpModel
from dreamwarp.torch import LearnedWarp

Array = NDArray[np.float64]


def build_network(n_channels: int, n_classes: int) -> nn.Module:
    """Three convolutions and a mean over time, as in the fully convolutional baseline."""
    widths, sizes = (n_channels, 64, 128, 64), (7, 5, 3)
    layers: list[nn.Module] = []
    for k, size in enumerate(sizes):
        layers += [
            nn.Conv1d(widths[k], widths[k + 1], size, padding="same"),
            nn.BatchNorm1d(widths[k + 1]),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, n_classes))


def train_and_predict(
    X: Array,
    y: NDArray[Any],
    X_test: Array,
    model: WarpModel | None,
    *,
    seed: int,
    n_steps: int,
    batch: int,
    rate: float,
) -> NDArray[Any]:
    """Labels of test series (n, channels, time); series are warped as they are trained on."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    classes, codes = np.unique(y, return_inverse=True)
    network = build_network(X.shape[1], len(classes))
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    warp = None if model is None else LearnedWarp(model, seed=seed, p=0.9)
    series, labels = torch.from_numpy(X).float(), torch.from_numpy(codes)
    network.train()
    for _ in range(n_steps):
        chosen = rng.integers(len(X), size=batch)
        images = series[chosen]
        if warp is not None:
            images, _ = warp(images, y[chosen])
        loss = nn.functional.cross_entropy(network(images), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        parts = torch.from_numpy(X_test).float().split(256)
        scores = torch.cat([network(part) for part in parts])
    return np.asarray(classes[scores.argmax(dim=1).numpy()])
