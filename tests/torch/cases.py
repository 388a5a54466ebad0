"""Models and data sets for the training loops; importable by workers that are spawned."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from dreamwarp import WarpSpace
from dreamwarp.model import WarpModel


@cache
def make_model(
    labels: tuple[Any, ...] = (0, 1, 2),
    cells: tuple[int, ...] = (3, 3),
    boundary: Any = "zero",
    speed: float = 0.25,
) -> WarpModel:
    """A model whose classes warp along directions of their own, points at up to ``speed``."""
    space = WarpSpace(cells, boundary)
    rng = np.random.default_rng(0)
    theta = {}
    for label in labels:
        directions = rng.normal(size=(4, space.dim))
        drawn = rng.normal(size=(60, 4)) @ directions
        theta[label] = drawn * speed / np.abs(space.vertex_velocities(drawn)).max()
    return WarpModel.fit(space, theta, shrinkage=0.01, pooling=0.0)


def make_template_model() -> WarpModel:
    """A model of kind "template": 12 samples in a ring for each of two classes."""
    space = WarpSpace((3, 3))
    rng = np.random.default_rng(0)
    ring = np.stack([np.arange(12), (np.arange(12) + 1) % 12], axis=1)
    theta = {label: 0.1 * rng.normal(size=(12, space.dim)) for label in (0, 1)}
    return WarpModel.fit(
        space, theta, kind="template", edges={0: ring, 1: 12 + ring},
        shrinkage=0.1, pooling=0.0, class_pairs=2.0, drift=0.5,
    )  # fmt: skip


def make_images(n: int, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    values = torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))
    if dtype == torch.bool:
        return values > 0.5
    return values.to(dtype) if dtype.is_floating_point else (255 * values).to(dtype)


class Pictures(Dataset[Any]):
    """Samples (image, label, name), made when they are asked for."""

    def __init__(self, n: int = 23, *, sizes: tuple[int, ...] = (12,), classes: int = 3) -> None:
        self.n, self.sizes, self.classes = n, sizes, classes

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Tensor, int, str]:
        size = self.sizes[index % len(self.sizes)]
        image = make_images(1, 1, size, size, dtype=torch.uint8, seed=index)[0]
        return image, index % self.classes, f"picture {index}"


class Mappings(Pictures):
    """The same samples as mappings."""

    def __getitem__(self, index: int) -> Any:
        image, label, _ = super().__getitem__(index)
        return {"pixels": image, "class": torch.tensor(label)}
