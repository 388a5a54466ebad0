"""``dreamwarp align``: its files, words and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import dreamwarp as dw
from dreamwarp.align.similarity import SquaredError
from tests.commands.running import run

PNG = b"\x89PNG\r\n"
ROWS, COLUMNS = np.mgrid[:16, :16] / 16


def blob(row: float, column: float) -> Any:
    """A round spot as uint8 (16, 16)."""
    squares = (ROWS - row) ** 2 + (COLUMNS - column) ** 2
    return np.round(255 * np.exp(-60 * squares)).astype(np.uint8)


SAMPLES = {
    "a.png": blob(0.4, 0.45),
    "b.png": blob(0.5, 0.5),
    "large.png": np.pad(blob(0.5, 0.5), 2),
    "red.png": np.stack([blob(0.4, 0.4), blob(0.5, 0.5), blob(0.5, 0.4)], axis=-1),
    "green.png": np.stack([blob(0.45, 0.4), blob(0.5, 0.55), blob(0.5, 0.45)], axis=-1),
    "black.png": np.zeros((16, 16), np.uint8),
    "a.npy": np.sin(np.linspace(0.0, 6.0, 40)),
    "b.npy": np.sin(np.linspace(0.0, 6.5, 40)),
    "nan.npy": np.full(40, np.nan),
    "words.npy": np.array(["a", "b"]),
    "number.npy": np.array(3.0),
    "empty.npy": np.empty((0, 16)),
    "volume.npy": np.stack([blob(0.4, 0.4), blob(0.5, 0.4), blob(0.5, 0.5)]),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    for name, values in SAMPLES.items():
        if name.endswith(".npy"):
            np.save(tmp_path / name, values)
        else:
            Image.fromarray(values).save(tmp_path / name)
    (tmp_path / "text.png").write_text("not a picture")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_pair_that_no_warp_explains_is_told_so(capsys: Any) -> None:
    rng = np.random.default_rng(0)
    for name in ("c.npy", "d.npy"):
        np.save(name, rng.normal(size=40).cumsum())
    assert run("align", "c.npy", "d.npy") == 0
    assert "no likely warp explains the difference" in capsys.readouterr().out
    assert run("align", "a.npy", "b.npy", "--overwrite") == 0
    assert "no likely warp" not in capsys.readouterr().out


def test_two_pictures(capsys: Any, folder: Path) -> None:
    assert run("align", "a.png", "b.png") == 0
    words = capsys.readouterr()
    assert words.err == ""
    before, after = re.search(r"squared difference before (\S+), after (\S+),", words.out).groups()
    assert float(after) < 0.5 * float(before)
    assert re.search(r"^map, 82 parameters, \S+ s$", words.out, re.MULTILINE)
    assert re.search(r"^noise sigma 0\.\d+$", words.out, re.MULTILINE)
    assert re.search(r"^log-posterior \S+, \d+ steps of the search\nconverged$", words.out, re.M)
    assert words.out.endswith("picture written to align.png\n")
    assert (folder / "align.png").read_bytes().startswith(PNG)


def test_options_reach_the_alignment(capsys: Any, folder: Path) -> None:
    options = ["--cells", "2x3", "--boundary", "slip", "--sigma", "0.2", "--displacement", "0.1"]
    options += ["--length", "0.4", "-o", "new/pair.svg", "--theta", "new/pair.npy"]
    assert run("align", "a.png", "b.png", *options) == 0
    space = dw.WarpSpace((2, 3), "slip")
    prior = dw.SmoothPrior(space, displacement=0.1, length=0.4)
    expected = dw.align_pairs(
        space, SAMPLES["a.png"][None], SAMPLES["b.png"][None], prior=prior, sigma=0.2
    )
    np.testing.assert_allclose(np.load(folder / "new" / "pair.npy"), expected.theta[0])
    assert {path.name for path in (folder / "new").iterdir()} == {"pair.svg", "pair.npy"}
    words = capsys.readouterr().out
    assert "noise sigma 0.2\n" in words
    assert "theta written to new/pair.npy\n" in words


def test_samplers_say_whether_their_chains_have_mixed(capsys: Any, folder: Path) -> None:
    options = ["--method", "hmc", "--cells", "2x2", "--seed", "3", "--theta", "pair.json"]
    assert run("align", "a.png", "b.png", *options) == 0
    words = capsys.readouterr().out
    pattern = r"R-hat [01]\.\d+, \d+ effective draws, acceptance 0\.\d\d, \d+ sweeps of each"
    assert re.search(pattern, words)
    written = json.loads((folder / "pair.json").read_text(encoding="utf-8"))
    assert written["cells"] == [2, 2]
    assert written["boundary"] == "free"
    assert written["method"] == "hmc"
    assert len(written["theta"]) == dw.WarpSpace((2, 2), boundary="free").dim
    assert written["diagnostics"]["r_hat"] >= 0.99
    assert written["loss_before"] > 0


def test_colours_are_channels(capsys: Any) -> None:
    assert run("align", "red.png", "green.png", "--cells", "2x2") == 0
    assert "picture written to align.png" in capsys.readouterr().out


def test_signals_get_cells_that_suit_them(capsys: Any, folder: Path) -> None:
    assert run("align", "a.npy", "b.npy", "--theta", "t.json") == 0
    assert "picture written to align.png" in capsys.readouterr().out
    assert json.loads((folder / "t.json").read_text())["cells"] == [10]


def test_samples_of_a_data_set(capsys: Any, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dw, "align_pairs", no_good)
    (folder / "Waves").mkdir()
    lines = [",".join(f"{v:.4f}" for v in np.sin(np.arange(30) * k)) for k in (0.3, 0.35)]
    (folder / "Waves" / "Waves_TRAIN.ts").write_text("@data\n" + ":1\n".join(lines) + ":1\n")
    assert run("align", "Waves:0", "Waves/:1", "--theta", "t.json") == 0
    assert json.loads((folder / "t.json").read_text())["cells"] == [10]
    capsys.readouterr()
    assert run("align", "Waves:0", "Waves:2") == 1
    assert "`Waves:2` must name one of the 2 training samples" in capsys.readouterr().err


def test_nifti_volumes(folder: Path, monkeypatch: Any) -> None:
    pytest.importorskip("nibabel", reason="volumes need nibabel")
    monkeypatch.setattr(dw, "align_pairs", no_good)
    values = np.random.default_rng(0).random((12, 10, 9))
    dw.data.write_volume(folder / "a.nii.gz", values, np.diag([1.0, 1.0, 2.0, 1.0]))
    assert run("align", "a.nii.gz", "a.nii.gz", "--theta", "t.json") == 0
    assert json.loads((folder / "t.json").read_text())["cells"] == [3, 3, 3]


def test_other_similarities_have_no_noise(capsys: Any) -> None:
    assert run("align", "a.png", "b.png", "--similarity", "ncc", "--cells", "2x2") == 0
    words = capsys.readouterr().out
    assert "minus log-likelihood before" in words
    assert "sigma" not in words


def test_a_picture_and_itself(capsys: Any) -> None:
    assert run("align", "a.png", "a.png") == 0
    assert "squared difference before 0, after 0\n" in capsys.readouterr().out


def no_good(*arguments: Any, **options: Any) -> dw.Alignments:
    one = np.ones(1)
    diagnostics = {"n_steps": np.ones(1, np.int64), "log_posterior": -one}
    no = np.zeros(1, np.bool_)
    theta = np.zeros((1, arguments[0].dim))
    return dw.Alignments(theta, one, 2 * one, no, no, diagnostics, SquaredError(0.1))


def test_a_warp_that_is_no_good_is_called_so(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(dw, "align_pairs", no_good)
    assert run("align", "a.png", "b.png") == 0
    words = capsys.readouterr().out
    assert "not converged: a larger `--max-steps` may help\n" in words
    assert "not usable: " in words


def test_the_search_can_be_given_more_steps(capsys: Any, folder: Path) -> None:
    names = ["a.png", "b.png", "--theta", "t.json", "--overwrite", "--sigma", "0.001"]
    assert run("align", *names, "--max-steps", "1") == 0
    assert "not converged: a larger `--max-steps`" in capsys.readouterr().out
    assert run("align", *names, "--max-steps", "500") == 0
    assert "\nconverged\n" in capsys.readouterr().out


def test_files_are_not_replaced_unasked(capsys: Any, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dw, "align_pairs", lambda *given, **options: pytest.fail("aligned"))
    for name, option in (("mine.png", "--output"), ("mine.json", "--theta")):
        (folder / name).write_text("precious")
        assert run("align", "a.png", "b.png", option, name) == 1
        message = rf"`{name}` exists already\. Use `--overwrite`"
        assert re.match(rf"dreamwarp: {message}", capsys.readouterr().err)
        assert (folder / name).read_text() == "precious"


def test_files_are_replaced_if_asked_and_the_usual_picture_always(
    folder: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(dw, "align_pairs", no_good)
    for name in ("align.png", "mine.png", "mine.json"):
        (folder / name).write_text("old")
    assert run("align", "a.png", "b.png") == 0
    assert (
        run("align", "a.png", "b.png", "-o", "mine.png", "--theta", "mine.json", "--overwrite") == 0
    )
    for name in ("align.png", "mine.png"):
        assert (folder / name).read_bytes().startswith(PNG)
    assert json.loads((folder / "mine.json").read_text())["cells"] == [4, 4]


def test_volumes_are_aligned_and_drawn(capsys: Any, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dw, "align_pairs", no_good)  # its kernels take minutes to compile
    assert run("align", "volume.npy", "volume.npy", "--cells", "1x2x2") == 0
    assert capsys.readouterr().out.endswith("picture written to align.png\n")
    assert (folder / "align.png").exists()


def test_samples_of_a_set_are_read_with_its_options(
    capsys: Any, folder: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(dw, "align_pairs", no_good)
    (folder / "waves.txt").write_text("1 2 3 4\n1 3 4 5 7\n")
    pair = ["waves.txt:0", "waves.txt:1"]
    assert run("align", *pair) == 1
    assert "Use `--pad edge`" in capsys.readouterr().err
    assert run("align", *pair, "--pad", "stretch", "-o", "waves.png") == 0
    assert (folder / "waves.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.png", "b.png", "--resize", "8x8"], r"`--resize` is for samples of a data set"),
        (["a.png", "none.png"], r"`none\.png` does not exist"),
        (["a.png", "."], r"`\.` is a folder"),
        (["text.png", "b.png"], r"`text\.png` can't be read as a PNG, JPEG, TIFF or WebP"),
        (["a.png", "large.png"], r"must have the same shape, got \(16, 16\) and \(20, 20\)"),
        (["a.png", "red.png"], r"same shape.* convert both to grey or both to colour"),
        (["a.png", "black.png"], r"`black\.png` is constant, 0"),
        (["a.npy", "b.npy", "--cells", "4x4"], r"`a\.npy` must have 2 spatial axes, as many as"),
        (["empty.npy", "b.png"], r"got shape \(0, 16\)"),
        (["nan.npy", "a.npy", "--cells", "8"], r"`nan\.npy` must be finite"),
        (["words.npy", "a.npy", "--cells", "8"], r"`words\.npy` must hold real numbers"),
        (["number.npy", "number.npy"], r"`number\.npy` must have 1 spatial axis"),
        (["a.png", "b.png", "--sigma", "0"], r"`--sigma` must be a positive number"),
        (["a.png", "b.png", "--displacement", "-1"], r"`--displacement` must be"),
        (["a.png", "b.png", "--output", "a.txt"], r"must end in one of \.pdf, \.png, \.svg"),
        (["a.png", "b.png", "--theta", "t.txt"], r"`t\.txt` must end in one of \.json, \.npy"),
    ],
)
def test_what_cant_be_done_is_one_line_and_code_1(
    capsys: Any, folder: Path, arguments: list[str], message: str
) -> None:
    assert run("align", *arguments) == 1
    words = capsys.readouterr()
    assert words.out == ""
    assert re.fullmatch(rf"dreamwarp: .*{message}.*\n", words.err)
    assert not (folder / "align.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.png"], "Missing argument 'B'"),
        (
            ["a.png", "b.png", "--sigma", "much"],
            "'--sigma': it must be a number or auto, got 'much'",
        ),
        (["a.png", "b.png", "--cells", "4by4"], "'--cells': it must be 1 to 3 integers"),
        (["a.png", "b.png", "--method", "guess"], "Invalid value for '--method'"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(capsys: Any, arguments: list[str], message: str) -> None:
    assert run("align", *arguments) == 2
    assert re.fullmatch(rf"dreamwarp: .*{message}.*\n", capsys.readouterr().err)
