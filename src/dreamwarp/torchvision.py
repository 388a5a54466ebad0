"""Warps for torchvision: transforms of its second version, that keep a whole sample in step.

torchvision counts pixels in two ways, of which dreamwarp's unit domain knows neither: a box ends at
the borders of pixels, so that 0 to the width is the whole image, and a keypoint is at the centre of
a pixel, so that it is 0 to the width - 1. Both list x before y. All of that is converted here.
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
from dreamwarp.space.resample import INTERPOLATIONS, Interpolation
from dreamwarp.space.warp import Warp
from dreamwarp.torch.compiled_engine import n_threads
from dreamwarp.torch.drawing import Fill, RandomWarps, WarpOptions
from dreamwarp.torch.epochs import SharedEpoch
from dreamwarp.torch.images import warp
from dreamwarp.torch.points import flow, working_dtype

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["FixedWarp", "LearnedWarp"]

CORNERS = BoundingBoxFormat.XYXY
FORMATS = (BoundingBoxFormat.XYXY, BoundingBoxFormat.XYWH, BoundingBoxFormat.CXCYWH)
# x and y of two corners to y and x, and back.
X_Y = [1, 0, 3, 2]
# Modes of PIL images whose numbers are names of colours, and have no mean.
NAMED_COLORS = ("1", "P", "PA")
# What to do where samples can't be counted, and where a number comes again in an epoch.
COUNTING = (
    "Give `number_getter`, which finds a number in the sample, or leave out `seed`: randomness is "
    "then torch's own, and every worker has its own seed."
)
REPEATS = (
    "Call set_epoch(epoch) before each epoch, or leave out `number_getter`: every sample that "
    "comes then has a warp of its own."
)


class FixedWarp(Transform):  # type: ignore[misc]  # torchvision has no types
    """Applies one warp to all of a sample: images, videos, masks, boxes and keypoints.

    Images (tensors, ``Image`` and PIL images) and videos are interpolated, all channels and frames
    alike. Masks take the nearest label. Keypoints move by the inverse warp, exactly; boxes become
    the smallest boxes round their warped selves. All else passes through.

    Parameters
    ----------
    space : WarpSpace
        Of two axes.
    theta : (d,)
    interpolation, fill, fill_value
        As for :func:`dreamwarp.torch.warp`.
    mask_fill_value : number
        What masks are filled with where ``fill="constant"``.

    Notes
    -----
    Rotated boxes are refused: warped, they are none.
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
        self.fill = check_choice("fill", fill, ("edge", "constant", "reflect"))
        self.fill_value = fill_value
        self.mask_fill_value = mask_fill_value

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part of a sample, warped."""
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
        """Images, frames or masks (..., height, width), all warped alike."""
        if values.ndim < 2:
            raise ValueError(
                f"an image must have shape (..., height, width), got {tuple(values.shape)}. If "
                "this tensor is no image, wrap the one that is in torchvision.tv_tensors.Image."
            )
        flat = values.reshape(1, -1, *values.shape[-2:])
        warped = warp(
            self.warp.space, self._theta(working_dtype(flat), flat.device), flat,
            interpolation=interpolation, fill=self.fill, fill_value=fill_value,
        )  # fmt: skip
        return warped.reshape(values.shape)

    def _picture(self, image: PILImage.Image) -> PILImage.Image:
        """A PIL image of any mode; palette and other belongings are kept."""
        values = np.asarray(image)
        planes = values[None, None] if values.ndim == 2 else np.moveaxis(values, -1, 0)[None]
        warped = self.warp.image(
            planes, fill=self.fill, fill_value=self.fill_value, n_threads=n_threads(),
            interpolation="nearest" if image.mode in NAMED_COLORS else self.interpolation,
        )[0]  # fmt: skip
        pixels = np.packbits(warped[0], axis=1) if image.mode == "1" else np.moveaxis(warped, 0, -1)
        out = image.copy()
        out.frombytes(np.ascontiguousarray(pixels).tobytes())
        return out

    def _points(self, points: Tensor, canvas_size: tuple[int, int]) -> Tensor:
        """Keypoints (..., 2): x, y."""
        size = torch.tensor(canvas_size, dtype=torch.float64, device=points.device)
        places = (points.reshape(-1, 2).flip(-1).double() + 0.5) / size
        moved = flow(self.warp.space, -self._theta(torch.float64, points.device), places)
        if self.warp.space.boundary == "periodic":
            moved = moved % 1.0
        return _in_dtype_of(points, (moved * size - 0.5).flip(-1))

    def _boxes(self, boxes: Any) -> Any:
        if boxes.format not in FORMATS:
            raise ValueError(
                f"boxes must be of a format without rotation, {', '.join(f.value for f in FORMATS)}"
                f", got {boxes.format.value}: warped, a rotated box is none. Convert them with "
                "ConvertBoundingBoxFormat, or pass their corners as KeyPoints."
            )
        height, width = boxes.canvas_size
        plain = boxes.as_subclass(Tensor)
        corners = F.convert_bounding_box_format(
            plain.detach().reshape(-1, 4).double().cpu(),
            old_format=boxes.format,
            new_format=CORNERS,
        )
        size = np.array([height, width, height, width])
        moved = self.warp.boxes(corners.numpy()[:, X_Y] / size, n_threads=n_threads()) * size
        out = F.convert_bounding_box_format(
            torch.from_numpy(moved[:, X_Y]), old_format=CORNERS, new_format=boxes.format
        )
        return F.clamp_bounding_boxes(tv_tensors.wrap(_in_dtype_of(plain, out), like=boxes))

    def _theta(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.tensor(self.warp.theta, dtype=dtype, device=device)


class LearnedWarp(Transform):  # type: ignore[misc]  # torchvision has no types
    """Warps a sample at random, as the members of its class differ.

    One warp for all of the sample: images, videos (all frames alike), masks, boxes and keypoints
    stay in step, as :class:`FixedWarp` says. For batches, with a warp for each image, there is
    :class:`dreamwarp.torch.LearnedWarp`. Like other transforms this one makes no difference between
    training and evaluation mode.

    Parameters
    ----------
    model : WarpModel
        Of images: two axes.
    labels_getter : "default", callable or None
        Finds the label in a sample. ``"default"``: the second item of a tuple or list, or in it, or
        in a sample that is a mapping, what is called "labels", else what has "label" in its name.
        Labels of many objects will do if they are all the same. None: no label, warps of all
        classes.
    number_getter : callable, optional
        Finds a number in a sample that no other sample has, such as its index. Its warp then
        depends on (seed, epoch, number, label) alone: call :meth:`set_epoch` before each epoch. A
        number that comes again without gets the same warp again, and a warning.
    template_getter : callable, optional
        For models of kind ``"template"``: finds in a sample which sample of the fit it is, -1 for
        none.
    seed : int or numpy.random.Generator, optional
        Default: 0 with ``number_getter``. Without, randomness is then torch's own, as in all
        transforms of torchvision: ``torch.manual_seed`` repeats it, and in a DataLoader it depends
        on the number of workers. With a seed but no ``number_getter``, samples are numbered as they
        come, from 0 at each :meth:`set_epoch`; not so in workers of a DataLoader, which know
        nothing of each other's count and raise an error.
    mask_fill_value : number
        What masks are filled with where ``fill="constant"``.
    **options
        ``p``, ``strength``, ``unknown``, ``classes``, ``interpolation``, ``fill`` and
        ``fill_value``, as for :class:`dreamwarp.torch.LearnedWarp`. With ``unknown="pool"`` samples
        without a label, or with objects of several classes, get warps of all classes; so do those
        in which ``"default"`` finds none.

    Examples
    --------
    >>> transforms = v2.Compose([v2.ToImage(), LearnedWarp(model, p=0.9)])
    >>> image, label = transforms(image, label)

    It goes into a data set as ``transforms=``, which sees labels too. Data sets for classification
    have only ``transform=``, which does not: for them there is
    :class:`dreamwarp.torch.WarpedDataset`.
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
        self._warps = RandomWarps(model, seed=0 if seed is None else seed, **options)
        check_plane(model.space)
        self._labels_getter = find_labels if isinstance(labels_getter, str) else labels_getter
        self.number_getter = number_getter
        self._has_seed = seed is not None
        self.template_getter = template_getter
        self.mask_fill_value = mask_fill_value
        self._epoch = SharedEpoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Draw other warps for the same numbers from here on, in all processes.

        Makes no difference where randomness is torch's own.
        """
        self._epoch.set(epoch)

    def forward(self, *inputs: Any) -> Any:
        """The sample, warped."""
        sample = inputs if len(inputs) > 1 else inputs[0]
        theta = self.draw(sample)
        return self.fixed(theta)(sample) if theta.any() else sample

    def draw(self, sample: Any) -> NDArray[np.float64]:
        """θ (d,) for a sample; 0 if it is to be left as it is."""
        label = self._find_label(sample)
        labels = None if label is None else [label]
        key, number = self._key_and_number(sample)
        getter = self.template_getter
        of = None if getter is None else [_whole("template_getter", getter(sample))]
        theta = self._warps.draw(labels, [number], key=key, templates=of)[0]
        if self.number_getter is not None:
            self._epoch.warn_of_repeats([number], REPEATS)
        return theta

    def fixed(self, theta: ArrayLike) -> FixedWarp:
        """The transform that applies a warp, with the options of this one: to repeat a draw."""
        warps = self._warps
        return FixedWarp(
            warps.model.space, theta, interpolation=warps.interpolation, fill=warps.fill,
            fill_value=warps.fill_value, mask_fill_value=self.mask_fill_value,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """What ``print`` shows between the brackets."""
        return repr(self._warps)

    def _key_and_number(self, sample: Any) -> tuple[int, int]:
        """What the warp of a sample depends on, besides its label."""
        if self.number_getter is not None:
            number = _whole("number_getter", self.number_getter(sample))
        elif self._has_seed:
            number = self._epoch.count_on(1, COUNTING)
        else:
            return int(torch.randint(2**63 - 1, ()).item()), 0
        return self._warps.epoch_key(self._epoch.get()), number

    def _find_label(self, sample: Any) -> Any:
        """The one label of a sample; None if it has none or many, and that will do."""
        try:
            different = [] if self._labels_getter is None else distinct(self._labels_getter(sample))
        except LabelNotFoundError:
            if self._warps.unknown == "error":
                raise
            return None
        if len(different) == 1:
            return different[0]
        if self._warps.unknown == "error":
            listed = ", ".join(map(repr, different)) or "none"
            raise ValueError(
                f"a sample must have one label, or the same for all its objects, got {listed}. "
                'Use unknown="pool" for the warps of all classes, or labels_getter to choose one; '
                "for batches use dreamwarp.torch.LearnedWarp."
            )
        return None


# -- parts of the above


def check_plane(space: WarpSpace) -> None:
    """Raise unless a space has two axes."""
    if space.ndim != 2:
        raise ValueError(
            f"torchvision's images need a space with 2 axes, got {space!r}. "
            "Use dreamwarp.torch.LearnedWarp for signals and volumes."
        )


class LabelNotFoundError(ValueError):
    """Nothing in a sample looks like a label."""


def find_labels(sample: Any) -> Any:
    """Whatever in a sample looks like its labels."""
    found = sample
    if isinstance(sample, list | tuple) and len(sample) > 1:
        found = sample[1]
    if isinstance(found, Mapping):
        names = [name for name in found if "label" in str(name).lower()]
        exact = [name for name in names if str(name).lower() == "labels"]
        if names:
            return found[(exact or names)[0]]
    elif found is not sample:
        return found
    raise LabelNotFoundError(
        "no label was found in the sample, which must be (image, label) or a mapping with a label. "
        'Pass `labels_getter` to find it; unknown="pool" gives samples without one the warps of '
        "all classes, labels_getter=None gives them to all samples. In a data set's `transform` "
        "there are no labels: use its `transforms`, or where it has none, "
        "dreamwarp.torch.WarpedDataset."
    )


def distinct(labels: Any) -> list[Any]:
    """The different labels among one or many; none among what can't be labels, such as masks."""
    if labels is None or isinstance(labels, TVTensor):
        return []
    if isinstance(labels, Tensor | np.ndarray | np.generic):
        labels = labels.tolist()
    several = labels if isinstance(labels, list | tuple) else [labels]
    if not all(isinstance(label, Hashable) for label in several):
        return []
    return list(dict.fromkeys(several))


def _whole(name: str, value: Any) -> int:
    """What a function of the user returned, if it is a whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"`{name}` must return a whole number, such as the index of the sample, got {value!r}."
        ) from None


def _in_dtype_of(like: Tensor, values: Tensor) -> Tensor:
    """Values in the shape, device and dtype of a tensor, rounded if it holds whole numbers."""
    rounded = values if like.is_floating_point() else values.round()
    return rounded.reshape(like.shape).to(like.device, like.dtype)


def __dir__() -> list[str]:
    return public_names(globals())
