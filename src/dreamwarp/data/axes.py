"""How many axes of a sample are spatial, where its source does not say."""

from __future__ import annotations

from collections.abc import Sequence

from dreamwarp.data.dataset import DataSet

# Samples with fewer rows than this are taken for series of as many channels.
MIN_ROWS = 8
# More channels than this no picture has: the axis is the depth of a volume.
MAX_COLORS = 4


def count_spatial_axes(data: DataSet) -> int:
    """1 for series, 2 for images, 3 for volumes: as the source says, else by the shape."""
    return data.n_axes if data.n_axes is not None else guess_axes(data.X.shape[1:])


def guess_axes(shape: Sequence[int]) -> int:
    """What samples of a shape most likely are.

    ======================  ==========================================================
    shape of a sample       taken for
    ======================  ==========================================================
    (time)                  a series
    (few, time)             a series of a few channels: (1, 150) is no image of one row
    (rows, columns)         an image
    (1 to 4, rows, columns) an image with channels
    (more, rows, columns)   a volume
    four axes               a volume with channels
    ======================  ==========================================================

    Examples
    --------
    >>> [guess_axes(s) for s in ((150,), (1, 150), (28, 28), (3, 64, 64), (28, 28, 28))]
    [1, 1, 2, 2, 3]
    """
    if len(shape) == 1:
        return 1
    if len(shape) == 2:
        return 1 if shape[0] < MIN_ROWS < shape[1] else 2
    return 2 if len(shape) == 3 and shape[0] <= MAX_COLORS else 3
