"""The interface of output formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.source import SampleForm
from dreamwarp.data.sample_sets import MAX_NUMBER
from dreamwarp.generation.shards import MAX_SHARDS, Shard
from dreamwarp.generation.stores import Store, hash_file


class Writing(NamedTuple):
    """A shard that is being written.

    Attributes
    ----------
    add : callable
        Takes what ``encode`` returned, block after block.
    digests : dict of str to str
        SHA-256 of every file of the shard, by its name; complete once the shard is.
    """

    add: Callable[[Any], None]
    digests: dict[str, str]


class ShardFormat(ABC):
    """How shards of samples of a form are written. The same samples give the same bytes.

    Parameters
    ----------
    form : SampleForm
        One that the format can hold: :func:`make_format` refuses others.
    """

    name: ClassVar[str]
    max_samples: ClassVar[int] = MAX_NUMBER

    def __init__(self, form: SampleForm) -> None:
        self.form = form

    @classmethod
    @abstractmethod
    def find_fault(cls, form: SampleForm) -> str | None:
        """Why samples of a form can't be held, as words that follow the format's name, or None."""

    def check_size(self, n: int) -> None:
        """Raise if shards of n samples are too large."""
        if n > self.max_samples:
            raise ValueError(
                f"format {self.name!r} holds at most {self.max_samples:,} samples per shard, and a "
                f"set has at most {MAX_SHARDS:,} shards, got shards of {n:,}. Use a smaller "
                "`shard_size` if one was given, or ask for fewer samples."
            )

    @abstractmethod
    def names(self, shard: Shard) -> tuple[str, ...]:
        """Names of the files whose hashes stand for the shard."""

    @abstractmethod
    def encode(self, first: int, X: NDArray[Any], y: NDArray[Any]) -> Any:
        """Samples ``first`` and following, as ``Writing.add`` takes them.

        Called by several threads; expensive work belongs here.
        """

    @abstractmethod
    def create(self, store: Store, shard: Shard) -> AbstractContextManager[Writing]:
        """Write a shard, which appears if the block succeeds."""

    def count_bytes(self, n: int) -> int | None:
        """Bytes that n samples take, to within some headers, if that is known beforehand."""
        return None

    def digests(self, store: Store, shard: Shard) -> dict[str, str]:
        """SHA-256 of the files of a shard as they are.

        FileNotFoundError if one is missing, ValueError if one can't be what was written.
        """
        return {name: hash_file(store, name) for name in self.names(shard)}

    @abstractmethod
    def holds(self, store: Store, shard: Shard) -> bool:
        """Whether the files of a shard declare that they hold as many samples.

        Detects a manifest that was changed, which hashes can't show. ValueError if a file can't be
        read.
        """


def label_type(form: SampleForm) -> np.dtype[Any]:
    """The type that labels are stored in: the smallest that numbers need, or strings."""
    if form.classes.dtype.kind not in "iu":
        return form.classes.dtype
    low, high = int(form.classes.min()), int(form.classes.max())
    small = low >= 0 and high <= 255
    return np.dtype(np.uint8) if small else np.dtype(np.int64)


def find_untext(form: SampleForm) -> str | None:
    """A fault, if any label can't be stored as UTF-8: half of a pair of surrogates."""
    for label in form.labels:
        if isinstance(label, str) and any("\ud800" <= letter <= "\udfff" for letter in label):
            return f"holds labels that are Unicode text, and the data has {label!r}"
    return None


def as_bytes(array: NDArray[Any], dtype: np.dtype[Any] | None = None) -> memoryview:
    """The values of an array in C order, in a given type if any."""
    values = np.ascontiguousarray(array, dtype or array.dtype)
    return values.reshape(-1).view(np.uint8).data
