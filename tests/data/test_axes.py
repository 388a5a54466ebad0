"""Series, images and volumes told apart by shape."""

from __future__ import annotations

import numpy as np
import pytest

from dreamwarp.data import DataSet
from dreamwarp.data.axes import count_spatial_axes, guess_axes


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((150,), 1),
        ((1, 150), 1),
        ((6, 100), 1),
        ((8, 8), 2),
        ((28, 28), 2),
        ((1, 28, 28), 2),
        ((3, 64, 64), 2),
        ((28, 28, 28), 3),
        ((1, 28, 28, 28), 3),
    ],
)
def test_shapes(shape: tuple[int, ...], expected: int) -> None:
    assert guess_axes(shape) == expected


def test_what_the_source_says_counts() -> None:
    X = np.zeros((4, 12, 29))
    assert count_spatial_axes(DataSet("a", X, np.zeros(4, int))) == 2
    assert count_spatial_axes(DataSet("a", X, np.zeros(4, int), n_axes=1)) == 1
