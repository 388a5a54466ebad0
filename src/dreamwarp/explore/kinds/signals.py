"""Signals, drawn as lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from dreamwarp.explore.kinds.arrays import Arrays
from dreamwarp.explore.kinds.base import Array, Numbers, View, pack
from dreamwarp.explore.uploads import read_text_series

N_TIMES = 129  # number of times at which the warp is shown


class Signals(Arrays):
    """Signals (channels, times)."""

    name, plural = "signal", "signals"
    uploads = "text/plain,text/csv,.txt,.csv"
    read_code = 'np.loadtxt("yours.csv", delimiter=",", ndmin=2).T  # import numpy as np'

    def encode_values(self, values: Array) -> dict[str, Any]:
        """Values as float32."""
        return {"shape": list(values.shape), "data": pack(values)}

    def show_field(self, theta: Numbers, sample: Array, view: View) -> dict[str, Any]:
        """Times moved by T^{-θ}, as content moves, and the velocity of -θ."""
        points, space = np.linspace(0.0, 1.0, N_TIMES)[:, None], self.model.space
        return {
            "grid": pack(space.flow(-theta, points)),
            "arrows": pack(space.velocity(-theta, points)),
        }

    def read_upload(self, content: bytes) -> Array:
        """Read rows of numbers."""
        return read_text_series(content, self.subject.sample(0).shape[0])
