"""Defaults that functions, estimators and commands share. Light: commands read it as they start."""

from __future__ import annotations

# Of the prior over alignments, as shares of the domain: root mean square displacement of points,
# and the distance over which they move together.
DISPLACEMENT, LENGTH = 0.08, 0.25
# Of alignments: steps of a search at each resolution, and draws of each chain, at most.
MAX_STEPS, MAX_DRAWS = 50, 1600
# Of the neighbour graph.
N_NEIGHBORS = 5
