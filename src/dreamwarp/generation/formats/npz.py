"""NumPy archives: per shard one file with arrays ``X`` and ``y``."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.source import SampleForm
from dreamwarp.generation.formats.base import ShardFormat, Writing, as_bytes, label_type
from dreamwarp.generation.shards import Shard
from dreamwarp.generation.stores import Store, create_hashed, read_bounded

# The earliest date that the format can say: archives of the same samples are the same.
NO_TIME = (1980, 1, 1, 0, 0, 0)
PLAIN_FILE = 0o100644 << 16
UNIX = 3
# Enough for the headers of the archive's first member and of the array in it.
START_BYTES = 1024


class NpzFormat(ShardFormat):
    """``shard-00000.npz``, and so on; not compressed."""

    name = "npz"

    @classmethod
    def find_fault(cls, form: SampleForm) -> str | None:
        """None: arrays of any numbers can be held, and labels of any kind."""
        return None

    def names(self, shard: Shard) -> tuple[str, ...]:
        """Names of the files whose hashes stand for the shard."""
        return (f"shard-{shard.number:05d}.npz",)

    def encode(
        self, first: int, X: NDArray[Any], y: NDArray[Any]
    ) -> tuple[memoryview, NDArray[Any]]:
        """Values in little-endian order, and labels."""
        return as_bytes(X, X.dtype.newbyteorder("<")), y.astype(label_type(self.form))

    @contextmanager
    def create(self, store: Store, shard: Shard) -> Iterator[Writing]:
        """Write a shard, which appears if the block succeeds. Its labels stay in memory."""
        digests: dict[str, str] = {}
        labels: list[NDArray[Any]] = []
        (name,) = self.names(shard)
        shape = (shard.n, *self.form.shape)
        with (
            create_hashed(store, name, digests) as stream,
            zipfile.ZipFile(stream, "w") as archive,
        ):
            with _open_member(archive, "X", shape, self.form.dtype) as member:

                def add(encoded: tuple[memoryview, NDArray[Any]]) -> None:
                    member.write(encoded[0])
                    labels.append(encoded[1])

                yield Writing(add, digests)
            dtype = label_type(self.form)
            with _open_member(archive, "y", (shard.n,), dtype) as member:
                member.write(as_bytes(np.concatenate(labels), dtype.newbyteorder("<")))

    def holds(self, store: Store, shard: Shard) -> bool:
        """Whether ``X``, which comes first and is not compressed, has as many samples."""
        (name,) = self.names(shard)
        shape = (shard.n, *self.form.shape)
        return f"'shape': {shape}".encode() in read_bounded(store, name, START_BYTES)

    def count_bytes(self, n: int) -> int:
        """Bytes that n samples take, to within some headers."""
        return n * (self.form.n_bytes + label_type(self.form).itemsize)


@contextmanager
def _open_member(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Iterator[IO[bytes]]:
    """A stream for the values of an array, after its header."""
    info = zipfile.ZipInfo(f"{name}.npy", NO_TIME)
    info.create_system, info.external_attr = UNIX, PLAIN_FILE
    header = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
    with archive.open(info, "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        yield member
