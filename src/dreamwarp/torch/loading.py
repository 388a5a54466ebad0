"""Warps in the workers of a DataLoader: the same whatever their number, and however they start."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from dreamwarp.core.draws import Seed
from dreamwarp.model import WarpModel
from dreamwarp.model.warpmodel import check_templates
from dreamwarp.torch.drawing import RandomWarps, WarpOptions, check_tensor
from dreamwarp.torch.epochs import SharedEpoch

if TYPE_CHECKING:
    from typing_extensions import Unpack


# What to do when an index comes again in an epoch.
REPEATS = (
    "Call set_epoch(epoch) before each epoch. With a sampler that draws with replacement use "
    "dreamwarp.torch.LearnedWarp on batches, which warps every image that comes anew."
)


class _NumberedWarps:
    """Warps images in samples, or in batches of them, by their index in the data set."""

    def __init__(
        self,
        model: WarpModel,
        *,
        seed: Seed,
        epoch: int,
        keys: Sequence[Any],
        templates: Sequence[int] | None,
        **options: Unpack[WarpOptions],
    ) -> None:
        if isinstance(keys, str) or len(keys) != 2:
            raise ValueError(
                "`keys` must be two: where the image is in a sample, and where its label, got "
                f"{keys!r}."
            )
        self._warps = RandomWarps(model, seed=seed, **options)
        self._epoch = SharedEpoch(epoch)
        self._image_key, self._label_key = keys
        self._templates = None if templates is None else check_templates(templates, len(templates))

    @property
    def epoch(self) -> int:
        """The epoch that warps are drawn for."""
        return self._epoch.get()

    def set_epoch(self, epoch: int) -> None:
        """Draw other warps from here on. Call it before an epoch's ``iter(loader)``.

        Workers that live on (``persistent_workers``) see the change too. Setting the same epoch
        again draws the same warps again.
        """
        self._epoch.set(epoch)

    def _draw(self, labels: Any, numbers: Sequence[int]) -> Tensor:
        templates = None if self._templates is None else self._templates_of(numbers)
        key = self._warps.epoch_key(self.epoch)
        theta = self._warps.draw(labels, numbers, key=key, templates=templates)
        self._epoch.warn_of_repeats(numbers, REPEATS)
        return torch.from_numpy(theta)

    def _templates_of(self, numbers: Sequence[int]) -> NDArray[np.int64]:
        assert self._templates is not None
        if max(numbers, default=-1) >= len(self._templates):
            raise ValueError(
                "`templates` must be one for each sample of the data set, got "
                f"{len(self._templates)}, and none for sample {max(numbers)}."
            )
        return self._templates[numbers]

    def _warp(self, theta: Tensor, images: Tensor) -> Tensor:
        self._warps.check_images(images)
        return self._warps.apply(self._warps.check_theta(theta, images), images)

    def _parts(self, sample: Any) -> tuple[Any, Any]:
        """Image and label of a sample, or images and labels of a batch."""
        try:
            return sample[self._image_key], (
                None if self._label_key is None else sample[self._label_key]
            )
        except (KeyError, IndexError, TypeError):
            raise TypeError(
                f"samples must have an image at {self._image_key!r} and a label at "
                f"{self._label_key!r}, got {_outline(sample)}. Use `keys` to say where they are."
            ) from None

    def _put(self, sample: Any, image: Tensor) -> Any:
        """A sample of the same type with another image."""
        if isinstance(sample, Mapping):
            return {**sample, self._image_key: image}
        if hasattr(sample, "_replace"):
            return sample._replace(**{sample._fields[self._image_key]: image})
        parts = list(sample)
        parts[self._image_key] = image
        return parts if isinstance(sample, list) else tuple(parts)


class WarpedDataset(_NumberedWarps, Dataset[Any]):
    """A data set whose images are warped at random, as the members of their class differ.

    The warp of a sample depends on (seed, epoch, index, label) alone: not on the number of workers,
    nor on how they are started, nor on batches or their order.

    Parameters
    ----------
    dataset : Dataset
        With ``__getitem__`` and ``__len__``. Samples are (image, label, ...), as tuples, lists or,
        with ``keys``, mappings. Images are tensors, (*spatial) or (channels, *spatial).
    model : WarpModel
    seed : int, numpy.random.Generator or None
    epoch : int
        Every epoch has warps of its own. Say when one begins, or all repeat this one's, with a
        warning once an index comes again:

        >>> for epoch in range(n_epochs):
        ...     dataset.set_epoch(epoch)
        ...     for images, labels in loader: ...
    keys : (image, label)
        Where the image is in a sample, and where its label. A label at None is no label, and needs
        ``unknown="pool"``.
    templates : sequence of int, optional
        For models of kind ``"template"``: which sample of the fit each sample of the data set is,
        -1 for none. ``range(len(dataset))`` if they are the same.
    **options
        ``p``, ``strength``, ``unknown``, ``classes``, ``interpolation``, ``fill`` and
        ``fill_value``, as for :class:`LearnedWarp`.

    Notes
    -----
    A DataLoader asks for whole batches, which are warped in one go where all images are alike in
    size and dtype.

    With a sampler that draws with replacement (``WeightedRandomSampler``) an index comes several
    times in an epoch, each time with the same warp: workers can't tell one time from the next. For
    a warp of its own each time, use :class:`LearnedWarp` on batches, where images are counted as
    they come.
    """

    def __init__(
        self,
        dataset: Any,
        model: WarpModel,
        *,
        seed: Seed = 0,
        epoch: int = 0,
        keys: Sequence[Any] = (0, 1),
        templates: Sequence[int] | None = None,
        **options: Unpack[WarpOptions],
    ) -> None:
        check_indexable(dataset)
        if templates is not None and len(templates) != len(dataset):
            raise ValueError(
                f"`templates` must be one for each of {len(dataset)} samples, got {len(templates)}."
            )
        super().__init__(model, seed=seed, epoch=epoch, keys=keys, templates=templates, **options)
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples by index, as a DataLoader asks for them."""
        numbers = [positive_index(index, len(self)) for index in indices]
        samples = fetch(self.dataset, numbers)
        parts = [self._parts(sample) for sample in samples]
        labels = None if self._label_key is None else [_plain(label) for _, label in parts]
        theta = self._draw(labels, numbers)
        warped = self._warp_all(theta, [image for image, _ in parts])
        return [self._put(sample, image) for sample, image in zip(samples, warped, strict=True)]

    def _warp_all(self, theta: Tensor, images: Sequence[Any]) -> list[Tensor]:
        for image in images:
            check_tensor(image)
        if len({(image.shape, image.dtype, image.device) for image in images}) == 1:
            return list(self._warp(theta, torch.stack(list(images))))
        return [self._warp(row, image[None])[0] for row, image in zip(theta, images, strict=True)]


class Indexed(NamedTuple):
    """A sample and its index in the data set."""

    number: int
    sample: Any


class WithIndex(Dataset[Indexed]):
    """A data set whose samples know their index, as :class:`WarpCollate` needs them."""

    def __init__(self, dataset: Any) -> None:
        check_indexable(dataset)
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Indexed:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Indexed]:
        """Samples by index, as a DataLoader asks for them."""
        numbers = [positive_index(index, len(self)) for index in indices]
        return [Indexed(*pair) for pair in zip(numbers, fetch(self.dataset, numbers), strict=True)]


class WarpCollate(_NumberedWarps):
    """Makes a batch of samples and warps its images, as a ``collate_fn`` of a DataLoader.

    ``DataLoader(WithIndex(dataset), collate_fn=WarpCollate(model), ...)`` gives the batches that
    ``DataLoader(WarpedDataset(dataset, model), ...)`` does. Use it where images get their common
    size only when they are put together.

    Parameters
    ----------
    model, seed, epoch, templates, **options
        As for :class:`WarpedDataset`.
    keys : (image, label)
        Where images are in a batch, and where labels.
    collate_fn : callable
        Makes a batch of samples. Default: torch's own.
    """

    def __init__(
        self,
        model: WarpModel,
        *,
        seed: Seed = 0,
        epoch: int = 0,
        keys: Sequence[Any] = (0, 1),
        templates: Sequence[int] | None = None,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
        **options: Unpack[WarpOptions],
    ) -> None:
        super().__init__(model, seed=seed, epoch=epoch, keys=keys, templates=templates, **options)
        self.collate_fn = collate_fn

    def __call__(self, samples: Sequence[Any]) -> Any:
        """A batch of samples, warped."""
        if not all(isinstance(sample, Indexed) for sample in samples):
            raise TypeError(
                "samples must come with their index, which their warp depends on, got "
                f"{_outline(samples[0])}. Use DataLoader(WithIndex(dataset), ...)."
            )
        batch = self.collate_fn([sample.sample for sample in samples])
        images, labels = self._parts(batch)
        theta = self._draw(labels, [sample.number for sample in samples])
        return self._put(batch, self._warp(theta, images))


def check_indexable(dataset: Any) -> None:
    """Raise if samples of a data set have no index."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise TypeError(
            f"`dataset` must have __getitem__ and __len__, got {type(dataset).__name__}. Samples "
            "of a stream have no index: use LearnedWarp on its batches."
        )


def positive_index(index: Any, n: int) -> int:
    """Index from 0 to n - 1; -1 stands for the last."""
    number = operator.index(index)
    if not -n <= number < n:
        raise IndexError(f"index must be below {n}, the number of samples, got {number}.")
    return number + n if number < 0 else number


def fetch(dataset: Any, indices: list[int]) -> list[Any]:
    """Samples of a data set, all at once if it can."""
    if hasattr(dataset, "__getitems__"):
        return list(dataset.__getitems__(indices))
    return [dataset[index] for index in indices]


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, Tensor | np.generic) and label.ndim == 0 else label


def _outline(sample: Any) -> str:
    """A short description of a sample."""
    if isinstance(sample, Mapping):
        return f"a mapping with {', '.join(map(repr, sample))}"
    if isinstance(sample, list | tuple):
        return f"a {type(sample).__name__} of {', '.join(type(part).__name__ for part in sample)}"
    return f"a {type(sample).__name__}"
