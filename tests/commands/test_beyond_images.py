"""The commands on series, volumes and meshes."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp import SmoothPrior, WarpModel, WarpSpace
from dreamwarp.commands import models
from dreamwarp.commands.fit import choose_cells
from dreamwarp.commands.options import Reading
from dreamwarp.commands.sample import choose_format
from dreamwarp.data import DataSet, load, load_shapes
from tests.commands.running import one_line, run


def test_cells_suit_the_data() -> None:
    y = np.zeros(2, int)
    for shape, cells in (
        ((150,), (10,)),
        ((1, 150), (10,)),
        ((784,), (4, 4)),  # a flattened image: what follows says how to give its shape
        ((28, 28), (4, 4)),
        ((3, 64, 64), (4, 4)),
        ((28, 28, 28), (3, 3, 3)),
        ((8,), (4,)),
        ((28, 28, 5), (3, 3, 2)),
    ):
        assert choose_cells(DataSet("x", np.zeros((2, *shape)), y)) == cells
    assert choose_cells(DataSet("x", np.zeros((2, 784)), y, n_axes=1)) == (10,)


def test_series_are_written_as_npz(tmp_path: Path) -> None:
    file = tmp_path / "waves.txt"
    file.write_text("1 2 3 4\n2 3 4 5\n")
    assert choose_format(str(file), load(file)) == "npz"


@pytest.mark.parametrize(("affine", "stored"), [(np.diag([-1.0, -1, 2, 1]), "RAS"), (None, None)])
def test_models_of_volumes_know_their_orientation(tmp_path: Path, affine: Any, stored: Any) -> None:
    nibabel = pytest.importorskip("nibabel", reason="volumes need nibabel")
    rng = np.random.default_rng(0)
    for k in range(8):
        file = tmp_path / "scans" / "a" / f"{k}.nii"
        file.parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(rng.integers(0, 99, (8, 9, 10), np.uint8), affine), file)
    model = tmp_path / "m.dwm"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run("fit", str(file.parents[1]), "-o", str(model), "--cells", "1x1x1") == 0
    assert WarpModel.load(model).settings.get("orientation") == stored


@pytest.mark.parametrize("name", ["normalize", "shapes"])  # former versions: "shapes"
def test_meshes_are_scaled_as_those_of_the_fit(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    space, scales = WarpSpace((1, 1, 1)), []
    fitted = WarpModel.fit(space, {"a": SmoothPrior(space).sample(9, 0)}, shrinkage=0.1)
    monkeypatch.setattr(
        models, "read_samples", lambda *_, normalize, **__: scales.append(normalize)
    )
    for stored in (fitted, fitted.with_settings(**{name: "each"})):
        monkeypatch.setattr(models, "read_model", lambda source, found=stored: found)
        models.load_with_data("m.dwm", "meshes", Reading({}, None))  # type: ignore[arg-type]
    assert scales == ["set", "each"]


def test_names_of_meshes_may_be_in_capitals(tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh", reason="meshes need trimesh")
    for k in range(6):
        file = tmp_path / "in" / "box" / f"{k}.STL"
        file.parent.mkdir(parents=True, exist_ok=True)
        mesh = trimesh.creation.box((1.0, 2.0, 3.0 + 0.1 * k))
        file.write_bytes(mesh.export(file_type="stl"))
    source, model = str(tmp_path / "in"), str(tmp_path / "m.dwm")
    assert run("fit", source, "-o", model) == 0
    assert run("sample", model, source, "-n", "2", "-o", str(tmp_path / "out")) == 0
    assert len(list((tmp_path / "out" / "box").glob("*.stl"))) == 2


def test_one_mesh_is_aligned_to_another(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    trimesh = pytest.importorskip("trimesh", reason="meshes need trimesh")
    monkeypatch.chdir(tmp_path)
    ball = trimesh.creation.icosphere(subdivisions=2)
    for k, factors in enumerate(((50.0, 50.0, 50.0), (60.0, 45.0, 50.0))):
        mesh = ball.copy()
        mesh.vertices = ball.vertices * factors
        (tmp_path / "set" / "egg").mkdir(parents=True, exist_ok=True)
        mesh.export(tmp_path / "set" / "egg" / f"{k}.ply")
    coarse = trimesh.creation.icosphere(subdivisions=1, radius=50.0)
    coarse.export(tmp_path / "coarse.stl")
    for arguments, how in (
        (("set/egg/0.ply", "set/egg/1.ply", "--theta", "pair.json"), "by number"),
        (("set:0", "set:1", "--match", "nearest"), "to the nearest"),
        (("set:0", "coarse.stl"), "to the nearest"),
    ):
        assert run("align", *arguments, "-o", "pair.png", "--overwrite") == 0
        words = capsys.readouterr().out
        assert f"vertices matched {how}, " in words and "\nconverged\n" in words
        before, after = re.search(r"distance from (\S+) to (\S+) of the box", words).groups()
        assert float(after) < 0.3 * float(before) or how != "by number"
        assert Path("pair.png").read_bytes().startswith(b"\x89PNG")
    assert (
        len(json.loads(Path("pair.json").read_text())["theta"]) == WarpSpace((2,) * 3, "free").dim
    )
    np.save("a.npy", np.sin(np.arange(40.0)))
    for arguments, code, message in (
        (
            ("set:0", "set:2"),
            1,
            r"`set:2` must name one of the 2 training samples of `set`, 0 to 1",
        ),
        (("set:0", "a.npy"), 1, "must both be meshes, or neither"),
        (("set:0", "coarse.stl", "--match", "known"), 1, "equal numbers of vertices"),
        (("set:0", "set:1", "--method", "hmc"), 2, "--method does not apply to meshes"),
        (("a.npy", "a.npy", "--match", "known"), 2, "--match applies to meshes only"),
    ):
        assert run("align", *arguments) == code
        one_line(capsys, message)


def test_meshes_in_meshes_out(tmp_path: Path, capsys: Any) -> None:
    trimesh = pytest.importorskip("trimesh", reason="meshes need trimesh")
    rng, box = np.random.default_rng(0), trimesh.creation.box()
    for k in range(8):
        mesh = box.copy()
        mesh.vertices = 100.0 * mesh.vertices * (1.0 + 0.1 * rng.normal(size=3))
        folder = tmp_path / "in" / "box"
        folder.mkdir(parents=True, exist_ok=True)
        mesh.export(folder / f"{k}.ply")
    source, model, out = str(tmp_path / "in"), str(tmp_path / "m.dwm"), str(tmp_path / "out")
    assert run("data", source) == 0
    assert "8 meshes of 8 points in 3 dimensions, 1 class" in capsys.readouterr().out
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run("fit", source, "-o", model, "--neighbors", "2", "--max-steps", "1") == 0
    assert "have not converged. A larger `--max-steps` may help" in capsys.readouterr().err
    assert run("fit", source, "-o", model, "--neighbors", "2", "--overwrite") == 0
    assert "pairs aligned" in capsys.readouterr().out
    space = WarpModel.load(model).space
    assert space.cells == (2, 2, 2) and space.boundary == "free"
    assert run("sample", model, source, "-n", "5", "-o", out, "--seed", "3") == 0
    made = load_shapes(out)
    assert len(made) == 5 and np.array_equal(made.meshes[0].faces, box.faces)
    first = made.points[0].copy()
    assert run("sample", model, source, "-n", "2", "-o", out, "--seed", "3", "--resume") == 0
    np.testing.assert_array_equal(load_shapes(out).points[0], first)
    capsys.readouterr()
    page, picture = tmp_path / "r.html", tmp_path / "s.png"
    assert run("report", model, source, "-o", str(page)) == 0
    text = page.read_text(encoding="utf-8")
    assert "along component 1" in text and "pairs of one class, those with the least" in text
    for name in ("samples", "components", "spectrum", "similarity"):
        assert run("figure", name, model, source, "-o", str(picture), "--overwrite") == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    for arguments, message in (
        (("figure", "warp", model, source, "-o", str(tmp_path / "w.png")), "For meshes use"),
        (("figure", "samples", model, source, "-o", str(tmp_path / "w.png"), "--label", "ball"),
         "must be one of box, got 'ball'"),
        (("figure", "components", model, source, "-o", str(tmp_path / "w.png"), "--component",
          "900"), "must be from 1 to"),
        (("sample", model, source, "-n", "2", "-o", out), "must be a new or empty folder.*resume"),
    ):  # fmt: skip
        assert run(*arguments) == 1
        one_line(capsys, message)
    for arguments in (
        ("data", source, "--shape", "3x3"),
        ("fit", source, "-o", str(tmp_path / "n.dwm"), "--method", "map"),
        ("fit", source, "-o", str(tmp_path / "n.dwm"), "--pixels-per-cell", "4"),
        ("sample", model, source, "-n", "2", "-o", str(tmp_path / "n"), "--format", "npz"),
        ("report", model, source, "-o", str(tmp_path / "n.html"), "--max-samples", "9"),
        ("figure", "samples", model, source, "-o", str(tmp_path / "n.png"), "--resize", "4x4"),
        ("explore", model, source, "--pad", "edge"),
    ):
        assert run(*arguments) == 2
        one_line(capsys, rf"{arguments[-2]} does not apply to meshes\. Leave it out")
