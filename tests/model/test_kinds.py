"""Templates or classes: chosen by the likelihood of held-out pairs whose warps are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dreamwarp.align.evidence import Evidence
from dreamwarp.model import empirical_bayes as eb
from dreamwarp.model.kinds import templates_explain
from dreamwarp.model.pairs import Pairs

N, RANK = 120, 6


def make_pairs(positions: Any, noise: float, seed: int) -> tuple[Evidence, Any]:
    """Random pairs of samples whose warps are u_j - u_i, seen with noise."""
    rng = np.random.default_rng(seed)
    edges = np.stack([rng.permutation(N) for _ in range(2)], axis=1)
    edges = edges[edges[:, 0] != edges[:, 1]]
    u = positions[edges[:, 1]] - positions[edges[:, 0]]
    u += noise * rng.normal(size=u.shape)
    precision = np.tile(np.eye(RANK) / noise**2, (len(edges), 1, 1))
    return Evidence(u, u / noise**2, precision.astype(np.float32), np.zeros(len(edges))), edges


def decide(positions: Any, neighbor_warps: Any = None) -> bool:
    """The choice for samples at ``positions``, whose neighbours are drawn at random."""
    rng = np.random.default_rng(1)
    evidence, edges = make_pairs(positions, 0.1, 0)
    near = rng.integers(0, N, (4 * N, 2))
    near = near[near[:, 0] != near[:, 1]]
    theta = positions[near[:, 1]] - positions[near[:, 0]]
    if neighbor_warps is not None:
        theta = neighbor_warps(theta)
    codes = np.zeros(len(edges), np.int64)
    folds = eb.hold_out(evidence, edges, codes, np.eye(RANK), None)
    neighbors = [Pairs(theta, np.ones(len(near)), near)]
    return templates_explain(
        evidence, edges, codes, folds, float(RANK), neighbors, class_pairs=3.0, drift=1.0
    )


@pytest.fixture
def positions() -> Any:
    return np.random.default_rng(0).normal(size=(N, RANK)) * np.arange(1, RANK + 1)


def test_templates_that_know_where_others_are_explain_pairs(positions: Any) -> None:
    assert decide(positions)


def test_templates_whose_warps_say_nothing_do_not(positions: Any) -> None:
    rng = np.random.default_rng(2)
    assert not decide(positions, lambda theta: theta[rng.permutation(len(theta))] * 3.0)


def test_templates_are_kept_if_nothing_is_held_out(positions: Any) -> None:
    evidence, edges = make_pairs(positions, 0.1, 0)
    codes = np.zeros(len(edges), np.int64)
    neighbors = [Pairs(np.zeros((1, RANK)), np.ones(1), np.array([[0, 1]]))]
    assert templates_explain(evidence, edges, codes, [], 6.0, neighbors, class_pairs=3.0, drift=1.0)


def test_neighbors_may_be_in_no_random_pair(positions: Any) -> None:
    evidence, edges = make_pairs(positions, 0.1, 0)
    codes = np.zeros(len(edges), np.int64)
    folds = eb.hold_out(evidence, edges, codes, np.eye(RANK), None)
    neighbors = [Pairs(np.zeros((1, RANK)), np.ones(1), np.array([[0, N + 5]]))]
    assert templates_explain(
        evidence, edges, codes, folds, 6.0, neighbors, class_pairs=3.0, drift=1.0
    )
