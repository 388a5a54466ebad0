"""What the tests of adapters share: a model of volumes, and imports of packages that warn."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest

from dreamwarp import WarpModel, WarpSpace

SPACE = WarpSpace((2, 2, 2))
MODEL = WarpModel.fit(
    SPACE,
    {
        label: np.random.default_rng(label).normal(scale=0.3, size=(80, SPACE.dim))
        for label in (0, 1)
    },
    shrinkage=0.5,
    pooling=0.0,
)


def import_or_skip(name: str) -> Any:
    """A package, whatever it warns of when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            pytest.skip(f"{name} is not installed: {error}", allow_module_level=True)


def volume_and_labels(n: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """A smooth volume (1, n, n, n), and a label map of it."""
    places = (np.indices((n, n, n)) + 0.5) / n
    distances = np.sqrt(((places - 0.5) ** 2).sum(axis=0))
    image = np.exp(-((distances / 0.3) ** 2)).astype(np.float32)
    return image[None], ((distances < 0.35).astype(np.int16) * 7)[None]
