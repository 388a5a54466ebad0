"""Each format, read back by what its users read it with."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp.augment import SampleSource
from dreamwarp.augment.source import SampleForm
from dreamwarp.generation import generate, verify
from dreamwarp.generation.formats import make_format
from dreamwarp.generation.formats.png import encode_png
from dreamwarp.generation.formats.webdataset import _header
from tests.generation.cases import IMAGE_FORMATS, SHAPE, files_of, make_data, make_model

N = 25
NAMES = ("cat", "dog", "ox")


def write(folder: Path, name: str, **options: Any) -> tuple[Any, Any]:
    """Write a set; the samples and labels that should be in it."""
    classes = options.pop("classes", (0, 1, 2))
    data, model = make_data(classes, **options), make_model(classes)
    generate(model, data, folder, n=N, first=4, format=name, shard_size=10, progress=False)  # type: ignore[arg-type]
    return SampleSource(model, data).make(4, N)


def shards_of(folder: Path, suffix: str) -> list[Path]:
    files = sorted(folder.glob(f"shard-*.{suffix}"))
    assert [file.name for file in files] == [f"shard-{k:05d}.{suffix}" for k in range(3)]
    return files


def equal(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.asarray(found[0]).dtype == expected[0].dtype


# -- by readers of others


def test_idx_is_read_by_torchvision(tmp_path: Path) -> None:
    mnist = pytest.importorskip("torchvision.datasets.mnist")
    X, y = write(tmp_path, "idx")
    for k, part in enumerate((slice(0, 10), slice(10, 20), slice(20, 25))):
        images, labels = f"images-0000{k}-idx3-ubyte", f"labels-0000{k}-idx1-ubyte"
        np.testing.assert_array_equal(mnist.read_image_file(str(tmp_path / images)), X[part])
        np.testing.assert_array_equal(mnist.read_label_file(str(tmp_path / labels)), y[part])


@pytest.mark.parametrize("classes", [(0, 1, 2), (-7, 300, 2**40), NAMES])
def test_npz_is_read_by_numpy(tmp_path: Path, classes: Any) -> None:
    expected = write(tmp_path, "npz", classes=classes, shape=(3, *SHAPE), dtype="float32")
    parts = [np.load(file) for file in shards_of(tmp_path, "npz")]
    assert all(sorted(part.files) == ["X", "y"] for part in parts)
    equal(tuple(np.concatenate([part[name] for part in parts]) for name in "Xy"), expected)


@pytest.mark.parametrize("classes", [(0, 1, 2), NAMES])
def test_parquet_is_read_by_pyarrow(tmp_path: Path, classes: Any) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    X, y = write(tmp_path, "parquet", classes=classes)
    table = parquet.read_table([str(file) for file in shards_of(tmp_path, "parquet")])
    images = table["image"].combine_chunks().to_numpy_ndarray()
    equal((images, table["label"].to_numpy()), (X, y))
    assert table["number"].to_pylist() == list(range(4, 4 + N))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("classes", "dtype", "shape", "fields"),
    [
        ((0, 1, 2), "uint8", SHAPE, ("png", "cls")),
        (NAMES, "float32", (2, *SHAPE), ("npy", "txt")),
    ],
)
def test_webdataset_is_read_by_webdataset(
    tmp_path: Path, classes: Any, dtype: str, shape: Any, fields: tuple[str, str]
) -> None:
    webdataset = pytest.importorskip("webdataset")
    X, y = write(tmp_path, "webdataset", classes=classes, dtype=dtype, shape=shape)
    urls = [str(file) for file in shards_of(tmp_path, "tar")]
    read = list(webdataset.WebDataset(urls, shardshuffle=False).decode("l8"))
    assert [sample["__key__"] for sample in read] == [f"{k:012d}" for k in range(4, 4 + N)]
    samples, labels = (np.array([sample[field] for sample in read]) for field in fields)
    equal((samples, labels), (X, y))


def test_folder_is_read_by_torchvision_and_pillow(tmp_path: Path) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    X, y = write(tmp_path, "folder", classes=NAMES, shape=(3, *SHAPE))
    folder = datasets.ImageFolder(tmp_path)
    assert folder.classes == list(NAMES) and len(folder) == N
    for path, code in folder.samples:
        number = int(Path(path).stem)
        with Image.open(path) as picture:
            np.testing.assert_array_equal(np.moveaxis(np.asarray(picture), -1, 0), X[number - 4])
        assert NAMES[code] == y[number - 4]


# -- bytes


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_hashes_are_those_of_the_files_and_repeat(tmp_path: Path, name: str) -> None:
    for folder in ("a", "b"):
        write(tmp_path / folder, name)
    files = files_of(tmp_path / "a")
    assert files == files_of(tmp_path / "b")
    for shard in json.loads(files["manifest.json"])["shards"]:
        for file, sha256 in shard.items():
            assert hashlib.sha256(files[file]).hexdigest() == sha256
    assert verify(tmp_path / "a").is_sound


def test_listings_are_what_sha256sum_checks(tmp_path: Path) -> None:
    write(tmp_path, "folder")
    for listing in sorted(tmp_path.glob("listing-*.txt")):
        done = subprocess.run(["sha256sum", "--check", listing], cwd=tmp_path, capture_output=True)
        n_lines = len(listing.read_text().splitlines())
        assert done.returncode == 0 and done.stdout.count(b": OK") == n_lines


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("shape", [(5, 7), (1, 5, 7), (3, 5, 7)])
def test_png_is_read_by_pillow(dtype: str, shape: tuple[int, ...]) -> None:
    if (dtype, shape[0]) == ("uint16", 3):
        pytest.skip("PNG has such images, Pillow does not read them, and we write none")
    values = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (4, *shape)).astype(dtype)
    files = list(encode_png(values))
    assert len(files) == 4
    for file, sample in zip(files, values, strict=True):
        with Image.open(io.BytesIO(file)) as picture:
            picture.verify()
        with Image.open(io.BytesIO(file)) as picture:
            read = np.asarray(picture)
        expected = np.moveaxis(sample, 0, -1) if shape[0] == 3 else sample.reshape(5, 7)
        np.testing.assert_array_equal(read, expected)


@pytest.mark.parametrize("size", [0, 1, 204, 512, 4711, 2**32 + 200])
@pytest.mark.parametrize(
    "name", ["000000000000.png", "4611686018427387903.npy", "000000000017.cls"]
)
def test_headers_are_those_of_tarfile(name: str, size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    assert _header(name.encode(), size) == info.tobuf(tarfile.USTAR_FORMAT)


# -- what can't be held


def form(dtype: str = "uint8", shape: tuple[int, ...] = SHAPE, classes: Any = (0, 1)) -> SampleForm:
    return SampleForm(shape, np.dtype(dtype), np.array(classes))


@pytest.mark.parametrize(
    ("name", "form", "message"),
    [
        (
            "idx",
            form("uint16"),
            r"format 'idx' holds uint8, .* got uint16\. Use format",
        ),
        ("idx", form(classes=["a", "b"]), r"labels that are integers of 32 bits, .* 'a'"),
        ("idx", form(classes=[0, 2**40]), r"labels that are integers of 32 bits"),
        ("parquet", form("bool"), r"holds integers and floating-point numbers .* got bool"),
        (
            "webdataset",
            form(shape=(3, 2**32)),
            r"samples of at most 4 GiB each, got uint8 of shape",
        ),
        ("folder", form("float32"), r"holds PNG images, .* got float32 of shape \(9, 11\)"),
        ("folder", form(shape=(30,)), r"holds PNG images"),
        ("folder", form(shape=(2, 9, 11)), r"holds PNG images"),
        ("folder", form(classes=["A", "a"]), r"differ by more than case, got 'A' and 'a'"),
        ("zip", form(), r"`format` must be one of 'idx', 'npz', .* got 'zip'"),
    ],
)
def test_forms_that_cant_be_held_are_refused(name: str, form: SampleForm, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_format(name, form)


@pytest.mark.parametrize(
    "label",
    [
        "..",
        ".",
        "../up",
        "/etc",
        "a/b",
        "a\\b",
        "C:",
        "",
        ".hidden",
        "end.",
        "a\0b",
        "nl\n",
        "x" * 201,
        "CON",
        "nul",
        "Com1.a",
        "manifest.json",
        "Manifest.JSON",
        "listing-00000.txt",
    ],
)
def test_classes_that_cant_be_folders_are_refused(label: str) -> None:
    message = r"valid folder names on every operating system, and not those of its own files, got"
    with pytest.raises(ValueError, match=message):
        make_format("folder", form(classes=["fine", label]))


def test_classes_that_are_nearly_reserved_are_taken() -> None:
    make_format("folder", form(classes=["con2", "console", "listing-0.txt", "manifest"]))


def test_missing_pyarrow_is_explained(monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pyarrow, which is not installed\. Use `pip install"):
        make_format("parquet", form())
