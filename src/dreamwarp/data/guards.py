"""Checks against malicious files: sizes are compared before memory is allocated."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def reading_as(what: str, name: object, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn a parser's errors within the block into a ValueError that names the file.

    Errors of the disk or of memory, and errors that name the file already, are passed on.
    """
    try:
        yield
    except errors as error:
        is_system_error = isinstance(error, OSError) and error.errno is not None
        is_named = str(error).startswith(f"`{name}`")
        if is_system_error or is_named or isinstance(error, MemoryError):
            raise
        raise ValueError(
            f"`{name}` can't be read as {what}: {error or type(error).__name__}. It may be "
            "damaged: replace or remove it."
        ) from error


def count_bytes(what: object, shape: Sequence[int], dtype: np.dtype[np.generic]) -> int:
    """Bytes of an array; raise if no array can have that shape."""
    # NumPy limits the product of the other axes even if one axis is empty.
    most = math.prod(max(1, size) for size in shape) * max(1, dtype.itemsize)
    if most >= 2**63 or len(shape) > MAX_AXES or min(shape, default=0) < 0:
        raise ValueError(
            f"`{what}` declares an array of shape {tuple(shape)!s:.200}, which no array can have."
        )
    return math.prod(shape) * dtype.itemsize


def check_size(what: object, header: object, *, declared: int, found: int) -> None:
    """Raise if the values in a file take fewer or more bytes than its header declares."""
    if found != declared:
        state = "truncated" if found < declared else "longer than its header declares"
        raise ValueError(
            f"`{what}` declares {header}, {declared:,} bytes, but holds {found:,}. It is {state}: "
            "make or fetch it again."
        )


def check_expansion(
    what: object, *, packed: int, unpacked: int, at_most: int = MOST_EXPANSION
) -> None:
    """Raise if data can't hold as much as it declares, or looks like a decompression bomb.

    ``at_most`` is the best ratio of the compression; the default is deflate's.
    """
    if unpacked > at_most * packed:
        raise ValueError(
            f"`{what}` declares {unpacked:,} bytes, more than its {packed:,} bytes on disk can "
            "hold. It is truncated or damaged: make or fetch it again."
        )
    refuse_bomb(what, packed=packed, unpacked=unpacked)


def refuse_bomb(
    what: object,
    *,
    packed: int,
    unpacked: int,
    remedy: str = "unpack it yourself, and load the unpacked files",
) -> None:
    """Raise if data would take far more memory than disk space."""
    if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * packed:
        raise ValueError(
            f"`{what}` would grow from {packed:,} to {unpacked:,} bytes, like a decompression "
            f"bomb. If that is intended, {remedy}."
        )


def fill_array(
    what: object, header: object, stream: io.BufferedIOBase, array: NDArray[np.generic]
) -> None:
    """Read into a C-ordered array; raise if the stream ends before it is full."""
    space = array.reshape(-1).view(np.uint8).data
    filled = 0
    with Meter(f"reading {what}", len(space), in_bytes=True) as meter:
        while filled < len(space) and (n := stream.readinto(space[filled : filled + CHUNK])):
            filled += n
            meter.advance(n)
    check_size(what, header, declared=len(space), found=filled)
