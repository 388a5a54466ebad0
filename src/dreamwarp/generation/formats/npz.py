"""NumPy archives: per shard one file with arrays ``X`` and ``y``."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.generation.formats.base import Add, ShardFormat, as_bytes
from dreamwarp.generation.shards import Shard
from dreamwarp.generation.stores import HashingStream


class NpzFormat(ShardFormat):
    """``shard-00000.npz``, and so on; not compressed. Holds numbers and labels of any kind."""

    name = suffix = "npz"
    is_plain = True

    def encode(
        self, first: int, X: NDArray[Any], y: NDArray[Any]
    ) -> tuple[memoryview, NDArray[Any]]:
        """Little-endian values, and labels."""
        return as_bytes(X, X.dtype.newbyteorder("<")), y.astype(self.label_type)

    @contextmanager
    def write(self, shard: Shard, *streams: HashingStream) -> Iterator[Add]:
        """Write ``X`` block by block, then ``y``, which stays in memory until then."""
        labels: list[NDArray[Any]] = []
        with zipfile.ZipFile(streams[0], "w") as archive:
            with _open_member(archive, "X", (shard.n, *self.form.shape), self.form.dtype) as member:

                def add(encoded: tuple[memoryview, NDArray[Any]]) -> None:
                    member.write(encoded[0])
                    labels.append(encoded[1])

                yield add
            with _open_member(archive, "y", (shard.n,), self.label_type) as member:
                member.write(as_bytes(np.concatenate(labels), self.label_type.newbyteorder("<")))


@contextmanager
def _open_member(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Iterator[IO[bytes]]:
    """Write the header of an array; give a stream for its values."""
    # With zipfile's default date, 1980: equal samples give equal archives.
    info = zipfile.ZipInfo(f"{name}.npy")
    info.create_system, info.external_attr = 3, 0o100644 << 16  # of Unix, a plain file
    header = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
    with archive.open(info, "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        yield member
