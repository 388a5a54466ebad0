"""Meshes and sets of points on the page, drawn as surfaces that can be rotated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import SmoothPrior
from dreamwarp.align.points import Match, PointAlignments, align_points, thin
from dreamwarp.augment.learning import Settings
from dreamwarp.augment.shapes import find_match, sample_shapes
from dreamwarp.augment.source import check_known_classes
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.explore.arrays import Array, Numbers, View, pack, to_base64
from dreamwarp.model import WarpModel
from dreamwarp.space.warp import Warp

# Triangles in one answer, and fewest per surface: a browser draws them in a few hundredths of a
# second.
MAX_FACES, MIN_FACES = 12_000, 800
# Cells per axis of the finest grid, and the factor from one grid to the next.
FINEST, COARSER = 128, 0.8


class Surface(NamedTuple):
    """Points (m, 3) of the unit cube and triangles (f, 3); without triangles, a set of points."""

    points: Numbers
    faces: NDArray[np.int64]

    @classmethod
    def of(cls, shapes: ShapeSet, index: int) -> Surface:
        """A shape in the unit cube."""
        points = shapes.boxes[index].to_unit(shapes.points[index])
        return cls(points, shapes.faces(index))


class Meshes:
    """Meshes or sets of points in space, and their model; as :class:`~.arrays.Arrays`."""

    name, plural, uploads, has_landmarks = "mesh", "meshes", "", False

    def __init__(self, model: WarpModel, shapes: ShapeSet) -> None:
        if shapes.ndim != 3 or model.space.ndim != 3:
            raise ValueError(
                f"meshes and their model must have 3 dimensions, got {shapes.ndim} and "
                f"{model.space.ndim}. Use the model that was fitted to them."
            )
        check_known_classes(model, shapes)
        self.model, self.shapes, self.labels = model, shapes, shapes.classes.tolist()
        self.codes = np.searchsorted(shapes.classes, shapes.y).astype(np.int64)
        self.sigma = Settings.of(model).sigma
        self._surfaces: dict[int, Surface] = {}

    def describe(self) -> dict[str, Any]:
        """Number of points, and the radius within which all shapes lie."""
        distances = [np.linalg.norm(p - 0.5, axis=1).max() for p in self.shapes.unit_points()]
        return {"size": self.shapes.size, "radius": float(max(distances))}

    def typical(self, code: int) -> int:
        """The shape whose extent is nearest to the mean of its class."""
        members = np.flatnonzero(self.codes == code)
        clouds = [self.sample(int(i)).points for i in members]
        extents = np.array([[*p.mean(axis=0), *p.std(axis=0)] for p in clouds])
        return int(members[np.square(extents - extents.mean(axis=0)).sum(axis=1).argmin()])

    def sample(self, index: int) -> Surface:
        """A shape in the unit cube, in as much detail as the page draws."""
        if index not in self._surfaces:
            self._surfaces[index] = simplify(Surface.of(self.shapes, index), MAX_FACES)
        return self._surfaces[index]

    def encode(self, sample: Surface, view: View) -> dict[str, Any]:
        """A surface for the browser."""
        return {"points": pack(sample.points), "faces": to_base64(sample.faces.astype("<u4"))}

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
        return [Surface.of(made, k) for k in range(n)], made.y

    def align(self, source: int, target: int, prior: SmoothPrior) -> PointAlignments:
        """Align a shape to another, matched by index or by the Chamfer distance."""
        ends = ([Surface.of(self.shapes, end).points] for end in (source, target))
        return align_points(
            self.model.space, *ends, prior=prior, sigma=self.sigma,
            match=self._match(source, target), progress=False,
        )  # fmt: skip

    def _match(self, source: int, target: int) -> Match:
        """How points of a class correspond, as in the fit."""
        match = find_match(self.model)
        if match == "auto":
            match = "known" if self.shapes.correspond([source, target]) else "nearest"
        return match

    def show_field(self, theta: Numbers, sample: Surface, view: View) -> dict[str, Any]:
        """Empty: the page shows how far each point moves."""
        return {}

    def read_upload(self, content: bytes) -> Surface:
        """Raise: meshes can't be uploaded."""
        raise ValueError("meshes can't be uploaded. Put them into the folder of the data.")

    def load_code(self, name: str, options: dict[str, Any]) -> str:
        """Python code that loads the shapes."""
        more = ", normalize='each'" if self.shapes.normalize == "each" else ""
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
            f"sigma={self.sigma!r}, match={self._match(source, target)!r}",
            ")",
            "warped = dw.Warp(model.space, result.theta[0]).points(source)",
        ]


def simplify(surface: Surface, n_most: int) -> Surface:
    """A surface of at most ``n_most`` triangles, or points if it has no triangles.

    Points in the same cell of a grid are merged into the first, and triangles that collapse are
    dropped. The grid is made coarser until few enough are left.
    """
    points, faces = surface
    if not len(faces):
        return Surface(thin(points, n_most), faces)
    n_cells = FINEST
    while len(faces) > n_most and n_cells > 2:
        cells = np.floor(surface.points * n_cells).astype(np.int64)
        _, firsts, merged = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        faces = merged.ravel()[surface.faces]
        a, b, c = faces.T
        faces = faces[(a != b) & (b != c) & (c != a)]
        # Triangles of the same corners, in whatever order, are one.
        faces = faces[np.unique(np.sort(faces, axis=1), axis=0, return_index=True)[1]]
        points, n_cells = surface.points[firsts], int(COARSER * n_cells)
    return Surface(points, faces[:n_most])
