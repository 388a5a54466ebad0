"""Warps for TorchIO: invertible random and fixed transforms of subjects."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torchio import Image, ScalarImage, Subject
from torchio.transforms import SpatialTransform
from torchio.transforms.augmentation import RandomTransform

from dreamwarp.core.listing import public_names
from dreamwarp.model import WarpModel
from dreamwarp.space import Warp, WarpSpace
from dreamwarp.space.resample import Interpolation
from dreamwarp.torch.drawing import RandomWarps
from dreamwarp.torch.orientation import (
    STORED,
    check_orientation,
    model_orientation,
    warp_oriented,
)

__all__ = ["FixedWarp", "LearnedWarp"]


class LearnedWarp(RandomTransform, SpatialTransform):  # type: ignore[misc]  # TorchIO has no types
    """Warp all images of a subject by one random warp of its class.

    Label maps use nearest-neighbour interpolation. The history of the subject holds the applied
    :class:`FixedWarp`, so that ``subject.apply_inverse_transform()`` applies the exact inverse.

    Parameters
    ----------
    model : WarpModel
        With three axes, or two for images of one slice.
    label_key : str, optional
        Key of the class in the subject. Default: warps of all classes pooled.
    strength : float, optional
        Factor on the learned warps. Default: ``model.network_strength``.
    image_interpolation : {"auto", "linear", "nearest", "cubic"}
        ``"auto"``: linear for volumes, cubic for images of one slice.
    orientation : str
        Directions in which the axes of the model's samples run, such as ``"RAS"``. Images whose
        affine has other directions are turned to these, warped, and turned back. ``"auto"``: those
        that ``dreamwarp fit`` stored in the model, if any, else as ``"stored"``: axes are taken as
        they are stored. For pictures that TorchIO read, use ``"PL"`` if the model's images are
        (row, column).
    **kwargs
        Options of all TorchIO transforms: ``p``, ``include``, ``exclude``, ...
    """

    def __init__(
        self,
        model: WarpModel,
        *,
        label_key: str | None = None,
        strength: float | None = None,
        image_interpolation: Interpolation | Literal["auto"] = "auto",
        orientation: str = "auto",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model, self.label_key = model, label_key
        self._warps = RandomWarps(
            model, strength=strength, unknown="pool" if label_key is None else "error",
            interpolation=image_interpolation,
        )  # fmt: skip
        self.strength = self._warps.strength
        self.image_interpolation = self._warps.interpolation
        self.orientation = model_orientation(model, orientation)

    def apply_transform(self, subject: Subject) -> Subject:
        """Warp a subject; the warp is drawn with torch's random state."""
        number = torch.randint(2**62, (1,)).numpy()
        label: Any = None if self.label_key is None else subject[self.label_key]
        label = label.item() if hasattr(label, "item") else label
        labels = None if label is None else [label]
        theta = self._warps.draw(labels, number, key=self._warps.key)[0]
        fixed = FixedWarp(
            self.model.space, theta, image_interpolation=self.image_interpolation,
            orientation=self.orientation, **self._get_base_args(),
        )  # fmt: skip
        return fixed(subject)


class FixedWarp(SpatialTransform):  # type: ignore[misc]
    """Apply one warp to all images of a subject.

    Parameters
    ----------
    space : WarpSpace
    theta : (d,)
    image_interpolation : {"linear", "nearest", "cubic"}
    orientation : str
        Directions in which the axes of the warp run, such as ``"RAS"``; ``"stored"``: as those of
        each image.
    **kwargs
        Options of all TorchIO transforms.
    """

    def __init__(
        self,
        space: WarpSpace,
        theta: ArrayLike,
        *,
        image_interpolation: Interpolation = "linear",
        orientation: str = STORED,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        values = Warp(space, theta).theta
        if values.ndim != 1 or space.ndim not in (2, 3):
            raise ValueError(
                f"`theta` must have shape ({space.dim},) and `space` 2 or 3 axes, got "
                f"{np.shape(theta)} and {space!r}."
            )
        self.space, self.theta = space, values
        self.image_interpolation = image_interpolation
        self.orientation = check_orientation(space, orientation)
        self.invert_transform = False
        self.args_names = ["space", "theta", "image_interpolation", "orientation"]

    def apply_transform(self, subject: Subject) -> Subject:
        """Warp a subject."""
        subject.check_consistent_spatial_shape()
        for image in self.get_images(subject):
            is_scalar = isinstance(image, ScalarImage)
            interpolation = self.image_interpolation if is_scalar else "nearest"
            image.set_data(self._warp(image, interpolation))
        return subject

    def _warp(self, image: Image, interpolation: Interpolation) -> Tensor:
        """Warp the values (channels, x, y, z) of an image."""
        values = image.data
        is_flat = self.space.ndim == 2
        if is_flat != (values.shape[-1] == 1):
            raise ValueError(
                f"images must have {'one slice' if is_flat else 'several slices'} for "
                f"{self.space!r}, got shape {tuple(values.shape)}."
            )
        theta = -self.theta if self.invert_transform else self.theta
        samples = values[..., 0] if is_flat else values
        moved = warp_oriented(
            self.space, theta, samples, affine=image.affine, orientation=self.orientation,
            interpolation=interpolation,
        )  # fmt: skip
        return moved[..., None] if is_flat else moved


def __dir__() -> list[str]:
    return public_names(globals())
