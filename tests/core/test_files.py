"""Files appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dreamwarp.core.files import check_writable, local_copy, make_folder, write_beside


def test_the_file_appears_when_the_block_is_done(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "data.bin"
    with write_beside(target) as temporary:
        temporary.write_bytes(b"whole")
        assert not target.exists()
        assert temporary.parent == target.parent
        assert temporary.suffix == ".bin"
    assert target.read_bytes() == b"whole"
    assert os.listdir(target.parent) == ["data.bin"]


def write_half(target: str | Path, interruption: type[BaseException]) -> None:
    with write_beside(target) as temporary:
        temporary.write_bytes(b"ha")
        raise interruption


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_what_was_there(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    target = tmp_path / "data.bin"
    target.write_bytes(b"old")
    with pytest.raises(interruption):
        write_half(target, interruption)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["data.bin"]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=r"is a folder\. Give the name of a file"):
        write_half(tmp_path, RuntimeError)


@pytest.mark.parametrize("below", ["data.bin", "deeper/data.bin"])
def test_a_file_in_the_way_of_the_folder_is_refused(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError, match="a file of that name exists"):
        write_half(file / below, RuntimeError)


# -- places that can't be written


def fail_with(number: int) -> Any:
    def fail(*given: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_folder_that_cant_be_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "mkdir", fail_with(errno.EROFS))
    with pytest.raises(OSError, match=r"new` can't be made: Read-only .*\. Choose a folder that"):
        make_folder(tmp_path / "new")


def test_places_are_checked_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_writable(tmp_path / "new" / "data.bin")
    assert list((tmp_path / "new").iterdir()) == []
    with pytest.raises(IsADirectoryError, match=r"is a folder\. Give the name of a file"):
        check_writable(tmp_path)
    monkeypatch.setattr(tempfile, "TemporaryFile", fail_with(errno.EACCES))
    with pytest.raises(OSError, match=r"data\.bin` can't be written: Permission denied\. Choose"):
        check_writable(tmp_path / "data.bin")


@pytest.mark.parametrize("path", [None, 3, 2.5, b"a.bin", ["a.bin"]])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(TypeError, match=r"`path` must be a str or a pathlib\.Path, got .* \(\w+\)"):
        check_writable(path)


@pytest.mark.parametrize("name", ["", "a\0b.bin", "\ud800.bin"])
def test_names_that_no_file_can_have_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"`path` must be a valid path on this system, got '"):
        check_writable(name)


def test_names_of_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=r"new/` is the name of a folder\. Give"):
        check_writable(f"{tmp_path}/new/")
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_too_long_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"can't be written: File name too long\. Choose"):
        write_half(tmp_path / ("a" * 300), RuntimeError)


def test_pipes_and_devices_are_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match=r"pipe` is a device, pipe or socket.*Give another"):
        write_half(pipe, RuntimeError)
    assert pipe.is_fifo()


@pytest.mark.skipif(sys.platform != "linux", reason="others have no /proc")
def test_a_file_system_that_takes_no_files_is_refused() -> None:
    with pytest.raises(OSError, match=r"/proc/a\.bin` can't be written: .*\. Choose a folder that"):
        write_half("/proc/a.bin", RuntimeError)


@pytest.mark.parametrize("mode", [0o500, 0o600], ids=["read-only", "closed"])
def test_folders_of_others_are_refused(mode: int) -> None:
    # An administrator may write anywhere: the test is for the user nobody.
    with tempfile.TemporaryDirectory() as folder:
        closed = Path(folder, "closed")
        closed.mkdir(mode)
        os.chmod(folder, 0o755)
        is_root = os.geteuid() == 0
        try:
            if is_root:
                os.chown(closed, 65534, 65534)
                os.seteuid(65534)
            for name in ("a.bin", "deeper/a.bin"):
                with pytest.raises(OSError, match=r"can't be .*: Permission denied\. Choose a fol"):
                    write_half(closed / name, RuntimeError)
        finally:
            if is_root:
                os.seteuid(0)
            closed.chmod(0o700)


@pytest.mark.parametrize("path", ["s3://bucket/a.dwm", Path("s3://bucket/a.dwm")])
def test_addresses_are_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"a\.dwm` must be a path on this machine, got an address"):
        write_half(path, RuntimeError)
    assert list(tmp_path.iterdir()) == []


# -- copies


def test_what_is_here_is_not_copied(tmp_path: Path) -> None:
    with local_copy(tmp_path / "a") as file:
        assert file == tmp_path / "a"


def test_a_copy_goes_after_the_block() -> None:
    fsspec = pytest.importorskip("fsspec")
    content = bytes(range(256)) * 2**13
    fsspec.filesystem("memory").pipe_file("/bucket/a.bin", content)
    with local_copy("memory://bucket/a.bin") as file:
        assert file.name == "a.bin" and file.read_bytes() == content
    assert not file.parent.exists()


def test_what_there_is_no_room_for_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file("/bucket/a.bin", bytes(100))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=99))
    with (
        pytest.raises(OSError, match=r"a\.bin` must fit into .*, which has 99 free bytes"),
        local_copy("memory://bucket/a.bin"),
    ):
        pass


def test_what_fsspec_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with (
        pytest.raises(ImportError, match=r"`s3://bucket/a\.bin` can't be reached: .*s3fs"),
        local_copy("s3://bucket/a.bin"),
    ):
        pass


def test_without_fsspec_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with (
        pytest.raises(ImportError, match=r"fsspec, which is not installed\. Use `pip install drea"),
        local_copy("memory://bucket/a.bin"),
    ):
        pass
