"""Files appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dreamwarp.files import write_beside


def test_the_file_appears_when_the_block_is_done(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "data.bin"
    with write_beside(target) as temporary:
        temporary.write_bytes(b"whole")
        assert not target.exists()
        assert temporary.parent == target.parent
        assert temporary.suffix == ".bin"
    assert target.read_bytes() == b"whole"
    assert os.listdir(target.parent) == ["data.bin"]


def write_half(target: Path, interruption: type[BaseException]) -> None:
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
    with pytest.raises(NotADirectoryError, match="can't be a folder: a file stands in its way"):
        write_half(file / below, RuntimeError)
