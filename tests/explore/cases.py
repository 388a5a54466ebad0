"""Scenes to explore, without a fit."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import numpy as np
import pytest

from dreamwarp import SmoothPrior, WarpModel, WarpSpace
from dreamwarp.data import ShapeSet
from dreamwarp.explore.scene import Scene

N_PER_CLASS = 15


SHAPES = {
    "image": (28, 28), "colour": (3, 20, 24), "large": (256, 256), "signal": (2, 64),
    "volume": (12, 14, 16),
}  # fmt: skip
CELLS = {"signal": (4,), "volume": (2, 2, 2), "mesh": (2, 2, 2)}


@cache
def scene(kind: str = "image") -> Scene:
    """Two classes: of grey or colour images, signals of two channels, volumes, or meshes."""
    space = WarpSpace(CELLS.get(kind, (3, 3)))
    prior = SmoothPrior(space)
    model = WarpModel.fit(
        space, {0: prior.sample(40, 1), 1: 2.0 * prior.sample(40, 2)}, shrinkage=0.1, pooling=0.2
    )
    names = {"model_name": "m.dwm", "data_name": "d"}
    y = np.repeat([0, 1], N_PER_CLASS)
    if kind == "mesh":
        return Scene.of(model, meshes(y), **names)
    rng = np.random.default_rng(0)
    X = smooth(rng.random((2 * N_PER_CLASS, *SHAPES[kind])), space.ndim)
    if kind != "signal":
        X = (255 * X).astype(np.uint8)
    return Scene.of(model, (X, y), **names)


def meshes(y: Any) -> ShapeSet:
    """Balls of one class and rings of the other, stretched at random."""
    trimesh = pytest.importorskip("trimesh")
    plain = [trimesh.creation.icosphere(2), trimesh.creation.torus(1.0, 0.4)]
    found = [plain[code].copy() for code in y]
    rng = np.random.default_rng(0)
    for mesh in found:
        mesh.vertices *= rng.uniform(0.7, 1.2, 3)
    return ShapeSet.of([mesh.vertices for mesh in found], y, meshes=found)


def smooth(X: Any, ndim: int) -> Any:
    """Random values with structure to align, from 0 to 1."""
    from scipy.ndimage import gaussian_filter

    width = (0,) * (X.ndim - ndim) + (3.0,) * ndim
    values = gaussian_filter(X, width)
    return (values - values.min()) / (values.max() - values.min())


def pixels(picture: dict[str, Any]) -> Any:
    """What the browser makes of a picture in an answer."""
    return np.frombuffer(base64.b64decode(picture["data"]), np.uint8).reshape(picture["shape"])


def shades(values: Any) -> Any:
    """The shades of values of the volumes, from 0 to 255."""
    scaled = np.clip(scene("volume").kind.subject.look.scale(values), 0.0, 1.0)
    return np.rint(255.0 * scaled).astype(np.uint8)


def numbers(text: str, *shape: int) -> Any:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)
