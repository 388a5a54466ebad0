"""Pictures from strangers: read if they are pictures, refused in words if not."""

from __future__ import annotations

import io
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp.data import write_volume
from dreamwarp.explore.scene import MAX_UPLOADS
from dreamwarp.explore.uploads import (
    read_picture,
    read_text_series,
    read_uploaded_volume,
)
from tests.explore.cases import scene


def png(values: Any, mode: str | None = None, kind: str = "png", **options: Any) -> bytes:
    out = io.BytesIO()
    picture = Image.fromarray(values) if mode is None else Image.fromarray(values).convert(mode)
    picture.save(out, kind, **options)
    return out.getvalue()


GREY = np.random.default_rng(0).integers(0, 256, (20, 30)).astype(np.uint8)
COLOUR = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8)


def test_pictures_keep_their_pixels() -> None:
    np.testing.assert_array_equal(read_picture(png(GREY), 1, is_ink=True)[0], GREY)
    found = read_picture(png(COLOUR), 3, is_ink=False)
    np.testing.assert_array_equal(found, np.moveaxis(COLOUR, -1, 0))
    assert read_picture(png(COLOUR, kind="jpeg"), 1, is_ink=True).shape == (1, 20, 30)


def test_large_pictures_become_small() -> None:
    found = read_picture(png(np.zeros((300, 900), np.uint8)), 1, is_ink=True)
    assert found.shape == (1, 85, 256)


def test_what_is_transparent_is_background() -> None:
    clear = np.zeros((4, 4, 4), np.uint8)
    assert read_picture(png(clear), 1, is_ink=True).max() == 0
    assert read_picture(png(clear), 1, is_ink=False).min() == 255


def test_deep_pictures_are_scaled() -> None:
    deep = np.full((4, 4), 65535, np.uint16)
    assert read_picture(png(deep), 1, is_ink=True).min() == 255


def bomb() -> bytes:
    """A PNG that declares 60,000 x 60,000 pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", 60000, 60000, 8, 0, 0, 0, 0)
    packed = zlib.compress(bytes(10**6))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "content",
    [b"not a picture", png(GREY)[:200], bomb(), b"GIF89a" + bytes(20), b"<svg/>", b"\xff\xd8\xff"],
    ids=["text", "cut", "bomb", "gif", "svg", "jpeg"],
)
def test_what_is_no_picture_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="the picture can't be read"):
        read_picture(content, 1, is_ink=True)


def test_empty_and_huge_files_are_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        read_picture(b"", 1, is_ink=True)
    with pytest.raises(ValueError, match="at most 8,388,608 bytes"):
        read_picture(bytes(2**23 + 1), 1, is_ink=True)
    with pytest.raises(ValueError, match="at least 2 pixels"):
        read_picture(png(GREY[:1]), 1, is_ink=True)


def test_any_bytes_are_read_or_refused() -> None:
    rng, whole = np.random.default_rng(0), png(COLOUR)
    for _ in range(300):
        content = bytearray(whole)
        for place in rng.integers(0, len(content), 5):
            content[place] = rng.integers(0, 256)
        with suppress(ValueError):
            assert read_picture(bytes(content), 3, is_ink=True).shape[0] == 3


def test_series_are_rows_of_numbers() -> None:
    found = read_text_series(b"1,2\n3;4\n\n5 6\n", 2)
    np.testing.assert_array_equal(found, [[1, 3, 5], [2, 4, 6]])
    np.testing.assert_array_equal(read_text_series(b"1 2 3", 1), [[1, 2, 3]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b", "can't be read"),
        (b"\xff\xfe", "can't be read"),
        (b"1,2\n3", "rows of 2 numbers each"),
        (b"1,nan\n3,4", "finite"),
        (b"1,1e300\n3,4", "finite"),
    ],
)
def test_series_that_are_none(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_text_series(content, 2)


def test_the_oldest_upload_is_dropped() -> None:
    shown = scene("signal")
    names = [shown.add_upload(b"%d 0\n1 1\n" % k) for k in range(MAX_UPLOADS + 1)]
    assert shown.sample(names[-1])[0, 0] == MAX_UPLOADS
    with pytest.raises(ValueError, match="unknown or expired"):
        shown.sample(names[0])
    shown.sample(names[1])


def npy(values: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def test_volumes_are_read(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(read_uploaded_volume(npy(values), 1)[0], values)
    pytest.importorskip("nibabel")
    for name in ("v.nii", "v.nii.gz"):
        write_volume(tmp_path / name, values, np.eye(4))
        read = read_uploaded_volume((tmp_path / name).read_bytes(), 1)
        np.testing.assert_array_equal(read[0], values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nothing", "the volume can't be read"),
        (npy(np.zeros((3, 4, 5)))[:-8], "the volume can't be read"),
        (npy(np.zeros((2, 2, 2), complex)), "the volume can't be read"),
        (npy(np.zeros((3, 4))), r"must have shape \(x, y, z\), got \(3, 4\)"),
        (npy(np.zeros((1, 4, 5))), "at least 2 voxels"),
        (npy(np.full((2, 2, 2), np.nan)), "finite"),
        (npy(np.zeros((2, 3, 4, 5))), "must have shape"),
    ],
)
def test_other_volumes_are_refused(content: bytes, message: str) -> None:
    pytest.importorskip("nibabel")
    with pytest.raises(ValueError, match=message):
        read_uploaded_volume(content, 1)
