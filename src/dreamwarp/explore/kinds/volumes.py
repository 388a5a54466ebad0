"""Volumes, one slice at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamwarp.explore.kinds.base import Array, Landmarks, Numbers, View
from dreamwarp.explore.kinds.images import Images
from dreamwarp.explore.uploads import read_uploaded_volume


class Volumes(Images):
    """Volumes (channels, x, y, z), shown slice by slice."""

    name, plural = "volume", "volumes"
    uploads = ".npy,.nii,.gz"
    read_code = 'dw.data.read_volume("yours.nii.gz")[0]'

    def encode(self, sample: Array, view: View) -> dict[str, Any]:
        """A slice for the browser."""
        return super().encode(sample, view) | {"aspect": self.aspect(sample, view)}

    def encode_all(self, samples: Sequence[Array], view: View) -> dict[str, Any]:
        """Slices for the browser, as one array."""
        return super().encode_all(samples, view) | {"aspect": self.aspect(samples[0], view)}

    def aspect(self, sample: Array, view: View) -> float:
        """Width of a slice relative to its height; voxels need not be cubes."""
        height, width = np.array(self.subject.look.extent(sample.shape[1:]))[view.in_plane]
        return float(width / height)

    def cut(self, values: Array, view: View) -> Array:
        """The slice that is shown: (channels, rows, columns)."""
        return np.take(values, view.number(values.shape[1:]), axis=1 + view.axis)

    def axes(self, view: View) -> list[int]:
        """The axes of rows and columns."""
        return view.in_plane

    def embed(self, points: Numbers, sample: Array, view: View) -> Numbers:
        """Points (m, 2) of the slice, in the volume."""
        spatial = sample.shape[1:]
        height = (view.number(spatial) + 0.5) / spatial[view.axis]
        return np.insert(points, view.axis, height, axis=1)

    def move_landmarks(self, theta: Numbers, landmarks: Landmarks) -> dict[str, Any]:
        """Empty: a slice shows too little of where landmarks go."""
        return {}

    def read_upload(self, content: bytes) -> Array:
        """Read a volume; its range of values becomes that of the data."""
        values = read_uploaded_volume(content, self.subject.sample(0).shape[0])
        low, high = float(values.min()), float(values.max())
        return self.to_range((values - low) / (high - low if high > low else 1.0))

    def cut_code(self, view: View) -> list[str]:
        """Python code for the slice that is shown."""
        index = view.number(self.subject.spatial)
        places = ", ".join(str(index) if axis == view.axis else ":" for axis in range(3))
        return [f"shown = warped[..., {places}]"]
