"""Meshes: files, faces and attributes, and the box that they are put into."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dreamwarp.data import Box, ShapeSet, load, load_shapes, read_mesh, write_mesh
from dreamwarp.data.meshes import file_normals, with_vertices

trimesh = pytest.importorskip("trimesh", reason="meshes need trimesh")

TRIANGLE = "v 0 0 0\nv 1 0 0\nv 0 1 0\n"


def colored_ball() -> trimesh.Trimesh:
    ball = trimesh.creation.icosphere(subdivisions=1)
    colors = np.random.default_rng(0).integers(0, 256, (len(ball.vertices), 4)).astype(np.uint8)
    ball.visual.vertex_colors = colors
    return ball


@pytest.mark.parametrize("suffix", ["ply", "obj"])
def test_faces_and_colours_stay_when_vertices_move(tmp_path: Path, suffix: str) -> None:
    ball = colored_ball()
    ball.export(tmp_path / f"a.{suffix}")
    found = read_mesh(tmp_path / f"a.{suffix}")
    np.testing.assert_array_equal(found.faces, ball.faces)
    moved = with_vertices(found, found.vertices + 1.0)
    write_mesh(tmp_path / f"b.{suffix}", moved)
    again = read_mesh(tmp_path / f"b.{suffix}")
    np.testing.assert_array_equal(again.faces, ball.faces)
    np.testing.assert_allclose(again.vertices, ball.vertices + 1.0, atol=1e-6)
    np.testing.assert_array_equal(
        again.visual.vertex_colors[:, :3], ball.visual.vertex_colors[:, :3]
    )


def test_corners_of_stl_files_are_merged(tmp_path: Path) -> None:
    ball = trimesh.creation.icosphere(subdivisions=1)
    ball.export(tmp_path / "a.stl")
    assert read_mesh(tmp_path / "a.stl").vertices.shape == ball.vertices.shape


@pytest.mark.parametrize("suffix", ["ply", "obj"])
def test_normals_of_a_file_are_known_and_written(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "a.obj").write_text(TRIANGLE + "vn 0 0 1\n" * 3 + "f 1//1 2//2 3//3\n")
    mesh = read_mesh(tmp_path / "a.obj")
    np.testing.assert_array_equal(file_normals(mesh), [[0, 0, 1]] * 3)
    write_mesh(tmp_path / f"b.{suffix}", with_vertices(mesh, mesh.vertices, [[0, 1, 0]] * 3))
    np.testing.assert_allclose(file_normals(read_mesh(tmp_path / f"b.{suffix}")), [[0, 1, 0]] * 3)
    assert file_normals(with_vertices(mesh, mesh.vertices * 2.0)) is None


def test_meshes_without_faces_and_with_degenerate_ones(tmp_path: Path) -> None:
    (tmp_path / "a.obj").write_text(TRIANGLE)
    assert read_mesh(tmp_path / "a.obj").vertices.shape == (3, 3)
    (tmp_path / "b.obj").write_text(TRIANGLE + "f 1 2 3\nf 1 1 2\n")
    np.testing.assert_array_equal(read_mesh(tmp_path / "b.obj").faces, [[0, 1, 2], [0, 0, 1]])
    with pytest.raises(ValueError, match=r"must have faces, which \.stl needs.*Use \.ply"):
        write_mesh(tmp_path / "a.stl", read_mesh(tmp_path / "a.obj"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.obj", b"v 0 0 0\nf 1 2 9\n"),
        ("b.obj", b""),
        ("c.ply", b"ply\nformat binary_little_endian 1.0\nelement vertex 99999999999\n"
         b"property float x\nproperty float y\nproperty float z\nend_header\n12"),
        ("d.stl", b"\0" * 80 + b"\xff\xff\xff\x7f12"),
        ("e.obj", b"v nan 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"),
        ("f.ply", b"not a mesh"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}` "):
        read_mesh(tmp_path / name)


def test_other_files_are_not_opened(tmp_path: Path) -> None:
    """A material library elsewhere on the disk is none of a mesh's business."""
    (tmp_path / "a.obj").write_text("mtllib ../../../etc/passwd\n" + TRIANGLE + "f 1 2 3\n")
    assert len(read_mesh(tmp_path / "a.obj").faces) == 1


def test_a_folder_of_meshes_has_one_box(tmp_path: Path) -> None:
    ball = trimesh.creation.icosphere(subdivisions=1)
    for label, scale in (("large", 30.0), ("small", 10.0)):
        (tmp_path / label).mkdir()
        with_vertices(ball, ball.vertices * scale).export(tmp_path / label / "1.ply")
    shapes = load_shapes(tmp_path)
    assert shapes.y.tolist() == ["large", "small"] and shapes.correspond(range(len(shapes)))
    large, small = shapes.unit_points()
    np.testing.assert_allclose([large.min(), large.max()], [0.1, 0.9])
    np.testing.assert_allclose(small - 0.5, (large - 0.5) / 3.0, atol=1e-7)
    np.testing.assert_allclose(shapes.boxes[0].to_world(large), shapes.points[0])
    each = load_shapes(tmp_path, normalize="each", margin=0.0)
    np.testing.assert_allclose(each.unit_points()[1].max(), 1.0)
    assert "2 meshes of 42 points in 3 dimensions, 2 classes" in each.describe()
    with pytest.raises(ValueError, match="load_shapes"):
        load(tmp_path)


def test_landmarks_as_arrays() -> None:
    rng = np.random.default_rng(0)
    shapes = ShapeSet.of(rng.normal(size=(4, 10, 2)), [0, 0, 1, 1])
    assert shapes.ndim == 2 and len(shapes) == 4 and shapes.correspond(range(len(shapes)))
    assert not ShapeSet.of([rng.normal(size=(m, 2)) for m in (4, 5)], [0, 0]).correspond([0, 1])
    assert Box.around(np.zeros((1, 3))).size == 1.0
    with pytest.raises(ValueError, match=r"points\[0\]` must have shape"):
        ShapeSet.of(rng.normal(size=(2, 10, 5)), [0, 0])
    with pytest.raises(ValueError, match=r"`y` must have shape \(4,\), a label for each"):
        ShapeSet.of(rng.normal(size=(4, 10, 2)), [0])
    assert ShapeSet.of(rng.normal(size=(2, 10, 2)), [0.0, 1.0]).y.dtype == np.int64
    with pytest.raises(ValueError, match=r"`y` must hold classes.*Leave out samples without"):
        ShapeSet.of(rng.normal(size=(2, 10, 2)), [0.0, np.nan])
    with pytest.raises(ValueError, match=r"points\[1\]` must be finite"):
        ShapeSet.of([[[0.0, 0.0]], [[np.nan, 0.0]]], [0, 0])
