"""WebDataset: per shard one tar file, with a picture and a label per sample."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from dreamwarp.augment.formats.base import ShardFormat, Writing
from dreamwarp.augment.formats.pictures import encode_npy, encode_png, is_picture
from dreamwarp.augment.shards import Shard
from dreamwarp.augment.stores import Store, create_hashed

BLOCK = tarfile.BLOCKSIZE


class WebDatasetFormat(ShardFormat):
    """``shard-00000.tar`` and so on, of ``000000000000.png``, ``000000000000.cls`` and so on.

    Samples that are no pictures are ``.npy``, and labels that are no numbers ``.txt``: by these
    names the reader knows how to decode them.
    """

    name = "webdataset"

    def check(self) -> None:
        """Samples of any form can be held."""

    def names(self, shard: Shard) -> tuple[str, ...]:
        """Names of the files whose hashes stand for the shard."""
        return (f"shard-{shard.number:05d}.tar",)

    def encode(self, first: int, X: NDArray[Any], y: NDArray[Any]) -> bytes:
        """Members of the archive, one after the other."""
        encode_fn, suffix = (encode_png, "png") if is_picture(self.form) else (encode_npy, "npy")
        label_suffix = "cls" if y.dtype.kind in "iu" else "txt"
        parts: list[bytes] = []
        for number, (sample, label) in enumerate(zip(X, y.tolist(), strict=True), start=first):
            parts += _member(f"{number:012d}.{suffix}", encode_fn(sample))
            parts += _member(f"{number:012d}.{label_suffix}", str(label).encode())
        return b"".join(parts)

    @contextmanager
    def create(self, store: Store, shard: Shard) -> Iterator[Writing]:
        """Write a shard, which is there if the block ends well."""
        digests: dict[str, str] = {}
        (name,) = self.names(shard)
        with create_hashed(store, name, digests) as stream:
            yield Writing(stream.write, digests)  # type: ignore[arg-type]
            stream.write(bytes(2 * BLOCK))


def _member(name: str, content: bytes) -> tuple[bytes, bytes, bytes]:
    """Header, content and padding. Neither owner nor time: the same samples, the same bytes."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    header = info.tobuf(tarfile.USTAR_FORMAT)
    return header, content, bytes(-len(content) % BLOCK)
