"""The interface of output formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.source import SampleForm
from dreamwarp.generation.shards import Shard
from dreamwarp.generation.stores import HashingStream, Store, create_hashed, hash_file

# Writes one block, as ``ShardFormat.encode`` returns it.
Add = Callable[[Any], Any]


class ShardFormat(ABC):
    """How shards are written. The same samples give the same bytes.

    :func:`make_format` checks that the format can hold samples of a ``SampleForm``.
    """

    name: ClassVar[str]
    stem: ClassVar[str] = "shard"  # of the names of files
    suffix: ClassVar[str]
    is_plain: ClassVar[bool] = False  # whether files hold values and labels uncompressed

    def __init__(self, form: SampleForm) -> None:
        self.form = form

    @property
    def label_type(self) -> np.dtype[Any]:
        """Dtype of stored labels: uint8 or int64 for integers, else that of the classes."""
        classes = self.form.classes
        if classes.dtype.kind not in "iu":
            return classes.dtype
        return np.dtype(np.uint8 if classes.min() >= 0 and classes.max() <= 255 else np.int64)

    @classmethod
    def find_fault(cls, form: SampleForm) -> str | None:
        """The reason why the format can't hold samples of a form; None if it can.

        Worded to follow the name of the format.
        """
        return None

    def names(self, shard: Shard) -> tuple[str, ...]:
        """Names of the files whose hashes identify the shard."""
        return (f"{self.stem}-{shard.number:05d}.{self.suffix}",)

    @abstractmethod
    def encode(self, first: int, X: NDArray[Any], y: NDArray[Any]) -> Any:
        """Encode a block of samples, numbered from ``first``, to be written.

        Called by several threads; expensive work belongs here.
        """

    @contextmanager
    def create(self, store: Store, shard: Shard, digests: dict[str, str]) -> Iterator[Add]:
        """A function that writes an encoded block of a shard.

        If the ``with`` block succeeds, the files appear, and ``digests`` has their SHA-256 by name.
        """
        with ExitStack() as stack:
            streams = [
                stack.enter_context(create_hashed(store, name, digests))
                for name in self.names(shard)
            ]
            yield stack.enter_context(self.write(shard, *streams))

    def write(self, shard: Shard, *streams: HashingStream) -> AbstractContextManager[Add]:
        """Write a shard to a stream per file; the block gets the function that writes blocks."""
        raise NotImplementedError

    def count_bytes(self, n: int) -> int | None:
        """Bytes of n samples, headers excluded; None if unknown."""
        return n * (self.form.n_bytes + self.label_type.itemsize) if self.is_plain else None

    def digests(self, store: Store, shard: Shard) -> dict[str, str]:
        """SHA-256 of the files of a shard, by name.

        FileNotFoundError if one is missing, ValueError if one is malformed.
        """
        return {name: hash_file(store, name) for name in self.names(shard)}


def find_untext(form: SampleForm) -> str | None:
    """The fault if a label contains a lone surrogate, which UTF-8 can't encode; else None."""
    for label in form.labels:
        if isinstance(label, str) and any("\ud800" <= letter <= "\udfff" for letter in label):
            return f"holds labels that are Unicode text, got {label!r}"
    return None


def as_bytes(array: NDArray[Any], dtype: np.dtype[Any]) -> memoryview:
    """The values of an array in C order, converted to a dtype."""
    return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data
