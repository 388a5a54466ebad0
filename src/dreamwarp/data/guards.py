"""Checks against malicious files: sizes are compared before memory is allocated."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.progress import Meter

# Deflate's best ratio: 258 bytes in 2 bits. A file that declares more is damaged.
MOST_EXPANSION = 1032
# Data that exceeds both of these is taken for a decompression bomb. MNIST-like images compress 4 to
# 1 and drawings 50 to 1; small data is harmless at any ratio.
BOMB_RATIO = 250
BOMB_BYTES = 2**28
UNPACK = "unpack it yourself, and load the unpacked files"
# NumPy's limit before 2.0.
MAX_AXES = 32
# Bytes read at a time from a compressed stream.
CHUNK = 2**20


def check_file(path: str | os.PathLike[str]) -> Path:
    """Return ``path``; raise if it is missing, a folder, or a device or pipe that could block."""
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"`{file}` does not exist.")
    if file.is_dir():
        raise IsADirectoryError(f"`{file}` is a folder. Give the name of a file.")
    if not file.is_file():
        raise OSError(f"`{file}` must be a file, got a device, pipe or socket.")
    return file


def count_bytes(what: object, shape: Sequence[int], dtype: np.dtype[np.generic]) -> int:
    """Bytes of an array; raise if no array can have that shape."""
    # NumPy limits the product of the other axes even if one axis is empty.
    most = math.prod(max(1, size) for size in shape) * max(1, dtype.itemsize)
    if most >= 2**63 or len(shape) > MAX_AXES or min(shape, default=0) < 0:
        raise ValueError(
            f"`{what}` declares an array of shape {tuple(shape)!s:.200}, which no array can have."
        )
    return math.prod(shape) * dtype.itemsize


def check_expansion(what: object, *, packed: int, unpacked: int) -> None:
    """Raise if deflated data can't hold as much as it declares, or looks like a bomb."""
    if unpacked > MOST_EXPANSION * packed:
        raise ValueError(
            f"`{what}` declares {unpacked:,} bytes, more than its {packed:,} compressed bytes can "
            "hold. It is truncated or damaged: make or fetch it again."
        )
    refuse_bomb(what, packed=packed, unpacked=unpacked)


def refuse_bomb(what: object, *, packed: int, unpacked: int, remedy: str = UNPACK) -> None:
    """Raise if data would take far more memory than disk space."""
    if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * packed:
        raise ValueError(
            f"`{what}` would grow from {packed:,} to {unpacked:,} bytes, like a decompression "
            f"bomb. If that is intended, {remedy}."
        )


def fill_array(what: object, stream: io.BufferedIOBase, array: NDArray[np.generic]) -> int:
    """Read into a C-ordered array until it is full or the stream ends; return bytes read."""
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
