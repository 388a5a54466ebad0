"""LearnedWarpd: an invertible MONAI dictionary transform for images and label maps."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from monai.config import KeysCollection
from monai.transforms import InvertibleTransform, MapTransform, RandomizableTransform
from monai.utils import (
    MetaKeys,
    SpaceKeys,
    TraceKeys,
    convert_to_dst_type,
    convert_to_tensor,
    ensure_tuple_rep,
)
from numpy.typing import NDArray

from dreamwarp.core.listing import public_names
from dreamwarp.core.validation import check_choice
from dreamwarp.model import WarpModel
from dreamwarp.torch.drawing import RandomWarps
from dreamwarp.torch.orientation import model_orientation, warp_oriented

__all__ = ["LearnedWarpd"]

# MONAI's names of interpolation and padding modes, and ours.
MODES: dict[str, Any] = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
FILLS: dict[str, Any] = {"border": "edge", "zeros": "constant", "reflection": "reflect"}


class LearnedWarpd(RandomizableTransform, MapTransform, InvertibleTransform):  # type: ignore[misc]
    """Warp images and label maps of a dictionary by a random warp of their class.

    Every call draws one warp for all keys. It is stored in the history of each item, so that
    ``inverse``, of this transform or of a ``Compose``, applies the exact inverse.

    Parameters
    ----------
    keys : str or sequence of str
        Items to warp: tensors or arrays (channels, *spatial), with the spatial axes of the model's
        space.
    model : WarpModel
    label_key : str, optional
        Key of the class. Default: warps of all classes pooled.
    prob : float
        Probability that a sample is warped.
    strength : float, optional
        Factor on the learned warps. Default: ``model.network_strength``.
    mode : str or sequence of str
        Interpolation of each key: ``"bilinear"``, ``"nearest"`` (for label maps) or ``"bicubic"``.
        ``"auto"``: bicubic for signals and images, bilinear for volumes.
    padding_mode : str or sequence of str
        Values beyond the border: ``"border"``, ``"zeros"`` or ``"reflection"``. Only matters if the
        model's boundary is ``"free"``.
    orientation : str
        Directions in which the axes of the model's volumes run, such as ``"RAS"``. Items whose
        affine has other directions are turned to these, warped, and turned back. ``"auto"``: those
        that ``dreamwarp fit`` stored in the model, if any, else as ``"stored"``: axes are taken as
        they are stored. MONAI reads pictures as (column, row): use ``"AR"`` for a model of images
        (row, column).
    allow_missing_keys : bool

    Examples
    --------
    >>> transform = LearnedWarpd(["image", "label"], model, mode=["bilinear", "nearest"])
    >>> warped = transform({"image": image, "label": label})
    >>> restored = transform.inverse(warped)
    """

    backend: list[Any] = []  # noqa: RUF012  # required by MONAI

    def __init__(
        self,
        keys: KeysCollection,
        model: WarpModel,
        *,
        label_key: Hashable | None = None,
        prob: float = 1.0,
        strength: float | None = None,
        mode: Any = "auto",
        padding_mode: Any = "border",
        orientation: str = "auto",
        allow_missing_keys: bool = False,
    ) -> None:
        MapTransform.__init__(self, keys, allow_missing_keys)
        RandomizableTransform.__init__(self, prob)
        self.model, self.label_key = model, label_key
        unknown: Any = "pool" if label_key is None else "error"
        self._warps = RandomWarps(model, strength=strength, unknown=unknown)
        self.strength = self._warps.strength
        self.orientation = model_orientation(model, orientation)
        self.mode = ensure_tuple_rep(mode, len(self.keys))
        self.padding_mode = ensure_tuple_rep(padding_mode, len(self.keys))
        for value in self.mode:
            check_choice("mode", value, ("auto", *MODES))
        for value in self.padding_mode:
            check_choice("padding_mode", value, tuple(FILLS))
        self.theta = np.zeros(model.space.dim)

    def randomize(self, data: Any = None) -> None:
        """Draw a warp and whether to apply it; ``data`` is the class, None for all pooled."""
        super().randomize(None)
        number = int(self.R.randint(np.iinfo(np.int32).max))
        labels = None if data is None else [data]
        self.theta = self._warps.draw(labels, [number], key=self._warps.key)[0]

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Warp the keys of a dictionary."""
        d = dict(data)
        self.randomize(self._label(d))
        for key, mode, padding in self.key_iterator(d, self.mode, self.padding_mode):
            if self._do_transform:
                d[key] = self._apply(d[key], self.theta, mode, padding)
            else:
                d[key] = convert_to_tensor(d[key], track_meta=True)
            extra = {"theta": self.theta.tolist(), "mode": mode, "padding_mode": padding}
            self.push_transform(d[key], extra_info=extra)
        return d

    def inverse(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Undo the last warp of the keys of a dictionary."""
        d = dict(data)
        for key in self.key_iterator(d):
            done = self.pop_transform(d[key])
            if done[TraceKeys.DO_TRANSFORM]:
                info = done[TraceKeys.EXTRA_INFO]
                theta = -np.asarray(info["theta"])
                d[key] = self._apply(d[key], theta, info["mode"], info["padding_mode"])
        return d

    def _label(self, data: Mapping[Hashable, Any]) -> Any:
        if self.label_key is None:
            return None
        if self.label_key not in data:
            raise KeyError(f"`label_key` must be a key of {list(data)}, got {self.label_key!r}.")
        label = data[self.label_key]
        return label.item() if hasattr(label, "item") else label

    def _apply(self, values: Any, theta: Any, mode: str, padding: str) -> Any:
        tensor = convert_to_tensor(values, track_meta=True)
        ndim = self.model.space.ndim
        if tensor.ndim != ndim + 1:
            raise ValueError(
                f"items must have shape (channels, *spatial) with {ndim} spatial axes for "
                f"{self.model.space!r}, got {tuple(tensor.shape)}. Apply EnsureChannelFirstd first."
            )
        plain = tensor.as_tensor() if hasattr(tensor, "as_tensor") else tensor
        interpolation = MODES.get(mode, self._warps.interpolation)
        moved = warp_oriented(
            self.model.space, theta, plain, affine=_affine(tensor), orientation=self.orientation,
            interpolation=interpolation, fill=FILLS[padding],
        )  # fmt: skip
        return convert_to_dst_type(moved, dst=tensor, dtype=moved.dtype)[0]


def _affine(tensor: Any) -> NDArray[np.float64]:
    """Map from voxel indices to coordinates to the right, front and top; default: the identity."""
    affine = np.eye(4)
    if hasattr(tensor, "affine"):
        affine = tensor.affine.detach().cpu().numpy().astype(np.float64)
    if getattr(tensor, "meta", {}).get(MetaKeys.SPACE) == SpaceKeys.LPS:
        affine[:2] *= -1.0
    return affine


def __dir__() -> list[str]:
    return public_names(globals())
