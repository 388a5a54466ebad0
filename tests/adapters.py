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


def oblong_volume() -> np.ndarray:
    """A volume (1, 12, 16, 20) of bumps that no turn brings onto itself."""
    shape = (12, 16, 20)
    places = np.moveaxis((np.indices(shape) + 0.5) / np.reshape(shape, (3, 1, 1, 1)), 0, -1)
    bumps = [
        np.exp(-(((places - c) / 0.2) ** 2).sum(axis=-1)) for c in ((0.3, 0.4, 0.6), (0.6,) * 3)
    ]
    return (bumps[0] + 0.5 * bumps[1])[None].astype(np.float32)


def turned(volume: np.ndarray, orientation: str) -> tuple[np.ndarray, np.ndarray]:
    """A volume (1, x, y, z) with axes to the right, front and top, stored with others; its affine.

    Voxels are of 1 x 1.5 x 2 mm.
    """
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(volume[0], np.diag([1.0, 1.5, 2.0, 1.0]))
    codes = nibabel.orientations.axcodes2ornt(orientation)
    other = image.as_reoriented(codes)
    return np.ascontiguousarray(other.get_fdata(dtype=np.float32))[None], other.affine
