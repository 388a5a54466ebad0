"""Checks that keep hostile files harmless: of sizes, before anything is allocated."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.progress import Meter

# Deflate codes at best 258 bytes in 2 bits: what claims to hold more than this lies.
MOST_EXPANSION = 1032
# Past both of these, packed data is taken for a bomb: a thousand MNIST-like images pack 4 to 1,
# drawings 50 to 1, and what is small does no harm whatever its ratio.
BOMB_RATIO = 250
BOMB_BYTES = 2**28
UNPACK = "unpack it yourself, and load the unpacked files"
# What NumPy before 2.0 allows.
MAX_AXES = 32
# Bytes taken at a time from a compressed stream.
CHUNK = 2**20


def check_file(path: str | os.PathLike[str]) -> Path:
    """``path``; raises if it is missing, a folder, or a device or pipe that could block."""
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"`{file}` does not exist.")
    if file.is_dir():
        raise IsADirectoryError(f"`{file}` is a folder. Give the name of a file.")
    if not file.is_file():
        raise OSError(f"`{file}` must be a file, and is a device, pipe or socket.")
    return file


def count_bytes(what: object, shape: Sequence[int], dtype: np.dtype[np.generic]) -> int:
    """Bytes of an array; raises if no array can have that shape."""
    # An array of no elements still has to keep the product of its other axes within range.
    most = math.prod(max(1, size) for size in shape) * max(1, dtype.itemsize)
    if most >= 2**63 or len(shape) > MAX_AXES or min(shape, default=0) < 0:
        raise ValueError(
            f"`{what}` declares an array of shape {tuple(shape)!s:.200}, which no array can have."
        )
    return math.prod(shape) * dtype.itemsize


def check_expansion(what: object, *, packed: int, unpacked: int) -> None:
    """Raise if compressed data can't, or shouldn't, hold as much as it declares."""
    if unpacked > MOST_EXPANSION * packed:
        raise ValueError(
            f"`{what}` declares {unpacked:,} bytes, more than its {packed:,} compressed bytes can "
            "hold. It is truncated or damaged: make or fetch it again."
        )
    refuse_bomb(what, packed=packed, unpacked=unpacked)


def refuse_bomb(what: object, *, packed: int, unpacked: int, remedy: str = UNPACK) -> None:
    """Raise if data would take far more memory than it takes on disk."""
    if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * packed:
        raise ValueError(
            f"`{what}` would grow from {packed:,} to {unpacked:,} bytes, as a decompression bomb "
            f"does. If it is meant so, {remedy}."
        )


def fill_array(what: object, stream: io.BufferedIOBase, array: NDArray[np.generic]) -> int:
    """Read into a C-ordered array until it is full or the stream ends; bytes read."""
    space = array.reshape(-1).view(np.uint8).data
    filled = 0
    with Meter(f"reading {what}", len(space), in_bytes=True) as meter:
        while filled < len(space):
            n = stream.readinto(space[filled : filled + CHUNK])
            if n == 0:
                break
            filled += n
            meter.advance(n)
    return filled
