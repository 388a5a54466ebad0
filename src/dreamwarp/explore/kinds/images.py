"""Images, with a grid, arrows and landmarks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dreamwarp.core.samples import pixel_centers
from dreamwarp.explore.kinds.arrays import Arrays
from dreamwarp.explore.kinds.base import Array, Landmarks, Numbers, View, pack
from dreamwarp.explore.uploads import read_picture
from dreamwarp.space.warp import Warp

# Grid lines per axis, points along each, and arrows per axis.
N_LINES, POINTS_PER_LINE, N_ARROWS = 15, 49, 16


class Images(Arrays):
    """Images (channels, rows, columns)."""

    name, plural = "image", "images"
    uploads = "image/png,image/jpeg,image/webp"
    read_code = 'dw.data.read_image("yours.png")'

    def show_field(self, theta: Numbers, sample: Array, view: View) -> dict[str, Any]:
        """A grid moved by T^{-θ}, as content moves, and the velocity of -θ."""
        space, starts = self.model.space, pixel_centers((N_ARROWS, N_ARROWS))
        lines = self.embed(_grid_lines(), sample, view)
        velocity = space.velocity(-theta, self.embed(starts, sample, view))
        axes = self.axes(view)
        return {
            "grid": pack(space.flow(-theta, lines)[:, axes]),
            "points_per_line": POINTS_PER_LINE,
            "arrows": pack(np.concatenate([starts, velocity[:, axes]], axis=1)),
        }

    def axes(self, view: View) -> list[int]:
        """The axes of rows and columns."""
        return [0, 1]

    def embed(self, points: Numbers, sample: Array, view: View) -> Numbers:
        """Points (m, 2) of what is shown, in the domain."""
        return points

    def move_landmarks(self, theta: Numbers, landmarks: Landmarks) -> dict[str, Any]:
        """Landmarks, moved as the content is."""
        points = np.asarray(landmarks, dtype=np.float64).reshape(-1, 2)
        moved = Warp(self.model.space, theta).points(points) if len(points) else points
        return {"landmarks": moved.round(6).tolist()}

    def read_upload(self, content: bytes) -> Array:
        """Read a picture; its black and white become the lowest and highest value of the data."""
        look = self.subject.look
        values = read_picture(content, self.subject.sample(0).shape[0], is_ink=look.is_ink)
        if (look.low, look.high) == (0.0, 255.0):
            return values
        return self.to_range(values / 255.0)


def _grid_lines() -> Numbers:
    along, across = np.linspace(0.0, 1.0, POINTS_PER_LINE), np.linspace(0.0, 1.0, N_LINES)
    rows = np.stack(np.meshgrid(across, along, indexing="ij"), axis=-1)
    return np.concatenate([rows, rows[..., ::-1]]).reshape(-1, 2)
