"""``dreamwarp data``: words and exit codes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp.commands import data as command
from dreamwarp.data import named
from dreamwarp.data.fetch import CACHE_VARIABLE, KnownFile
from dreamwarp.data.named import Recipe
from tests.commands.running import one_line, run
from tests.data.cases import write_idx

X = np.random.default_rng(0).integers(0, 256, (6, 4, 5), np.uint8)
Y = np.array([2, 0, 2, 1, 0, 2], np.uint8)


def as_known(path: Path) -> KnownFile:
    content = path.read_bytes()
    return KnownFile(path.name, len(content), hashlib.sha256(content).hexdigest())


@pytest.fixture
def small(tmp_path: Path, monkeypatch: Any) -> Path:
    """A folder with the files of a small data set called mnist; the cache is empty."""
    folder = tmp_path / "mirror"
    paths = []
    for part, n in (("train", 6), ("t10k", 2)):
        paths.append(write_idx(folder / f"{part}-images-idx3-ubyte", X[:n]))
        paths.append(write_idx(folder / f"{part}-labels-idx1-ubyte", Y[:n]))
    files = tuple(map(as_known, paths))
    recipe = Recipe("mnist", "MNIST", files, (), named.MNIST.package)
    monkeypatch.setattr(named, "RECIPES", {"mnist": recipe})
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return folder


# -- by name


def test_names_are_listed(small: Path, tmp_path: Path, capsys: Any) -> None:
    assert run("data") == 0
    words = capsys.readouterr().out
    assert re.search(r"^mnist +MNIST: handwritten digits, .* \(not fetched yet\)$", words, re.M)
    assert re.search(r"^digits +scikit-learn's .* \(no need to fetch\)$", words, re.M)
    assert run("data", "mnist", "--source", str(small)) == 0 and run("data") == 0
    assert f"(in {tmp_path / 'cache' / 'mnist'})" in capsys.readouterr().out


def test_a_data_set_is_fetched_and_described(small: Path, tmp_path: Path, capsys: Any) -> None:
    assert run("data", "mnist", "--source", str(small), "-o", str(tmp_path / "new")) == 0
    words = capsys.readouterr()
    assert words.out.splitlines() == [
        "mnist: 6 + 2 test samples of 4 x 5 uint8, 3 classes",
        f"4 files, 216 bytes, SHA-256 verified, in {tmp_path / 'new'}",
        "class   samples      test",
        "    0         2         1",
        "    1         1         0",
        "    2         3         1",
    ]
    assert words.err == ""
    assert len(list((tmp_path / "new").iterdir())) == 4 and not (tmp_path / "cache").exists()


def test_what_has_no_need_to_be_fetched(capsys: Any) -> None:
    assert run("data", "digits") == 0
    assert capsys.readouterr().out.startswith("digits: 1,797 samples of 8 x 8 float32, 10 classes")


# -- by path


def test_options_reach_the_readers(tmp_path: Path, capsys: Any) -> None:
    np.savez(tmp_path / "a.npz", faces=X.reshape(6, 20), people=Y)
    assert run("data", str(tmp_path / "a.npz"), "--fields", "faces, people", "--shape", "4x5") == 0
    assert "6 samples of 4 x 5 uint8, 3 classes" in capsys.readouterr().out
    (tmp_path / "pictures" / "a").mkdir(parents=True)
    for k, values in enumerate((X[0], X[1, :3])):
        Image.fromarray(values).save(tmp_path / "pictures" / "a" / f"{k}.png")
    assert run("data", str(tmp_path / "pictures")) == 1
    one_line(capsys, r"images must have one size, got 2.* Use `--resize 28x28`")
    assert run("data", str(tmp_path / "pictures"), "--resize", "3x2") == 0
    assert "2 samples of 3 x 2 uint8, 1 class" in capsys.readouterr().out
    (tmp_path / "a.ts").write_text("@data\n1,2,3:a\n4,5:b\n")
    assert run("data", str(tmp_path / "a.ts")) == 1
    one_line(capsys, r"has 2 values, but the first series has 3\. Use `--pad edge`")
    assert run("data", str(tmp_path / "a.ts"), "--pad", "edge") == 0
    assert "2 samples of 3 float64, 2 classes" in capsys.readouterr().out


def test_data_at_an_address(tmp_path: Path, capsys: Any) -> None:
    system = pytest.importorskip("fsspec").filesystem("memory")
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    system.put(str(tmp_path / "a.npz"), "/looked/a.npz")
    assert run("data", "memory://looked/a.npz") == 0
    assert capsys.readouterr().out.startswith("memory://looked/a.npz: 6 samples of 4 x 5 uint8")


def test_many_classes_are_not_all_listed(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(command, "MAX_CLASSES", 2)
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    assert run("data", str(tmp_path / "a.npz")) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "... and 1 more classes"


# -- what is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], r"`nosuch` is neither the name of a data set nor a file or folder"),
        (["s3://bucket/folder"], r"data at an address must be one file, \.npz, .* Copy folders"),
        (["digits", "-o", "new"], r"`--output` and `--source` need a data set that is fetched"),
        (["mnist", "-o", "s3://bucket/x"], r"bucket/x` must be a path .* got an address"),
        (
            ["mnist", "--resize", "8x8"],
            r"`--resize` \(`resize`\) is for image folders, Parquet fil",
        ),
        (["mnist", "--source", "moon"], r"must be 'mirrors', 'npm', a web address or a folder"),
    ],
)
def test_what_cant_be_done_is_one_line_and_code_1(
    small: Path, tmp_path: Path, monkeypatch: Any, capsys: Any, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("data", *arguments) == 1
    one_line(capsys, message)
    assert [path.name for path in tmp_path.iterdir()] == ["mirror"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], r"Invalid value for 'DATA': it must not be empty"),
        (["mnist", "-o", ""], r"Invalid value for '--output' / '-o': it must not be empty"),
        (["x", "--fields", "X"], r"'--fields': it must be two names separated by a comma.*'X'"),
        (["x", "--fields", "X,"], r"'--fields': it must be two names separated by a comma.*'X,'"),
        (["x", "--shape", "4by5"], r"'--shape': it must be 1 to 4 integers separated by x"),
        (
            ["x", "--resize", "28"],
            r"'--resize': it must be 2 to 3 integers separated by x",
        ),
        (["x", "--pad", "mean"], r"Invalid value for '--pad'"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(capsys: Any, arguments: list[str], message: str) -> None:
    assert run("data", *arguments) == 2
    one_line(capsys, message)


def test_help_names_what_can_be_read(capsys: Any) -> None:
    assert run("data", "--help") == 0
    words = " ".join(re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    for kind in ("pictures", "IDX", ".npz", ".npy", "Parquet", "WebDataset", ".ts", "`dreamwarp"):
        assert kind in words
