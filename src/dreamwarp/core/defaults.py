"""Defaults shared by functions, estimators and commands. Imports nothing: commands start fast."""

from __future__ import annotations

# Prior over alignments: root mean square displacement and correlation length of points, as
# fractions of the domain.
DISPLACEMENT, LENGTH = 0.08, 0.25
# Alignments: most steps of a search per resolution, and most draws per chain.
MAX_STEPS, MAX_DRAWS = 50, 1600
# Neighbour graph.
N_NEIGHBORS = 5
# Cells by the number of spatial axes: series, images, volumes.
DEFAULT_CELLS = {1: (10,), 2: (4, 4), 3: (3, 3, 3)}
