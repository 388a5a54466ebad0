"""Scene: the contents of the interactive page, as numbers ready to be drawn.

Independent of the web server. Positions are in the unit domain, row before column.
"""

from __future__ import annotations

import base64
import threading
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import SmoothPrior, align_pairs
from dreamwarp.augment.subject import Data, Subject
from dreamwarp.core.defaults import DISPLACEMENT, LENGTH
from dreamwarp.core.samples import add_channels, pixel_centers
from dreamwarp.model import WarpModel
from dreamwarp.space.warp import Warp

Array = NDArray[Any]
Numbers = NDArray[np.float64]

# Largest number of sliders: the other components have little variance.
MAX_SLIDERS = 24
# Grid lines per axis, points along each, and arrows per axis.
N_LINES, POINTS_PER_LINE, N_ARROWS = 15, 49, 16
POINTS_OF_LINE = 129
# Largest number of values in one answer: 4 MB.
MAX_VALUES = 2**22
MAX_MOSAIC = 64

# One alignment at a time: each uses all cores, and other requests should not wait for several.
_aligning = threading.Lock()


@dataclass(frozen=True, eq=False)
class Scene:
    """A model and its data, with file names for the Python code that the page shows.

    Parameters
    ----------
    subject : Subject
    model_name, data_name : str
        As given on the command line.
    load_options : dict
        Options with which the data was loaded.
    """

    subject: Subject
    model_name: str = "model.dwm"
    data_name: str = "data"
    load_options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: WarpModel, data: Data, **names: Any) -> Scene:
        """Make a scene of signals or images; raise for volumes."""
        subject = Subject.of(model, data)
        if model.space.ndim == 3:
            raise ValueError(
                "the page shows signals and images, got a model of volumes. Use `dreamwarp report` "
                "or `dreamwarp figure`, which draw slices."
            )
        return cls(subject, **names)

    def warm(self) -> None:
        """Run every operation once, so that all kernels are compiled before the first request."""
        sample = self.subject.sample(self.index(0, 0))
        theta = self.theta(0, self.draw_coefficients(0, 0, 0), 1.0)
        self.show_warp(sample, theta, [(0.5, 0.5)])
        self.mosaic(None, MAX_MOSAIC, 1.0, 0)  # batches have their own kernels
        self.align(0, 0, len(self._members[0]) - 1)

    # -- model and data

    @cached_property
    def description(self) -> dict[str, Any]:
        """Facts that the page loads once."""
        subject, model = self.subject, self.subject.model
        n_sliders = min(MAX_SLIDERS, model.space.dim)
        return {
            "model": self.model_name,
            "data": self.data_name,
            "kind": "signal" if model.space.ndim == 1 else "image",
            "shape": list(subject.sample(0).shape),
            "is_ink": subject.look.is_ink,
            "low": subject.look.low,
            "high": subject.look.high,
            "strength": model.strength or 1.0,
            "dim": model.space.dim,
            "cells": list(model.space.cells),
            "boundary": model.space.boundary,
            "classes": [self._describe_class(code, n_sliders) for code in range(self.n_classes)],
        }

    def _describe_class(self, code: int, n_sliders: int) -> dict[str, Any]:
        found = self.subject.model.components(self.subject.labels[code])
        return {
            "label": str(self.subject.labels[code]),
            "count": len(self._members[code]),
            "typical": int(np.searchsorted(self._members[code], self.subject.typical(code)[0])),
            "shares": [round(float(share), 5) for share in found.share[:n_sliders]],
        }

    @property
    def n_classes(self) -> int:
        """Number of classes in the data."""
        return len(self.subject.labels)

    @cached_property
    def _members(self) -> list[NDArray[np.int64]]:
        return [self.subject.members(code) for code in range(self.n_classes)]

    @cached_property
    def _steps(self) -> list[Numbers]:
        """θ of one standard deviation along each component, by class: (d, d), in rows."""
        found = (self.subject.model.components(label) for label in self.subject.labels)
        return [(each.directions * each.standard_deviations).T.copy() for each in found]

    def index(self, code: int, member: int) -> int:
        """Index in the data of a sample numbered within its class."""
        check_index("class_number", code, self.n_classes, "classes")
        check_index("sample", member, len(self._members[code]), "samples of the class")
        return int(self._members[code][member])

    def members(self, code: int, first: int, n: int) -> dict[str, Any]:
        """Return samples of a class, starting at number ``first``."""
        check_index("class_number", code, self.n_classes, "classes")
        chosen = self._members[code][first : first + min(n, self.most_images)]
        samples = np.stack([self.subject.sample(int(i)) for i in chosen]) if len(chosen) else None
        return {"first": first, "images": None if samples is None else self.picture(samples)}

    @property
    def most_images(self) -> int:
        """Largest number of images in one answer."""
        return int(max(1, min(MAX_MOSAIC, MAX_VALUES // self.subject.sample(0).size)))

    # -- a warp

    def theta(self, code: int, coefficients: list[float], strength: float) -> Numbers:
        """θ (d,) from coefficients, in standard deviations along the components of a class."""
        check_index("class_number", code, self.n_classes, "classes")
        steps = self._steps[code]
        if len(coefficients) > len(steps):
            raise ValueError(
                f"`coefficients` must be at most {len(steps)} numbers, one per component, got "
                f"{len(coefficients)}."
            )
        return strength * (np.asarray(coefficients, dtype=np.float64) @ steps[: len(coefficients)])

    def show_warp(
        self, values: Array, theta: Numbers, landmarks: list[tuple[float, float]]
    ) -> dict[str, Any]:
        """Return a warped sample (channels, *spatial), with moved grid, landmarks and velocity."""
        space = self.subject.model.space
        warp = Warp(space, theta)
        shown = {"image": self.picture(warp.image(values)), **self.show_field(theta)}
        if space.ndim == 2:
            points = np.asarray(landmarks, dtype=np.float64).reshape(-1, 2)
            moved = warp.points(points) if len(points) else points
            shown["landmarks"] = moved.round(6).tolist()
        return shown

    def show_field(self, theta: Numbers) -> dict[str, Any]:
        """Return the grid moved by T^{-θ}, as content moves, and the velocity of -θ, in base64."""
        space = self.subject.model.space
        if space.ndim == 1:
            points = np.linspace(0.0, 1.0, POINTS_OF_LINE)[:, None]
            grid, arrows = space.flow(-theta, points), space.velocity(-theta, points)
            return {"grid": pack(grid), "arrows": pack(arrows)}
        lines = _grid_lines()
        starts = pixel_centers((N_ARROWS, N_ARROWS))
        velocity = space.velocity(-theta, starts)
        return {
            "grid": pack(space.flow(-theta, lines)),
            "points_per_line": POINTS_PER_LINE,
            "arrows": pack(np.concatenate([starts, velocity], axis=1)),
        }

    def draw_coefficients(self, code: int, member: int, seed: int) -> list[float]:
        """Draw a random warp of a class, as coefficients of all its components."""
        index = self.index(code, member)
        theta = self.subject.draw_theta(index, 1, strength=1.0, seed=seed)[0]
        found = self.subject.model.components(self.subject.labels[code])
        # Avoid dividing by zero along directions without variance.
        width = np.maximum(found.standard_deviations, 1e-12 * found.standard_deviations[0])
        coefficients = (theta @ found.directions) / np.maximum(width, np.finfo(float).tiny)
        return np.clip(coefficients, -8.0, 8.0).round(3).tolist()

    # -- new samples

    def mosaic(self, code: int | None, n: int, strength: float, seed: int) -> dict[str, Any]:
        """Make new samples of a class, or of all classes in turn."""
        if code is not None:
            check_index("class_number", code, self.n_classes, "classes")
        n = min(n, self.most_images)
        source = self.subject.source.with_options(key=seed, strength=strength)
        numbers = np.arange(n)
        templates = source.choose(numbers, code=code)
        X, y = source.warp(numbers, templates), source.data.y[templates]
        samples = add_channels(X, self.subject.model.space.ndim)
        return {"images": self.picture(samples), "labels": [str(label) for label in y]}

    # -- a pair

    def align(self, code: int, first: int, second: int) -> dict[str, Any]:
        """Align one sample of a class to another; return both, the warped source and losses."""
        ends = [self.index(code, member) for member in (first, second)]
        source, target = (self.subject.sample(index) for index in ends)
        space, (displacement, length) = self.subject.model.space, self._prior_scale()
        prior = SmoothPrior(space, displacement=displacement, length=length)
        with _aligning, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the page shows the result
            result = align_pairs(space, source[None], target[None], prior=prior, progress=False)
        theta = result.theta[0]
        warped = Warp(space, theta).image(source)
        before, after = float(result.loss_before[0]), float(result.loss_after[0])
        return {
            "source": self.picture(source),
            "target": self.picture(target),
            "warped": self.picture(warped),
            **self.show_field(theta),
            "loss_before": before,
            "loss_after": after,
            "left": after / before if before > 0 else None,
            "is_usable": bool(result.usable[0]),
            "python": self.align_code(*ends),
        }

    def _prior_scale(self) -> tuple[float, float]:
        """Displacement and length of the prior with which the model's pairs were aligned."""
        settings = self.subject.model.settings
        displacement = settings.get("displacement", "auto")
        return (
            DISPLACEMENT if displacement == "auto" else float(displacement),
            float(settings.get("length", LENGTH)),
        )

    # -- pictures and Python

    def picture(self, values: Array) -> dict[str, Any]:
        """Encode samples (..., channels, *spatial) for the browser, in base64.

        Images become uint8, scaled from the lowest to the highest value of the data; signals
        float32.
        """
        if self.subject.model.space.ndim == 1:
            return {"shape": list(values.shape), "data": pack(values)}
        look = self.subject.look
        if values.dtype == np.uint8 and (look.low, look.high) == (0.0, 255.0):
            shades = values
        else:
            shades = np.rint(255.0 * np.clip(look.scale(values), 0.0, 1.0)).astype(np.uint8)
        return {"shape": list(shades.shape), "data": to_base64(shades.tobytes())}

    def warp_code(
        self, code: int, index: int | None, coefficients: list[float], strength: float
    ) -> str:
        """Python code that makes the warped sample."""
        label = self.subject.labels[code]
        n = max((k + 1 for k, value in enumerate(coefficients) if value), default=1)
        used = [round(float(value), 6) for value in (coefficients or [0.0])[:n]]
        sample = f"data.X[{index}]" if index is not None else 'dw.data.read_image("yours.png")'
        return "\n".join(
            [
                *self._load_code(),
                f"components = model.components({label!r})",
                f"deviations = {used}",
                "steps = components.directions * components.standard_deviations",
                f"theta = {strength!r} * (deviations @ steps.T[:{n}])",
                f"sample = {sample}",
                "warped = dw.Warp(model.space, theta).image(sample)",
            ]
        )

    def align_code(self, source: int, target: int) -> str:
        """Python code that aligns the pair."""
        displacement, length = self._prior_scale()
        return "\n".join(
            [
                *self._load_code(),
                f"prior = dw.SmoothPrior(model.space, displacement={displacement}, "
                f"length={length})",
                f"source, target = data.X[[{source}]], data.X[[{target}]]",
                "result = dw.align_pairs(model.space, source, target, prior=prior)",
                "warped = dw.Warp(model.space, result.theta).image(source)",
            ]
        )

    def _load_code(self) -> list[str]:
        options = "".join(f", {name}={value!r}" for name, value in self.load_options.items())
        return [
            "import dreamwarp as dw",
            "",
            f"model = dw.WarpModel.load({self.model_name!r})",
            f"data = dw.data.load({self.data_name!r}{options})",
        ]


def check_index(name: str, value: int, n: int, what: str) -> None:
    """Raise unless an index is below ``n``."""
    if not 0 <= value < n:
        raise ValueError(f"`{name}` must be from 0 to {n - 1} for {n} {what}, got {value}.")


def pack(values: Array) -> str:
    """Encode numbers as little-endian float32 in base64."""
    return to_base64(np.asarray(values, dtype="<f4").tobytes())


def to_base64(content: bytes) -> str:
    """Encode bytes as base64 text."""
    return base64.b64encode(content).decode("ascii")


def _grid_lines() -> Numbers:
    along, across = np.linspace(0.0, 1.0, POINTS_PER_LINE), np.linspace(0.0, 1.0, N_LINES)
    rows = np.stack(np.meshgrid(across, along, indexing="ij"), axis=-1)
    return np.concatenate([rows, rows[..., ::-1]]).reshape(-1, 2)
