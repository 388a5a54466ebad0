"""Cells, their neighbours, and the unbounded cells beyond the border."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dreamwarp.space.tessellation import Tessellation
from tests import oracle

CELLS = [(1,), (7,), (1, 1), (1, 3), (4, 4), (1, 1, 1), (3, 2, 1), (2, 2, 2)]
over_cells = pytest.mark.parametrize("cells", CELLS, ids=str)
over_topology = pytest.mark.parametrize("periodic", [False, True], ids=["bounded", "periodic"])


def as_sets(corners):
    return {frozenset(map(tuple, np.round(simplex, 12))) for simplex in corners}


def weights_of(tessellation, points):
    """Weights of points (m, ndim) in every region: (m, n_regions, node)."""
    homogeneous = np.hstack([points, np.ones((len(points), 1))])
    return np.einsum("rgj,mj->mrg", tessellation.barycentric, homogeneous)


def test_the_papers_tessellation():
    tessellation = Tessellation((4, 4))
    assert tessellation.n_cells == 64
    assert len(tessellation.vertices) == 41
    on_border = ((tessellation.vertices == 0) | (tessellation.vertices == 1)).any(axis=1)
    assert (~on_border).sum() == 25


@over_cells
def test_cells_are_those_of_the_definition(cells):
    tessellation = Tessellation(cells)
    ours = tessellation.vertices[tessellation.simplices]
    assert len(ours) == tessellation.n_cells == math.prod(cells) * (1, 4, 24)[len(cells) - 1]
    assert as_sets(ours) == as_sets(oracle.simplices(cells))


@over_cells
def test_vertices_are_distinct_sorted_and_all_used(cells):
    tessellation = Tessellation(cells)
    rows = tessellation.vertices.tolist()
    assert rows == sorted(rows)
    assert len({tuple(row) for row in rows}) == len(rows)
    assert set(tessellation.simplices.ravel()) == set(range(len(rows)))


@over_cells
def test_cells_fill_the_domain(cells):
    tessellation = Tessellation(cells)
    corners = tessellation.vertices[tessellation.simplices]
    volumes = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])) / math.factorial(len(cells))
    assert volumes.min() > 0
    assert volumes.sum() == pytest.approx(1.0, abs=1e-12)


@over_cells
def test_a_generic_point_lies_in_one_region(cells):
    tessellation = Tessellation(cells)
    points = np.random.default_rng(0).uniform(-1.0, 2.0, (300, len(cells)))
    holding = (weights_of(tessellation, points) >= 0.0).all(axis=2)
    np.testing.assert_array_equal(holding.sum(axis=1), 1)


@over_cells
def test_unbounded_regions_give_the_nearest_point_of_the_domain(cells):
    tessellation = Tessellation(cells)
    points = np.random.default_rng(1).uniform(-1.0, 2.0, (300, len(cells)))
    weights = weights_of(tessellation, points)
    region = weights.min(axis=2).argmax(axis=1)
    used = weights[np.arange(len(points)), region]
    finite = tessellation.nodes[tessellation.regions[region]]
    nearest = np.einsum("mg,mgk->mk", used * finite[:, :, -1], finite[:, :, :-1])
    np.testing.assert_allclose(nearest, np.clip(points, 0.0, 1.0), atol=1e-12)


@over_cells
@over_topology
def test_crossing_a_face_twice_leads_back(cells, periodic):
    region, position, shift = Tessellation(cells, periodic).neighbors
    for r, f in np.argwhere(region >= 0):
        s, g = region[r, f], position[r, f, f]
        assert region[s, g] == r
        np.testing.assert_array_equal(position[s, g][position[r, f]], np.arange(len(cells) + 1))
        np.testing.assert_array_equal(shift[s, g], -shift[r, f])


@over_cells
@over_topology
def test_common_faces_have_the_same_corners(cells, periodic):
    tessellation = Tessellation(cells, periodic)
    region, position, shift = tessellation.neighbors
    nodes = tessellation.nodes[tessellation.regions]
    for r, f in np.argwhere(region >= 0):
        face = [g for g in range(len(cells) + 1) if g != f]
        here, there = nodes[r, face], nodes[region[r, f], position[r, f, face]]
        moved = here[:, :-1] - shift[r, f] * here[:, -1:]
        np.testing.assert_allclose(moved, there[:, :-1], atol=1e-14)
        np.testing.assert_array_equal(here[:, -1], there[:, -1])


@over_cells
def test_a_torus_has_no_outside(cells):
    tessellation = Tessellation(cells, periodic=True)
    region, _, shift = tessellation.neighbors
    assert len(tessellation.regions) == tessellation.n_cells
    assert (region >= 0).all()
    assert np.abs(shift).max() == 1.0 and np.isin(shift, (-1.0, 0.0, 1.0)).all()


@over_cells
def test_only_directions_lie_at_infinity(cells):
    tessellation = Tessellation(cells)
    region, _, shift = tessellation.neighbors
    assert not shift.any()
    is_vertex = tessellation.regions < len(tessellation.vertices)
    for r, f in np.argwhere(region < 0):
        assert is_vertex[r, f] and is_vertex[r].sum() == 1
