"""Warps as torchvision v2 transforms, for images, masks, boxes and keypoints together.

torchvision has two pixel conventions, both different from dreamwarp's unit domain: boxes end at
pixel borders, so that the whole image is 0 to width, and keypoints lie at pixel centres, 0 to
width - 1. Both list x before y. This module converts them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image as PILImage
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms.v2 import Transform
from torchvision.transforms.v2 import functional as F
from torchvision.tv_tensors import BoundingBoxes, BoundingBoxFormat, KeyPoints, Mask, TVTensor

from dreamwarp.core.draws import Seed
from dreamwarp.core.listing import public_names
from dreamwarp.core.validation import check_choice
from dreamwarp.model import WarpModel
from dreamwarp.space import WarpSpace
from dreamwarp.space.resample import FILLS, INTERPOLATIONS, Fill, Interpolation
from dreamwarp.space.warp import Warp
from dreamwarp.torch.compiled_engine import n_threads
from dreamwarp.torch.drawing import WarpOptions
from dreamwarp.torch.epochs import EpochWarps
from dreamwarp.torch.functional import flow, warp, working_dtype

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["FixedWarp", "LearnedWarp"]

CORNERS = BoundingBoxFormat.XYXY
FORMATS = (BoundingBoxFormat.XYXY, BoundingBoxFormat.XYWH, BoundingBoxFormat.CXCYWH)
# Swaps x and y of two corners.
X_Y = [1, 0, 3, 2]
# PIL modes whose values index colours and can't be interpolated.
NAMED_COLORS = ("1", "P", "PA")
# Advice where samples can't be counted, and where a number is repeated in an epoch.
COUNTING = (
    "Give `number_getter`, which gets a number from the sample, or leave out `seed`: the random "
    "state of torch is then used, which differs between workers."
)
REPEATS = (
    "Call set_epoch(epoch) before each epoch, or leave out `number_getter`: every sample then gets "
    "a new warp."
)


class FixedWarp(Transform):  # type: ignore[misc]  # torchvision has no types
    """Applies one warp to all parts of a sample: images, videos, masks, boxes and keypoints.

    Images (tensors, ``Image`` and PIL images) and videos are interpolated, with the same warp for
    all channels and frames. Masks use nearest-neighbour interpolation. Keypoints move by the exact
    inverse warp; boxes become the bounding boxes of their warped shapes. Other parts are unchanged.

    Parameters
    ----------
    space : WarpSpace
        With two axes.
    theta : (d,)
    interpolation, fill, fill_value
        As for :meth:`dreamwarp.Warp.image`.
    mask_fill_value : number
        Fill value of masks for ``fill="constant"``.

    Notes
    -----
    Rotated boxes raise an error: after a warp they are not boxes.
    """

    def __init__(
        self,
        space: WarpSpace,
        theta: ArrayLike,
        *,
        interpolation: Interpolation = "linear",
        fill: Fill = "edge",
        fill_value: float = 0,
        mask_fill_value: float = 0,
    ) -> None:
        super().__init__()
        check_plane(space)
        self.warp = Warp(space, torch.as_tensor(theta).detach().cpu().numpy())
        if self.warp.theta.ndim != 1:
            raise ValueError(
                f"`theta` must have shape ({space.dim},), got {self.warp.theta.shape}. "
                "Use dreamwarp.torch.LearnedWarp for batches."
            )
        self.interpolation = check_choice("interpolation", interpolation, INTERPOLATIONS)
        self.fill = check_choice("fill", fill, FILLS)
        self.fill_value = fill_value
        self.mask_fill_value = mask_fill_value

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Warp one part of a sample."""
        if not self.warp.theta.any() or (isinstance(inpt, Tensor) and inpt.numel() == 0):
            return inpt
        if isinstance(inpt, PILImage.Image):
            return self._picture(inpt)
        if isinstance(inpt, BoundingBoxes):
            return self._boxes(inpt)
        plain = inpt.as_subclass(Tensor)
        if isinstance(inpt, KeyPoints):
            return tv_tensors.wrap(self._points(plain, inpt.canvas_size), like=inpt)
        if isinstance(inpt, Mask):
            return tv_tensors.wrap(self._pixels(plain, "nearest", self.mask_fill_value), like=inpt)
        return tv_tensors.wrap(self._pixels(plain, self.interpolation, self.fill_value), like=inpt)

    def _pixels(self, values: Tensor, interpolation: Interpolation, fill_value: float) -> Tensor:
        """Warp images, frames or masks (..., height, width)."""
        if values.ndim < 2:
            raise ValueError(
                f"an image must have shape (..., height, width), got {tuple(values.shape)}. If "
                "this tensor is no image, wrap the image in torchvision.tv_tensors.Image."
            )
        flat = values.reshape(1, -1, *values.shape[-2:])
        warped = warp(
            self.warp.space, self._theta(working_dtype(flat), flat.device), flat, fill=self.fill,
            interpolation=interpolation, fill_value=fill_value, keep_range=True,
        )  # fmt: skip
        return warped.reshape(values.shape)

    def _picture(self, image: PILImage.Image) -> PILImage.Image:
        """Warp a PIL image of any mode; palette and metadata are kept."""
        values = np.asarray(image)
        planes = values[None, None] if values.ndim == 2 else np.moveaxis(values, -1, 0)[None]
        warped = self.warp.image(
            planes, fill=self.fill, fill_value=self.fill_value, n_threads=n_threads(),
            interpolation="nearest" if image.mode in NAMED_COLORS else self.interpolation,
            keep_range=True,
        )[0]  # fmt: skip
        pixels = np.packbits(warped[0], axis=1) if image.mode == "1" else np.moveaxis(warped, 0, -1)
        out = image.copy()
        out.frombytes(np.ascontiguousarray(pixels).tobytes())
        return out

    def _points(self, points: Tensor, canvas_size: tuple[int, int]) -> Tensor:
        """Move keypoints (..., 2): x, y."""
        size = torch.tensor(canvas_size, dtype=torch.float64, device=points.device)
        places = (points.reshape(-1, 2).flip(-1).double() + 0.5) / size
        moved = flow(self.warp.space, -self._theta(torch.float64, points.device), places)
        if self.warp.space.boundary == "periodic":
            moved = moved % 1.0
        return _in_dtype_of(points, (moved * size - 0.5).flip(-1))

    def _boxes(self, boxes: Any) -> Any:
        if boxes.format not in FORMATS:
            raise ValueError(
                f"boxes must have one of the formats {', '.join(f.value for f in FORMATS)}, got "
                f"{boxes.format.value}. Convert them with ConvertBoundingBoxFormat, or pass their "
                "corners as KeyPoints."
            )
        plain, size = boxes.as_subclass(Tensor), np.tile(boxes.canvas_size, 2)
        flat = plain.detach().reshape(-1, 4).double().cpu()
        corners = F.convert_bounding_box_format(flat, boxes.format, CORNERS)
        moved = self.warp.boxes(corners.numpy()[:, X_Y] / size, n_threads=n_threads()) * size
        out = F.convert_bounding_box_format(torch.from_numpy(moved[:, X_Y]), CORNERS, boxes.format)
        return F.clamp_bounding_boxes(tv_tensors.wrap(_in_dtype_of(plain, out), like=boxes))

    def _theta(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.tensor(self.warp.theta, dtype=dtype, device=device)


class LearnedWarp(Transform):  # type: ignore[misc]  # torchvision has no types
    """Applies a random warp of its class to all parts of a sample, as :class:`FixedWarp` does.

    For batches, with one warp per image, use :class:`dreamwarp.torch.LearnedWarp`. Like other
    transforms, this one is the same in training and evaluation mode.

    Parameters
    ----------
    model : WarpModel
        Of images, with two axes.
    labels_getter : "default", callable or None
        Gets the label from a sample. ``"default"``: the second item of a tuple or list; in a
        mapping, the entry "labels", else the first with "label" in its name. Several labels are
        allowed if all are equal. None: no label, warps of all classes pooled.
    number_getter : callable, optional
        Gets a unique number, such as the index, from a sample. The warp then depends only on
        (seed, epoch, number, label): call :meth:`set_epoch` before each epoch. A number repeated
        within an epoch gets the same warp, and a warning.
    template_getter : callable, optional
        For models of kind ``"template"``: gets the index among the samples of the fit from a
        sample, -1 for others.
    seed : int or numpy.random.Generator, optional
        Default with ``number_getter``: 0. Default without: torch's random state is used, as in all
        torchvision transforms; ``torch.manual_seed`` repeats it, and in a DataLoader it depends on
        the number of workers. With a seed but no ``number_getter``, samples are numbered in order
        of arrival, from 0 after each :meth:`set_epoch`; this raises an error in DataLoader workers,
        which have no common counter.
    mask_fill_value : number
        Fill value of masks for ``fill="constant"``.
    **options
        ``p``, ``strength``, ``spectrum_power``, ``unknown``, ``classes``, ``interpolation``,
        ``fill`` and ``fill_value``, as for :class:`dreamwarp.torch.LearnedWarp`. With
        ``unknown="pool"``, samples without a label or with several get the warps of all classes
        pooled.

    Examples
    --------
    >>> transforms = v2.Compose([v2.ToImage(), LearnedWarp(model, p=0.9)])
    >>> image, label = transforms(image, label)

    Pass it to a data set as ``transforms=``, which gets labels too. Data sets for classification
    have only ``transform=``, which gets no labels: use :class:`dreamwarp.torch.WarpedDataset` for
    them.
    """

    def __init__(
        self,
        model: WarpModel,
        *,
        labels_getter: Callable[[Any], Any] | str | None = "default",
        number_getter: Callable[[Any], int] | None = None,
        template_getter: Callable[[Any], int] | None = None,
        seed: Seed = None,
        mask_fill_value: float = 0,
        **options: Unpack[WarpOptions],
    ) -> None:
        super().__init__()
        if labels_getter is None:
            options["unknown"] = "pool"
        elif labels_getter != "default" and not callable(labels_getter):
            raise ValueError(
                f'`labels_getter` must be "default", a callable or None, got {labels_getter!r}.'
            )
        self._warps = EpochWarps(model, seed=0 if seed is None else seed, **options)
        check_plane(model.space)
        self._labels_getter = find_labels if isinstance(labels_getter, str) else labels_getter
        self.number_getter = number_getter
        self._has_seed = seed is not None
        self.template_getter = template_getter
        self.mask_fill_value = mask_fill_value

    def set_epoch(self, epoch: int) -> None:
        """Draw the warps of this epoch from now on, in all processes.

        Has no effect if torch's random state is used.
        """
        self._warps.epoch.set(epoch)

    def forward(self, *inputs: Any) -> Any:
        """Warp a sample."""
        sample = inputs if len(inputs) > 1 else inputs[0]
        theta = self.draw(sample)
        return self.fixed(theta)(sample) if theta.any() else sample

    def draw(self, sample: Any) -> NDArray[np.float64]:
        """Draw θ (d,) for a sample; 0 means no warp."""
        warps, getter, labels = self._warps, self.template_getter, self._find_label(sample)
        of = None if getter is None else [_whole("template_getter", getter(sample))]
        if self.number_getter is not None:
            number = _whole("number_getter", self.number_getter(sample))
            return warps.draw_numbered(labels, [number], REPEATS, of)[0]
        if self._has_seed:
            number, key = warps.epoch.count_on(1, COUNTING), warps.epoch_key
        else:
            number, key = 0, int(torch.randint(2**63 - 1, ()).item())
        return warps.draw(labels, [number], key=key, templates=of)[0]

    def fixed(self, theta: ArrayLike) -> FixedWarp:
        """Make the transform that applies θ with the options of this one, to repeat a draw."""
        warps = self._warps
        return FixedWarp(
            warps.model.space, theta, interpolation=warps.interpolation, fill=warps.fill,
            fill_value=warps.fill_value, mask_fill_value=self.mask_fill_value,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """What ``print`` shows between the brackets."""
        return repr(self._warps)

    def _find_label(self, sample: Any) -> list[Any] | None:
        """Return the label of a sample; None if it has none or several and those are pooled."""
        labels = [] if self._labels_getter is None else distinct(self._labels_getter(sample))
        if len(labels) != 1 and self._warps.unknown == "error":
            listed = ", ".join(map(repr, labels)) or "none"
            raise ValueError(
                f"a sample must have one label, or equal labels, got {listed}. Use "
                'unknown="pool" to give such samples the warps of all classes, labels_getter=None '
                "to do so for all samples, or a `labels_getter` that finds the label. A data "
                "set's `transform` gets no labels: use its `transforms` or, if it has none, "
                "dreamwarp.torch.WarpedDataset; for batches, dreamwarp.torch.LearnedWarp."
            )
        return labels if len(labels) == 1 else None


# -- helpers


def check_plane(space: WarpSpace) -> None:
    """Raise unless the space has two axes."""
    if space.ndim != 2:
        raise ValueError(
            f"torchvision's images need a space with 2 axes, got {space!r}. "
            "Use dreamwarp.torch.LearnedWarp for signals and volumes."
        )


def find_labels(sample: Any) -> Any:
    """Find the labels in a sample, or None; see ``labels_getter`` of :class:`LearnedWarp`."""
    is_sequence = isinstance(sample, list | tuple) and len(sample) > 1
    found = sample[1] if is_sequence else sample
    if not isinstance(found, Mapping):
        return found if is_sequence else None
    names = [name for name in found if "label" in str(name).lower()]
    exact = [name for name in names if str(name).lower() == "labels"]
    return found[(exact or names)[0]] if names else None


def distinct(labels: Any) -> list[Any]:
    """Return the distinct labels; none for values that can't be labels, such as masks."""
    if labels is None or isinstance(labels, TVTensor):
        return []
    if isinstance(labels, Tensor | np.ndarray | np.generic):
        labels = labels.tolist()
    several = labels if isinstance(labels, list | tuple) else [labels]
    if not all(isinstance(label, Hashable) for label in several):
        return []
    return list(dict.fromkeys(several))


def _whole(name: str, value: Any) -> int:
    """Return an integer that a user's function returned, or raise."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"`{name}` must return an integer, such as the index of the sample, got {value!r}."
        ) from None


def _in_dtype_of(like: Tensor, values: Tensor) -> Tensor:
    """Give values the shape, device and dtype of a tensor; round them for integers."""
    rounded = values if like.is_floating_point() else values.round()
    return rounded.reshape(like.shape).to(like.device, like.dtype)


def __dir__() -> list[str]:
    return public_names(globals())
