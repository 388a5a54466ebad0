"""Meshes and sets of points, drawn as surfaces that can be turned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamwarp.align.points import Match, PointAlignments, align_points
from dreamwarp.augment.shapes import sample_shapes
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.explore.kinds.base import Array, Kind, Numbers, View, pack, to_base64
from dreamwarp.explore.kinds.surfaces import Surface, simplify, surface_of
from dreamwarp.model import WarpModel
from dreamwarp.model.labels import encode
from dreamwarp.space.warp import Warp

# Triangles in one answer, and fewest per surface: a browser draws them in a few hundredths of a
# second.
MAX_FACES, MIN_FACES = 12_000, 800


class Meshes(Kind):
    """Meshes or sets of points in space."""

    name, plural = "mesh", "meshes"

    def __init__(self, model: WarpModel, shapes: ShapeSet) -> None:
        if shapes.ndim != 3 or model.space.ndim != 3:
            raise ValueError(
                f"meshes and their model must have 3 dimensions, got {shapes.ndim} and "
                f"{model.space.ndim}. Use the model that was fitted to them."
            )
        if (encode(shapes.classes, model.classes) < 0).any():
            raise ValueError(
                f"the model must have every class of `{shapes.name}`, {shapes.classes.tolist()}, "
                f"got {list(model.classes)}. Use the meshes that it was fitted to."
            )
        codes = np.searchsorted(shapes.classes, shapes.y).astype(np.int64)
        super().__init__(model, codes, shapes.classes.tolist())
        self.shapes = shapes
        self.sigma = model.settings.get("sigma", "auto")
        self.match: Match = "known" if shapes.corresponds else "nearest"
        self._surfaces: dict[int, Surface] = {}

    def describe(self) -> dict[str, Any]:
        """Number of points, and the radius within which all shapes lie."""
        counts = sorted(len(points) for points in self.shapes.points)
        more = f" to {counts[-1]:,}" if counts[-1] > counts[0] else ""
        distances = [np.linalg.norm(p - 0.5, axis=1).max() for p in self.shapes.unit_points()]
        return {"size": f"{counts[0]:,}{more} points", "radius": float(max(distances))}

    def about(self) -> str:
        """The data in one line."""
        return self.shapes.describe()

    def typical(self, code: int) -> int:
        """The shape whose extent is nearest to the mean of its class."""
        members = np.flatnonzero(self.codes == code)
        clouds = [self.sample(int(i)).points for i in members]
        extents = np.array([[*p.mean(axis=0), *p.std(axis=0)] for p in clouds])
        return int(members[np.square(extents - extents.mean(axis=0)).sum(axis=1).argmin()])

    def sample(self, index: int) -> Surface:
        """A shape in the unit cube, in as much detail as the page draws."""
        if index not in self._surfaces:
            self._surfaces[index] = simplify(surface_of(self.shapes, index), MAX_FACES)
        return self._surfaces[index]

    def encode(self, sample: Surface, view: View) -> dict[str, Any]:
        """A surface for the browser."""
        faces = np.asarray(sample.faces, "<u4")
        return {"points": pack(sample.points), "faces": to_base64(faces.tobytes())}

    def encode_all(self, samples: Sequence[Surface], view: View) -> list[dict[str, Any]]:
        """Surfaces for the browser; the more there are, the fewer triangles each has."""
        most = max(MIN_FACES, MAX_FACES // len(samples))
        return [self.encode(simplify(sample, most), view) for sample in samples]

    def draw_theta(self, index: int, seed: int) -> Numbers:
        """A random warp (d,) for a shape."""
        label = self.labels[self.codes[index]]
        return self.model.draw(label, [0], seed=seed, templates=[index])[0]

    def warp(self, sample: Surface, theta: Numbers) -> Surface:
        """A warped shape."""
        return Surface(Warp(self.model.space, theta).points(sample.points), sample.faces)

    def make(self, code: int | None, n: int, strength: float, seed: int) -> tuple[list[Any], Array]:
        """New shapes, as :func:`sample_shapes` makes them."""
        own = self.shapes
        if code is not None:
            own = own.take(np.flatnonzero(self.codes == code))
        made = sample_shapes(self.model, own, n, seed=seed, strength=strength)
        return [surface_of(made, k) for k in range(n)], made.y

    def find_warp(self, source: int, target: int) -> PointAlignments:
        """Align a shape to another, by points that correspond or by the Chamfer distance."""
        ends = ([surface_of(self.shapes, end).points] for end in (source, target))
        return align_points(
            self.model.space, *ends, prior=self.prior, sigma=self.sigma, match=self.match,
            progress=False,
        )  # fmt: skip

    def load_code(self, name: str, options: dict[str, Any]) -> str:
        """Python code that loads the shapes."""
        each = self.model.settings.get("shapes") == "each"
        more = ", normalize='each'" if each else ""
        return f"shapes = dw.data.load_shapes({name!r}{more})"

    def warp_code(self, index: int | None, view: View) -> list[str]:
        """Python code that warps the points of a shape by ``theta``."""
        return [
            f"points, box = shapes.points[{index}], shapes.boxes[{index}]",
            "warped = box.to_world(dw.Warp(model.space, theta).points(box.to_unit(points)))",
        ]

    def align_code(self, source: int, target: int, view: View) -> list[str]:
        """Python code that aligns a pair under ``prior``."""
        return [
            "points = shapes.unit_points()",
            f"source, target = points[{source}], points[{target}]",
            "result = dw.align_points(",
            "    model.space, [source], [target], prior=prior, "
            f"sigma={self.sigma!r}, match={self.match!r}",
            ")",
            "warped = dw.Warp(model.space, result.theta[0]).points(source)",
        ]
