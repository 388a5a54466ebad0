"""``dreamwarp sample`` and ``dreamwarp verify``: files, words and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp import cli
from dreamwarp.augment import SampleSource, generate
from dreamwarp.commands import infimnist
from dreamwarp.commands import sample as command
from dreamwarp.data import load
from tests.augment.generation_cases import files_of, make_data, make_model


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """Names of a model file and of a data file."""
    model, data = tmp_path / "model.dwm", tmp_path / "data.npz"
    make_model().save(model)
    np.savez(data, X=make_data().X, y=make_data().y)
    return [str(model), str(data)]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    return exit_.value.code or 0


def one_line(capsys: Any, message: str) -> None:
    captured = capsys.readouterr()
    assert re.fullmatch(rf"dreamwarp: .*{message}.*\n", captured.err), captured.err


def test_options_reach_the_samples(inputs: list[str], tmp_path: Path, capsys: Any) -> None:
    out = str(tmp_path / "out")
    options = ["--seed", "7", "--from-index", "11", "--strength", "0.5", "--balance", "data"]
    assert run("sample", *inputs, "-n", "40", "-o", out, "--shard-size", "15", *options) == 0
    words = capsys.readouterr()
    assert re.search(r"samples 11 to 50 of .*data\.npz as idx, seed 7, strength 0\.5", words.out)
    assert re.search(r"40 samples in .*out, 3 shards; 3 made in .* samples per second", words.out)
    assert words.err == ""
    source = SampleSource(make_model(), make_data(), seed=7, strength=0.5, balance="data")
    X, y = source.make(11, 40)
    read = load(out)
    np.testing.assert_array_equal(read.X, X)
    np.testing.assert_array_equal(read.y, y)


@pytest.mark.parametrize("format", ["npz", "parquet", "webdataset", "folder"])
def test_formats(inputs: list[str], tmp_path: Path, format: str) -> None:
    out = tmp_path / "out"
    assert run("sample", *inputs, "--per-class", "4", "-o", str(out), "--format", format) == 0
    data = load(inputs[1])
    generate(make_model(), data, tmp_path / "same", n=12, format=format, progress=False)  # type: ignore[arg-type]
    assert files_of(out) == files_of(tmp_path / "same")


def test_resuming_and_verifying(inputs: list[str], tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    arguments = ["sample", *inputs, "-n", "40", "-o", str(out), "--shard-size", "3"]
    assert run(*arguments) == 0 and run("verify", str(out)) == 0
    assert "out is sound: 14 shards, 40 samples, idx, seed 0" in capsys.readouterr().out
    before = files_of(out)
    (out / "labels-00003-idx1-ubyte").unlink()
    (out / "images-00007-idx3-ubyte").write_bytes(b"damaged")
    assert run("verify", str(out)) == 1
    one_line(
        capsys, r"`.*out` is not sound: 3 missing, 7 damaged, of 14 shards\. `dreamwarp sample`"
    )
    assert run(*arguments) == 1
    one_line(capsys, r"holds a set of samples, 14 of 14 shards of it\. Complete it with `--resume`")
    assert run(*arguments, "--resume") == 0
    assert re.search(r"14 shards, 12 were there and sound; 2 made in", capsys.readouterr().out)
    assert files_of(out) == before
    assert run(*arguments, "--resume") == 0
    assert re.search(
        r"14 were there and sound; 0 made in \d+\.\d s$", capsys.readouterr().out.strip()
    )


def test_many_unsound_shards_are_not_all_listed(
    inputs: list[str], tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "out"
    assert run("sample", *inputs, "-n", "15", "-o", str(out), "--shard-size", "1") == 0
    for file in out.glob("labels-*"):
        file.unlink()
    assert run("verify", str(out)) == 1
    one_line(capsys, r"0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 5 more missing, none damaged")


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
    assert run("sample", inputs[1], inputs[1], *out) == 1
    one_line(capsys, r"data\.npz")
    np.savez(inputs[1], X=make_data().X, y=make_data().y + 5)
    assert run("sample", *inputs, *out) == 1
    one_line(
        capsys, r"the model must know every class of .*, and has no 5, 6, 7\. It knows 0, 1, 2"
    )
    np.savez(inputs[1], X=make_data().X.astype(object), y=make_data().y)
    assert run("sample", *inputs, *out) == 1
    one_line(capsys, r"holds pickled Python objects, which are not read")
    assert run("verify", str(tmp_path)) == 1
    one_line(capsys, r"holds no manifest\.json, so it is no set of samples")


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
    assert capsys.readouterr().err == "dreamwarp: interrupted\n"
    shards = json.loads((out / "manifest.json").read_text())["shards"]
    assert [shard is not None for shard in shards] == [True] * 4 + [False] * 4
    assert run(*arguments, "--resume") == 0 and run("verify", str(out)) == 0


def test_progress_counts_on_a_terminal(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(infimnist.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with command._counted(10) as tell:
        tell(4, 10)
        tell(10, 10)
    assert "10/10" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sample", "verify", "fit"])
def test_help_has_examples(capsys: Any, name: str) -> None:
    assert run(name, "--help") == 0
    assert f"dreamwarp {name} " in capsys.readouterr().out.partition("Examples")[2]
