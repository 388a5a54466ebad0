"""Sets of shapes: points in 2-D or 3-D, with or without faces, and their bounding boxes.

Warps act on the unit domain. A :class:`Box` converts world coordinates to it and back, with one
scale for all axes, so angles are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.labels import as_labels
from dreamwarp.core.validation import as_finite_array, check_choice

Array = NDArray[np.float64]
Normalize = Literal["set", "each"]

# Margin on every side of a box, as a fraction of its width: warps may be fixed at the border.
MARGIN = 0.1


@dataclass(frozen=True, eq=False)
class Box:
    """The cube (or square) that is mapped to the unit domain."""

    low: Array  # (ndim,), the lowest corner
    size: float  # width along every axis

    @classmethod
    def around(cls, points: Array, margin: float = MARGIN) -> Box:
        """A box centred on points (m, ndim), with a margin on every side."""
        lowest, highest = points.min(axis=0), points.max(axis=0)
        size = float((highest - lowest).max()) / (1.0 - 2.0 * margin)
        size = size if size > 0.0 else 1.0  # a single point
        return cls((lowest + highest - size) / 2.0, size)

    def to_unit(self, points: Array) -> Array:
        """World coordinates (..., ndim) to the unit domain."""
        return (points - self.low) / self.size

    def to_world(self, points: Array) -> Array:
        """Points of the unit domain (..., ndim) to world coordinates."""
        return points * self.size + self.low


@dataclass(frozen=True, eq=False, repr=False)
class ShapeSet:
    """Shapes and their labels."""

    name: str  # or the path they were read from
    points: tuple[Array, ...]  # (m_k, ndim) each: vertices or landmarks, in world coordinates
    y: NDArray[Any]  # (n,), labels
    boxes: tuple[Box, ...]  # mapped to the unit domain, one per shape
    meshes: tuple[Any, ...] = ()  # of trimesh; empty if there are only points

    @classmethod
    def of(
        cls,
        points: Sequence[ArrayLike] | NDArray[Any],
        y: ArrayLike,
        *,
        name: str = "shapes",
        normalize: Normalize = "set",
        margin: float = MARGIN,
        meshes: Sequence[Any] = (),
    ) -> ShapeSet:
        """A set of shapes from arrays of points (m_k, ndim).

        Parameters
        ----------
        normalize : {"set", "each"}
            One box for all shapes, which keeps their positions and sizes, or one per shape.
        margin : float
            Margin on every side, as a fraction of the box's width.
        """
        check_choice("normalize", normalize, ("set", "each"))
        if not 0.0 <= margin < 0.5:
            raise ValueError(f"`margin` must be at least 0 and below 0.5, got {margin}.")
        shapes = tuple(_check_points(k, shape) for k, shape in enumerate(points))
        if not shapes:
            raise ValueError("`points` must hold at least one shape, got none.")
        labels = as_labels(y, len(shapes))
        if len({shape.shape[1] for shape in shapes}) > 1:
            raise ValueError("shapes must all be 2-D or all 3-D, got both. Split them into two.")
        if normalize == "set":
            boxes = (Box.around(np.concatenate(shapes), margin),) * len(shapes)
        else:
            boxes = tuple(Box.around(shape, margin) for shape in shapes)
        return cls(name, shapes, labels, boxes, tuple(meshes))

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"<ShapeSet {self.describe()}>"

    @property
    def ndim(self) -> int:
        """Dimension of the points, 2 or 3."""
        return int(self.points[0].shape[1])

    @property
    def classes(self) -> NDArray[Any]:
        """The distinct labels, sorted."""
        return np.unique(self.y)

    @property
    def normalize(self) -> Normalize:
        """``"set"`` if all shapes have one box, else ``"each"``."""
        return "set" if all(box is self.boxes[0] for box in self.boxes) else "each"

    def take(self, chosen: ArrayLike) -> ShapeSet:
        """The shapes of these indices (n,)."""
        indices = np.asarray(chosen, np.int64)
        points, boxes = (tuple(part[k] for k in indices) for part in (self.points, self.boxes))
        meshes = tuple(self.meshes[k] for k in indices) if self.meshes else ()
        return ShapeSet(self.name, points, self.y[indices], boxes, meshes)

    def unit_points(self) -> list[Array]:
        """Points of each shape in the unit domain."""
        return [box.to_unit(p) for box, p in zip(self.boxes, self.points, strict=True)]

    def faces(self, index: int) -> NDArray[np.int64]:
        """Faces (f, 3) of a shape, indices of its points; f = 0 if it has none."""
        found = getattr(self.meshes[index], "faces", ()) if self.meshes else ()
        return np.asarray(found, np.int64).reshape(-1, 3)

    def correspond(self, chosen: ArrayLike) -> bool:
        """Whether point k of these shapes is the same: equal numbers of points and equal faces."""
        first, *others = np.asarray(chosen, np.int64).tolist()
        return all(
            len(self.points[k]) == len(self.points[first])
            and np.array_equal(self.faces(k), self.faces(first))
            for k in others
        )

    @property
    def size(self) -> str:
        """Smallest and largest number of points, in words."""
        counts = sorted(len(points) for points in self.points)
        more = f" to {counts[-1]:,}" if counts[-1] > counts[0] else ""
        return f"{counts[0]:,}{more} points"

    def describe(self) -> str:
        """Name and counts in one line."""
        kind = "meshes" if self.meshes else "shapes"
        n_classes = len(self.classes)
        return (
            f"{self.name}: {len(self):,} {kind} of {self.size} in {self.ndim} dimensions, "
            f"{n_classes} class{'' if n_classes == 1 else 'es'}"
        )


def _check_points(number: int, points: ArrayLike) -> Array:
    array = as_finite_array(f"points[{number}]", points)
    if array.ndim != 2 or len(array) < 1 or array.shape[1] not in (2, 3):
        raise ValueError(
            f"`points[{number}]` must have shape (m, 2) or (m, 3), at least one point, got "
            f"{array.shape}."
        )
    return array
