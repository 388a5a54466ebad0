"""``dreamwarp fit``: its file, words and exit codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from dreamwarp import Augmenter, WarpModel
from dreamwarp.commands.options import parse_amount, parse_cells
from tests.commands.running import run


@pytest.fixture
def data(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.normal(size=(24, 14, 14)), axis=2)
    np.savez(tmp_path / "data.npz", X=X, y=np.array(["a", "b"])[np.arange(24) % 2])
    return str(tmp_path / "data.npz")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_model_is_written(tmp_path: Path, data: str, capsys: Any) -> None:
    out = tmp_path / "new" / "model.dwm"
    options = ["--cells", "2x3", "--neighbors", "2", "--strength", "0.7", "--kind", "gaussian"]
    assert run("fit", data, "-o", str(out), *options) == 0
    words = capsys.readouterr().out
    assert re.search(r"24 samples of 14 x 14 float64, 2 classes", words)
    assert re.search(r"\d+ pairs aligned, strength 0\.7 \(.* networks\); model written", words)
    model = WarpModel.load(out)
    assert model.space.cells == (2, 3) and model.classes == ("a", "b")
    assert model.kind == "gaussian" and model.strength == 0.7


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_options_of_the_data_reach_the_reader_and_the_model_an_address(
    tmp_path: Path, capsys: Any
) -> None:
    fsspec = pytest.importorskip("fsspec")
    X = np.cumsum(np.random.default_rng(0).normal(size=(24, 14, 14)), axis=2)
    np.savez(tmp_path / "flat.npz", faces=X.reshape(24, 196), people=np.arange(24) % 2)
    options = ["--fields", "faces,people", "--shape", "14x14", "--strength", "1", "--cells", "2x2"]
    places = [str(tmp_path / "flat.npz"), "-o", "memory://models/new/faces.dwm"]
    assert run("fit", *places, "--neighbors", "1", *options) == 0
    words = capsys.readouterr().out
    assert "24 samples of 14 x 14 float64" in words
    assert "model written to memory://models/new/faces.dwm" in words
    content = fsspec.filesystem("memory").cat_file("/models/new/faces.dwm")
    (tmp_path / "copy.dwm").write_bytes(content)
    assert WarpModel.load(tmp_path / "copy.dwm").classes == (0, 1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_options_reach_the_alignment(tmp_path: Path, data: str, monkeypatch: Any) -> None:
    found = {}

    def note(self: Augmenter, *given: Any, **more: Any) -> None:
        found.update(vars(self))
        raise ValueError("that will do")

    monkeypatch.setattr(Augmenter, "fit", note)
    options = ["--similarity", "ncc", "--sigma", "0.2", "--displacement", "0.1", "--length", "0.4"]
    options += ["--max-steps", "7", "--max-draws", "80", "--boundary", "slip", "--method", "hmc"]
    assert run("fit", data, "-o", str(tmp_path / "model.dwm"), *options) == 1
    expected = {
        "similarity": "ncc", "sigma": 0.2, "displacement": 0.1, "length": 0.4, "max_steps": 7,
        "max_draws": 80, "boundary": "slip", "method": "hmc",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_options_are_kept_in_the_model(tmp_path: Path, data: str) -> None:
    out = str(tmp_path / "model.dwm")
    options = ["--cells", "2x2", "--neighbors", "2", "--strength", "1", "--sigma", "0.2"]
    assert run("fit", data, "-o", out, *options, "--max-steps", "60") == 0
    settings = WarpModel.load(out).settings
    assert settings["sigma"] == 0.2 and settings["max_steps"] == 60


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("place", ["model.dwm", "memory://kept/model.dwm"])
def test_a_model_is_not_replaced_unasked(
    tmp_path: Path, data: str, capsys: Any, monkeypatch: Any, place: str
) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("dreamwarp.data.load", lambda *given, **more: pytest.fail("data was read"))
        with fsspec.open(place, "wb") as stream:
            stream.write(b"precious")
        assert run("fit", data, "-o", place) == 1
        message = rf"`{place}` exists already\. Use `--overwrite` .* or choose another"
        assert re.match(rf"dreamwarp: {message}", capsys.readouterr().err)
    options = ["--cells", "2x2", "--neighbors", "1", "--strength", "1", "--overwrite"]
    assert run("fit", data, "-o", place, *options) == 0
    with fsspec.open(place, "rb") as stream:
        assert stream.read() != b"precious"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("data.npz/model.dwm", r"a file of that name exists\. Choose another"),
        (".", r"is a folder\. Give the name of a file"),
        ("s3://model.dwm", r"must be the URL of a file, such as s3://"),
        ("memory://models/", r"must be the URL of a file, such as s3://"),
        ("nosuch://bucket/model.dwm", r"Protocol not known: nosuch"),
    ],
)
def test_the_place_is_checked_before_the_work(
    tmp_path: Path, data: str, capsys: Any, monkeypatch: Any, output: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Augmenter, "fit", lambda *given: pytest.fail("pairs were aligned"))
    assert run("fit", data, "-o", output) == 1
    assert re.fullmatch(rf"dreamwarp: .*{message}.*\n", capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


def test_flat_samples_are_refused_in_words_of_the_command(
    tmp_path: Path, data: str, capsys: Any
) -> None:
    np.savez(data, X=np.zeros((24, 196)), y=np.arange(24) % 2)
    assert run("fit", data, "-o", str(tmp_path / "model.dwm")) == 1
    message = (
        r"must have samples with 2 axes for 4x4 cells, got shape \(196,\)\. Use `--shape 28x28`"
    )
    assert re.fullmatch(rf"dreamwarp: .*{message}.*\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cells", "4by4"], r"'--cells': it must be 1 to 3 integers separated by x.*'4by4'"),
        (["--strength", "much"], r"'--strength': it must be a number or auto, got 'much'"),
        (["--neighbors", "0"], r"Invalid value for '--neighbors'"),
        (["--output", ""], r"Invalid value for '--output' / '-o': it must not be empty"),
        (["--shape", "28,28"], r"'--shape': it must be 1 to 4 integers separated by x.*'28,28'"),
        (["--method", "magic"], r"Invalid value for '--method'"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(
    tmp_path: Path, data: str, capsys: Any, arguments: list[str], message: str
) -> None:
    assert run("fit", data, "-o", str(tmp_path / "model.dwm"), *arguments) == 2
    assert re.fullmatch(rf"dreamwarp: .*{message}.*\n", capsys.readouterr().err)
    assert not (tmp_path / "model.dwm").exists()


def test_cells_and_strengths() -> None:
    assert parse_cells("16") == (16,) and parse_cells("4x5x6") == (4, 5, 6)
    assert parse_amount("auto") == "auto" and parse_amount("0.5") == 0.5
    for text in ("", "x", "4x", "4x4x4x4", "-4"):
        with pytest.raises(typer.BadParameter, match=r"it must be 1 to 3 integers"):
            parse_cells(text)
