"""WebDataset archives, as others write them, and as nobody should."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp.data import load
from dreamwarp.data.webdataset import list_members, read_webdataset

BLOCK = tarfile.BLOCKSIZE
X = np.random.default_rng(0).integers(0, 256, (5, 4, 6), np.uint8)
Y = [3, 1, 3, 0, -1]
NAMES = [f"{k:04d}" for k in range(5)]

Files = list[tuple[str, bytes]]


def picture(values: np.ndarray, kind: str = "PNG") -> bytes:
    target = io.BytesIO()
    Image.fromarray(values).save(target, kind)
    return target.getvalue()


def array(values: Any) -> bytes:
    target = io.BytesIO()
    np.save(target, np.asarray(values))
    return target.getvalue()


def pictures_and_numbers() -> Files:
    pairs = zip(NAMES, X, Y, strict=True)
    return [
        file
        for name, values, label in pairs
        for file in ((f"{name}.png", picture(values)), (f"{name}.cls", b"%d" % label))
    ]


def arrays_and_words() -> Files:
    pairs = zip(NAMES, X.astype(np.float32), "abacb", strict=True)
    return [
        file
        for name, values, label in pairs
        for file in ((f"{name}.npy", array(values)), (f"{name}.txt", label.encode()))
    ]


def write(path: Path, files: Files, format: int = tarfile.USTAR_FORMAT, **options: Any) -> Path:
    with tarfile.open(path, "w", format=format) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in options.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return path


# -- what is read


def test_pictures_and_numbers(tmp_path: Path) -> None:
    data = load(write(tmp_path / "a.tar", pictures_and_numbers()))
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == Y
    assert load(tmp_path / "a.tar", resize=(2, 3)).X.shape == (5, 2, 3)


def test_arrays_and_words(tmp_path: Path) -> None:
    data = load(write(tmp_path / "a.tar", arrays_and_words()))
    np.testing.assert_array_equal(data.X, X)
    assert data.X.dtype == np.float32 and data.y.tolist() == list("abacb")
    assert load(tmp_path / "a.tar", shape=(24,)).X.shape == (5, 24)
    with pytest.raises(ValueError, match=r"`--resize` \(`resize`\) is for images"):
        load(tmp_path / "a.tar", resize=(2, 2))


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_of_all_makes(tmp_path: Path, format: int) -> None:
    """Names that need more room than headers have, and times that are no whole seconds."""
    folder = "d" * 60 + "/" + "e" * 60
    files = [(f"./{folder}/{name}", content) for name, content in pictures_and_numbers()]
    if format != tarfile.USTAR_FORMAT:
        files = [(f"œ{'f' * 200}/{name}", content) for name, content in files]
    data = load(write(tmp_path / "a.tar", files, format, mtime=1.5 if format == 2 else 1))
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == Y


def test_what_webdataset_writes(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as sink:
        for name, values, label in zip(NAMES, X, Y, strict=True):
            sink.write({"__key__": name, "png": picture(values), "cls": label, "json": {"a": 1}})
    data = load(tmp_path / "a.tar")
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == Y


def test_archives_of_a_folder_go_together(tmp_path: Path) -> None:
    files = pictures_and_numbers()
    write(tmp_path / "b-1.tar", files[4:])
    write(tmp_path / "b-0.tar", files[:4])
    data = load(tmp_path)
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == Y
    write(tmp_path / "c.tar", arrays_and_words())
    with pytest.raises(ValueError, match=r"one dtype and shape throughout, got float32 .* uint8"):
        load(tmp_path)


def test_words_and_numbers_do_not_go_together(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [("a.png", picture(X[0])), ("a.cls", b"1")])
    write(tmp_path / "b.tar", [("a.png", picture(X[0])), ("a.txt", b"one")])
    with pytest.raises(ValueError, match=r"labels of one type, .* strings and numbers"):
        load(tmp_path)


def test_endings_may_be_named(tmp_path: Path) -> None:
    files: Files = []
    for name, values in zip(NAMES, X, strict=True):
        files += [
            (f"{name}.left.png", picture(values)),
            (f"{name}.right.npy", array(values.T)),
            (f"{name}.name", b" x\n"),
            (f"{name}.CLASS", b" 7\n"),
            (f"{name}.json", b"{}"),
        ]
    path = write(tmp_path / "a.tar", files)
    data = load(path, fields=("left.png", "class"))
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == [7] * 5
    data = load(path, fields=("right.npy", "name"))
    np.testing.assert_array_equal(data.X, X.transpose(0, 2, 1))
    assert data.y.tolist() == [" x\n"] * 5
    with pytest.raises(
        ValueError, match=r"no samples under a known name \(png, .*: left\.png, right"
    ):
        load(path)
    with pytest.raises(
        ValueError, match=r"must have \.png and \.cls for every .*`0000` has \.left"
    ):
        load(path, fields=("png", "cls"))


def test_files_of_no_sample_are_passed_over(tmp_path: Path) -> None:
    files = [("README", b"words"), (".hidden", b""), ("d/.DS_Store", b""), *pictures_and_numbers()]
    path = write(tmp_path / "a.tar", files)
    with tarfile.open(path, "a") as archive:
        for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo("../../etc/0000.png")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    np.testing.assert_array_equal(load(path).X, X)


def test_colours_that_come_last_are_moved(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((16, 17, 3))
    path = write(tmp_path / "a.tar", [("a.npy", array(values)), ("a.cls", b"0")])
    np.testing.assert_array_equal(load(path).X[0], np.moveaxis(values, -1, 0))


def test_an_archive_at_an_address(tmp_path: Path) -> None:
    system = pytest.importorskip("fsspec").filesystem("memory")
    system.put(str(write(tmp_path / "a.tar", pictures_and_numbers())), "/tars/a.tar")
    np.testing.assert_array_equal(load("memory://tars/a.tar").X, X)


def test_nothing_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.tar", [("../up.png", picture(X[0])), ("../up.cls", b"0")])
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setenv("TMPDIR", str(empty))
    assert len(load(path).X) == 1
    assert [p.name for p in sorted(tmp_path.rglob("*"))] == ["a.tar", "empty"]


# -- what is refused


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], r"must hold samples, got no files with an ending"),
        ([("README", b"")], r"must hold samples, got no files with an ending"),
        (
            [("a.png", picture(X[0]))],
            r"no labels under a known name \(cls, txt\)\. It has: png\.",
        ),
        ([("a.webp", b""), ("a.cls", b"")], r"no samples under a known name"),
        (
            [*pictures_and_numbers(), ("x.png", picture(X[0]))],
            r"must have \.png and \.cls for every sample, but `x` has \.png\.",
        ),
        ([*pictures_and_numbers()[:3]], r"every sample, but `0001` has \.png\."),
        ([("a.png", b""), ("a.PNG", b"")], r"has `a\.PNG` twice"),
        (
            [*pictures_and_numbers(), ("x.png", picture(X[0].T)), ("x.cls", b"1")],
            r"images must have one size, got 2: `.*\[0000\.png\]` .*`.*\[x\.png\]` is 6 x 4",
        ),
        (
            [*arrays_and_words(), ("x.npy", array(np.zeros((4, 6)))), ("x.txt", b"a")],
            r"one dtype and shape throughout, got float32 \(4, 6\), float64 \(4, 6\)",
        ),
        (
            [("a.png", b"words"), ("a.cls", b"1")],
            r"`.*\[a\.png\]` can't be read as a PNG, JPEG, TIFF or WebP",
        ),
        ([("a.npy", b"words"), ("a.cls", b"1")], r"`.*\[a\.npy\]` is not a NumPy array"),
        ([("a.npy", array(X[0])[:-1]), ("a.cls", b"1")], r"`.*\[a\.npy\]` declares .*holds 23"),
        (
            [("a.npy", array(X[0]).replace(b"|u1", b"|O8")), ("a.cls", b"1")],
            r"`.*\[a\.npy\]` holds pickled Python objects, which are not read",
        ),
        ([("a.npy", array(1.0)), ("a.cls", b"1")], r"at least one sample .*shape \(n, \*spatial\)"),
        ([("a.png", picture(X[0])), ("a.cls", b"1.5")], r"integers as \.cls, got b'1\.5'"),
        ([("a.png", picture(X[0])), ("a.cls", b"9" * 5000)], r"integers as \.cls, got b'999"),
        ([("a.png", picture(X[0])), ("a.cls", b"9" * 19)], r"integers as \.cls, got b'999"),
        ([("a.png", picture(X[0])), ("a.txt", b"\xff")], r"has a label that is not UTF-8 text"),
    ],
)
def test_unsound_samples_are_refused(tmp_path: Path, files: Files, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path / "a.tar", files))


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    pickled = array(X[0]).replace(b"|u1", b"|O8")
    files = [("a.npy", pickled), ("a.cls", b"1"), ("a.pyd", b"cos\nsystem\n"), ("a.pkl", b"c")]
    path = write(tmp_path / "a.tar", files)
    with pytest.raises(ValueError, match="pickled Python objects"):
        load(path)
    with pytest.raises(ValueError, match="can't be read as a PNG, JPEG, TIFF or WebP"):
        load(path, fields=("pyd", "cls"))


def truncated(content: bytes) -> bytes:
    return content[: 3 * BLOCK]


def without_end(content: bytes) -> bytes:
    end = len(content.rstrip(b"\0"))
    return content[: end + -end % BLOCK]


def damaged(content: bytes) -> bytes:
    """A header in the middle that can't be one, where Python's own reader sees the end."""
    return content[: 2 * BLOCK] + b"x" + content[2 * BLOCK + 1 :]


def signed(header: bytes) -> bytes:
    """A header with the sum that it should have."""
    total = sum(header) - sum(header[148:156]) + 8 * 32
    return header[:148] + b"%06o\0 " % total + header[156:]


def boastful(content: bytes) -> bytes:
    return signed(content[:124] + b"77777777777\0" + content[136:BLOCK]) + content[BLOCK:]


def boastful_in_base_256(content: bytes) -> bytes:
    size = b"\x80\0\0\0" + struct.pack(">Q", 2**63)
    return signed(content[:124] + size + content[136:BLOCK]) + content[BLOCK:]


def negative(content: bytes) -> bytes:
    size = b"\xff" * 4 + struct.pack(">q", -512)
    return signed(content[:124] + size + content[136:BLOCK]) + content[BLOCK:]


def of_type(kind: bytes, content: bytes) -> bytes:
    return signed(content[:156] + kind + content[157:BLOCK]) + content[BLOCK:]


def sparse(content: bytes) -> bytes:
    return of_type(b"S", content)


def of_unknown_type(content: bytes) -> bytes:
    return of_type(b"Z", content)


def with_many_records(content: bytes) -> bytes:
    """Extended headers one after the other, which tarfile reads by recursion."""
    header = signed(content[:124] + b"%011o\0" % 9 + content[136:156] + b"x" + content[157:BLOCK])
    return 5000 * (header + b"9 path=a\n".ljust(BLOCK, b"\0")) + content


def with_long_records(content: bytes) -> bytes:
    size = b"%011o\0" % (2**20)
    header = signed(content[:124] + size + content[136:156] + b"x" + content[157:BLOCK])
    return header + bytes(2**20) + content


def with_bad_records(content: bytes) -> bytes:
    header = signed(content[:124] + b"%011o\0" % 9 + content[136:156] + b"x" + content[157:BLOCK])
    return header + b"999 path=".ljust(BLOCK, b"\0") + content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: b"", "empty file"),
        (lambda content: content[:100], "truncated header"),
        (lambda content: b"words" * 200, "bad checksum|invalid header"),
        (lambda content: b"\x1f\x8b" * 300, "can't be read as an uncompressed tar archive"),
        (truncated, r"declares 1 bytes, beyond the end"),
        (without_end, r"no header and no end mark at byte"),
        (damaged, r"no header and no end mark at byte 1,024"),
        (boastful, r"`0000\.png` declares 8,589,934,591 bytes, beyond the end"),
        (boastful_in_base_256, r"`0000\.png` declares 9,223,372,036,854,775,808"),
        (negative, r"`0000\.png` declares -512 bytes"),
        (sparse, r"`0000\.png` is of type b'S', not a plain file"),
        (of_unknown_type, r"`0000\.png` is of type b'Z', not a plain file"),
        (with_long_records, r"a header declares 1,048,576 bytes"),
        (with_bad_records, r"a\.tar` "),
        (with_many_records, r"can't be read as an uncompressed tar archive"),
    ],
)
def test_unsound_archives_are_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    path = write(tmp_path / "a.tar", pictures_and_numbers())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        load(path)


def test_one_long_label_does_not_make_room_for_as_long_ones(tmp_path: Path) -> None:
    files: Files = []
    for k in range(300):
        files += [(f"{k}.npy", array(X[0])), (f"{k}.txt", b"a")]
    path = write(tmp_path / "a.tar", [*files, ("x.npy", array(X[0])), ("x.txt", b"b" * 300_000)])
    with pytest.raises(ValueError, match=r"\(labels\)` would grow .*shorten the longest label"):
        load(path)


def test_one_long_label_in_a_shard_of_many_is_refused_too(tmp_path: Path) -> None:
    small = array(np.zeros((1, 1), np.uint8))
    files: Files = []
    for k in range(300):
        files += [(f"{k}.npy", small), (f"{k}.txt", b"a")]
    write(tmp_path / "a.tar", files)
    write(tmp_path / "b.tar", [("x.npy", small), ("x.txt", b"b" * 300_000)])
    with pytest.raises(ValueError, match=r"\(labels\)` would grow .*shorten the longest label"):
        load(tmp_path)


def test_members_are_those_of_tarfile(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", arrays_and_words(), tarfile.PAX_FORMAT, mtime=0.5)
    with tarfile.open(path) as archive:
        expected = [(info.name, info.offset_data, info.size) for info in archive]
    assert [(info.name, info.offset_data, info.size) for info in list_members(path)] == expected


def test_a_folder_without_archives_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must hold \.tar files, got none"):
        read_webdataset(tmp_path)
