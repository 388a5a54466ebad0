"""What the page is sent is what the library makes."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp import Warp
from dreamwarp.augment.shapes import sample_shapes
from dreamwarp.augment.source import SampleSource
from dreamwarp.data import ShapeSet, load_shapes, write_mesh
from dreamwarp.explore.arrays import View
from dreamwarp.explore.meshes import Surface, simplify
from dreamwarp.explore.scene import Scene
from tests.explore.cases import N_PER_CLASS, numbers, pixels, scene, shades


def theta_of(code: int, coefficients: list[float], strength: float, kind: str = "image") -> Any:
    found = scene(kind).kind.model.components(code)
    n = len(coefficients)
    steps = found.directions[:, :n] * found.standard_deviations[:n]
    return strength * steps @ np.array(coefficients)


@pytest.mark.parametrize("kind", ["image", "colour"])
def test_warped_images_landmarks_and_fields(kind: str) -> None:
    shown_scene, coefficients = scene(kind), [1.5, -2.0, 0.25]
    theta = theta_of(1, coefficients, 0.7, kind)
    np.testing.assert_allclose(shown_scene.theta(1, coefficients, 0.7), theta, atol=1e-12)
    sample = shown_scene.kind.subject.sample(20)
    landmarks = [(0.25, 0.75), (0.5, 0.5)]
    shown = shown_scene.show_warp(20, theta, landmarks)
    warp = Warp(shown_scene.kind.model.space, theta)
    np.testing.assert_array_equal(pixels(shown["image"]), warp.image(sample))
    np.testing.assert_allclose(shown["landmarks"], warp.points(landmarks), atol=1e-6)
    arrows = numbers(shown["arrows"], 256, 4)
    velocity = warp.space.velocity(-theta, arrows[:, :2].astype(float))
    np.testing.assert_allclose(arrows[:, 2:], velocity, atol=1e-5)
    grid = numbers(shown["grid"], 30, shown["points_per_line"], 2)
    line = np.stack([np.full(49, 7 / 14), np.linspace(0, 1, 49)], axis=1)
    np.testing.assert_allclose(grid[7], warp.space.flow(-theta, line), atol=1e-5)


def test_warped_signals() -> None:
    shown_scene = scene("signal")
    theta = theta_of(0, [2.0], 1.0, "signal")
    sample = shown_scene.kind.subject.sample(3)
    shown = shown_scene.show_warp(3, theta, [])
    expected = Warp(shown_scene.kind.model.space, theta).image(sample)
    np.testing.assert_allclose(numbers(shown["image"]["data"], 2, 64), expected, rtol=1e-6)


def test_dice_are_draws_of_the_model() -> None:
    shown_scene = scene()
    drawn = shown_scene.draw_coefficients(1, 4, 99)
    theta = shown_scene.kind.model.draw(1, [0], seed=99)[0]
    np.testing.assert_allclose(shown_scene.theta(1, drawn, 1.0), theta, atol=0.01)


def test_fresh_samples_are_those_of_the_source() -> None:
    shown_scene = scene()
    source = SampleSource(
        shown_scene.kind.model, shown_scene.kind.subject.source.data, seed=5, strength=0.5
    )
    X, y = source.make(0, 12)
    shown = shown_scene.mosaic(None, 12, 0.5, 5)
    np.testing.assert_array_equal(pixels(shown["images"])[:, 0], X)
    assert shown["labels"] == [str(label) for label in y]
    of_one = shown_scene.mosaic(1, 6, 0.5, 5)
    assert of_one["labels"] == 6 * ["1"]
    theta = 0.5 * shown_scene.kind.model.draw(1, np.arange(6), seed=5)
    originals = shown_scene.kind.subject.X[source.choose(np.arange(6), code=1)]
    expected = Warp(shown_scene.kind.model.space, theta).image(originals)
    np.testing.assert_array_equal(pixels(of_one["images"])[:, 0], expected)


def test_pairs_are_aligned() -> None:
    shown = scene().align(0, 1, 2)
    assert 0 <= shown["left"] < 1 and shown["loss_after"] < shown["loss_before"]
    difference = pixels(shown["warped"]).astype(float) - pixels(shown["target"])
    loss = (difference**2).sum() / 255**2
    assert loss == pytest.approx(shown["loss_after"], rel=0.05)


def test_large_images_come_in_smaller_numbers() -> None:
    assert len(scene("image").mosaic(None, 64, 1.0, 0)["labels"]) == 64
    assert scene("colour").members(0, 10, 64)["images"]["shape"] == [N_PER_CLASS - 10, 3, 20, 24]
    assert scene("image").members(0, 99, 5)["images"] is None


def test_the_python_makes_what_is_shown(tmp_path: Path) -> None:
    kind = scene().kind
    subject = kind.subject
    subject.model.save(tmp_path / "m.dwm")
    np.savez(tmp_path / "d.npz", X=subject.X, y=subject.source.data.y)
    named = Scene(kind, str(tmp_path / "m.dwm"), str(tmp_path / "d.npz"))
    coefficients = [0.5, 0.0, -1.25, 0.0]
    shown = named.show_warp(17, named.theta(1, coefficients, 0.8), [])
    made: dict[str, Any] = {}
    exec(named.warp_code(1, 17, coefficients, 0.8), made)
    np.testing.assert_array_equal(made["warped"], pixels(shown["image"])[0])
    pair = named.align(0, 3, 4)
    exec(pair["python"], made)
    np.testing.assert_array_equal(made["warped"], pixels(pair["warped"]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.theta(9, [], 1.0), "`class_number` must be from 0 to 1 for 2 classes"),
        (lambda s: s.index(0, 99), "`sample` must be from 0 to 14 for 15 samples"),
        (lambda s: s.theta(0, [0.0] * 99, 1.0), r"`coefficients` must be at most \d+ numbers"),
    ],
)
def test_what_is_not_there(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(scene())


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_slices_of_patients_are_seen_as_in_radiology(
    axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures, grids and arrows are turned alike."""
    shown_scene, view = scene("volume"), View(axis, 0.3)
    kind, theta = shown_scene.kind, theta_of(1, [2.0, -1.0], 1.0, "volume")
    plain = shown_scene.show_warp(20, theta, [], view)
    look = kind.subject.look._replace(is_anatomical=True)
    monkeypatch.setitem(kind.subject.__dict__, "look", look)
    shown = shown_scene.show_warp(20, theta, [], view)
    turned = pixels(plain["image"])[0].T[::-1, ::-1]
    np.testing.assert_array_equal(pixels(shown["image"])[0], turned)
    first, second = (numbers(each["arrows"], 16, 16, 4) for each in (plain, shown))
    expected = -first.swapaxes(0, 1)[::-1, ::-1, [3, 2]]
    np.testing.assert_allclose(second[..., 2:], expected, atol=1e-6)
    # Lines along rows and along columns change places.
    first, second = (numbers(each["grid"], 2, 15, 49, 2) for each in (plain, shown))
    np.testing.assert_allclose(second, 1.0 - first[::-1, ::-1, ::-1, ::-1], atol=1e-6)
    warped = Warp(kind.model.space, theta).image(kind.sample(20))
    made: dict[str, Any] = {"warped": warped}
    exec(kind.cut_code(view)[0], made)
    np.testing.assert_array_equal(shades(made["shown"]), pixels(shown["image"]))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_slices_of_volumes(axis: int) -> None:
    shown_scene, view = scene("volume"), View(axis, 0.3)
    theta, sample = theta_of(1, [2.0, -1.0], 1.0, "volume"), shown_scene.kind.sample(20)
    number = int(0.3 * sample.shape[1 + axis])
    shown = shown_scene.show_warp(20, theta, [(0.5, 0.5)], view)
    warp = Warp(shown_scene.kind.model.space, theta)
    cut = warp.image(sample).take(number, axis=1 + axis)
    np.testing.assert_array_equal(pixels(shown["image"]), shades(cut))
    assert "landmarks" not in shown
    height = (number + 0.5) / sample.shape[1 + axis]
    line = np.stack([np.full(49, 7 / 14), np.linspace(0, 1, 49)], axis=1)
    moved = warp.space.flow(-theta, np.insert(line, axis, height, axis=1))
    grid = numbers(shown["grid"], 30, 49, 2)
    np.testing.assert_allclose(grid[7], np.delete(moved, axis, axis=1), atol=1e-5)
    members = pixels(shown_scene.members(1, 5, 2, view)["images"])
    np.testing.assert_array_equal(members[0], shades(sample.take(number, axis=1 + axis)))
    made: dict[str, Any] = {"warped": warp.image(sample)}
    exec(shown_scene.kind.cut_code(view)[0], made)
    np.testing.assert_array_equal(made["shown"], cut)


def test_slices_have_the_proportions_of_their_voxels(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, view = scene("volume").kind, View(0, 0.5)
    sample = kind.sample(0)
    _, _, rows, columns = sample.shape
    assert kind.encode(sample, view)["aspect"] == pytest.approx(columns / rows)
    look = kind.subject.look._replace(spacing=(1.0, 2.0, 0.5))
    monkeypatch.setitem(kind.subject.__dict__, "look", look)
    assert kind.encode(sample, view)["aspect"] == pytest.approx(columns / rows / 4.0)
    assert kind.encode_all([sample], view)["aspect"] == pytest.approx(columns / rows / 4.0)


def test_fresh_volumes_and_pairs_are_slices() -> None:
    shown_scene, view = scene("volume"), View(0, 0.0)
    assert pixels(shown_scene.mosaic(1, 3, 1.0, 2, view)["images"]).shape == (3, 1, 14, 16)
    shown = shown_scene.align(0, 1, 2, view)
    assert shown["left"] < 1 and shown["warped"]["shape"] == [1, 14, 16]
    again = shown_scene.align(0, 1, 2, View(2, 0.0))
    assert again["left"] == shown["left"] and again["warped"]["shape"] == [1, 12, 14]


def test_warped_meshes() -> None:
    shown_scene, theta = scene("mesh"), theta_of(1, [2.0, -1.0], 1.0, "mesh")
    kind = shown_scene.kind
    shown = shown_scene.show_warp(20, theta, [])["image"]
    moved = Warp(kind.model.space, theta).points(kind.shapes.unit_points()[20])
    np.testing.assert_allclose(numbers(shown["points"], *moved.shape), moved, atol=1e-6)
    faces = np.frombuffer(base64.b64decode(shown["faces"]), "<u4").reshape(-1, 3)
    np.testing.assert_array_equal(faces, kind.shapes.meshes[20].faces)


def test_fresh_meshes_are_those_of_the_library() -> None:
    kind = scene("mesh").kind
    shown = scene("mesh").mosaic(None, 4, 0.5, 5)
    made = sample_shapes(kind.model, kind.shapes, 4, seed=5, strength=0.5)
    for k, each in enumerate(shown["images"]):
        points = made.boxes[k].to_unit(made.points[k])
        np.testing.assert_allclose(numbers(each["points"], -1, 3), points, atol=1e-6)
    assert scene("mesh").mosaic(1, 3, 0.5, 5)["labels"] == 3 * ["1"]


def test_the_python_for_meshes(tmp_path: Path) -> None:
    first = scene("mesh").kind
    first.model.save(tmp_path / "m.dwm")
    for k, mesh in enumerate(first.shapes.meshes):
        folder = tmp_path / "d" / str(first.shapes.y[k])
        folder.mkdir(parents=True, exist_ok=True)
        write_mesh(folder / f"{k:02}.ply", mesh)
    # As they are read: files round, and a search may end a step earlier for rounded points.
    read = replace(load_shapes(tmp_path / "d"), y=first.shapes.y)  # numbers, not names of folders
    kind = Scene.of(first.model, read).kind
    named = Scene(kind, str(tmp_path / "m.dwm"), str(tmp_path / "d"))
    pair = named.align(0, 1, 2)
    assert pair["left"] < 0.5
    made: dict[str, Any] = {}
    exec(named.warp_code(1, 17, [1.0, -1.0], 0.8), made)
    shown = named.show_warp(17, named.theta(1, [1.0, -1.0], 0.8), [])
    points = kind.shapes.boxes[17].to_unit(made["warped"])
    np.testing.assert_allclose(points, numbers(shown["image"]["points"], -1, 3), atol=1e-5)
    exec(named.align_code(1, 2), made)
    np.testing.assert_allclose(made["warped"], numbers(pair["warped"]["points"], -1, 3), atol=1e-5)


def test_large_meshes_are_simplified() -> None:
    trimesh = pytest.importorskip("trimesh")
    ball = trimesh.creation.icosphere(5, radius=0.4)
    whole = Surface(ball.vertices + 0.5, np.asarray(ball.faces, np.int64))
    small = simplify(whole, 1000)
    assert 300 < len(small.faces) <= 1000 and small.faces.max() < len(small.points)
    np.testing.assert_allclose(np.linalg.norm(small.points - 0.5, axis=1), 0.4, atol=1e-6)
    assert simplify(whole, 10**6) is not None and len(simplify(whole, 10**6).faces) == 20480
    cloud = Surface(whole.points, np.empty((0, 3), np.int64))
    assert len(simplify(cloud, 100).points) == 100


def test_models_of_other_meshes_are_refused() -> None:
    shapes = scene("mesh").kind.shapes
    with pytest.raises(ValueError, match="must have every class"):
        Scene.of(scene("mesh").kind.model, ShapeSet.of(shapes.points, shapes.y + 5))


def test_everything_can_be_done_ahead() -> None:
    scene("signal").warm()
    scene("colour").warm()
    scene("volume").warm()
    scene("mesh").warm()
