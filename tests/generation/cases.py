"""A small model and small data, for tests of generation."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dreamwarp import WarpModel, WarpSpace
from dreamwarp.data import DataSet
from dreamwarp.generation.formats import FORMATS

# Formats that hold images.
IMAGE_FORMATS = tuple(name for name in FORMATS if name != "nifti")
SHAPE = (9, 11)


@cache
def make_model(classes: tuple[Any, ...] = (0, 1, 2), cells: tuple[int, ...] = (2, 2)) -> WarpModel:
    space = WarpSpace(cells)
    rng = np.random.default_rng(0)
    theta = {label: 0.2 * rng.normal(size=(40, space.dim)) for label in classes}
    return WarpModel.fit(space, theta, shrinkage=0.1, pooling=0.1)


@cache
def make_data(
    classes: tuple[Any, ...] = (0, 1, 2),
    shape: tuple[int, ...] = SHAPE,
    dtype: str = "uint8",
    n: int = 50,
) -> DataSet:
    """Smooth blobs; classes of different sizes."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 200, (n, *shape)).astype(dtype)
    y = np.array(classes)[np.minimum(np.arange(n) // 10, len(classes) - 1)]
    return DataSet("small", X, y)


def files_of(folder: Path) -> dict[str, bytes]:
    """Contents of all files by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
