"""Images: single files, and folders with one folder of images per class."""

from __future__ import annotations

import io
import os
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.progress import tracked
from dreamwarp.data.dataset import DataSet, list_classes, split_off_test
from dreamwarp.data.guards import check_file, reading_as, refuse_bomb

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
# Image formats that raise an error. Other unknown files are ignored, but images must not be.
OTHER_SUFFIXES = (".bmp", ".gif", ".ppm")
# More pixels than any image to learn warps from, and far fewer than a decompression bomb.
MAX_PIXELS = 2**26
# Pillow's modes of grey images with 8 and with 16 bits, of real numbers, and with alpha.
GREY_MODES, DEEP_MODES = ("1", "L", "LA", "La"), ("I", "I;16", "I;16B", "I;16L", "I;16N")
REAL_MODE = "F"
ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
# What Pillow raises for malformed files.
UNREADABLE = (OSError, SyntaxError, EOFError, ValueError, LookupError, TypeError, struct.error)


class ImageForm(NamedTuple):
    """Size and Pillow mode of an image, read before it is decoded."""

    rows: int
    columns: int
    mode: str

    @property
    def size(self) -> str:
        """Rows x columns."""
        return f"{self.rows} x {self.columns}"


def read_image(path: str | os.PathLike[str]) -> NDArray[Any]:
    """A PNG, JPEG, TIFF or WebP image: (rows, columns) if grey, (3, rows, columns) if coloured.

    uint8; uint16 for 16-bit grey; float32 for a TIFF of real numbers.
    """
    file = check_file(path)
    mode = _common_mode([read_form(file, file)])
    return decode(file, file, mode, None)


def read_folder(
    path: str | os.PathLike[str],
    *,
    resize: tuple[int, int] | None = None,
    numbered: bool = False,
) -> DataSet:
    """Images of a folder that holds one folder per class, as :func:`list_classes` finds them.

    X is (n, rows, columns) if all images are grey, else (n, 3, rows, columns), uint8; uint16 if all
    are 16-bit grey, float32 if all hold real numbers. Without ``resize``, all must have the same
    size.
    """
    root = Path(path)
    files, y, n_train = list_classes(
        root, SUFFIXES, "images", refused=OTHER_SUFFIXES, numbered=numbered
    )
    n_bytes = sum(file.stat().st_size for file in files)
    X = _read_all(root, files, files, n_bytes, resize)
    return split_off_test(root, X, y, n_train, n_axes=2)


def decode_all(
    images: Sequence[bytes], names: Sequence[str], *, resize: tuple[int, int] | None
) -> NDArray[Any]:
    """Encoded images as one array of samples."""
    streams = [io.BytesIO(image) for image in images]  # they share the memory of `images`
    return _read_all(names[0], streams, names, sum(map(len, images)), resize)


def _read_all(
    what: object,
    sources: Sequence[Path | BinaryIO],
    names: Sequence[object],
    n_bytes: int,
    resize: tuple[int, int] | None,
) -> NDArray[Any]:
    """Encoded images as one array; raise if they differ or would take too much memory."""
    named, n = list(zip(sources, names, strict=True)), len(names)
    forms = [read_form(*image) for image in tracked(named, n, "checking images")]
    mode, first = _common_mode(forms), forms[0]
    size = first[:2] if resize is None else _check_resize(resize)
    if resize is None:
        for name, form in zip(names, forms, strict=True):
            if form[:2] != size:
                n_sizes = len({form[:2] for form in forms})
                raise ValueError(
                    f"images must have one size, got {n_sizes}: `{names[0]}` is {first.size} "
                    f"pixels, `{name}` is {form.size}. Use `--resize 28x28` (`resize=(28, 28)`), "
                    "with the rows and columns you want."
                )
        refuse_bomb(
            what,
            packed=n_bytes,
            unpacked=n * _empty_samples(1, mode, size).nbytes,
            remedy="make the images smaller with `--resize 28x28` (`resize=(28, 28)`)",
        )
    samples = _empty_samples(n, mode, size)
    for k, image in enumerate(tracked(named, n, "reading images")):
        samples[k] = decode(*image, mode, size)
    return samples


def read_form(source: Path | BinaryIO, name: object) -> ImageForm:
    """Size and mode from the header of an image."""
    with _open_image(source, name) as image:
        form = ImageForm(*image.size[::-1], image.mode)
        n_frames, is_tiff = getattr(image, "n_frames", 1), image.format == "TIFF"
    if n_frames > 1:
        raise ValueError(
            f"`{name}` must hold one image, got {n_frames}. Save pages or frames as single "
            "files, or a stack of slices as .nii or .npz."
        )
    if is_tiff and form.mode == "I":
        raise ValueError(
            f"`{name}` must have 8 or 16 bits per pixel, or real numbers, got 32-bit integers. "
            "Convert it."
        )
    if form.rows * form.columns > MAX_PIXELS:
        raise ValueError(
            f"`{name}` must have at most {MAX_PIXELS:,} pixels in all, got {form.size}. Make it "
            "smaller first."
        )
    return form


def decode(
    source: Path | BinaryIO, name: object, mode: str, size: tuple[int, int] | None
) -> NDArray[Any]:
    """An image converted to a mode, and resized to (rows, columns) if given."""
    from PIL import Image

    with _open_image(source, name) as image:
        may_be_clear = image.mode in ALPHA_MODES or "transparency" in image.info
        is_opaque = not may_be_clear or np.asarray(image.convert("RGBA"))[..., 3].min() == 255
        image = image.convert(mode)
        if size is not None and image.size != size[::-1]:
            image = image.resize(size[::-1], Image.Resampling.BILINEAR)
        values = np.asarray(image)
    if not is_opaque:
        raise ValueError(
            f"`{name}` must be opaque, got transparent pixels. Put it on a background first."
        )
    return np.moveaxis(values, -1, 0) if values.ndim == 3 else values


# -- parts of the above


@contextmanager
def _open_image(source: Path | BinaryIO, name: object) -> Iterator[Image]:
    """Open an image; errors in the file become a ValueError that names it."""
    from PIL import Image

    unreadable = (*UNREADABLE, Image.DecompressionBombError)
    with reading_as("a PNG, JPEG, TIFF or WebP image", name, unreadable), warnings.catch_warnings():
        # Harmless defects of metadata. The size is checked by read_form.
        warnings.simplefilter("ignore")
        with Image.open(source, formats=FORMATS) as image:
            yield image


def _check_resize(resize: tuple[int, ...]) -> tuple[int, int]:
    if len(resize) != 2 or min(resize) < 1 or resize[0] * resize[1] > MAX_PIXELS:
        raise ValueError(
            "`--resize` (`resize`) must be rows and columns for images, such as 28x28, positive, "
            f"of at most {MAX_PIXELS:,} pixels, got {'x'.join(map(str, resize))}."
        )
    return resize[0], resize[1]


def _common_mode(forms: Sequence[ImageForm]) -> str:
    """The Pillow mode to convert all images to; raise if bit depths are mixed."""
    modes = {form.mode for form in forms}
    if modes == {REAL_MODE}:
        return REAL_MODE
    if modes <= set(DEEP_MODES):
        return "I;16"
    if modes & {REAL_MODE, *DEEP_MODES}:
        raise ValueError(
            "images must all have 8 bits per pixel, all 16, or all real numbers, got modes "
            f"{', '.join(sorted(modes))}. Convert some of them."
        )
    return "L" if modes <= set(GREY_MODES) else "RGB"


def _empty_samples(n: int, mode: str, size: tuple[int, int]) -> NDArray[Any]:
    channels = (3,) if mode == "RGB" else ()
    dtype = {"I;16": np.uint16, REAL_MODE: np.float32}.get(mode, np.uint8)
    return np.empty((n, *channels, *size), dtype)
