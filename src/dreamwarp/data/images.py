"""Pictures: single files, and folders with a folder of pictures per class."""

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

from dreamwarp.core.progress import Meter
from dreamwarp.data.dataset import DataSet, Part
from dreamwarp.data.guards import check_file, refuse_bomb

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
# Pictures that would be left out in silence if these names were ignored as other files are.
OTHER_SUFFIXES = (".bmp", ".gif", ".ppm")
# More pixels than a picture to learn warps from ever has; a bomb has many more.
MAX_PIXELS = 2**26
# Pillow's names for pictures of one channel, of one channel of 16 bits, and of real numbers.
GREY_MODES, DEEP_MODES = ("1", "L", "LA", "La"), ("I", "I;16", "I;16B", "I;16L", "I;16N")
REAL_MODE = "F"
ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
# What Pillow raises for malformed files.
UNREADABLE = (OSError, SyntaxError, EOFError, ValueError, LookupError, TypeError, struct.error)
TEST_NAMES = ("test", "val", "validation")


class PictureForm(NamedTuple):
    """Size and mode of a picture, before it is decoded."""

    rows: int
    columns: int
    mode: str

    @property
    def size(self) -> str:
        """Rows x columns, in words."""
        return f"{self.rows} x {self.columns}"


def read_image(path: str | os.PathLike[str]) -> NDArray[Any]:
    """A PNG, JPEG, TIFF or WebP picture: (rows, columns) if grey, (3, rows, columns) if coloured.

    uint8, uint16 for grey of 16 bits, float32 for a TIFF of real numbers.
    """
    file = check_file(path)
    mode = _common_mode([read_form(file, file)])
    return decode(file, file, mode, None)


def read_folder(path: str | os.PathLike[str], *, resize: tuple[int, int] | None = None) -> DataSet:
    """PNG, JPEG, TIFF and WebP pictures of a folder that has a folder per class.

    Parameters
    ----------
    path : path
        Class names are the names of the folders in it. If those are ``train`` and ``test`` (or
        ``val``) with a folder per class in each, the second is the test part.
    resize : (rows, columns)
        Bring every picture to this size. Without it, all must have one size.

    Returns
    -------
    DataSet
        X is (n, rows, columns) if all pictures are grey, else (n, 3, rows, columns), uint8;
        uint16 if all are grey with 16 bits, float32 if all hold real numbers. y are the class
        names. In the order of the names.
    """
    root = Path(path)
    folders = [root]
    if (root / "train").is_dir() and not _pictures(root / "train"):
        tests = [root / name for name in TEST_NAMES if (root / name).is_dir()]
        folders = [root / "train", *tests[:1]]
    return _read_listed(root, [_list_pictures(folder) for folder in folders], resize)


def read_numbered(
    path: str | os.PathLike[str], *, resize: tuple[int, int] | None = None
) -> DataSet:
    """As :func:`read_folder`, in the order of the numbers that pictures have for names.

    All folders are classes, whatever they are called.
    """
    root = Path(path)
    listed = _list_pictures(root)
    # Numbers are padded with zeros, and those that need more digits are larger.
    listed.sort(key=lambda entry: (len(entry[0].name), entry[0].name))
    return _read_listed(root, [listed], resize)


def _read_listed(
    root: Path, listed: list[list[tuple[Path, str]]], resize: tuple[int, int] | None
) -> DataSet:
    """Pictures and their classes, of one part or two."""
    files = [file for part in listed for file, _ in part]
    forms = _read_forms(files)
    mode = _common_mode(forms)
    size = _check_resize(resize) or _check_sizes(files, forms)
    if resize is None:
        _check_growth(root, sum(file.stat().st_size for file in files), len(files), mode, size)
    parts = [
        Part(_read_pictures(part, mode, size), np.array([label for _, label in part]))
        for part in listed
    ]
    return DataSet(str(root), *parts[0], *parts[1:], n_axes=2)


def is_image_folder(path: Path) -> bool:
    """Whether any folder inside holds pictures, at one or two levels."""
    return any(
        file.suffix.lower() in SUFFIXES + OTHER_SUFFIXES
        for pattern in ("*/*", "*/*/*")
        for file in path.glob(pattern)
    )


def decode_all(
    pictures: Sequence[bytes], names: Sequence[str], *, resize: tuple[int, int] | None
) -> NDArray[Any]:
    """Encoded pictures (n,), as a column of a table holds them, as one array of samples."""
    forms = [read_form(io.BytesIO(data), n) for data, n in zip(pictures, names, strict=True)]
    mode = _common_mode(forms)
    size = _check_resize(resize) or _check_sizes(names, forms)
    if resize is None:
        _check_growth(names[0], sum(map(len, pictures)), len(pictures), mode, size)
    samples = _empty_samples(len(pictures), mode, size)
    for k, data in enumerate(pictures):
        samples[k] = decode(io.BytesIO(data), names[k], mode, size)
    return samples


def read_form(source: Path | BinaryIO, name: object) -> PictureForm:
    """Size and mode from the head of a picture."""
    with _open_picture(source, name) as picture:
        form = PictureForm(*picture.size[::-1], picture.mode)
        n_frames, is_wide = getattr(picture, "n_frames", 1), picture.format == "TIFF"
    if n_frames > 1:
        raise ValueError(
            f"`{name}` holds {n_frames} pictures, and must hold one. Save its pages or frames as "
            "files of their own, or a stack of slices as .nii or .npz."
        )
    if is_wide and form.mode == "I":
        raise ValueError(
            f"`{name}` has whole numbers of 32 bits, and pictures must have 8 or 16 bits, or real "
            "numbers. Convert it."
        )
    if form.rows * form.columns > MAX_PIXELS:
        raise ValueError(
            f"`{name}` has {form.size} pixels, and must have at most {MAX_PIXELS:,} in all. Make "
            "it smaller first."
        )
    return form


def decode(
    source: Path | BinaryIO, name: object, mode: str, size: tuple[int, int] | None
) -> NDArray[Any]:
    """A picture in a mode that all of its set share, and of a size (rows, columns) if given."""
    from PIL import Image

    with _open_picture(source, name) as picture:
        opaque = _is_opaque(picture)
        picture = picture.convert(mode)
        if size is not None and picture.size != size[::-1]:
            picture = picture.resize(size[::-1], Image.Resampling.BILINEAR)
        values = np.asarray(picture)
    if not opaque:
        raise ValueError(
            f"`{name}` has transparent pixels, and what lies behind them is unknown. Lay it over a "
            "background first."
        )
    return np.moveaxis(values, -1, 0) if values.ndim == 3 else values


# -- parts of the above


@contextmanager
def _open_picture(source: Path | BinaryIO, name: object) -> Iterator[Image]:
    """A picture; whatever is wrong with it is a ValueError that names it."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # Harmless oddities of a file's extra records. Size is checked by us.
            warnings.simplefilter("ignore")
            with Image.open(source, formats=FORMATS) as picture:
                yield picture
    except Image.DecompressionBombError as error:
        raise ValueError(f"`{name}` is far too big for a picture: {error}") from error
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's fault, not the picture's
        raise ValueError(
            f"`{name}` can't be read as a PNG, JPEG, TIFF or WebP picture: {error}. Replace or "
            "remove it."
        ) from error


def _list_pictures(root: Path) -> list[tuple[Path, str]]:
    """Pictures and their classes, in the order of the names."""
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    listed = [(file, folder.name) for folder in folders for file in _pictures(folder)]
    if not listed:
        raise ValueError(
            f"`{root}` must hold a folder of PNG, JPEG, TIFF or WebP pictures per class, and holds "
            "none."
        )
    return listed


def _pictures(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    for file in files:
        if file.suffix.lower() in OTHER_SUFFIXES:
            raise ValueError(
                f"`{file}` must be a PNG, JPEG, TIFF or WebP picture to be read. Convert or remove "
                "it."
            )
    return [file for file in files if file.suffix.lower() in SUFFIXES]


def _read_forms(files: list[Path]) -> list[PictureForm]:
    forms = []
    with Meter("looking at pictures", len(files)) as meter:
        for file in files:
            forms.append(read_form(check_file(file), file))
            meter.advance(1)
    return forms


def _check_sizes(names: Sequence[object], forms: Sequence[PictureForm]) -> tuple[int, int]:
    """The one size, (rows, columns), that all pictures have."""
    first = forms[0]
    for name, form in zip(names, forms, strict=True):
        if form[:2] != first[:2]:
            n_sizes = len({form[:2] for form in forms})
            raise ValueError(
                f"pictures must have one size, got {n_sizes}: `{names[0]}` is {first.size} pixels, "
                f"`{name}` is {form.size}. Use `--resize 28x28` (`resize=(28, 28)`), with the "
                "rows and columns you want."
            )
    return first[:2]


def _check_growth(what: object, packed: int, n: int, mode: str, size: tuple[int, int]) -> None:
    """Raise if pictures, small one by one, would take too much memory together."""
    sample = _empty_samples(1, mode, size)
    refuse_bomb(
        what,
        packed=packed,
        unpacked=n * sample.nbytes,
        remedy="make them smaller with `--resize 28x28` (`resize=(28, 28)`)",
    )


def _check_resize(resize: tuple[int, ...] | None) -> tuple[int, int] | None:
    if resize is None:
        return None
    if len(resize) != 2:
        raise ValueError(
            "`--resize` (`resize`) must be two whole numbers for pictures, such as 28x28, got "
            f"{'x'.join(map(str, resize))}."
        )
    rows, columns = resize
    if min(rows, columns) < 1 or rows * columns > MAX_PIXELS:
        raise ValueError(
            f"`--resize` (`resize`) must be rows and columns, positive, of at most {MAX_PIXELS:,} "
            f"pixels, got {resize}."
        )
    return rows, columns


def _common_mode(forms: Sequence[PictureForm]) -> str:
    """Pillow's name for what holds all pictures without loss: grey, deep grey or colour."""
    modes = {form.mode for form in forms}
    if REAL_MODE in modes:
        if len(modes) > 1:
            raise ValueError(
                f"pictures must all hold real numbers or all whole ones, got modes "
                f"{', '.join(sorted(modes))}. Convert some of them."
            )
        return REAL_MODE
    if modes <= set(DEEP_MODES):
        return "I;16"
    if modes & set(DEEP_MODES):
        raise ValueError(
            f"pictures must all have 16 bits per pixel or all 8, got modes "
            f"{', '.join(sorted(modes))}. Convert some of them."
        )
    return "L" if modes <= set(GREY_MODES) else "RGB"


def _is_opaque(picture: Image) -> bool:
    """Whether alpha is full everywhere; any other alpha would be lost."""
    if picture.mode not in ALPHA_MODES and "transparency" not in picture.info:
        return True
    return bool(np.asarray(picture.convert("RGBA"))[..., 3].min() == 255)


def _empty_samples(n: int, mode: str, size: tuple[int, int]) -> NDArray[Any]:
    channels = (3,) if mode == "RGB" else ()
    dtype = {"I;16": np.uint16, REAL_MODE: np.float32}.get(mode, np.uint8)
    return np.empty((n, *channels, *size), dtype)


def _read_pictures(
    listed: list[tuple[Path, str]], mode: str, size: tuple[int, int]
) -> NDArray[Any]:
    samples = _empty_samples(len(listed), mode, size)
    with Meter("reading pictures", len(listed)) as meter:
        for k, (file, _) in enumerate(listed):
            samples[k] = decode(file, file, mode, size)
            meter.advance(1)
    return samples
