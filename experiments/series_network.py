"""A small convolutional network for time series, trained with or without warps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dreamwarp import WarpModel
from dreamwarp.torch import LearnedWarp

Array = NDArray[np.float64]

WIDTHS, SIZES = (16, 32, 32), (7, 5, 3)
BATCH, RATE = 32, 3e-3


def build_network(n_channels: int, n_classes: int) -> nn.Module:
    """Three convolutions, halving the length after the first two, and a mean over time."""
    layers: list[nn.Module] = []
    before = n_channels
    for k, (width, size) in enumerate(zip(WIDTHS, SIZES, strict=True)):
        layers += [nn.Conv1d(before, width, size, padding="same"), nn.BatchNorm1d(width), nn.ReLU()]
        layers += [nn.MaxPool1d(2)] if k < 2 else []
        before = width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(before, n_classes)
    )


def train_and_predict(
    X: Array,
    y: NDArray[Any],
    X_test: Array,
    model: WarpModel | None,
    *,
    seed: int,
    n_steps: int,
    jitter: float = 0.0,
    strength: float | None = None,
) -> NDArray[Any]:
    """Labels of test series (n, channels, time); series are warped as they are trained on.

    ``strength`` of the warps: None for the default, 0 for none.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    classes, codes = np.unique(y, return_inverse=True)
    network = build_network(X.shape[1], len(classes))
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)
    is_warped = model is not None and strength != 0.0
    warp = LearnedWarp(model, seed=seed, strength=strength, p=0.9) if is_warped else None
    series, labels = torch.from_numpy(X).float(), torch.from_numpy(codes)
    network.train()
    for _ in range(n_steps):
        chosen = rng.integers(len(X), size=BATCH)
        batch = series[chosen]
        if warp is not None:
            batch, _ = warp(batch, y[chosen])
        if jitter > 0.0:
            batch = batch + jitter * torch.randn_like(batch)
        loss = nn.functional.cross_entropy(network(batch), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    network.eval()
    with torch.no_grad():
        scores = torch.cat([network(part) for part in torch.from_numpy(X_test).float().split(256)])
    return np.asarray(classes[scores.argmax(dim=1).numpy()])
