"""``.npy`` and ``.npz``: sizes are checked first, and nothing pickled is opened."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies
from hypothesis.extra import numpy as arrays_of

from dreamwarp.data.numpy_files import map_npy, read_npy, read_npz

X = np.arange(6 * 4 * 5, dtype=np.float32).reshape(6, 4, 5)
Y = np.array([2, 0, 2, 1, 0, 2])


def npy(array: Any, **options: Any) -> bytes:
    target = io.BytesIO()
    np.save(target, array, **options)
    return target.getvalue()


def with_header(text: str, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text.encode() + content


def as_zip(path: Path, compression: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


# -- round trips


@given(
    array=arrays_of.arrays(
        strategies.sampled_from(["?", "u1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8", "<U3", "S4"]),
        arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    ),
    columns_first=strategies.booleans(),
)
def test_what_numpy_saves_is_read(
    tmp_path_factory: pytest.TempPathFactory, array: Any, columns_first: bool
) -> None:
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    np.save(path, np.asfortranarray(array) if columns_first else array)
    expected = np.load(path)
    for back in (read_npy(path), read_npy(path, memory_map=True)):
        assert back.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
        assert back.shape == expected.shape
        np.testing.assert_array_equal(back, expected)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "names",
    [
        ("X", "y", "X_test", "y_test"),
        ("x_train", "y_train", "x_test", "y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
    ],
)
def test_archives_under_the_usual_names(tmp_path: Path, save: Any, names: Any) -> None:
    path = tmp_path / "a.npz"
    save(path, **dict(zip(names, (X, Y, X[:2], Y[:2, None]), strict=True)), other=np.zeros(3))
    data = read_npz(path)
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, Y)
    np.testing.assert_array_equal(data.X_test, X[:2])
    np.testing.assert_array_equal(data.y_test, Y[:2])


def test_archives_without_names_or_a_test_part(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X, Y)
    assert read_npz(tmp_path / "a.npz").test is None


def test_the_archives_of_a_folder_go_together(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must hold \.npz files, got none"):
        read_npz(tmp_path)
    np.savez(tmp_path / "part-0.npz", X=X, y=Y, X_test=X, y_test=Y)
    np.savez(tmp_path / "part-1.npz", X=X[:1], y=Y[:1])
    data = read_npz(tmp_path)
    assert data.X.shape == (7, 4, 5) and data.test is None


def test_labels_of_one_archive_are_not_those_of_another(tmp_path: Path) -> None:
    """Too few in one and as many too many in the next."""
    np.savez(tmp_path / "part-0.npz", X=X, y=Y[:5])
    np.savez(tmp_path / "part-1.npz", X=X[:1], y=Y[:2])
    with pytest.raises(ValueError, match=r"part-0\.npz` must have shape \(6,\)"):
        read_npz(tmp_path)


def test_arrays_may_be_named(tmp_path: Path) -> None:
    names = np.array(["one", "two", "one", "two", "one", "two"])
    np.savez(tmp_path / "a.npz", X=X, y=Y, other=X + 1, names=names)
    data = read_npz(tmp_path / "a.npz", fields=("other", "names"))
    np.testing.assert_array_equal(data.X, X + 1)
    assert data.classes.tolist() == ["one", "two"]


def test_npy_files_stay_on_disk(tmp_path: Path) -> None:
    for name, array in {"X": X, "y": Y, "X_test": X[:2], "y_test": Y[:2]}.items():
        np.save(tmp_path / name, array)
    for path in (tmp_path, tmp_path / "X.npy"):
        data = map_npy(path)
        assert isinstance(data.X, np.memmap)
        np.testing.assert_array_equal(data.X, X)
        np.testing.assert_array_equal(data.y, Y)
        np.testing.assert_array_equal(data.X_test, X[:2])


def test_npy_files_of_other_names(tmp_path: Path) -> None:
    np.save(tmp_path / "faces", X)
    np.save(tmp_path / "people", Y)
    np.testing.assert_array_equal(map_npy(tmp_path, fields=("faces", "people")).X, X)
    with pytest.raises(ValueError, match=r"such as 'faces' and 'y'\. It has: faces, people\."):
        map_npy(tmp_path / "faces.npy")
    np.save(tmp_path / "y", Y)
    np.testing.assert_array_equal(map_npy(tmp_path / "faces.npy").y, Y)


# -- what is refused


def test_names_that_are_not_there_are_listed(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", pictures=X, people=Y)
    with pytest.raises(ValueError, match=r"samples and labels under .* has: people, pictures\."):
        read_npz(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"has no 'X' and no 'y'\. It has: people, pictures\."):
        read_npz(tmp_path / "a.npz", fields=("X", "y"))
    np.savez(tmp_path / "b.npz", **{f"a{k:02}": Y for k in range(30)})
    with pytest.raises(ValueError, match=r"It has: a00, .*, a19, \.\.\.\. Name two"):
        read_npz(tmp_path / "b.npz")
    with pytest.raises(ValueError, match=r"It has: nothing"):
        read_npz(as_zip(tmp_path / "c.npz"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(np.array([{}], object), allow_pickle=True), r"holds pickled Python objects, which"),
        (npy(np.zeros(3, "i4,f4")), r"holds values of type .*f0.*, which are not read"),
        (npy(np.zeros(3, "c8")), r"holds values of type complex64"),
        (npy(np.zeros(3, "M8[s]")), r"holds values of type datetime64"),
        (npy(Y)[:-1], r"declares int64 of shape \(6,\), 48 bytes, but holds 47\. It is truncated"),
        (npy(Y) + b"?", r"declares int64 of shape \(6,\), 48 bytes, but holds 49"),
        (b"words and more words", r"is not a NumPy array.*got b'words "),
        (b"", r"is not a NumPy array"),
        (b"\x93NUMPY\4\0" + bytes(100), r"is not a NumPy array"),
        (npy(Y)[:20], r"has a damaged header"),
        (
            with_header("{'descr': '<i8', 'fortran_order': False}"),
            r"has a damaged header.*fortran_order",
        ),
        (
            with_header("{'descr': '', 'fortran_order': False, 'shape': (0,)}"),
            r"has a damaged header.*''",
        ),
        (
            with_header("{'descr': '<U0', 'fortran_order': False, 'shape': (3,)}"),
            r"holds values of type <U0",
        ),
        (
            with_header("{'descr': ('<i8', (9,)), 'fortran_order': False, 'shape': (3,)}"),
            r"holds values of type",
        ),
        (
            with_header("{'descr': '<i8', 'fortran_order': False, 'shape': (-3,)}"),
            r"which no array can have",
        ),
        (with_header("(" * 4000), r"has a damaged header"),
        (b"\x93NUMPY\2\0" + struct.pack("<I", 2**31), r"a header of 2,147,483,648 bytes"),
        (
            with_header(f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({'1,' * 40})}}"),
            r"declares an array of shape .*which no array can have",
        ),
        (
            with_header(f"{{'descr': '<i8', 'fortran_order': False, 'shape': (0, {2**62})}}"),
            r"declares an array of shape \(0, 4611686018427387904\), which no array can have",
        ),
        (
            with_header("{'descr': '<f12', 'fortran_order': False, 'shape': (0,)}"),
            r"has a damaged header.*<f12",
        ),
    ],
)
def test_arrays_that_lie_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    if "<f12" in message and np.dtype(np.longdouble).itemsize == 12:
        pytest.skip("this machine has such numbers")
    (tmp_path / "X.npy").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_npy(tmp_path / "X.npy")
    with pytest.raises(ValueError, match=message):
        read_npz(as_zip(tmp_path / "a.npz", X=content, y=npy(Y)))


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    content = npy(np.array([Trap()], object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickled Python objects"):
        read_npz(as_zip(tmp_path / "a.npz", X=content, y=content))
    assert not (tmp_path / "sprung").exists()


def zip_whose_directory_says(path: Path, *, file_size: int, content: bytes) -> Path:
    """An archive whose directory declares another size than its member has."""
    as_zip(path, X=content, y=npy(Y))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\1\2")
    struct.pack_into("<I", data, entry + 24, file_size)
    path.write_bytes(data)
    return path


def test_a_directory_that_lies_is_refused(tmp_path: Path) -> None:
    n = 3 * 2**30
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({n},), }}"
    content = with_header(head, bytes(1000))
    size = len(content) - 1000 + n
    path = zip_whose_directory_says(tmp_path / "a.npz", file_size=size, content=content)
    with pytest.raises(ValueError, match=r"declares 3,221,225,472 bytes, more than its \d+ bytes"):
        read_npz(path)


def test_a_directory_that_disagrees_with_the_header_is_refused(tmp_path: Path) -> None:
    path = zip_whose_directory_says(tmp_path / "a.npz", file_size=10_000, content=npy(X))
    with pytest.raises(ValueError, match=r"declares float32 of shape \(6, 4, 5\), 480 bytes, but"):
        read_npz(path)


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dreamwarp.data.guards.BOMB_BYTES", 2**19)
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((2**10, 2**10), np.uint8), y=Y)
    with pytest.raises(ValueError, match=r"X\.npy\]` would grow from [\d,]+ to 1,048,576 bytes"):
        read_npz(tmp_path / "a.npz")


def test_a_stored_member_bigger_than_its_archive_is_refused(tmp_path: Path) -> None:
    n = 100_000
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({n},), }}"
    content = with_header(head)
    path = as_zip(tmp_path / "a.npz", zipfile.ZIP_STORED, X=content, y=npy(Y))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\1\2")
    struct.pack_into("<II", data, entry + 20, len(content) + n, len(content) + n)
    path.write_bytes(data)
    with pytest.raises(
        ValueError, match=r"declares 100,000 bytes, more than its [\d,]+ bytes on disk"
    ):
        read_npz(path)


def test_unusual_compression_is_refused(tmp_path: Path) -> None:
    path = as_zip(tmp_path / "a.npz", zipfile.ZIP_LZMA, X=npy(X), y=npy(Y))
    with pytest.raises(ValueError, match=r"is compressed by method 14; \.npz archives are stored"):
        read_npz(path)


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    path = as_zip(tmp_path / "a.npz", X=npy(X), y=npy(Y))
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[250] ^= 0xFF
    encrypted = bytearray(whole)
    for start in (whole.index(b"PK\3\4") + 6, whole.index(b"PK\1\2") + 8):
        encrypted[start] |= 1
    for content in (b"", b"words", whole[:-30], bytes(flipped), bytes(encrypted)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"can't be read as an \.npz archive: .*replace"):
            read_npz(path)
