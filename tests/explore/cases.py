"""Scenes to explore, without a fit."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import numpy as np

from dreamwarp import SmoothPrior, WarpModel, WarpSpace
from dreamwarp.explore.scene import Scene

N_PER_CLASS = 15


@cache
def scene(kind: str = "image") -> Scene:
    """Two classes of grey images, colour images of another size, or signals of two channels."""
    space = WarpSpace((4,)) if kind == "signal" else WarpSpace((3, 3))
    prior = SmoothPrior(space)
    model = WarpModel.fit(
        space, {0: prior.sample(40, 1), 1: 2.0 * prior.sample(40, 2)}, shrinkage=0.1, pooling=0.2
    )
    rng = np.random.default_rng(0)
    shape = {"image": (28, 28), "colour": (3, 20, 24), "large": (256, 256), "signal": (2, 64)}[kind]
    X = smooth(rng.random((2 * N_PER_CLASS, *shape)), space.ndim)
    if kind != "signal":
        X = (255 * X).astype(np.uint8)
    return Scene.of(model, (X, np.repeat([0, 1], N_PER_CLASS)), model_name="m.dwm", data_name="d")


def smooth(X: Any, ndim: int) -> Any:
    """Random values with structure to align, from 0 to 1."""
    from scipy.ndimage import gaussian_filter

    width = (0,) * (X.ndim - ndim) + (3.0,) * ndim
    values = gaussian_filter(X, width)
    return (values - values.min()) / (values.max() - values.min())


def pixels(picture: dict[str, Any]) -> Any:
    """What the browser makes of a picture in an answer."""
    return np.frombuffer(base64.b64decode(picture["data"]), np.uint8).reshape(picture["shape"])


def numbers(text: str, *shape: int) -> Any:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)
