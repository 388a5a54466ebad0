"""Parquet: per shard one table with the columns ``image``, ``label`` and ``number``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.source import SampleForm
from dreamwarp.core.listing import import_extra
from dreamwarp.generation.formats.base import Add, ShardFormat, find_untext
from dreamwarp.generation.shards import Shard
from dreamwarp.generation.stores import HashingStream

# Compresses digits 5 to 1, in a time that is negligible beside warping.
COMPRESSION, LEVEL = "zstd", 1
# Largest number of values per sample: the length of fixed-size lists has 32 bits.
MAX_VALUES = 2**31 - 1


class ParquetFormat(ShardFormat):
    """``shard-00000.parquet``, and so on.

    The bytes depend on the version of pyarrow, which is stored in the files.
    """

    name = suffix = "parquet"

    def __init__(self, form: SampleForm) -> None:
        import_extra("pyarrow", "parquet", "the format 'parquet'")
        super().__init__(form)

    @classmethod
    def find_fault(cls, form: SampleForm) -> str | None:
        """Why the format can't hold samples of a form, or None."""
        if form.dtype.kind not in "iuf" or form.dtype.itemsize > 8:
            return f"holds integers and floating-point numbers of at most 64 bits, got {form.dtype}"
        if math.prod(form.shape) > MAX_VALUES:
            return f"holds samples of at most 2^31 - 1 values, got shape {form.shape}"
        return find_untext(form)

    def encode(self, first: int, X: NDArray[Any], y: NDArray[Any]) -> Any:
        """A table of a block."""
        import pyarrow as pa

        images = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(X))
        numbers = np.arange(first, first + len(X), dtype=np.int64)
        columns = [images, pa.array(y.astype(self.label_type)), pa.array(numbers)]
        return pa.table(columns, schema=self._schema())

    @contextmanager
    def write(self, shard: Shard, *streams: HashingStream) -> Iterator[Add]:
        """Write a row group per block."""
        from pyarrow.parquet import ParquetWriter

        with ParquetWriter(
            streams[0],
            self._schema(),
            compression=COMPRESSION,
            compression_level=LEVEL,
            use_dictionary=["label"],
        ) as table:
            yield table.write_table

    def _schema(self) -> Any:
        import pyarrow as pa

        labels = self.label_type
        values = pa.from_numpy_dtype(self.form.dtype)
        return pa.schema(
            {
                "image": pa.fixed_shape_tensor(values, self.form.shape),
                "label": pa.string() if labels.kind == "U" else pa.from_numpy_dtype(labels),
                "number": pa.int64(),
            }
        )
