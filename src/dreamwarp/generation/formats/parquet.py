"""Parquet: per shard one table with the columns ``image``, ``label`` and ``number``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.source import SampleForm
from dreamwarp.generation.formats.base import ShardFormat, Writing, find_untext, label_type
from dreamwarp.generation.shards import Shard
from dreamwarp.generation.stores import Store, create_hashed

# Packs digits five to one at a speed that does not count beside that of warping.
COMPRESSION, LEVEL = "zstd", 1
# Of a sample: lists of fixed size count in 32 bits.
MAX_VALUES = 2**31 - 1


class ParquetFormat(ShardFormat):
    """``shard-00000.parquet``, and so on.

    The same bytes from the same version of pyarrow, whose name the files bear.
    """

    name = "parquet"

    def __init__(self, form: SampleForm) -> None:
        _import_pyarrow()
        super().__init__(form)

    @classmethod
    def find_fault(cls, form: SampleForm) -> str | None:
        """Why samples of a form can't be held, or None."""
        if form.dtype.kind not in "iuf" or form.dtype.itemsize > 8:
            return (
                "holds whole and floating-point numbers of at most 64 bits, and the data is "
                f"{form.dtype}"
            )
        if math.prod(form.shape) > MAX_VALUES:
            return (
                f"holds samples of at most 2^31 - 1 values, and the data is of shape {form.shape}"
            )
        return find_untext(form)

    def names(self, shard: Shard) -> tuple[str, ...]:
        """Names of the files whose hashes stand for the shard."""
        return (f"shard-{shard.number:05d}.parquet",)

    def encode(self, first: int, X: NDArray[Any], y: NDArray[Any]) -> Any:
        """A table of a block."""
        pa = _import_pyarrow()
        images = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(X))
        numbers = np.arange(first, first + len(X), dtype=np.int64)
        columns = [images, pa.array(y.astype(label_type(self.form))), pa.array(numbers)]
        return pa.table(columns, schema=self._schema())

    @contextmanager
    def create(self, store: Store, shard: Shard) -> Iterator[Writing]:
        """Write a shard, which appears if the block succeeds; a block is a row group."""
        from pyarrow.parquet import ParquetWriter

        digests: dict[str, str] = {}
        (name,) = self.names(shard)
        with (
            create_hashed(store, name, digests) as stream,
            ParquetWriter(
                stream,
                self._schema(),
                compression=COMPRESSION,
                compression_level=LEVEL,
                use_dictionary=["label"],
            ) as table,
        ):
            yield Writing(table.write_table, digests)

    def holds(self, store: Store, shard: Shard) -> bool:
        """Whether the table has as many rows."""
        from pyarrow.parquet import read_metadata

        (name,) = self.names(shard)
        with store.open(name) as stream:
            return bool(read_metadata(stream).num_rows == shard.n)

    def _schema(self) -> Any:
        pa = _import_pyarrow()
        labels = label_type(self.form)
        values = pa.from_numpy_dtype(self.form.dtype)
        return pa.schema(
            {
                "image": pa.fixed_shape_tensor(values, self.form.shape),
                "label": pa.string() if labels.kind == "U" else pa.from_numpy_dtype(labels),
                "number": pa.int64(),
            }
        )


def _import_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            "Parquet files are written with pyarrow, which is not installed. Use `pip install "
            "dreamwarp[parquet]`, or another format."
        ) from None
    return pyarrow
