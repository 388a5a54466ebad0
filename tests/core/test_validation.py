"""Checks that several stages share."""

from __future__ import annotations

import pytest

from dreamwarp.core.validation import check_resolution, warn_of_fine_cells


@pytest.mark.parametrize(
    ("shape", "cells"), [((9, 28, 28), (4, 4)), ((9, 3, 4, 4), (4, 4)), ((9, 1, 512), (16,))]
)
def test_samples_with_a_pixel_for_every_cell_will_do(
    shape: tuple[int, ...], cells: tuple[int, ...]
) -> None:
    check_resolution("X", shape, cells)
    warn_of_fine_cells(shape, cells)


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


def test_cells_finer_than_pixels_are_warned_of() -> None:
    for shape in ((9, 8, 8), (9, 3, 64, 8)):
        with pytest.warns(
            UserWarning, match=r"8 pixels .*fewer .* cells \(32 x 32\).*Use fewer `cells`"
        ):
            warn_of_fine_cells(shape, (32, 32))
