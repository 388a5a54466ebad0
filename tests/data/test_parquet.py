"""Parquet tables, as others write them."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp.data.parquet import read_parquet

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

X = np.random.default_rng(0).integers(0, 256, (5, 4, 6), np.uint8)
Y = [3, 1, 3, 0, 1]


def write(path: Path, samples: Any, labels: Any = Y, names: tuple[str, str] = ("X", "y")) -> Path:
    pq.write_table(pa.table(dict(zip(names, (samples, labels), strict=True))), path)
    return path


def encode(values: np.ndarray) -> bytes:
    target = io.BytesIO()
    Image.fromarray(values).save(target, "PNG")
    return target.getvalue()


@pytest.mark.parametrize(
    "column",
    [
        pa.FixedShapeTensorArray.from_numpy_ndarray(X),
        pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(X.ravel(), 6), 4),
        pa.array(X.tolist()),
        pa.array([encode(values) for values in X]),
        pa.array([{"bytes": encode(values), "path": "x.png"} for values in X]),
        pa.array([encode(values) for values in X], pa.large_binary()),
    ],
    ids=["tensor", "fixed lists", "lists", "pictures", "records", "large pictures"],
)
def test_columns_of_all_kinds(tmp_path: Path, column: Any) -> None:
    data = read_parquet(write(tmp_path / "a.parquet", column))
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == Y


def test_flat_lists_are_signals(tmp_path: Path) -> None:
    flat = pa.FixedSizeListArray.from_arrays(X.ravel().astype(np.float32), 24)
    data = read_parquet(write(tmp_path / "a.parquet", flat))
    assert data.X.shape == (5, 24) and data.X.dtype == np.float32


@pytest.mark.parametrize("labels", [list("abacb"), pa.array(list("abacb")).dictionary_encode()])
def test_labels_may_be_strings(tmp_path: Path, labels: Any) -> None:
    path = write(tmp_path / "a.parquet", pa.array(X.tolist()), labels, ("image", "label"))
    assert read_parquet(path).y.tolist() == list("abacb")


def test_one_long_label_does_not_make_room_for_as_long_ones(tmp_path: Path) -> None:
    labels = ["a"] * 300 + ["b" * 300_000]
    path = write(tmp_path / "a.parquet", pa.array([[1.0, 2.0]] * 301), labels)
    with pytest.raises(ValueError, match=r"\(labels\)` would grow .*shorten the longest label"):
        read_parquet(path)


def test_columns_may_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.array(X.tolist()), Y, ("face", "person"))
    np.testing.assert_array_equal(read_parquet(path, fields=("face", "person")).X, X)
    with pytest.raises(
        ValueError, match=r"no samples under a known name .* Name .*`--fields A,B` \(`fi"
    ):
        read_parquet(path)
    with pytest.raises(ValueError, match=r"has no column 'name'\. It has: face, person"):
        read_parquet(path, fields=("face", "name"))


def test_the_tables_of_a_folder_go_together(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must hold \.parquet files, got none"):
        read_parquet(tmp_path)
    write(tmp_path / "1.parquet", pa.array(X[:2].tolist()), Y[:2])
    write(tmp_path / "2.parquet", pa.array(X[2:].tolist()), Y[2:])
    data = read_parquet(tmp_path)
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == Y
    write(tmp_path / "3.parquet", pa.array(X[:, :2].tolist()))
    with pytest.raises(ValueError, match="must have samples of one dtype and shape throughout"):
        read_parquet(tmp_path)


def test_pictures_are_resized_on_request(tmp_path: Path) -> None:
    mixed = pa.array([encode(np.full((4 + k, 6), k, np.uint8)) for k in range(5)])
    path = write(tmp_path / "a.parquet", mixed)
    assert read_parquet(path, resize=(3, 2)).X.shape == (5, 3, 2)
    with pytest.raises(ValueError, match=r"one size, got 5: `.*\[X\], row 0` is 4 x 6 pixels"):
        read_parquet(path)
    with pytest.raises(ValueError, match=r"`--resize` \(`resize`\) is for encoded images, got"):
        read_parquet(write(path, pa.array(X.tolist())), resize=(3, 2))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pa.array([[1, 2], [1, 2, 3], [1], [1], [1]]),
            r"one length in all rows, got 1 to 3 values",
        ),
        (pa.array([[1], None, [2], [3], [4]]), r"\[X\]` has 1 empty entries\. Fill or remove"),
        (pa.array([[1], [None], [2], [3], [4]]), r"\[X\]` has 1 empty entries"),
        (
            pa.array([1, 2, 3, 4, 5]),
            r"must hold tensors, lists of numbers or encoded images, got int64",
        ),
        (pa.array([["a"]] * 5), r"must hold tensors, lists of numbers or encoded images"),
        (pa.array([b"words"] * 5), r"\[X\], row 0` can't be read as a PNG, JPEG, TIFF or WebP"),
    ],
)
def test_columns_that_are_no_samples_are_refused(tmp_path: Path, column: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_parquet(write(tmp_path / "a.parquet", column))


def test_labels_that_lack_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.array(X.tolist()), [1, None, 2, 3, 4])
    with pytest.raises(ValueError, match=r"\[y\]` has 1 empty entries"):
        read_parquet(path)


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.array(X.tolist()))
    whole = path.read_bytes()
    for content in (b"", b"PAR1 words PAR1", whole[:-10], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"can't be read as a Parquet file: .*replace or"):
            read_parquet(path)


@pytest.mark.parametrize("use_dictionary", [False, True])
def test_bombs_of_numbers_are_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_dictionary: bool
) -> None:
    monkeypatch.setattr("dreamwarp.data.guards.BOMB_BYTES", 2**19)
    zeros = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2**20, np.float64)), 2**10)
    table = pa.table({"X": zeros, "y": np.zeros(2**10, np.int64)})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="zstd", use_dictionary=use_dictionary)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *given, **options: pytest.fail("read"))
    with pytest.raises(
        ValueError, match=r"would grow from [\d,]+ to 8,388,608 bytes, like a decomp"
    ):
        read_parquet(path)


@pytest.mark.parametrize("nested", [False, True])
def test_bombs_of_pictures_are_refused_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nested: bool
) -> None:
    for module in ("guards", "parquet"):
        monkeypatch.setattr(f"dreamwarp.data.{module}.BOMB_BYTES", 2**20)
    # One picture of 2^18 bytes, which a dictionary keeps once.
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(999, np.int32)), [bytes(2**18)])
    column = pa.StructArray.from_arrays([values], ["bytes"]) if nested else values
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"X": column, "y": np.zeros(999, np.int64)}),
        path,
        compression="zstd",
        store_schema=False,
    )
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(ValueError, match=r"would grow from [\d,]+ to .*and dictionaries\.$"):
            read_parquet(path)
    finally:
        pa.set_memory_pool(usual)
    assert 0 < pool.max_memory() < 2**23


def test_many_short_strings_are_no_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dreamwarp.data.parquet.MAX_ROWS", 2)
    names = [["cat", "dog"][k % 2] for k in range(5)]
    data = read_parquet(write(tmp_path / "a.parquet", pa.array(X.tolist()), names))
    assert data.y.tolist() == names


def test_without_pyarrow_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", pa.array(X.tolist()))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        ImportError, match=r"not installed\. Use `pip install dreamwarp\[parquet\]`"
    ):
        read_parquet(path)
