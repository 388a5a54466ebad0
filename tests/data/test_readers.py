"""One door for data of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp.data import load, readers
from dreamwarp.data.dataset import count_spatial_axes
from dreamwarp.data.readers import find_kind
from tests.data.cases import write_idx

X = np.random.default_rng(0).integers(0, 256, (6, 4, 5), np.uint8)
Y = np.array([2, 0, 2, 1, 0, 2], np.uint8)


def write_pair(folder: Path, prefix: str = "train", end: str = "", n: int = 6) -> Path:
    write_idx(folder / f"{prefix}-labels-idx1-ubyte{end}", Y[:n])
    return write_idx(folder / f"{prefix}-images-idx3-ubyte{end}", X[:n])


def assert_same(data: Any) -> None:
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y.astype(int), Y)


def write_pictures(folder: Path) -> None:
    for k, (label, values) in enumerate(zip(Y, X, strict=True)):
        (folder / str(label)).mkdir(exist_ok=True)
        Image.fromarray(values).save(folder / str(label) / f"{k}.png")


# -- all kinds


def test_every_kind_is_recognised(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y)
    write_pair(tmp_path)
    for name in ("a.npz", "X.npy", "train-images-idx3-ubyte"):
        assert_same(load(tmp_path / name))
        assert_same(load(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("write_fn", "kind"),
    [
        (write_pair, readers.IDX),
        (lambda folder: write_pair(folder, end=".gz"), readers.IDX),
        (lambda folder: (folder / "X.npy").touch(), readers.NPY),
        (lambda folder: (folder / "1.npz").touch(), readers.NPZ),
        (lambda folder: (folder / "1.parquet").touch(), readers.PARQUET),
        (lambda folder: (folder / "1.tar").touch(), readers.WEBDATASET),
        (lambda folder: (folder / "A_TRAIN.ts").touch(), readers.SERIES),
        (lambda folder: (folder / "A_TRAIN.tsv").touch(), readers.SERIES),
        (write_pictures, readers.PICTURES),
    ],
)
def test_folders_of_every_kind(tmp_path: Path, write_fn: Callable[[Path], Any], kind: Any) -> None:
    write_fn(tmp_path)
    assert find_kind(tmp_path) is kind


def test_pictures(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    data = load(tmp_path)
    assert sorted(data.y.tolist()) == sorted(map(str, Y))
    assert load(tmp_path, resize=(2, 3)).X.shape == (6, 2, 3)


def test_series_and_tables(tmp_path: Path) -> None:
    (tmp_path / "a.ts").write_text("@data\n1,2,3:a\n4,5:b\n")
    assert load(tmp_path / "a.ts", pad="edge").X[1].tolist() == [4, 5, 5]
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"X": pa.array(X.reshape(6, 20).tolist(), pa.list_(pa.uint8())), "y": Y})
    pq.write_table(table, tmp_path / "a.parquet")
    assert_same(load(tmp_path / "a.parquet", shape=(4, 5)))


def test_a_name_is_a_name_and_a_path_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("digits").mkdir()
    write_pair(Path("digits"))
    assert load("digits").X.shape == (1797, 8, 8)
    assert_same(load("./digits"))
    assert_same(load(Path("digits")))


# -- IDX files


def test_a_folder_of_idx_files_has_a_test_part(tmp_path: Path) -> None:
    write_pair(tmp_path)
    assert load(tmp_path).test is None
    write_pair(tmp_path, "t10k", ".gz", n=2)
    data = load(tmp_path)
    assert_same(data)
    np.testing.assert_array_equal(data.X_test, X[:2])


def test_numbered_idx_files_go_together(tmp_path: Path) -> None:
    for prefix in ("part-0", "part-1"):
        write_pair(tmp_path, prefix)
    assert load(tmp_path).X.shape == (12, 4, 5)
    write_pair(tmp_path, "other")
    with pytest.raises(ValueError, match=r"must hold one data set, got other-images.* Give one"):
        load(tmp_path)


def test_a_plain_file_counts_before_a_packed_one(tmp_path: Path) -> None:
    write_pair(tmp_path)
    write_pair(tmp_path, end=".gz")
    assert_same(load(tmp_path))


def test_only_a_test_part_is_data_too(tmp_path: Path) -> None:
    write_pair(tmp_path, "t10k")
    assert load(tmp_path).test is None


def test_labels_are_sought_beside_images(tmp_path: Path) -> None:
    write_idx(tmp_path / "train-images.idx3-ubyte", X)
    with pytest.raises(FileNotFoundError, match=r"beside it, as `train-labels\.idx1-ubyte` or `tr"):
        load(tmp_path / "train-images.idx3-ubyte")
    write_idx(tmp_path / "train-labels.idx1-ubyte.gz", Y)
    assert_same(load(tmp_path / "train-images.idx3-ubyte"))
    write_idx(tmp_path / "digits.idx", X)
    with pytest.raises(ValueError, match=r"must have the word 'images' in its name, so that"):
        load(tmp_path / "digits.idx")


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("labels", ["labels-idx1-ubyte", "labels-idx1-float"])
def test_labels_have_the_word_for_their_own_type(tmp_path: Path, labels: str, end: str) -> None:
    images = write_idx(tmp_path / "images-idx3-float", X.astype(np.float32))
    with pytest.raises(FileNotFoundError, match=r"as `labels-idx1-float` or .*another of .* ubyte"):
        load(images)
    write_idx(tmp_path / f"{labels}{end}", Y)
    for path in (images, tmp_path):
        assert_same(load(path))
    assert load(images).X.dtype == np.float32


# -- addresses


@pytest.fixture
def store() -> Any:
    """A store in memory, empty, that fsspec knows as ``memory://``."""
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.store.clear()
    return system


def test_single_files_are_read_from_addresses(tmp_path: Path, store: Any) -> None:
    np.savez(tmp_path / "a.npz", X=X.reshape(6, 20), y=Y)
    store.put(str(tmp_path / "a.npz"), "/bucket/a.npz")
    data = load("memory://bucket/a.npz", shape=(4, 5))
    assert_same(data)
    assert data.name == "memory://bucket/a.npz"
    assert_same(load(f"file://{tmp_path}/a.npz", shape=(4, 5)))


def test_errors_name_the_address_rather_than_the_copy(store: Any) -> None:
    store.pipe_file("/bucket/a.npz", b"words")
    with pytest.raises(ValueError, match=r"^`memory://bucket/a\.npz` can't be read as an \.npz"):
        load("memory://bucket/a.npz")
    with pytest.raises(FileNotFoundError, match=r"`memory://bucket/none\.npz` does not exist"):
        load("memory://bucket/none.npz")


@pytest.mark.parametrize("name", ["pictures/", "train-images-idx3-ubyte", "X.npy", ""])
def test_addresses_of_more_than_one_file_are_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"data at an address must be one file, \.npz, \.parq.*Copy"
    ):
        load(f"memory://bucket/{name}")


# -- shapes


def test_samples_stored_flat_take_a_shape(tmp_path: Path) -> None:
    flat = X.reshape(6, 20)
    np.savez(tmp_path / "a.npz", X=flat, y=Y, X_test=flat[:2], y_test=Y[:2])
    data = load(tmp_path / "a.npz", shape=(4, 5))
    assert_same(data)
    assert data.X_test.shape == (2, 4, 5)
    for shape in ((4, 4), (), (-4, -5)):
        with pytest.raises(
            ValueError, match=r"`--shape` \(`shape`\) must have as many .*, 20, got"
        ):
            load(tmp_path / "a.npz", shape=shape)


def test_colours_that_come_last_are_moved(tmp_path: Path) -> None:
    colour = np.random.default_rng(0).integers(0, 256, (6, 16, 20, 3), np.uint8)
    np.savez(tmp_path / "a.npz", X=colour, y=Y)
    np.save(tmp_path / "X.npy", colour)
    np.save(tmp_path / "y.npy", Y)
    expected = np.moveaxis(colour, -1, 1)
    data = load(tmp_path / "a.npz")
    assert data.X.flags.c_contiguous
    np.testing.assert_array_equal(data.X, expected)
    mapped = load(tmp_path / "X.npy").X
    assert isinstance(mapped, np.memmap)
    np.testing.assert_array_equal(mapped, expected)


def test_channels_of_series_that_come_last_are_moved(tmp_path: Path) -> None:
    series = np.random.default_rng(0).random((6, 30, 1))  # as tslearn stores them
    np.savez(tmp_path / "a.npz", X_train=series, y_train=Y)
    data = load(tmp_path / "a.npz")
    np.testing.assert_array_equal(data.X, np.moveaxis(series, -1, 1))
    assert count_spatial_axes(data) == 1


# -- what is refused


def test_what_is_not_there_is_refused_with_what_could_be() -> None:
    with pytest.raises(FileNotFoundError, match=r"`mnits` is neither the name of a data set nor a"):
        load("mnits")
    with pytest.raises(FileNotFoundError, match=r"Data can be a name \(mnist, .*digits\)"):
        load("nowhere/at/all.npz")


def test_an_empty_name_is_not_this_folder() -> None:
    with pytest.raises(ValueError, match=r"must have a name, got an empty one\. Data can be"):
        load("")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "bad-images-idx3-ubyte",
            b"\0\0\x08\x03\0\0\0\x01\0\0",
            r"3 axes, but ends before their si",
        ),
        ("bad-images", b"\0\0\x08\x03", r"declares 3 axes, but ends before their sizes"),
        ("bad-images-idx3-ubyte", b"", r"is not an IDX file: .* got nothing"),
        ("bad-images-idx3-ubyte.gz", b"\x1f\x8b\x08\0\0\0\0\0", r"can't be read as gzip"),
    ],
)
def test_truncated_idx_files_are_called_so(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(ValueError, match=message):
            load(path)


def test_what_cant_be_read_is_refused_with_what_could_be(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("words")
    for path in (tmp_path, tmp_path / "notes.md"):
        with pytest.raises(
            ValueError, match=r"holds no data that can be read\. Data can be a name"
        ):
            load(path)


@pytest.mark.parametrize("name", ["a.nii.gz", "a.STL", "a.png"])
def test_files_without_a_folder_per_class_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=rf"a folder per class, and holds `{name}` .*CLASS.{name}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            {"resize": (2, 2)},
            r"`--resize` \(`resize`\) is for image folders, Parquet files, .*; `.*` is read as",
        ),
        (
            {"pad": "edge"},
            r"`--pad` \(`pad`\) is for time series; .* is read as \.npz files\. Leave it out",
        ),
    ],
)
def test_options_that_do_not_apply_are_refused(tmp_path: Path, option: Any, message: str) -> None:
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "a.npz", **option)


def test_importing_is_light(run_python: Callable[..., Any]) -> None:
    code = (
        "import sys, dreamwarp.data\n"
        "heavy = {'pooch', 'pyarrow', 'PIL', 'requests', 'rich', 'sklearn', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = run_python("-c", code)
    assert done.stdout == "[]\n", done.stderr
