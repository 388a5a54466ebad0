"""Small data sets to augment."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

import dreamwarp as dw

SIZE = 12
LABELS = np.array(["bar", "ring", "wedge"])
# How much of a texture is its class's own, relative to what all have in common.
OWN_SHARE = 0.15
# Few cells and no progress bar: quick.
QUICK: dict[str, Any] = {"cells": (2, 2), "sigma": 0.3, "progress": False}


def shapes() -> NDArray[np.float64]:
    """A bar, a ring and a wedge: (3, 12, 12)."""
    axis = (np.arange(SIZE) + 0.5) / SIZE
    row, column = np.meshgrid(axis, axis, indexing="ij")
    radius = np.hypot(row - 0.5, column - 0.5)
    bar = np.exp(-(((column - 0.5) / 0.12) ** 2)) * (np.abs(row - 0.5) < 0.38)
    ring = np.exp(-(((radius - 0.25) / 0.1) ** 2))
    wedge = (row + column < 0.9) * (row > 0.15) * (column > 0.15) * 1.0
    return np.stack([bar, ring, wedge])


@cache
def warped_shapes(n_per_class: int = 8, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Shapes by random smooth warps, uint8 (n, 12, 12), and their names; classes in turn."""
    codes = np.arange(3 * n_per_class) % 3
    space = dw.WarpSpace((3, 3))
    theta = dw.SmoothPrior(space, displacement=0.06).sample(len(codes), seed=seed)
    images = dw.Warp(space, theta).image(shapes()[codes])
    return np.rint(255 * images).astype(np.uint8), LABELS[codes]


def heights(
    n: int, seed: int, *, n_bands: int = 2
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Blobs (n, 12, 12) of all heights, in two classes by turns: the low, the high, and so on.

    What tells the classes apart is a warp, and within a class blobs differ by the same warp: to
    learn it is to learn to cross the border, or each of several.
    """
    random = np.random.default_rng(seed)
    height, width = random.uniform(0.08, 0.22, n), random.uniform(0.12, 0.18, n)
    axis = (np.arange(SIZE) + 0.5) / SIZE - 0.5
    row = np.exp(-0.5 * (axis / height[:, None]) ** 2)
    column = np.exp(-0.5 * (axis / width[:, None]) ** 2)
    images = row[:, :, None] * column[:, None, :]
    bands = (n_bands * (height - 0.08) / 0.14).astype(np.int64)
    return images + 0.01 * random.standard_normal(images.shape), bands % 2


def textures(n_per_class: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Four smooth pictures (n, 12, 12) that differ in part, under strong warps.

    Warps move more than what tells the classes apart, and a few samples do not show them all.
    """
    random = np.random.default_rng(seed)
    codes = np.arange(4 * n_per_class) % 4
    common, *own = gaussian_filter(random.standard_normal((5, SIZE, SIZE)), (0.0, 1.5, 1.5))
    pictures = common + OWN_SHARE * np.stack(own)
    space = dw.WarpSpace((3, 3))
    theta = dw.SmoothPrior(space, displacement=0.1).sample(len(codes), seed=random)
    images = dw.Warp(space, theta).image(pictures[codes] / common.std())
    return images + 0.1 * random.standard_normal(images.shape), codes
