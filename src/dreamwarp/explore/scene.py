"""Scene: the contents of the interactive page, as numbers ready to be drawn.

Independent of the web server. What differs between signals, images, volumes and meshes is in
``kinds``.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.subject import Data
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.explore.kinds import Kind, Landmarks, Pair, View, kind_of
from dreamwarp.explore.recent import Recent
from dreamwarp.model import WarpModel

Numbers = NDArray[np.float64]

# Largest number of sliders: the other components have little variance.
MAX_SLIDERS = 24
MAX_MOSAIC = 64
# Number of results kept, so that another slice of the same volumes is shown without delay.
MAX_KEPT = 4

MIDDLE = View()
# One alignment at a time: each uses all cores, and other requests should not wait for several.
_aligning = threading.Lock()


@dataclass(frozen=True, eq=False)
class Scene:
    """A model and its data, with file names for the Python code that the page shows.

    Parameters
    ----------
    kind : Kind
        The model and its samples.
    model_name, data_name : str
        As given on the command line.
    load_options : dict
        Options with which the data was loaded.
    """

    kind: Kind
    model_name: str = "model.dwm"
    data_name: str = "data"
    load_options: dict[str, Any] = field(default_factory=dict)
    _recent: Recent = field(default_factory=lambda: Recent(MAX_KEPT), repr=False)

    @classmethod
    def of(cls, model: WarpModel, data: Data | ShapeSet, **names: Any) -> Scene:
        """Make a scene of signals, images, volumes or meshes."""
        return cls(kind_of(model, data), **names)

    def warm(self) -> None:
        """Run every operation once, so that all kernels are compiled before the first request."""
        sample = self.kind.sample(self.index(0, 0))
        theta = self.theta(0, self.draw_coefficients(0, 0, 0), 1.0)
        self.show_warp(sample, theta, [(0.5, 0.5)])
        self.mosaic(None, MAX_MOSAIC, 1.0, 0)  # kernels for batches are compiled separately
        self.align(0, 0, len(self._members[0]) - 1)

    # -- model and data

    @cached_property
    def description(self) -> dict[str, Any]:
        """Facts that the page loads once."""
        kind, model = self.kind, self.kind.model
        n_sliders = min(MAX_SLIDERS, model.space.dim)
        return {
            "model": self.model_name,
            "data": self.data_name,
            "kind": kind.name,
            "plural": kind.plural,
            "uploads": kind.uploads,
            **kind.describe(),
            "strength": model.strength or 1.0,
            "dim": model.space.dim,
            "cells": list(model.space.cells),
            "boundary": model.space.boundary,
            "classes": [self._describe_class(code, n_sliders) for code in range(self.n_classes)],
        }

    def _describe_class(self, code: int, n_sliders: int) -> dict[str, Any]:
        found = self.kind.model.components(self.kind.labels[code])
        return {
            "label": str(self.kind.labels[code]),
            "count": len(self._members[code]),
            "typical": int(np.searchsorted(self._members[code], self.kind.typical(code))),
            "shares": [round(float(share), 5) for share in found.share[:n_sliders]],
        }

    @property
    def n_classes(self) -> int:
        """Number of classes in the data."""
        return len(self.kind.labels)

    @cached_property
    def _members(self) -> list[NDArray[np.int64]]:
        return [np.flatnonzero(self.kind.codes == code) for code in range(self.n_classes)]

    @cached_property
    def _steps(self) -> list[Numbers]:
        """θ of one standard deviation along each component, by class: (d, d), in rows."""
        found = (self.kind.model.components(label) for label in self.kind.labels)
        return [(each.directions * each.standard_deviations).T.copy() for each in found]

    def index(self, code: int, member: int) -> int:
        """Index in the data of a sample numbered within its class."""
        check_index("class_number", code, self.n_classes, "classes")
        check_index("sample", member, len(self._members[code]), "samples of the class")
        return int(self._members[code][member])

    def members(self, code: int, first: int, n: int, view: View = MIDDLE) -> dict[str, Any]:
        """Return samples of a class, starting at number ``first``."""
        check_index("class_number", code, self.n_classes, "classes")
        chosen = self._members[code][first : first + min(n, MAX_MOSAIC)]
        samples = [self.kind.sample(int(i)) for i in chosen]
        return {"first": first, "images": self.kind.encode_all(samples, view) if samples else None}

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
        self, sample: Any, theta: Numbers, landmarks: Landmarks, view: View = MIDDLE
    ) -> dict[str, Any]:
        """Return a warped sample, with moved grid, velocity and landmarks if its kind has them."""
        key = ("warp", id(sample), theta.tobytes())
        # The cache also keeps the sample: if it were deleted, another could get the same id.
        _, warped = self._recent.get(key, lambda: (sample, self.kind.warp(sample, theta)))
        return {
            "image": self.kind.encode(warped, view),
            **self.kind.show_field(theta, sample, view),
            **self.kind.move_landmarks(theta, landmarks),
        }

    def draw_coefficients(self, code: int, member: int, seed: int) -> list[float]:
        """Draw a random warp of a class, as coefficients of all its components."""
        theta = self.kind.draw_theta(self.index(code, member), seed)
        found = self.kind.model.components(self.kind.labels[code])
        # Avoid dividing by zero along directions without variance.
        width = np.maximum(found.standard_deviations, 1e-12 * found.standard_deviations[0])
        coefficients = (theta @ found.directions) / np.maximum(width, np.finfo(float).tiny)
        return np.clip(coefficients, -8.0, 8.0).round(3).tolist()

    # -- new samples

    def mosaic(
        self, code: int | None, n: int, strength: float, seed: int, view: View = MIDDLE
    ) -> dict[str, Any]:
        """Make new samples of a class, or of all classes in turn."""
        if code is not None:
            check_index("class_number", code, self.n_classes, "classes")
        samples, labels = self._recent.get(
            ("mosaic", code, n, strength, seed), lambda: self.kind.make(code, n, strength, seed)
        )
        return {
            "images": self.kind.encode_all(samples, view),
            "labels": [str(label) for label in labels],
        }

    # -- a pair

    def align(self, code: int, first: int, second: int, view: View = MIDDLE) -> dict[str, Any]:
        """Align one sample of a class to another; return both, the warped source and losses."""
        ends = self.index(code, first), self.index(code, second)

        def find() -> Pair:
            with _aligning:
                return self.kind.align(*ends)

        pair: Pair = self._recent.get(("align", *ends), find)
        source, target = (self.kind.sample(index) for index in ends)
        warped = self.kind.warp(source, pair.theta)
        before, after = pair.loss_before, pair.loss_after
        return {
            **{
                name: self.kind.encode(values, view)
                for name, values in (("source", source), ("target", target), ("warped", warped))
            },
            **self.kind.show_field(pair.theta, source, view),
            "loss_before": before,
            "loss_after": after,
            "left": after / before if before > 0 else None,
            "is_usable": pair.is_usable,
            "python": self.align_code(*ends, view),
        }

    # -- Python

    def warp_code(
        self,
        code: int,
        index: int | None,
        coefficients: list[float],
        strength: float,
        view: View = MIDDLE,
    ) -> str:
        """Python code that makes the warped sample."""
        n = max((k + 1 for k, value in enumerate(coefficients) if value), default=1)
        used = [round(float(value), 6) for value in (coefficients or [0.0])[:n]]
        return "\n".join(
            [
                *self._load_code(),
                f"components = model.components({self.kind.labels[code]!r})",
                f"deviations = {used}",
                "steps = components.directions * components.standard_deviations",
                f"theta = {strength!r} * (deviations @ steps.T[:{n}])",
                *self.kind.warp_code(index, view),
            ]
        )

    def align_code(self, source: int, target: int, view: View = MIDDLE) -> str:
        """Python code that aligns the pair."""
        displacement, length = self.kind.prior_scale
        return "\n".join(
            [
                *self._load_code(),
                f"prior = dw.SmoothPrior(model.space, displacement={displacement}, "
                f"length={length})",
                *self.kind.align_code(source, target, view),
            ]
        )

    def _load_code(self) -> list[str]:
        return [
            "import dreamwarp as dw",
            "",
            f"model = dw.WarpModel.load({self.model_name!r})",
            self.kind.load_code(self.data_name, self.load_options),
        ]


def check_index(name: str, value: int, n: int, what: str) -> None:
    """Raise unless an index is from 0 to n - 1."""
    if not 0 <= value < n:
        raise ValueError(f"`{name}` must be from 0 to {n - 1} for {n} {what}, got {value}.")
