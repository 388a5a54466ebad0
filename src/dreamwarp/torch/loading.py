"""Data sets and collate functions that warp in DataLoader workers, independent of their number."""

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
from dreamwarp.torch.drawing import WarpOptions, check_tensor
from dreamwarp.torch.epochs import EpochWarps

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Advice when an index is repeated in an epoch.
REPEATS = (
    "Call set_epoch(epoch) before each epoch. With a sampler that draws with replacement, use "
    "dreamwarp.torch.LearnedWarp on batches, which draws a new warp for every image."
)


class _NumberedWarps:
    """Warps images, in samples or batches, by their index in the data set."""

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
                f"`keys` must be two, the keys of image and label in a sample, got {keys!r}."
            )
        self._warps = EpochWarps(model, seed=seed, epoch=epoch, **options)
        self._image_key, self._label_key = keys
        self._templates = None if templates is None else check_templates(templates, len(templates))

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._warps.epoch.get()

    def set_epoch(self, epoch: int) -> None:
        """Draw the warps of this epoch from now on. Call it before the epoch's ``iter(loader)``.

        Persistent workers see the change too. The same epoch draws the same warps again.
        """
        self._warps.epoch.set(epoch)

    def _draw(self, labels: Any, numbers: Sequence[int]) -> NDArray[np.float64]:
        templates = self._templates
        if templates is not None and max(numbers, default=-1) >= len(templates):
            raise ValueError(
                "`templates` must have one entry for each sample of the data set, got "
                f"{len(templates)} and a sample with index {max(numbers)}."
            )
        chosen = None if templates is None else templates[numbers]
        return self._warps.draw_numbered(labels, numbers, REPEATS, chosen)

    def _warp(self, theta: NDArray[np.float64], images: Tensor) -> Tensor:
        self._warps.check_images(images)
        return self._warps.apply(theta, images)

    def _parts(self, sample: Any) -> tuple[Any, Any]:
        """Return image and label of a sample, or images and labels of a batch."""
        try:
            return sample[self._image_key], (
                None if self._label_key is None else sample[self._label_key]
            )
        except (KeyError, IndexError, TypeError):
            raise TypeError(
                f"samples must have an image at {self._image_key!r} and a label at "
                f"{self._label_key!r}, got {_outline(sample)}. Set `keys`."
            ) from None

    def _put(self, sample: Any, image: Tensor) -> Any:
        """Return a sample of the same type with another image."""
        if isinstance(sample, Mapping):
            return {**sample, self._image_key: image}
        if hasattr(sample, "_replace"):
            return sample._replace(**{sample._fields[self._image_key]: image})
        parts = list(sample)
        parts[self._image_key] = image
        return parts if isinstance(sample, list) else tuple(parts)


class _Wrapper(Dataset[Any]):
    """A data set around another one, fetched by batches."""

    def __init__(self, dataset: Any) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise TypeError(
                f"`dataset` must have __getitem__ and __len__, got {type(dataset).__name__}. For "
                "iterable data sets use LearnedWarp on batches."
            )
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples by index, as a DataLoader asks for them."""
        raise NotImplementedError

    def _fetch(self, indices: Sequence[int]) -> tuple[list[int], list[Any]]:
        """Return indices from 0 to n - 1, and their samples, all at once if possible."""
        n, numbers = len(self), []
        for index in map(operator.index, indices):
            if not -n <= index < n:
                raise IndexError(f"index must be below {n}, the number of samples, got {index}.")
            numbers.append(index % n)
        if hasattr(self.dataset, "__getitems__"):
            return numbers, list(self.dataset.__getitems__(numbers))
        return numbers, [self.dataset[number] for number in numbers]


class WarpedDataset(_NumberedWarps, _Wrapper):
    """A data set whose images are warped by random warps of their class.

    The warp of a sample depends only on (seed, epoch, index, label): not on workers, how they are
    started, batches or order.

    Parameters
    ----------
    dataset : Dataset
        With ``__getitem__`` and ``__len__``. Samples are (image, label, ...), as tuples, lists or,
        with ``keys``, mappings. Images are tensors, (*spatial) or (channels, *spatial).
    model : WarpModel
    seed : int, numpy.random.Generator or None
    epoch : int
        Every epoch has its own warps. Set it before each epoch; otherwise all epochs repeat the
        same warps, with a warning:

        >>> for epoch in range(n_epochs):
        ...     dataset.set_epoch(epoch)
        ...     for images, labels in loader: ...
    keys : (image, label)
        Keys of image and label in a sample. The label key None means no label, and needs
        ``unknown="pool"``.
    templates : sequence of int, optional
        For models of kind ``"template"``: index of each sample among those of the fit, -1 for
        others. ``range(len(dataset))`` if they are the same.
    **options
        ``p``, ``strength``, ``spectrum_power``, ``unknown``, ``classes``, ``interpolation``,
        ``fill`` and ``fill_value``, as for :class:`LearnedWarp`.

    Notes
    -----
    A DataLoader fetches batches, which are warped at once if all images have one size and dtype.

    With a sampler that draws with replacement (``WeightedRandomSampler``) an index repeated in an
    epoch gets the same warp, since workers can't count repetitions. To get a new warp each time,
    use :class:`LearnedWarp` on batches.
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
        _Wrapper.__init__(self, dataset)
        if templates is not None and len(templates) != len(dataset):
            raise ValueError(
                f"`templates` must have one entry for each of {len(dataset)} samples, got "
                f"{len(templates)}."
            )
        _NumberedWarps.__init__(
            self, model, seed=seed, epoch=epoch, keys=keys, templates=templates, **options
        )

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Warped samples by index."""
        numbers, samples = self._fetch(indices)
        parts = [self._parts(sample) for sample in samples]
        labels = None if self._label_key is None else [_plain(label) for _, label in parts]
        theta = self._draw(labels, numbers)
        warped = self._warp_all(theta, [image for image, _ in parts])
        return [self._put(sample, image) for sample, image in zip(samples, warped, strict=True)]

    def _warp_all(self, theta: NDArray[np.float64], images: Sequence[Any]) -> list[Tensor]:
        for image in images:
            check_tensor(image)
        if len({(image.shape, image.dtype, image.device) for image in images}) == 1:
            return list(self._warp(theta, torch.stack(list(images))))
        return [self._warp(row, image[None])[0] for row, image in zip(theta, images, strict=True)]


class Indexed(NamedTuple):
    """A sample and its index in the data set."""

    number: int
    sample: Any


class WithIndex(_Wrapper):
    """A data set that returns samples with their index, for :class:`WarpCollate`."""

    def __getitems__(self, indices: Sequence[int]) -> list[Indexed]:
        """Samples by index, with their index."""
        return [Indexed(*pair) for pair in zip(*self._fetch(indices), strict=True)]


class WarpCollate(_NumberedWarps):
    """A ``collate_fn`` of a DataLoader that also warps the images of the batch.

    ``DataLoader(WithIndex(dataset), collate_fn=WarpCollate(model), ...)`` yields the batches of
    ``DataLoader(WarpedDataset(dataset, model), ...)``. Use it if images get a common size only in
    the collate function.

    Parameters
    ----------
    model, seed, epoch, templates, **options
        As for :class:`WarpedDataset`.
    keys : (image, label)
        Keys of images and labels in a batch.
    collate_fn : callable
        Makes a batch of samples. Default: torch's ``default_collate``.
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
        """Collate samples and warp the batch."""
        if not all(isinstance(sample, Indexed) for sample in samples):
            raise TypeError(
                f"samples must have an index, got {_outline(samples[0])}. Use "
                "DataLoader(WithIndex(dataset), ...)."
            )
        batch = self.collate_fn([sample.sample for sample in samples])
        images, labels = self._parts(batch)
        theta = self._draw(labels, [sample.number for sample in samples])
        return self._put(batch, self._warp(theta, images))


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, Tensor | np.generic) and label.ndim == 0 else label


def _outline(sample: Any) -> str:
    """A short description of a sample."""
    if isinstance(sample, Mapping):
        return f"a mapping with {', '.join(map(repr, sample))}"
    if isinstance(sample, list | tuple):
        return f"a {type(sample).__name__} of {', '.join(type(part).__name__ for part in sample)}"
    return f"a {type(sample).__name__}"
