"""Orientation of volumes: warps act along the axes of the volumes that they were learned from.

An orientation names the direction of each axis by a letter, as in NIfTI: R or L (right, left), A or
P (front, back), S or I (top, bottom). An oblique axis has the letter of the nearest direction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dreamwarp.core.listing import import_extra
from dreamwarp.data.volumes import ORIENTATION
from dreamwarp.model import WarpModel
from dreamwarp.space import WarpSpace
from dreamwarp.torch.functional import warp_item

PAIRS = ("RL", "AP", "SI")
# Values of `orientation` that are none: that of the model; axes as they are stored.
AUTO, STORED = "auto", "stored"


def model_orientation(model: WarpModel, orientation: Any) -> str:
    """The orientation of a model's axes: as given or, with "auto", as the model has it.

    ``dreamwarp fit`` stores it for volumes with affines. Without it, axes are taken as stored.
    """
    if orientation == AUTO:
        orientation = model.settings.get("orientation", STORED)
    return check_orientation(model.space, orientation)


def check_orientation(space: WarpSpace, orientation: Any) -> str:
    """Return "stored" or an orientation with the space's number of axes; else raise."""
    word = str(orientation)
    if word == STORED:
        return word
    pairs = {_pair(letter) for letter in word}
    if not len(word) == len(pairs) == space.ndim or "" in pairs:
        raise ValueError(
            f"`orientation` must be 'auto', 'stored' or {space.ndim} letters, at most one of each "
            f"of R/L, A/P and S/I, such as {ORIENTATION[: space.ndim]!r}, got {orientation!r}."
        )
    return word


def warp_oriented(
    space: WarpSpace,
    theta: NDArray[np.float64],
    values: Tensor,
    *,
    affine: ArrayLike,
    orientation: str,
    **options: Any,
) -> Tensor:
    """Pull back a sample (channels, *spatial) along axes of an orientation; see ``warp_item``.

    The affine maps voxel indices to coordinates to the right, front and top. The identity, which
    samples without an affine have, means the axes of NIfTI.
    """
    if orientation == STORED:
        return warp_item(space, theta, values, **options)
    full = np.asarray(affine, np.float64)
    is_identity = np.array_equal(full, np.eye(len(full)))
    own = (ORIENTATION if is_identity else _name_axes(full))[: space.ndim]
    axes, reversed_axes = _turn(own, orientation)
    turned = values.permute(0, *axes).flip(reversed_axes)
    moved = warp_item(space, theta, turned, **options)
    back = np.argsort([0, *axes]).tolist()
    return moved.flip(reversed_axes).permute(back).contiguous()


def _name_axes(affine: NDArray[np.float64]) -> str:
    """The orientation of an affine."""
    nibabel = import_extra("nibabel", "volumes", "an affine")
    is_finite = bool(np.isfinite(affine).all())
    letters: tuple[Any, ...] = nibabel.aff2axcodes(affine) if is_finite else (None,)
    if None in letters:
        raise ValueError(
            f"affines must be invertible, got {affine[:-1].round(3).tolist()}. Set that of the "
            "sample, or use orientation='stored'."
        )
    return "".join(letters)


def _turn(own: str, wanted: str) -> tuple[list[int], list[int]]:
    """Axes of a sample (channels, *spatial) in the wanted order, and which of these to reverse."""
    pairs = [_pair(letter) for letter in own]
    if set(pairs) != {_pair(letter) for letter in wanted}:
        raise ValueError(
            f"samples must have axes along those of the model, {wanted!r}, got {own!r}. Warp other "
            "slices, or use orientation='stored' to take axes as they are."
        )
    order = [pairs.index(_pair(letter)) for letter in wanted]
    reversed_axes = [k + 1 for k, from_axis in enumerate(order) if own[from_axis] != wanted[k]]
    return [axis + 1 for axis in order], reversed_axes


def _pair(letter: str) -> str:
    return next((pair for pair in PAIRS if letter in pair), "")
