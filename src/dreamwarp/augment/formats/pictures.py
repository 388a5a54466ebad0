"""Samples as single small files: PNG where they are pictures, else ``.npy``."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.source import Form

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# The format's numbers for grey pictures and for those in red, green and blue.
GREY, COLORED = 0, 2
# What zlib takes for a fair bargain of size and speed. Other levels are not worth their bytes.
LEVEL = 6
LONGEST_SIDE = 2**31 - 1


def is_picture(form: Form) -> bool:
    """Whether samples can be PNG pictures: grey of 8 or 16 bits, or colour of 8."""
    *channels, rows, columns = form.shape if len(form.shape) > 1 else (0, 0, 0)
    kinds = {np.dtype(np.uint8): ([], [1], [3]), np.dtype(np.uint16): ([], [1])}
    sides_fit = 1 <= rows <= LONGEST_SIDE and 1 <= columns <= LONGEST_SIDE
    return sides_fit and channels in kinds.get(form.dtype, ())


def encode_png(picture: NDArray[Any]) -> bytes:
    """A picture (rows, columns) or (channels, rows, columns), such as ``is_picture`` allows.

    By hand: the same bytes whatever library is installed, and several times as fast as one that is
    made for large pictures.
    """
    pixels = picture[None] if picture.ndim == 2 else picture
    n_channels, rows, columns = pixels.shape
    # Rows of pixels, channels together, 16 bits with the high byte first; before each row the
    # number of its filter, none.
    values = np.moveaxis(pixels, 0, -1).astype(picture.dtype.newbyteorder(">"), order="C")
    lines = np.zeros((rows, 1 + values[0].nbytes), np.uint8)
    lines[:, 1:] = values.reshape(rows, -1).view(np.uint8)
    bits, kind = 8 * picture.dtype.itemsize, COLORED if n_channels == 3 else GREY
    header = struct.pack(">IIBBBBB", columns, rows, bits, kind, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.data, LEVEL)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(name, content) for name, content in chunks)


def encode_npy(sample: NDArray[Any]) -> bytes:
    """An array as a ``.npy`` file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(sample), allow_pickle=False)
    return stream.getvalue()


def _chunk(name: bytes, content: bytes) -> bytes:
    checked = name + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))
