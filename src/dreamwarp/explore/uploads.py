"""Readers of samples uploaded to the page, which are untrusted."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dreamwarp.core.samples import as_array, check_finite
from dreamwarp.data import images
from dreamwarp.data.numpy_files import decode_npy
from dreamwarp.data.volumes import read_volume

Array = NDArray[Any]

# Limits: bytes read, pixels decoded, and pixels kept along an axis.
MAX_BYTES, MAX_PIXELS, MAX_SIDE = 8 * 2**20, 2**24, 256
MAX_NUMBERS = 2**16
MAX_VOXELS = 2**21
MOST = 1e30
# First bytes of files.
NPY, GZIP = b"\x93NUMPY", b"\x1f\x8b"
FORMATS = ("PNG", "JPEG", "WEBP")
UNREADABLE = (
    *images.UNREADABLE, Image.DecompressionBombError, Warning, MemoryError, OverflowError,
)  # fmt: skip


def read_picture(content: bytes, n_channels: int, *, is_ink: bool) -> Array:
    """Read a PNG, JPEG or WebP picture as uint8, (3, rows, columns) or grey (1, rows, columns).

    It is reduced to at most ``MAX_SIDE`` pixels along an axis. Transparent pixels become
    background: black if the data has bright ink on dark ground, else white.
    """
    check_length(content)
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
            rows, columns = picture.size[::-1]
            if rows * columns > MAX_PIXELS:
                raise ValueError(f"too many pixels, {rows} x {columns}")
            upright = ImageOps.exif_transpose(picture)
            flat = _flatten(upright, 0 if is_ink else 255)
    except UNREADABLE as error:
        raise ValueError(
            f"the picture can't be read: {str(error) or type(error).__name__}. Use a PNG, JPEG or "
            f"WebP picture of at most {MAX_PIXELS:,} pixels."
        ) from error
    flat.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
    if min(flat.size) < 2:
        raise ValueError(
            f"the picture must have at least 2 pixels along both axes, got {flat.size[1]} x "
            f"{flat.size[0]}."
        )
    values = np.asarray(flat.convert("RGB" if n_channels == 3 else "L"))
    return np.moveaxis(values, -1, 0).copy() if values.ndim == 3 else values[None].copy()


def _flatten(picture: Image.Image, background: int) -> Image.Image:
    if picture.mode in ("I", "I;16", "I;16B", "I;16L", "F"):
        values = np.asarray(picture, dtype=np.float64)
        top = 65535.0 if picture.mode != "F" else max(float(values.max()), 1e-9)
        return Image.fromarray(np.clip(255.0 * values / top, 0, 255).astype(np.uint8))
    whole = picture.convert("RGBA")
    under = Image.new("RGBA", whole.size, (background, background, background, 255))
    return Image.alpha_composite(under, whole).convert("RGB")


def read_text_series(content: bytes, n_channels: int) -> Array:
    """Read a text of numbers, one row per time and one column per channel: (n_channels, length)."""
    check_length(content)
    try:
        lines = content.decode("utf-8").replace(",", " ").replace(";", " ").splitlines()
        rows = [[float(word) for word in line.split()] for line in lines if line.strip()]
    except ValueError as error:  # no UTF-8, or no numbers
        raise ValueError(
            f"the series can't be read. Use a text file with rows of {n_channels} numbers, one row "
            "per time."
        ) from error
    if len(rows) == 1 and n_channels == 1:
        rows = [[value] for value in rows[0]]
    if not 2 <= len(rows) <= MAX_NUMBERS or any(len(row) != n_channels for row in rows):
        raise ValueError(
            f"a series must have 2 to {MAX_NUMBERS:,} rows of {n_channels} numbers each, got "
            f"{len(rows):,} rows."
        )
    values = np.array(rows, dtype=np.float64).T
    check_finite("series", values, at_most=MOST)
    return np.ascontiguousarray(values, dtype=np.float32)


def read_uploaded_volume(content: bytes, n_channels: int) -> Array:
    """Read a .npy or NIfTI volume as float32, (n_channels, x, y, z)."""
    check_length(content)
    try:
        values = decode_npy("it", content) if content.startswith(NPY) else _read_nifti(content)
        values = np.asarray(as_array("it", values), np.float32)
    except ImportError as error:  # no nibabel
        raise ValueError(str(error)) from error
    except UNREADABLE as error:
        raise ValueError(
            "the volume can't be read. Use a .npy or NIfTI file of real numbers, of at most "
            f"{MAX_BYTES:,} bytes and {MAX_VOXELS:,} voxels."
        ) from error
    values = values[None] if values.ndim == 3 else values
    if values.ndim != 4 or len(values) != n_channels or min(values.shape) < 1:
        wanted = "(x, y, z)" if n_channels == 1 else f"({n_channels}, x, y, z)"
        raise ValueError(f"a volume must have shape {wanted}, got {values.shape}.")
    if min(values.shape[1:]) < 2 or values[0].size > MAX_VOXELS:
        raise ValueError(
            "a volume must have at least 2 voxels along every axis and at most "
            f"{MAX_VOXELS:,} in all, got shape {values.shape[1:]}."
        )
    check_finite("volume", values, at_most=MOST)
    return np.ascontiguousarray(values)


def _read_nifti(content: bytes) -> Array:
    # The reader checks declared sizes, and takes files only.
    with tempfile.TemporaryDirectory() as folder:
        packed = ".nii.gz" if content.startswith(GZIP) else ".nii"
        file = Path(folder) / f"volume{packed}"
        file.write_bytes(content)
        return read_volume(file)[0]


def check_length(content: bytes) -> None:
    """Raise if the content is empty or too long."""
    if not content:
        raise ValueError("the file must not be empty.")
    if len(content) > MAX_BYTES:
        raise ValueError(f"a file must have at most {MAX_BYTES:,} bytes, got {len(content):,}.")
