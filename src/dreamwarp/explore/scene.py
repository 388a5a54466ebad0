"""Scene: the contents of the interactive page, as numbers ready to be drawn.

Independent of the web server. What differs between signals, images, volumes and meshes is in
``arrays`` and ``meshes``.
"""

from __future__ import annotations

import secrets
import threading
import warnings
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dreamwarp.augment.learning import Settings
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.explore.arrays import Images, Landmarks, Numbers, Signals, View, Volumes
from dreamwarp.explore.meshes import Meshes
from dreamwarp.model import WarpModel
from dreamwarp.report.subject import Data, Subject
from dreamwarp.space import Warp

# Largest number of sliders: the other components have little variance.
MAX_SLIDERS = 24
MAX_MOSAIC = 64
# Number of results kept, so that another slice of the same volumes is shown without delay.
MAX_KEPT = 4
# Uploads kept; the oldest is dropped first.
MAX_UPLOADS = 32
# Arrays by the number of axes.
KINDS: dict[int, type[Signals | Images]] = {1: Signals, 2: Images, 3: Volumes}

MIDDLE = View()
# One alignment at a time: each uses all cores, and other requests should not wait for several.
_aligning = threading.Lock()


class Scene:
    """A model and its data, with file names for the Python code that the page shows.

    A sample is named by its index in the data, or by what :meth:`add_upload` returned.
    ``load_options`` are those with which the data was loaded.
    """

    def __init__(
        self,
        kind: Signals | Images | Meshes,
        model_name: str = "model.dwm",
        data_name: str = "data",
        load_options: dict[str, Any] | None = None,
    ) -> None:
        self.kind, self.model_name, self.data_name = kind, model_name, data_name
        self.load_options = load_options or {}
        self.n_classes = len(kind.labels)
        self._members = [np.flatnonzero(kind.codes == code) for code in range(self.n_classes)]
        # The prior with which the model's pairs were aligned.
        self._prior = Settings.of(kind.model).smooth_prior(kind.model.space)
        self._uploads: dict[str, Any] = {}
        self._uploading = threading.Lock()
        self._warp = lru_cache(MAX_KEPT)(self._warp_sample)
        self._make = lru_cache(MAX_KEPT)(kind.make)
        self._align = lru_cache(MAX_KEPT)(self._align_samples)

    @classmethod
    def of(cls, model: WarpModel, data: Data | ShapeSet, **names: Any) -> Scene:
        """Make a scene of signals, images, volumes or meshes."""
        if isinstance(data, ShapeSet):
            return cls(Meshes(model, data), **names)
        return cls(KINDS[model.space.ndim](Subject.of(model, data)), **names)

    def warm(self) -> None:
        """Run every operation once, so that all kernels are compiled before the first request."""
        theta = self.theta(0, self.draw_coefficients(0, 0, 0), 1.0)
        self.show_warp(self.index(0, 0), theta, [(0.5, 0.5)])
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

    def index(self, code: int, member: int) -> int:
        """Index in the data of a sample numbered within its class."""
        check_index("class_number", code, self.n_classes, "classes")
        check_index("sample", member, len(self._members[code]), "samples of the class")
        return int(self._members[code][member])

    def members(self, code: int, first: int, n: int, view: View = MIDDLE) -> dict[str, Any]:
        """Return samples of a class, starting at number ``first``."""
        check_index("class_number", code, self.n_classes, "classes")
        chosen = self._members[code][first : first + min(n, MAX_MOSAIC)]
        samples = [self.sample(int(i)) for i in chosen]
        return {"first": first, "images": self.kind.encode_all(samples, view) if samples else None}

    # -- uploads

    def add_upload(self, content: bytes) -> str:
        """Read an uploaded file; return a random name for the sample, which can't be guessed."""
        sample, name = self.kind.read_upload(content), secrets.token_urlsafe(12)
        with self._uploading:
            self._uploads[name] = sample
            while len(self._uploads) > MAX_UPLOADS:
                del self._uploads[next(iter(self._uploads))]
        return name

    def sample(self, name: int | str) -> Any:
        """A sample of the data, or an uploaded one."""
        if isinstance(name, int):
            return self.kind.sample(name)
        if name not in self._uploads:
            raise ValueError("`sample` is an unknown or expired upload. Upload it again.")
        return self._uploads[name]

    # -- a warp

    def theta(self, code: int, coefficients: list[float], strength: float) -> Numbers:
        """θ (d,) from coefficients, in standard deviations along the components of a class."""
        check_index("class_number", code, self.n_classes, "classes")
        found, n = self.kind.model.components(self.kind.labels[code]), len(coefficients)
        if n > self.kind.model.space.dim:
            raise ValueError(
                f"`coefficients` must be at most {self.kind.model.space.dim} numbers, one per "
                f"component, got {n}."
            )
        return strength * (found.directions[:, :n] @ (found.standard_deviations[:n] * coefficients))

    def show_warp(
        self, name: int | str, theta: Numbers, landmarks: Landmarks, view: View = MIDDLE
    ) -> dict[str, Any]:
        """Return a warped sample, with moved grid, velocity and landmarks if its kind has them."""
        shown = {
            "image": self.kind.encode(self._warp(name, theta.tobytes()), view),
            **self.kind.show_field(theta, self.sample(name), view),
        }
        if self.kind.has_landmarks:
            points = np.asarray(landmarks, dtype=np.float64).reshape(-1, 2)
            shown["landmarks"] = Warp(self.kind.model.space, theta).points(points).round(6).tolist()
        return shown

    def _warp_sample(self, name: int | str, theta: bytes) -> Any:
        return self.kind.warp(self.sample(name), np.frombuffer(theta))

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
        samples, labels = self._make(code, n, strength, seed)
        return {
            "images": self.kind.encode_all(samples, view),
            "labels": [str(label) for label in labels],
        }

    # -- a pair

    def align(self, code: int, first: int, second: int, view: View = MIDDLE) -> dict[str, Any]:
        """Align one sample of a class to another; return both, the warped source and losses."""
        ends = self.index(code, first), self.index(code, second)
        found, source, target = self._align(*ends), self.sample(ends[0]), self.sample(ends[1])
        theta = found.theta[0]
        before, after = float(found.loss_before[0]), float(found.loss_after[0])
        return {
            "source": self.kind.encode(source, view),
            "target": self.kind.encode(target, view),
            "warped": self.kind.encode(self._warp(ends[0], theta.tobytes()), view),
            **self.kind.show_field(theta, source, view),
            "loss_before": before,
            "loss_after": after,
            "left": after / before if before > 0 else None,
            "is_usable": bool(np.all(getattr(found, "usable", True))),  # shapes always are
            "python": self.align_code(*ends, view),
        }

    def _align_samples(self, source: int, target: int) -> Any:
        with _aligning, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the page shows the result
            return self.kind.align(source, target, self._prior)

    # -- Python

    def warp_code(
        self,
        code: int,
        name: int | str,
        coefficients: list[float],
        strength: float,
        view: View = MIDDLE,
    ) -> str:
        """Python code that makes the warped sample."""
        n = max((k + 1 for k, value in enumerate(coefficients) if value), default=1)
        used = [round(float(value), 6) for value in (coefficients or [0.0])[:n]]
        return self._code(
            f"components = model.components({self.kind.labels[code]!r})",
            f"deviations = {used}",
            "steps = components.directions * components.standard_deviations",
            f"theta = {strength!r} * (deviations @ steps.T[:{n}])",
            *self.kind.warp_code(name if isinstance(name, int) else None, view),
        )

    def align_code(self, source: int, target: int, view: View = MIDDLE) -> str:
        """Python code that aligns the pair."""
        return self._code(
            f"prior = dw.SmoothPrior(model.space, displacement={self._prior.displacement}, "
            f"length={self._prior.length})",
            *self.kind.align_code(source, target, view),
        )

    def _code(self, *lines: str) -> str:
        """Python code that loads the model and the data, then ``lines``."""
        model = f"model = dw.WarpModel.load({self.model_name!r})"
        data = self.kind.load_code(self.data_name, self.load_options)
        return "\n".join(["import dreamwarp as dw", "", model, data, *lines])


def check_index(name: str, value: int, n: int, what: str) -> None:
    """Raise unless an index is from 0 to n - 1."""
    if not 0 <= value < n:
        raise ValueError(f"`{name}` must be from 0 to {n - 1} for {n} {what}, got {value}.")
