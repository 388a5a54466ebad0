"""Draw random warps by sample number, and apply them to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dreamwarp.core.defaults import NETWORK_INTERPOLATION, NETWORK_SPECTRUM_POWER
from dreamwarp.core.draws import Seed, Stream, as_key, check_numbers, uniforms
from dreamwarp.core.samples import check_layout
from dreamwarp.core.validation import check_choice, check_fraction
from dreamwarp.model import Label, WarpModel
from dreamwarp.model.strength import resolve_network_strength
from dreamwarp.model.warpmodel import Unknown
from dreamwarp.space.resample import FILLS, INTERPOLATIONS, Fill, Interpolation
from dreamwarp.torch.compiled_engine import n_threads
from dreamwarp.torch.functional import check_theta, warp, working_dtype

# Names of label types, for messages.
KIND_NAMES = {str: "strings", int: "integers", bool: "booleans"}


class WarpOptions(TypedDict, total=False):
    """Options of :class:`RandomWarps`."""

    p: float
    strength: float | None
    spectrum_power: float
    unknown: Unknown
    classes: Sequence[Label] | None
    interpolation: Interpolation | Literal["auto"]
    fill: Fill
    fill_value: float


class RandomWarps:
    """Draws a warp for every sample from the distribution of its class, and applies it.

    Immutable and without tensors, so that it can be sent to other processes. Options are those of
    :class:`dreamwarp.torch.LearnedWarp`; a generator as ``seed`` is used once, here.
    """

    def __init__(
        self,
        model: WarpModel,
        *,
        seed: Seed = 0,
        p: float = 1.0,
        strength: float | None = None,
        spectrum_power: float = NETWORK_SPECTRUM_POWER,
        unknown: Unknown = "error",
        classes: Sequence[Label] | None = None,
        interpolation: Interpolation | Literal["auto"] = "auto",
        fill: Fill = "edge",
        fill_value: float = 0,
    ) -> None:
        if not isinstance(model, WarpModel):
            raise TypeError(
                f"`model` must be a WarpModel, got {type(model).__name__}. "
                "Make one with WarpModel.fit or WarpModel.load, or pass `augmenter.model_`."
            )
        self.model = model
        self.strength = resolve_network_strength(model, strength)
        self.key = as_key(seed)
        self.p = check_fraction("p", p)
        self.spectrum_power = check_fraction("spectrum_power", spectrum_power)
        self.unknown = check_choice("unknown", unknown, ("error", "pool"))
        self.classes = None if classes is None else _check_known(classes, self.model, unknown)
        check_choice("interpolation", interpolation, ("auto", *INTERPOLATIONS))
        self.interpolation: Interpolation = (
            NETWORK_INTERPOLATION[model.space.ndim] if interpolation == "auto" else interpolation
        )
        self.fill = check_choice("fill", fill, FILLS)
        self.fill_value = fill_value

    def __repr__(self) -> str:
        return (
            f"{self.model!r}, strength={self.strength:.3g}, p={self.p:g}, unknown={self.unknown!r}"
        )

    @cached_property
    def flattened_model(self) -> WarpModel:
        """The distribution of the warps, before ``strength``."""
        return self.model.flattened(self.spectrum_power)

    def draw(
        self, labels: Any, numbers: ArrayLike, *, key: int, templates: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Draw θ (n, d): row i depends only on (key, numbers[i], labels[i]); 0 means no warp.

        ``labels`` (n,) are a tensor, array or list, or None for all classes pooled; ``templates``
        (n,) are as for :meth:`WarpModel.draw`.
        """
        theta = self.strength * self.flattened_model.draw(
            self._model_labels(labels), numbers, seed=key, templates=templates,
            unknown=self.unknown, n_threads=n_threads(),
        )  # fmt: skip
        if self.p < 1.0:
            chances = uniforms(key, numbers, 1, stream=Stream.APPLY, n_threads=n_threads())
            theta[chances[:, 0] >= self.p] = 0.0
        return theta

    def apply(self, theta: Tensor | NDArray[np.float64], images: Tensor) -> Tensor:
        """Warp images (n, *spatial) or (n, channels, *spatial), each by its θ (n, d).

        Images with θ = 0 are returned bit for bit, unless θ requires a gradient.
        """
        rows = self.check_theta(theta, images)
        moves = rows.any(dim=1)
        if rows.requires_grad or moves.all():
            return self._warp(rows, images)
        out = images.clone()
        if moves.any():
            out[moves] = self._warp(rows[moves], images[moves])
        return out

    def check_images(self, images: Any) -> None:
        """Raise unless images are a batch of samples for the model's space."""
        check_tensor(images)
        check_layout("images", images.shape, self.model.space.ndim)

    def check_theta(self, theta: Tensor | NDArray[np.float64], images: Tensor) -> Tensor:
        """Return θ as (n, d) for n images, on their device and in their working dtype."""
        rows = check_theta(self.model.space, torch.as_tensor(theta))
        if len(rows) not in (1, len(images)):
            raise ValueError(
                f"`theta` must have one row for each of {len(images)} images, or a single row, got "
                f"{len(rows)}."
            )
        return rows.to(images.device, working_dtype(images)).expand(len(images), -1)

    def _warp(self, theta: Tensor, images: Tensor) -> Tensor:
        space = self.model.space
        has_channels = images.ndim == space.ndim + 2
        warped = warp(
            space, theta, images if has_channels else images.unsqueeze(1),
            interpolation=self.interpolation, fill=self.fill, fill_value=self.fill_value,
            keep_range=True,
        )  # fmt: skip
        return _in_layout_of(images, warped if has_channels else warped.squeeze(1))

    def _model_labels(self, labels: Any) -> Any:
        """Return labels (n,) of the model, or None."""
        if labels is None:
            if self.unknown == "error":
                raise ValueError(
                    'labels must be given, got None. Use unknown="pool" for the warps of all '
                    "classes."
                )
            return None
        values = _label_array(labels)
        if self.classes is not None:
            values = _look_up(values, self.classes)
        kind = type(self.model.classes[0])
        if values.size and values.dtype.kind not in ("UO" if kind is str else "biuO"):
            raise TypeError(
                f"labels must be {KIND_NAMES[kind]}, as the classes of the model are, such as "
                f"{self.model.classes[0]!r}, got {values[0].item()!r}. "
                "Use `classes` if labels are indices."
            )
        return labels if isinstance(labels, list | tuple) and self.classes is None else values


def check_numbers_of(images: Tensor, numbers: Any) -> NDArray[np.int64]:
    """Return sample numbers (n,), one for each of n images; raise if they are invalid."""
    rows = check_numbers(numbers.cpu().numpy() if isinstance(numbers, Tensor) else numbers)
    if len(rows) != len(images):
        raise ValueError(
            f"`numbers` must have one entry for each of {len(images)} images, got {len(rows)}."
        )
    return rows


def check_tensor(image: Any) -> None:
    """Raise unless an image is a tensor."""
    if not isinstance(image, Tensor):
        raise TypeError(
            f"images must be tensors, got {type(image).__name__}. Convert them, or use "
            "dreamwarp.torchvision.LearnedWarp, which takes PIL images too."
        )


def _in_layout_of(images: Tensor, warped: Tensor) -> Tensor:
    """Give warped images the channels-last memory format if the images have it."""
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(images.ndim)
    if layout is None or images.is_contiguous() or not images.is_contiguous(memory_format=layout):
        return warped
    return warped.contiguous(memory_format=layout)


def _label_array(labels: Any) -> NDArray[Any]:
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.ndim != 1 or (values.size and values.dtype.kind == "f"):
        remedy = "labels.long()" if values.ndim == 1 else "labels.argmax(dim=1) for one-hot labels"
        raise ValueError(
            f"labels must be (n,) classes, one for each image, got {values.dtype} of shape "
            f"{values.shape}. Use {remedy}."
        )
    return values


def _look_up(positions: NDArray[Any], classes: Sequence[Label]) -> NDArray[Any]:
    """Return the classes at positions (n,)."""
    if positions.size and positions.dtype.kind not in "iu":
        raise TypeError(
            f"labels must be indices into `classes`, got {positions[0].item()!r}. "
            "Leave out `classes` if labels are those of the model."
        )
    if positions.size and not 0 <= positions.min() <= positions.max() < len(classes):
        wrong = positions[(positions < 0) | (positions >= len(classes))][0]
        raise ValueError(
            f"labels must be indices into `classes`, from 0 to {len(classes) - 1}, got {wrong}."
        )
    return np.array(classes)[positions.astype(np.int64)]


def _check_known(classes: Sequence[Label], model: WarpModel, unknown: Unknown) -> tuple[Label, ...]:
    names = tuple(classes)
    strange = [name for name in names if name not in model.classes]
    if not names or len(strange) == len(names) or (strange and unknown == "error"):
        found = f"got {strange[0]!r}" if strange else "got none"
        raise ValueError(
            f"`classes` must list labels that the model has, such as {model.classes[0]!r}, {found}."
        )
    return names
