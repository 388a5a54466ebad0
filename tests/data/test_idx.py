"""IDX files: what is written is read, and nothing that lies is believed."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from dreamwarp.data import read_idx
from dreamwarp.data.idx import is_idx, read_idx_files
from tests.data.cases import write_idx

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
VALUES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def packed(content: bytes) -> bytes:
    """Compressed, without the time of day: it would be part of a test's name."""
    return gzip.compress(content, mtime=0)


def header(code: int, *sizes: int) -> bytes:
    return struct.pack(f">BBBB{len(sizes)}I", 0, 0, code, len(sizes), *sizes)


def as_file(folder: Path, content: bytes) -> Path:
    path = folder / "images-idx3-ubyte"
    path.write_bytes(content)
    return path


# -- round trips


@given(
    array=arrays_of.arrays(
        strategies.sampled_from([*CODES, ">i4", "<f8"]),
        arrays_of.array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=6),
    ),
    packed=strategies.booleans(),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, array: NDArray[np.generic], packed: bool
) -> None:
    path = tmp_path_factory.mktemp("idx") / ("a.gz" if packed else "a")
    assert write_idx(path, array) == path
    back = read_idx(path)
    assert back.dtype == array.dtype.newbyteorder("=") and back.flags.writeable
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(("dtype", "code"), CODES.items())
def test_bytes_are_those_of_the_format(tmp_path: Path, dtype: str, code: int) -> None:
    values = np.array([[1, 2, 3], [4, 5, 6]], dtype)
    path = write_idx(tmp_path / "a", values)
    big_endian = values.astype(values.dtype.newbyteorder(">")).tobytes()
    assert path.read_bytes() == header(code, 2, 3) + big_endian
    np.testing.assert_array_equal(read_idx(path), values)


def test_compression_is_told_by_the_content(tmp_path: Path) -> None:
    packed = write_idx(tmp_path / "a.gz", VALUES)
    renamed = packed.rename(tmp_path / "plain-looking")
    np.testing.assert_array_equal(read_idx(renamed), VALUES)


# -- what is refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is not an IDX file: .* got nothing"),
        (b"\0\0\x08", r"is not an IDX file: .* got 00 00 08"),
        (b"\0\1\x08\1\0\0\0\0", r"is not an IDX file: .* got 00 01 08 01"),
        (b"\0\0\x0a\1\0\0\0\0", r"is not an IDX file: .* got 00 00 0a 01"),
        (b"\0\0\x08\0", r"must have 1 to 32 axes, got 0"),
        (b"\0\0\x08\xff" + bytes(1020), r"must have 1 to 32 axes, got 255"),
        (header(8, 2, 3)[:-1], r"declares 2 axes, but ends before their sizes"),
        (
            header(8, 2, 3) + bytes(5),
            r"declares 2 x 3 values of uint8, 6 bytes, but holds 5\. It is truncated",
        ),
        (
            header(0xC, 2, 3) + bytes(25),
            r"declares 2 x 3 values of int32, 24 bytes, but holds 25\. It is longer than",
        ),
        (
            header(8, 2**32 - 1, 2**31) + bytes(5),
            r"no array can have|but holds 5\. It is truncated",
        ),
        (header(8, *[2**32 - 1] * 3), r"array of shape \(4294967295, .*which no array can have"),
        (header(8, 0, *[2**32 - 1] * 3), r"array of shape \(0, .*which no array can have"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = as_file(tmp_path, content)
    with pytest.raises(ValueError, match=message):
        read_idx(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (packed(header(8, 9) + bytes(8)), r"declares 9 values of uint8, 9 bytes, but holds"),
        (packed(header(8, 9) + bytes(10)), r"declares 9 values of uint8, but holds more"),
        (packed(header(8, 9) + bytes(9))[:-9], r"can't be read as gzip: .*replace or remove it"),
        (packed(header(8, 9) + bytes(9))[:-8] + bytes(8), r"can't be read as gzip: CRC check"),
        (b"\x1f\x8b\x09" + bytes(20), r"can't be read as gzip: Unknown compression method"),
        (packed(b"")[:10] + b"\xff" * 20, r"can't be read as gzip: Error -3"),
        (
            packed(header(8, 2**20, 2**10)),
            r"declares 1,073,741,824 bytes, more than its \d+ bytes on disk can hold",
        ),
    ],
)
def test_packed_files_that_lie_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_idx(as_file(tmp_path, content))


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dreamwarp.data.guards.BOMB_BYTES", 2**19)
    bomb = packed(header(8, 2**20) + bytes(2**20))
    with pytest.raises(
        ValueError, match=r"would grow from [\d,]+ to 1,048,576 bytes, like a decomp"
    ):
        read_idx(as_file(tmp_path, bomb))
    half = as_file(tmp_path, packed(header(8, 2**18) + bytes(2**18)))
    assert read_idx(half).shape == (2**18,)
    with pytest.raises(
        ValueError, match=r"`set` would grow from [\d,]+ to 786,432 bytes, like a de"
    ):
        read_idx_files("set", [half] * 3)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"`.*none` does not exist"):
        read_idx(tmp_path / "none")
    with pytest.raises(IsADirectoryError, match=r"is a folder\. Give the name of a file"):
        read_idx(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="must be a file, got a device, pipe or socket"):
        read_idx(tmp_path / "pipe")


def test_recognition(tmp_path: Path) -> None:
    assert is_idx(write_idx(tmp_path / "a", VALUES))
    assert is_idx(write_idx(tmp_path / "a.gz", VALUES))
    (tmp_path / "a").write_bytes(header(8, 2, 3)[:4])
    assert is_idx(tmp_path / "a")
    for content in (b"", b"PK\3\4", packed(b"words"), b"\x1f\x8b\x08"):
        (tmp_path / "a").write_bytes(content)
        assert not is_idx(tmp_path / "a")
        for name in ("images-idx3-ubyte", "images-idx3-ubyte.gz", "images.idx"):
            (tmp_path / name).write_bytes(content)
            assert is_idx(tmp_path / name)


# -- several files


def test_files_are_joined_without_a_second_copy(tmp_path: Path) -> None:
    values = np.arange(2**19, dtype=np.float64).reshape(4, 2**17)
    paths = [write_idx(tmp_path / name, values[k : k + 2]) for k, name in ((0, "a"), (2, "b"))]
    read_idx_files("set", paths[:1])  # what is imported on first use
    tracemalloc.start()
    try:
        joined = read_idx_files("set", paths)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(joined, values)
    assert joined.dtype.isnative and peak < 1.5 * values.nbytes


def test_all_sizes_are_checked_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = write_idx(tmp_path / "a", VALUES), tmp_path / "b"
    monkeypatch.setattr(np, "empty", lambda *given: pytest.fail("memory was taken"))
    bad.write_bytes(good.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"b` declares 2 x 3 x 4 values of uint8, .*truncated"):
        read_idx_files("set", [good, bad])
    write_idx(bad, VALUES[:, :2])
    with pytest.raises(ValueError, match=r"`set` must have samples of one dtype and shape through"):
        read_idx_files("set", [good, bad])


def test_a_file_that_changes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_idx(tmp_path / "a", VALUES)
    taken = np.empty

    def take(*given: Any) -> Any:
        write_idx(path, VALUES[:1])
        return taken(*given)

    monkeypatch.setattr(np, "empty", take)
    with pytest.raises(
        ValueError, match=r"a` has changed while it was read\. Wait until it is compl"
    ):
        read_idx(path)
