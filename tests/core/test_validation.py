"""Checks that several stages share."""

from __future__ import annotations

import pytest

from dreamwarp.core.validation import check_resolution


@pytest.mark.parametrize(
    ("shape", "cells"), [((9, 28, 28), (4, 4)), ((9, 3, 4, 4), (4, 4)), ((9, 1, 512), (16,))]
)
def test_samples_with_a_pixel_for_every_cell_will_do(
    shape: tuple[int, ...], cells: tuple[int, ...]
) -> None:
    check_resolution("X", shape, cells)


@pytest.mark.parametrize(
    ("shape", "cells", "message"),
    [
        (
            (20, 1, 512),
            (4, 4),
            r"`sources`.*\(20, 1, 512\).* 1 x 512 pixels.*cells=\(10,\) for ser",
        ),
        ((20, 3, 512, 1), (4, 4), r"512 x 1 pixels.*cells=\(10,\) for series"),
        ((20, 1, 28, 28), (4, 4, 4), r"1 x 28 x 28 pixels.*cells=\(4, 4\) for images"),
    ],
)
def test_an_axis_of_one_pixel_can_t_be_warped(
    shape: tuple[int, ...], cells: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_resolution("sources", shape, cells)


@pytest.mark.parametrize(
    ("shape", "cells", "message"),
    [
        ((9, 28, 28), (40, 40), "40 x 40 cells for samples of 28 x 28 pixels.*such as 4x4"),
        ((9, 3, 64, 8), (8, 9), "8 x 9 cells for samples of 64 x 8 pixels"),
        ((9, 150), (151,), "151 cells for samples of 150 pixels.*such as 10"),
        ((9, 5), (10,), r"10 cells for samples of 5 pixels.*such as 2\."),
        ((9, 8, 8, 8), (3, 9, 3), "3 x 9 x 3 cells .*such as 3x3x3"),
    ],
)
def test_cells_finer_than_pixels_are_refused(
    shape: tuple[int, ...], cells: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_resolution("X", shape, cells)
