"""Pictures, and folders of pictures."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp.data import images, read_image
from dreamwarp.data.images import read_folder

GREY = np.random.default_rng(0).integers(0, 256, (6, 7, 9), np.uint8)
COLOR = np.random.default_rng(1).integers(0, 256, (6, 7, 9, 3), np.uint8)


def save(path: Path, values: np.ndarray, mode: str | None = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(values)
    (picture.convert(mode) if mode else picture).save(path, **options)
    return path


def png_of_size(columns: int, rows: int) -> bytes:
    """A PNG that declares a size and holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


# -- what is read


def test_grey_pictures_in_the_order_of_their_names(tmp_path: Path) -> None:
    for k, name in enumerate(("b/2.png", "b/1.PNG", "a/x.png", "a/deep.png")):
        save(tmp_path / name, GREY[k])
    (tmp_path / "a" / "notes.txt").write_text("not a picture")
    (tmp_path / ".git").mkdir()
    data = read_folder(tmp_path)
    assert data.X.dtype == np.uint8 and data.y.tolist() == ["a", "a", "b", "b"]
    np.testing.assert_array_equal(data.X, GREY[[3, 2, 1, 0]])


def test_colours_come_before_rows_and_columns(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.png", COLOR[0])
    save(tmp_path / "b" / "2.png", GREY[0])
    data = read_folder(tmp_path)
    assert data.X.shape == (2, 3, 7, 9)
    np.testing.assert_array_equal(data.X[0], np.moveaxis(COLOR[0], -1, 0))
    np.testing.assert_array_equal(data.X[1], np.stack([GREY[0]] * 3))


def test_jpeg_and_other_modes(tmp_path: Path) -> None:
    smooth = np.full((16, 16), 100, np.uint8)
    save(tmp_path / "a" / "1.jpg", smooth, quality=95)
    save(tmp_path / "a" / "2.jpeg", smooth)
    save(tmp_path / "a" / "3.png", smooth, "LA")
    assert read_folder(tmp_path).X.shape == (3, 16, 16)
    save(tmp_path / "b" / "4.png", smooth, "P")
    save(tmp_path / "b" / "5.png", smooth, "RGBA")
    save(tmp_path / "b" / "6.jpg", smooth, "CMYK")
    X = read_folder(tmp_path).X
    assert X.shape == (6, 3, 16, 16) and np.abs(X.astype(int) - 100).max() <= 2


def test_sixteen_bits_are_kept(tmp_path: Path) -> None:
    deep = (GREY[0].astype(np.uint16) * 257)[:, ::-1]
    save(tmp_path / "a" / "1.png", np.ascontiguousarray(deep))
    data = read_folder(tmp_path)
    assert data.X.dtype == np.uint16
    np.testing.assert_array_equal(data.X[0], deep)
    save(tmp_path / "a" / "2.png", GREY[0])
    with pytest.raises(
        ValueError, match=r"must all have 8 bits per pixel, all 16, .* got modes I;"
    ):
        read_folder(tmp_path)


@pytest.mark.parametrize("test_name", ["test", "val"])
def test_a_folder_of_train_and_test(tmp_path: Path, test_name: str) -> None:
    save(tmp_path / "train" / "a" / "1.png", GREY[0])
    save(tmp_path / "train" / "b" / "1.png", GREY[1])
    save(tmp_path / test_name / "b" / "1.png", GREY[2])
    data = read_folder(tmp_path)
    np.testing.assert_array_equal(data.X, GREY[:2])
    np.testing.assert_array_equal(data.X_test, GREY[2:3])
    assert data.y_test.tolist() == ["b"]


def test_classes_may_be_called_train_and_test(tmp_path: Path) -> None:
    save(tmp_path / "train" / "1.png", GREY[0])
    save(tmp_path / "test" / "1.png", GREY[1])
    assert read_folder(tmp_path).classes.tolist() == ["test", "train"]


def test_sizes_on_request(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.png", np.full((20, 30), 7, np.uint8))
    save(tmp_path / "b" / "2.png", np.full((10, 10), 9, np.uint8))
    X = read_folder(tmp_path, resize=(8, 5)).X
    assert X.shape == (2, 8, 5) and (X[0] == 7).all() and (X[1] == 9).all()


def test_one_picture(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read_image(save(tmp_path / "1.png", GREY[0])), GREY[0])
    colour = read_image(save(tmp_path / "2.png", COLOR[0]))
    np.testing.assert_array_equal(colour, np.moveaxis(COLOR[0], -1, 0))


# -- what is refused


def test_mixed_sizes_are_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.png", GREY[0])
    save(tmp_path / "b" / "2.png", GREY[0].T)
    message = (
        r"one size, got 2: `.*a.1\.png` is 7 x 9 pixels, `.*b.2\.png` is 9 x 7\. Use "
        r"`--resize 28x28` \(`resize=\(28, 28\)`\), with the rows and columns you want"
    )
    with pytest.raises(ValueError, match=message):
        read_folder(tmp_path)


@pytest.mark.parametrize("resize", [(0, 5), (5, -1), (2**20, 2**20)])
def test_impossible_sizes_are_refused(tmp_path: Path, resize: tuple[int, int]) -> None:
    save(tmp_path / "a" / "1.png", GREY[0])
    with pytest.raises(ValueError, match=r"`--resize` \(`resize`\) must be rows and columns for"):
        read_folder(tmp_path, resize=resize)


def test_transparency_is_refused_unless_there_is_none(tmp_path: Path) -> None:
    values = np.full((7, 9, 4), 255, np.uint8)
    path = save(tmp_path / "a" / "1.png", values)
    assert read_folder(tmp_path).X.shape == (1, 3, 7, 9)
    values[3, 3, 3] = 254
    save(path, values)
    with pytest.raises(
        ValueError, match=r"must be opaque, got transparent pixels.* Put it on a backg"
    ):
        read_folder(tmp_path)
    Image.fromarray(np.zeros((7, 9), np.uint8)).convert("P").save(path, transparency=0)
    with pytest.raises(ValueError, match="got transparent pixels"):
        read_folder(tmp_path)


def test_pictures_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path / "a" / "0.png", GREY[0])
    whole = (tmp_path / "a" / "0.png").read_bytes()
    bad = tmp_path / "a" / "1.png"
    gif = io.BytesIO()
    Image.fromarray(GREY[0]).save(gif, "GIF")
    for content in (b"", b"words", whole[:60], whole[:20], gif.getvalue(), png_of_size(9, 7)):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=r"1\.png` can't be read as a PNG, JPEG, TIFF or WebP"):
            read_folder(tmp_path)


def test_other_pictures_are_not_left_out_in_silence(tmp_path: Path) -> None:
    save(tmp_path / "a" / "0.png", GREY[0])
    save(tmp_path / "a" / "1.bmp", GREY[0])
    rule = r"1\.bmp` is not supported: images must end in \.jpeg .*Convert or remove it"
    with pytest.raises(ValueError, match=rule):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((10_000, 9_000), r"1\.png` must have at most 67,108,864 pixels in all, got 9000 x 10000"),
        ((60_000, 60_000), r"1\.png` can't be read as .*exceeds limit"),
    ],
)
def test_bombs_are_refused_by_their_head(
    tmp_path: Path, size: tuple[int, int], message: str
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(png_of_size(*size))
    with pytest.raises(ValueError, match=message):
        read_folder(tmp_path)


def test_pictures_that_are_a_bomb_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dreamwarp.data.guards.BOMB_BYTES", 2**21)
    for k in range(3):
        save(tmp_path / "a" / f"{k}.png", np.zeros((1024, 1024), np.uint8), optimize=True)
    message = (
        r"would grow from [\d,]+ to 3,145,728 bytes, like a decompression bomb\. .*, make the "
        r"images smaller with `--resize 28x28`"
    )
    with pytest.raises(ValueError, match=message):
        read_folder(tmp_path)
    pictures = [path.read_bytes() for path in (tmp_path / "a").iterdir()]
    with pytest.raises(ValueError, match=message):
        images.decode_all(pictures, ["x", "y", "z"], resize=None)
    assert read_folder(tmp_path, resize=(8, 8)).X.shape == (3, 8, 8)
    (tmp_path / "a" / "2.png").unlink()
    assert read_folder(tmp_path).X.shape == (2, 1024, 1024)


def test_folders_without_pictures_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match=r"must hold a folder of images \(\.jpeg, "):
        read_folder(tmp_path)


def test_a_disk_that_fails_is_not_blamed_on_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    save(tmp_path / "a" / "1.png", GREY[0])
    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(PermissionError):
        read_folder(tmp_path)


def test_mutated_pictures_raise_nothing_else(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    originals = []
    for name, mode in (("1.png", None), ("2.jpg", None), ("3.png", "P")):
        originals.append(save(tmp_path / name, COLOR[0], mode).read_bytes())
    for k in range(300):
        content = bytearray(originals[k % 3])
        for position in random.integers(0, len(content), random.integers(1, 6)):
            content[position] = random.integers(0, 256)
        with contextlib.suppress(ValueError):
            form = images.read_form(io.BytesIO(content), "mutant")
            images.decode(io.BytesIO(content), "mutant", "RGB", (form.rows, form.columns))


@pytest.mark.parametrize("suffix", ["tif", "tiff", "webp"])
def test_tiff_and_webp(tmp_path: Path, suffix: str) -> None:
    options = {"lossless": True} if suffix == "webp" else {}
    save(tmp_path / "a" / f"1.{suffix}", COLOR[0], **options)
    np.testing.assert_array_equal(read_folder(tmp_path).X[0], np.moveaxis(COLOR[0], -1, 0))


def test_tiff_of_real_and_of_deep_numbers(tmp_path: Path) -> None:
    real = np.random.default_rng(0).normal(size=(7, 9)).astype(np.float32)
    save(tmp_path / "x" / "a" / "1.tif", real)
    np.testing.assert_array_equal(read_folder(tmp_path / "x").X[0], real)
    deep = GREY[0].astype(np.uint16) * 200
    save(tmp_path / "y" / "a" / "1.tif", deep)
    data = read_folder(tmp_path / "y")
    np.testing.assert_array_equal(data.X[0], deep)
    assert data.X.dtype == np.uint16
    save(tmp_path / "x" / "a" / "2.tif", GREY[0])
    with pytest.raises(ValueError, match=r"all 16, or all real numbers"):
        read_folder(tmp_path / "x")
    with pytest.raises(ValueError, match=r"8 or 16 bits per pixel, .* got 32-bit integers"):
        read_image(save(tmp_path / "i.tif", GREY[0].astype(np.int32)))


def test_several_pages_are_refused(tmp_path: Path) -> None:
    pages = [Image.fromarray(page) for page in GREY]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ValueError, match=r"a\.tif` must hold one image, got 6"):
        read_image(tmp_path / "a.tif")
