"""Defaults that depend on samples."""

from __future__ import annotations

import pytest

from dreamwarp.core.defaults import suit_cells


@pytest.mark.parametrize(
    ("spatial", "cells"),
    [((150,), (10,)), ((5,), (2,)), ((2,), (2,)), ((28, 6), (4, 3)), ((64, 64, 4), (3, 3, 2))],
)
def test_short_samples_have_fewer_cells(spatial: tuple[int, ...], cells: tuple[int, ...]) -> None:
    assert suit_cells(spatial) == cells
