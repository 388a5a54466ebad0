"""An image folder: a folder per class, a PNG picture per sample."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from dreamwarp.augment.formats.base import ShardFormat, Writing
from dreamwarp.augment.formats.pictures import encode_png, is_picture
from dreamwarp.augment.shards import Shard
from dreamwarp.augment.stores import Store, create_hashed, hash_file

# Class names that are folder names everywhere, stay where they are put, and are not hidden.
SAFE_NAME = re.compile(r"[\w+-]([\w +.,@=()-]*[\w+)-])?")
MAX_NAME = 200
LISTED = re.compile(r"([0-9a-f]{64})  ([^/]+)/(\d{12,19})\.png")


class FolderFormat(ShardFormat):
    """``<class>/<number of the sample>.png``.

    A shard is a range of numbers. What belongs to it is in ``listing-00000.txt`` and so on, which
    ``sha256sum --check`` reads too, and is written after the pictures.
    """

    name = "folder"

    def check(self) -> None:
        """Refuse a form that can't be held."""
        if not is_picture(self.form):
            raise ValueError(
                f"format 'folder' holds PNG pictures, grey of 8 or 16 bits or coloured of 8, and "
                f"the data is {self.form.dtype} of shape {self.form.shape}. Use format 'npz', "
                "'parquet' or 'webdataset'."
            )
        folders: dict[str, Any] = {}
        for label in self.form.labels:
            name = str(label)
            if not SAFE_NAME.fullmatch(name) or len(name.encode()) > MAX_NAME:
                raise ValueError(
                    f"format 'folder' needs class names that can be names of folders, got "
                    f"{name!r}. Rename the class, or use another format."
                )
            other = folders.setdefault(name.casefold(), label)
            if other != label:
                raise ValueError(
                    f"format 'folder' needs class names that differ by more than case, got "
                    f"{other!r} and {label!r}. Rename one, or use another format."
                )

    @cached_property
    def _folders(self) -> set[str]:
        return {str(label) for label in self.form.labels}

    def names(self, shard: Shard) -> tuple[str, ...]:
        """Names of the files whose hashes stand for the shard."""
        return (f"listing-{shard.number:05d}.txt",)

    def encode(self, first: int, X: NDArray[Any], y: NDArray[Any]) -> list[tuple[str, bytes]]:
        """Names and contents of pictures."""
        return [
            (f"{label}/{number:012d}.png", encode_png(sample))
            for number, (sample, label) in enumerate(zip(X, y.tolist(), strict=True), start=first)
        ]

    @contextmanager
    def create(self, store: Store, shard: Shard) -> Iterator[Writing]:
        """Write a shard, which is there if the block ends well."""
        digests: dict[str, str] = {}
        lines: list[str] = []
        with store.create_many() as put:

            def add(encoded: list[tuple[str, bytes]]) -> None:
                for name, content in encoded:
                    put(name, content)
                    lines.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")

            yield Writing(add, digests)
        with create_hashed(store, self.names(shard)[0], digests) as stream:
            for line in lines:
                stream.write(line.encode())

    def digests(self, store: Store, shard: Shard) -> dict[str, str]:
        """SHA-256 of the listing, if the pictures that it lists are as it says."""
        (name,) = self.names(shard)
        found = hash_file(store, name)
        with store.open(name) as stream:
            lines = (stream.readline(MAX_NAME + 128) for _ in range(shard.n))
            for number, line in enumerate(lines, start=shard.first):
                sha256, picture = self._read_line(line, number)
                if hash_file(store, picture) != sha256:
                    raise ValueError(f"`{picture}` is not what `{name}` says.")
        return {name: found}

    def _read_line(self, line: bytes, number: int) -> tuple[str, str]:
        """Hash and name of a picture; no listing can make another file be read."""
        match = LISTED.fullmatch(line.decode("utf-8", "replace").rstrip("\n"))
        if match is None or match[2] not in self._folders or int(match[3]) != number:
            raise ValueError(f"sample {number} is not listed as it should be: {line!r}.")
        return match[1], f"{match[2]}/{match[3]}.png"
