"""Checks that several stages share."""

from __future__ import annotations

import pytest

from dreamwarp.core.validation import check_parameters, check_resolution, warn_of_fine_cells


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


@pytest.mark.parametrize(
    ("shape", "cells", "message"),
    [
        ((9, 28, 28), (40, 40), r"28 x 28 pixels have fewer pixels than cells \(40 x 40\).*as 4x4"),
        ((9, 3, 64, 8), (8, 9), r"64 x 8 pixels have fewer pixels than cells \(8 x 9\)"),
        ((9, 150), (151,), r"150 pixels .* cells \(151\).*such as 10"),
        ((9, 5), (10,), r"5 pixels .* cells \(10\).*such as 2\."),
        ((9, 8, 8, 8), (3, 9, 3), r"cells \(3 x 9 x 3\).*such as 3x3x3"),
    ],
)
def test_cells_finer_than_pixels_are_told(
    shape: tuple[int, ...], cells: tuple[int, ...], message: str
) -> None:
    with pytest.warns(UserWarning, match=message):
        warn_of_fine_cells(shape, cells)


def test_too_many_parameters_are_refused() -> None:
    check_parameters((20, 20), 1500)
    with pytest.raises(ValueError, match=r"at most 4,000.*got 6,562 for 40 x 40 cells.*as 4x4"):
        check_parameters((40, 40), 6562)
