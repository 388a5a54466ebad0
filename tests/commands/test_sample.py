"""``dreamwarp sample``: files, words and exit codes."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp import cli
from dreamwarp.augment import SampleSource
from dreamwarp.core import progress
from dreamwarp.data import load
from dreamwarp.generation import generate
from tests.commands.running import one_line, run
from tests.generation.cases import files_of, make_data, make_model

ANYTHING = r"(?s).*"


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """Names of a model file and of a data file."""
    model, data = tmp_path / "model.dwm", tmp_path / "data.npz"
    make_model().save(model)
    np.savez(data, X=make_data().X, y=make_data().y)
    return [str(model), str(data)]


def test_options_reach_the_samples(inputs: list[str], tmp_path: Path, capsys: Any) -> None:
    out = str(tmp_path / "out")
    options = ["--seed", "7", "--first", "11", "--strength", "0.5", "--balance", "data"]
    options += ["--interpolation", "cubic"]
    assert run("sample", *inputs, "-n", "40", "-o", out, "--shard-size", "15", *options) == 0
    words = capsys.readouterr()
    assert re.search(r"samples 11 to 50 of .*data\.npz as idx, seed 7, strength 0\.5", words.out)
    assert re.search(r"40 samples in .*out, 3 shards; 3 made in .* samples per second", words.out)
    assert words.err == ""
    source = SampleSource(
        make_model(), make_data(), seed=7, strength=0.5, balance="data", interpolation="cubic"
    )
    X, y = source.make(11, 40)
    read = load(out)
    np.testing.assert_array_equal(read.X, X)
    np.testing.assert_array_equal(read.y, y)


def test_the_strength_used_is_shown(inputs: list[str], tmp_path: Path, capsys: Any) -> None:
    make_model().with_strength(0.0).save(inputs[0])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run("sample", *inputs, "-n", "9", "-o", str(tmp_path / "still")) == 0
    words = capsys.readouterr()
    assert "strength 0\n" in words.out
    assert re.search(r"warning: .*copies.*--strength 1", words.err)
    out = tmp_path / "out"
    assert run("sample", *inputs, "-n", "9", "-o", str(out), "--strength", "2") == 0
    assert "strength 2\n" in capsys.readouterr().out
    assert json.loads((out / "manifest.json").read_text())["settings"]["strength"] == 2.0
    X, _ = SampleSource(make_model(), make_data(), strength=2).make(0, 9)
    np.testing.assert_array_equal(load(str(out)).X, X)


@pytest.mark.parametrize("format", ["npz", "parquet", "webdataset", "folder"])
def test_formats(inputs: list[str], tmp_path: Path, format: str) -> None:
    out = tmp_path / "out"
    assert run("sample", *inputs, "--per-class", "4", "-o", str(out), "--format", format) == 0
    data = load(inputs[1])
    generate(make_model(), data, tmp_path / "same", n=12, format=format, progress=False)  # type: ignore[arg-type]
    assert files_of(out) == files_of(tmp_path / "same")


@pytest.mark.parametrize(
    ("kind", "format"), [("folder", "folder"), ("words", "npz"), ("numbers", "idx")]
)
def test_the_format_fits_the_data(
    inputs: list[str], tmp_path: Path, capsys: Any, kind: str, format: str
) -> None:
    classes = (0, 1, 2) if kind == "numbers" else ("ant", "bee", "cat")
    data, source = make_data(classes), inputs[1]
    make_model(classes).save(inputs[0])
    np.savez(source, X=data.X, y=data.y)
    if kind == "folder":
        source = str(tmp_path / "pictures")
        for k, (image, name) in enumerate(zip(data.X, data.y, strict=True)):
            Path(source, name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(Path(source, name, f"{k}.png"))
    assert run("sample", inputs[0], source, "-n", "9", "-o", str(tmp_path / "out")) == 0
    assert f" as {format}, seed 0" in capsys.readouterr().out
    assert (
        json.loads((tmp_path / "out" / "manifest.json").read_text())["settings"]["format"] == format
    )


def test_resuming(inputs: list[str], tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    arguments = ["sample", *inputs, "-n", "40", "-o", str(out), "--shard-size", "3"]
    assert run(*arguments) == 0
    before = files_of(out)
    (out / "labels-00003-idx1-ubyte").unlink()
    (out / "images-00007-idx3-ubyte").write_bytes(b"damaged")
    assert run(*arguments) == 1
    one_line(
        capsys,
        r"holds a set of samples, 14 of 14 shards\. Complete it with `--resume`",
        out=ANYTHING,
    )
    assert run(*arguments, "--resume") == 0
    assert re.search(r"14 shards, 12 existing and intact; 2 made in", capsys.readouterr().out)
    assert files_of(out) == before
    assert run(*arguments, "--resume") == 0
    assert re.search(
        r"14 existing and intact; 0 made in \d+\.\d s$", capsys.readouterr().out.strip()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0"], r"Invalid value for '--number' / '-n'"),
        (["-n", "-4"], r"Invalid value for '--number' / '-n'"),
        (["-n", "99999999999999999999"], r"Invalid value for '--number' / '-n'"),
        (["-n", "many"], r"Invalid value for '--number' / '-n'"),
        (["-n", "4", "--per-class", "4"], r"give either --number or --per-class"),
        ([], r"give either --number or --per-class"),
        (["-n", "4", "--format", "zip"], r"Invalid value for '--format'"),
        (["-n", "4", "--seed", "-1"], r"Invalid value for '--seed'"),
        (["-n", "4", "--strength", "-1"], r"Invalid value for '--strength'"),
        (["-n", "4", "--shard-size", "0"], r"Invalid value for '--shard-size'"),
        (["-n", "4", "-o", ""], r"Invalid value for '--output' / '-o': it must not be empty"),
        (["-n", "4", "--resize", "28"], r"'--resize': it must be 2 to 3 integers separated by x"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(
    inputs: list[str], tmp_path: Path, capsys: Any, arguments: list[str], message: str
) -> None:
    assert run("sample", *inputs, "-o", str(tmp_path / "out"), *arguments) == 2
    one_line(capsys, message)
    assert not (tmp_path / "out").exists()


def test_what_cant_be_done_is_one_line_and_code_1(
    inputs: list[str], tmp_path: Path, capsys: Any
) -> None:
    out = ["-n", "4", "-o", str(tmp_path / "out")]
    assert run("sample", inputs[0], "nosuch", *out) == 1
    one_line(capsys, r"`nosuch` is neither the name of a data set nor a file")
    assert run("sample", str(tmp_path / "none.dwm"), inputs[1], *out) == 1
    one_line(capsys, r"`.*none\.dwm` does not exist")
    assert run("sample", inputs[1], inputs[1], *out) == 1
    one_line(capsys, r"data\.npz")
    np.savez(inputs[1], X=make_data().X, y=make_data().y + 5)
    assert run("sample", *inputs, *out) == 1
    one_line(capsys, r"the model must have every class of .* 5, 6, 7", out=ANYTHING)
    np.savez(inputs[1], X=make_data().X.astype(object), y=make_data().y)
    assert run("sample", *inputs, *out) == 1
    one_line(capsys, r"holds pickled Python objects, which are not read")


def test_interruption_is_code_130_and_can_be_resumed(
    inputs: list[str], tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    out = tmp_path / "out"
    arguments = ["sample", *inputs, "-n", "40", "-o", str(out), "--shard-size", "5"]
    original = SampleSource.make

    def interrupted(source: SampleSource, first: int, n: int, **options: Any) -> Any:
        if first == 20:
            raise KeyboardInterrupt
        return original(source, first, n, **options)

    with monkeypatch.context() as patch:
        patch.setattr(SampleSource, "make", interrupted)
        assert run(*arguments) == cli.INTERRUPTED
    one_line(capsys, r"interrupted; finished files are kept: .*`--resume`", out=ANYTHING)
    shards = json.loads((out / "manifest.json").read_text())["shards"]
    assert [shard is not None for shard in shards] == [True] * 4 + [False] * 4
    assert run(*arguments, "--resume") == 0 and run("verify", str(out)) == 0


def test_a_bar_shows_what_is_checked_and_what_is_made(
    inputs: list[str], tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    out = str(tmp_path / "out")
    arguments = ["sample", *inputs, "-n", "40", "-o", out, "--shard-size", "5"]
    assert run(*arguments) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "out" / "labels-00003-idx1-ubyte").unlink()
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    assert run(*arguments, "--resume") == 0
    words = capsys.readouterr().err
    assert "verifying" in words and "8 of 8" in words
    assert "samples" in words and "40 of 40" in words


# -- how data is read, and from where


def test_options_of_the_data_reach_the_reader(inputs: list[str], tmp_path: Path) -> None:
    out, plain = tmp_path / "out", make_data()
    np.savez(inputs[1], faces=plain.X.reshape(len(plain.X), -1), people=plain.y)
    shape = "x".join(map(str, plain.X.shape[1:]))
    options = ["--fields", "faces,people", "--shape", shape]
    assert run("sample", *inputs, "-n", "9", "-o", str(out), *options) == 0
    generate(make_model(), plain, tmp_path / "same", n=9, progress=False)
    assert files_of(out) == files_of(tmp_path / "same")


def test_model_and_data_may_be_at_addresses(inputs: list[str], tmp_path: Path, capsys: Any) -> None:
    system = pytest.importorskip("fsspec").filesystem("memory")
    for path in inputs:
        system.put(path, f"/inputs/{Path(path).name}")
    places = ["memory://inputs/model.dwm", "memory://inputs/data.npz"]
    assert run("sample", *places, "-n", "9", "-o", str(tmp_path / "out")) == 0
    assert "samples 0 to 8 of memory://inputs/data.npz as idx" in capsys.readouterr().out
    generate(make_model(), make_data(), tmp_path / "same", n=9, progress=False)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "same")
    assert run("sample", "memory://inputs/none.dwm", inputs[1], "-n", "9", "-o", "new") == 1
    one_line(capsys, r"`memory://inputs/none\.dwm` does not exist")
