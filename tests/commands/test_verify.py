"""``dreamwarp verify``: words and exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dreamwarp.generation import generate
from tests.commands.running import one_line, run
from tests.generation.cases import make_data, make_model


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A set of 14 shards."""
    folder = tmp_path / "out"
    generate(make_model(), make_data(), folder, n=40, shard_size=3, progress=False)
    return folder


def test_a_sound_set(out: Path, capsys: Any) -> None:
    assert run("verify", str(out)) == 0
    words = capsys.readouterr()
    assert words.out == f"{out} is intact: 14 shards, 40 samples, idx, seed 0\n"
    assert words.err == ""


def test_one_damaged_shard_is_counted_and_named(out: Path, capsys: Any) -> None:
    (out / "images-00000-idx3-ubyte").write_bytes(b"damaged")
    assert run("verify", str(out)) == 1
    one_line(capsys, r"out` is not intact: none missing, 1 damaged \(shard 0\), of 14 shards\.")


def test_several_shards_are_counted_and_named(out: Path, capsys: Any) -> None:
    for number in (3, 5):
        (out / f"labels-{number:05}-idx1-ubyte").unlink()
    (out / "images-00007-idx3-ubyte").write_bytes(b"damaged")
    assert run("verify", str(out)) == 1
    one_line(
        capsys,
        r"2 missing \(shards 3, 5\), 1 damaged \(shard 7\), of 14 shards\. .*`--resume`",
    )


def test_many_shards_are_not_all_named(out: Path, capsys: Any) -> None:
    for file in out.glob("labels-*"):
        file.unlink()
    assert run("verify", str(out)) == 1
    one_line(
        capsys, r"14 missing \(shards 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 4 more\), none damaged, of"
    )


def test_a_set_at_an_address(capsys: Any) -> None:
    pytest.importorskip("fsspec")
    generate(make_model(), make_data(), "memory://verified", n=4, progress=False)
    assert run("verify", "memory://verified") == 0
    assert "memory://verified is intact: 1 shards, 4 samples" in capsys.readouterr().out


def test_what_is_no_set_is_one_line_and_code_1(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").touch()
    for name, message in (
        ("", r"holds no manifest\.json, so it is not a set of samples"),
        ("none", r"holds no manifest\.json, so it is not a set of samples"),
        ("file", r"file` must be the folder of a set of samples, got a file"),
    ):
        assert run("verify", str(tmp_path / name)) == 1
        one_line(capsys, message)


def test_meshes_have_no_hashes(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "bone").mkdir()
    (tmp_path / "bone" / "1.ply").touch()
    assert run("verify", str(tmp_path)) == 1
    one_line(capsys, r"` holds meshes, which are written without hashes.*`--resume`")


def test_wrong_use_is_one_line_and_code_2(capsys: Any) -> None:
    assert run("verify", "") == 2
    one_line(capsys, r"Invalid value for 'OUT': it must not be empty")
    assert run("verify") == 2
    one_line(capsys, r"Missing argument 'OUT'")
