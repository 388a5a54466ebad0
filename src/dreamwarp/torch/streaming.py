"""SampleStream: batches of new samples, made on demand by DataLoader workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from dreamwarp.augment.source import SampleSource, check_range
from dreamwarp.core.defaults import Balance
from dreamwarp.core.draws import MAX_SAMPLE_NUMBER, Seed
from dreamwarp.core.validation import check_integer
from dreamwarp.data.dataset import DataSet
from dreamwarp.model import WarpModel
from dreamwarp.space.resample import Interpolation
from dreamwarp.torch.epochs import SharedEpoch

Batch = tuple[torch.Tensor, torch.Tensor]

# Advice when a batch is repeated, for finite and endless streams.
REPEATS = "Call set_epoch(epoch) before each pass to get new samples."
ENDLESS_REPEATS = (
    "Continue with the same iterator, or give `n`, the samples per epoch, and call "
    "set_epoch(epoch) before each."
)


class SampleStream(IterableDataset[Batch]):
    """Batches of new samples: those of :func:`dreamwarp.stream`, as tensors.

    Batch b starts with sample ``first + b * batch_size``. DataLoader workers take batches in turn,
    so a loader yields the same batches in the same order for any number of workers. Batches are
    complete: give the loader ``batch_size=None``.

    Every pass starts at sample ``first`` or, with ``n`` and :meth:`set_epoch`, where the previous
    epoch ended. A pass that repeats batches gives a warning.

    Parameters
    ----------
    model, data, seed, first, n, batch_size, strength, balance, interpolation
        As for :func:`dreamwarp.stream`. ``n`` is the number of samples per epoch.
    rank, world_size : int
        For distributed training: this process gets the batches b with b % world_size == rank.

    Attributes
    ----------
    classes : (n_classes,)
        Labels of the data. Integer labels are yielded unchanged, others as indices into this array.

    Examples
    --------
    >>> stream = SampleStream(model, dw.data.mnist(), seed=0, batch_size=128)
    >>> loader = torch.utils.data.DataLoader(stream, batch_size=None, num_workers=2)

    Epochs of 60,000 samples, all of them new:

    >>> stream = SampleStream(model, dw.data.mnist(), seed=0, n=60_000)
    >>> loader = torch.utils.data.DataLoader(stream, batch_size=None, num_workers=2)
    >>> for epoch in range(n_epochs):
    ...     stream.set_epoch(epoch)
    ...     for images, labels in loader: ...
    """

    def __init__(
        self,
        model: WarpModel,
        data: DataSet | tuple[Any, Any],
        *,
        seed: Seed = 0,
        first: int = 0,
        n: int | None = None,
        batch_size: int = 256,
        strength: float | None = None,
        balance: Balance = "classes",
        interpolation: Interpolation = "linear",
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__()
        if not 0 <= rank < world_size:
            raise ValueError(
                f"`rank` must be from 0 to `world_size` - 1, got {rank} of {world_size}."
            )
        self._source = SampleSource(
            model, data, seed=seed, strength=strength, balance=balance, interpolation=interpolation
        )
        self._first, self._n = check_range(first, n)
        self._is_endless = n is None
        self._batch_size = check_integer("batch_size", batch_size, 1)
        self._rank, self._world_size = rank, world_size
        self._epoch = SharedEpoch(0)
        self.classes = self._source.form.classes

    def set_epoch(self, epoch: int) -> None:
        """Start at sample ``first + epoch * n``, in all processes.

        Call it before the epoch's ``iter(loader)``.
        """
        if self._is_endless:
            raise TypeError(
                "an endless stream has no epochs. Give `n`, the number of samples per epoch."
            )
        end = self._first + (check_integer("epoch", epoch, 0) + 1) * self._n
        if end > MAX_SAMPLE_NUMBER:
            raise ValueError(
                f"sample numbers must be below 2^62, but epoch {epoch} of {self._n} samples each "
                "exceeds that. Use an earlier epoch."
            )
        self._epoch.set(epoch)

    def __len__(self) -> int:
        if self._is_endless:
            raise TypeError("an endless stream has no length. Give `n`.")
        return len(range(self._rank, self._n_batches, self._world_size))

    @property
    def _n_batches(self) -> int:
        """Number of batches of all ranks."""
        return -(-self._n // self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        place, n_workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        n_threads = None if worker is None else 1
        start, step = self._rank + place * self._world_size, self._world_size * n_workers
        before = self._first + self._epoch.get() * self._n
        for batch in range(start, self._n_batches, step):
            first = batch * self._batch_size
            n = min(self._batch_size, self._n - first)
            X, y = self._source.make(before + first, n, n_threads=n_threads)
            remedy = ENDLESS_REPEATS if self._is_endless else REPEATS
            self._epoch.warn_of_repeats([batch], remedy, "batch")
            numbers = y if y.dtype.kind in "iu" else np.searchsorted(self.classes, y)
            yield torch.from_numpy(X), torch.from_numpy(numbers.astype(np.int64))
