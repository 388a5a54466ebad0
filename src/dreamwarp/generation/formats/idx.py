"""IDX, the format of MNIST: per shard one file of images and one of labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.source import SampleForm
from dreamwarp.data.idx import CODES, TYPES, WORDS, encode_header
from dreamwarp.generation.formats.base import Add, ShardFormat, as_bytes
from dreamwarp.generation.shards import Shard
from dreamwarp.generation.stores import HashingStream


class IdxFormat(ShardFormat):
    """``images-00000-idx3-ubyte`` and ``labels-00000-idx1-ubyte``, and so on."""

    name, is_plain = "idx", True

    @classmethod
    def find_fault(cls, form: SampleForm) -> str | None:
        """What in ``form`` the format can't hold, or None."""
        if form.dtype not in CODES:
            return f"holds {', '.join(map(str, CODES))}, got {form.dtype}"
        labels = form.classes
        low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
        if labels.dtype.kind not in "iu" or labels.min() < low or labels.max() > high:
            return (
                f"holds labels that are integers of 32 bits, got {labels.dtype} "
                f"such as {labels[0].item()!r}"
            )
        return None

    @property
    def label_type(self) -> np.dtype[Any]:
        """Dtype of stored labels: int32 if the usual one is not a type of the format."""
        smallest = super().label_type
        return smallest if smallest in CODES else np.dtype(np.int32)

    def names(self, shard: Shard) -> tuple[str, ...]:
        """Names of the files of images and of labels."""
        dtypes = self.form.dtype, self.label_type
        values, labels = (WORDS[TYPES[CODES[dtype]]] for dtype in dtypes)
        return (
            f"images-{shard.number:05d}-idx{len(self.form.shape) + 1}-{values}",
            f"labels-{shard.number:05d}-idx1-{labels}",
        )

    def encode(self, first: int, X: NDArray[Any], y: NDArray[Any]) -> list[memoryview]:
        """Values and labels in the format's byte order."""
        labels = y.astype(self.label_type)
        return [as_bytes(array, np.dtype(TYPES[CODES[array.dtype]])) for array in (X, labels)]

    @contextmanager
    def write(self, shard: Shard, *streams: HashingStream) -> Iterator[Add]:
        """Write headers, then blocks."""

        def add(contents: list[Any]) -> None:
            for stream, content in zip(streams, contents, strict=True):
                stream.write(content)

        shape = (shard.n, *self.form.shape)
        add([encode_header(self.form.dtype, shape), encode_header(self.label_type, shape[:1])])
        yield add
