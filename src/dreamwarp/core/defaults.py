"""Defaults and choices shared by functions, estimators and commands.

Imports little: commands start fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

# Formats of sets of samples.
Format = Literal["idx", "npz", "parquet", "webdataset", "folder", "nifti"]
FORMATS = get_args(Format)
# Whether classes take turns, or are drawn with their frequencies in the data.
Balance = Literal["classes", "data"]
BALANCES = get_args(Balance)
# Prior over alignments: root mean square displacement and correlation length of points, as
# fractions of the domain.
DISPLACEMENT, LENGTH = 0.08, 0.25
# Alignments: most steps per stage of a search (a resolution or noise level), most draws per chain.
MAX_STEPS, MAX_DRAWS = 50, 1600
# A search ends when the predicted gain of a step in log-posterior is less than this. Draws from the
# posterior lie about d / 2 below its mode, so both values are small. With the second one, for
# learning from many pairs, a search takes a quarter less time and ends 0.5 lower on average.
SEARCH_TOLERANCE, LEARNING_TOLERANCE = 0.05, 0.25
# Neighbour graph.
N_NEIGHBORS = 5
# Cells by the number of spatial axes: series, images, volumes; points and meshes.
DEFAULT_CELLS = {1: (10,), 2: (4, 4), 3: (3, 3, 3)}
DEFAULT_SHAPE_CELLS = {2: (4, 4), 3: (2, 2, 2)}
# Interpolation for networks, by the number of spatial axes. Linear interpolation blurs, so networks
# would be trained on samples less sharp than those they are used on; see docs/experiments.md. In
# volumes, cubic interpolation takes 64 values instead of 8.
NETWORK_INTERPOLATION: dict[int, Literal["linear", "cubic"]] = {1: "cubic", 2: "cubic", 3: "linear"}
# For networks, the variance λ along each component of a class's warps becomes λ to this power, up
# to scale. As learned (power 1), two to four components have nearly all variance; see
# docs/experiments.md.
NETWORK_SPECTRUM_POWER = 0.5


def suit_cells(spatial: Sequence[int]) -> tuple[int, ...]:
    """Default cells for samples (*spatial); short axes have fewer, one per 2 pixels, at least 2."""
    usual = DEFAULT_CELLS[len(spatial)]
    return tuple(min(k, max(2, n // 2)) for k, n in zip(usual, spatial, strict=True))
