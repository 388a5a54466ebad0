"""Learning how shapes vary, and making more of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp import ShapeAugmenter, Warp, WarpSpace
from dreamwarp.augment.learning import Settings
from dreamwarp.augment.shapes import find_known, sample_shapes, warp_mesh
from dreamwarp.data import Box, ShapeSet, load_shapes
from dreamwarp.generation.formats.folder import write_shapes

ANGLES = np.linspace(0.0, 2 * np.pi, 24, endpoint=False)


def ellipses(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Class 0 varies in height, class 1 in width."""
    rng = np.random.default_rng(seed)
    circle = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
    scales = np.ones((24, 2))
    labels = np.arange(24) % 2
    scales[np.arange(24), labels] += rng.normal(scale=0.15, size=24)
    return 10.0 * circle * scales[:, None], labels


def test_a_class_of_equal_shapes_has_warps_close_to_the_identity() -> None:
    X, y = ellipses()
    X[y == 0] = X[0]
    model = ShapeAugmenter(cells=(2, 2), progress=False).fit(X, y).model_
    equal, varied = (np.trace(model.covariance(label)) for label in (0, 1))
    assert equal < 0.1 * varied


@pytest.mark.parametrize("match", ["known", "nearest"])
def test_samples_vary_as_their_class_does(match: str) -> None:
    X, y = ellipses()
    augmenter = ShapeAugmenter(
        cells=(2, 2), n_neighbors=2, match=match, boundary="free", progress=False
    )
    new = augmenter.fit(X, y).sample(200)
    assert new.y.tolist() == [0, 1] * 100
    sizes = np.array([np.ptp(points, axis=0) / 20.0 for points in new.points])
    spread = np.array([sizes[new.y == label].std(axis=0) for label in (0, 1)])
    assert spread[0, 0] > 1.2 * spread[0, 1] and spread[1, 1] > 1.2 * spread[1, 0]


@pytest.mark.parametrize("match", ["known", "nearest"])
def test_warps_are_as_large_as_members_differ_from_the_centre(match: Any) -> None:
    """Class by class: neither the large warps of class 0 nor those of class 1 are pooled."""
    rng = np.random.default_rng(1)
    circle = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
    labels = np.arange(32) % 2
    scales = 1.0 + rng.normal(size=(32, 1, 2)) * np.array([0.12, 0.03])[labels, None, None]
    X = circle * scales + rng.normal(scale=0.002, size=(32, 24, 2))
    augmenter = ShapeAugmenter(cells=(2, 2), match=match, progress=False).fit(X, labels)
    box, model = augmenter.shapes_.boxes[0], augmenter.model_
    for label in (0, 1):
        own = X[labels == label]
        warp = Warp(model.space, model.sample(100, label))
        moves = box.to_world(warp.points(box.to_unit(own.mean(axis=0)))) - own.mean(axis=0)
        # Across the outline: movement along it can't be seen.
        sizes = [np.sqrt((each * circle).sum(axis=-1).var()) for each in (moves, own)]
        assert 0.7 < sizes[0] / sizes[1] < 1.3


def test_new_ellipses_are_ellipses() -> None:
    """Nothing is added that no pair shows: the best affine image of the circle is close."""
    X, y = ellipses()
    new = ShapeAugmenter(n_neighbors=2, progress=False).fit(X, y).sample(100)
    circle = np.column_stack([np.cos(ANGLES), np.sin(ANGLES), np.ones(24)])
    residuals, changes = [], []
    for points in new.points:
        affine = np.linalg.lstsq(circle, points, rcond=None)[0]
        residuals.append(points - circle @ affine)
        changes.append(points - 10.0 * circle[:, :2])
    assert np.std(changes) > 0.5
    assert np.std(residuals) < 0.15 * np.std(changes)


@pytest.mark.parametrize("normalize", ["set", "each"])
def test_a_model_says_how_its_shapes_were_scaled_and_what_was_chosen(normalize: Any) -> None:
    X, y = ellipses()
    shapes = ShapeSet.of(X, y, normalize=normalize)
    augmenter = ShapeAugmenter(cells=(2, 2), n_neighbors=2, length=0.3, progress=False).fit(shapes)
    stored, found = augmenter.model_.settings, Settings.of(augmenter.model_)
    assert stored["normalize"] == normalize
    assert stored["sigma"] == stored["displacement"] == "auto"
    assert found.sigma == stored["learned_sigma"] == augmenter.alignments_.sigma
    assert found.displacement == stored["learned_displacement"]
    assert (found.n_neighbors, found.length) == (2, 0.3)


def test_shape_k_depends_on_the_seed_and_k_alone() -> None:
    X, y = ellipses()
    augmenter = ShapeAugmenter(cells=(2, 2), n_neighbors=2, progress=False).fit(X, y)
    all_of_them, some = augmenter.sample(10), augmenter.sample(4, first=5)
    for k in range(4):
        np.testing.assert_array_equal(all_of_them.points[5 + k], some.points[k])
    with pytest.raises(ValueError, match="must have every class"):
        sample_shapes(augmenter.model_, ShapeSet.of(X, y + 5), 3)


def test_classes_with_few_pairs_are_named() -> None:
    X, y = ellipses()
    y[:2] = 2  # two shapes: one pair
    with pytest.warns(RuntimeWarning, match=r"fewer than 5 pairs .*2 \(1\)"):
        ShapeAugmenter(n_neighbors=2, progress=False).fit(X, y)
    with pytest.raises(ValueError, match="at least 5 pairs within classes, got 3"):
        ShapeAugmenter(progress=False).fit(X[:3], np.zeros(3, int))


def test_correspondence_is_found_class_by_class() -> None:
    """Class 1 has sets of several sizes; class 0 is matched by index all the same."""
    X, y = ellipses()
    some = [x[k % 3 :] if label else x for k, (x, label) in enumerate(zip(X, y, strict=True))]
    shapes = ShapeSet.of(some, y)
    assert find_known(shapes, "auto").tolist() == (y == 0).tolist()
    augmenter = ShapeAugmenter(cells=(2, 2), n_neighbors=2, progress=False).fit(shapes)
    alone = ShapeAugmenter(cells=(2, 2), n_neighbors=2, sigma="auto", progress=False)
    alone.fit(ShapeSet.of(X[y == 0], y[y == 0]))
    own = y[augmenter.edges_[:, 0]] == 0
    within = Warp(augmenter.model_.space, augmenter.alignments_.theta[own])
    np.testing.assert_allclose(
        within.points(augmenter.shapes_.unit_points()[0]),
        Warp(alone.model_.space, alone.alignments_.theta).points(alone.shapes_.unit_points()[0]),
        atol=0.01,
    )
    assert augmenter.model_.settings["match"] == "auto"
    assert "learned_sigma" not in augmenter.model_.settings  # there are two
    with pytest.raises(ValueError, match=r"class 1 must have shapes of equal numbers.*22 to 24"):
        ShapeAugmenter(match="known").fit(shapes)
    with pytest.raises(ValueError, match="`match` must be one of"):
        ShapeAugmenter(match="icp").fit(shapes)


def test_wrong_use() -> None:
    X, y = ellipses()
    with pytest.raises(ValueError, match="Call `fit` first"):
        ShapeAugmenter().sample(3)
    with pytest.raises(ValueError, match="`y` must have a label for each shape"):
        ShapeAugmenter().fit(X)
    with pytest.raises(ValueError, match="`cells` must have 2 numbers"):
        ShapeAugmenter(cells=(2, 2, 2)).fit(X, y)
    with pytest.raises(ValueError, match=r"at most 4,000 parameters.*got 6,562 for 40 x 40 cells"):
        ShapeAugmenter(cells=(40, 40)).fit(X, y)
    with pytest.raises(ValueError, match="must differ, got 28 pairs of equal shapes"):
        ShapeAugmenter(progress=False).fit([X[0]] * 8, np.zeros(8, int))
    with pytest.raises(ValueError, match="two shapes to align"):
        ShapeAugmenter().fit(X[:2], y[:2])


def test_a_mesh_round_trip() -> None:
    """Acceptance: back within 1e-6 of the box."""
    trimesh = pytest.importorskip("trimesh", reason="meshes need trimesh")
    mesh = trimesh.creation.icosphere(subdivisions=3, radius=250.0)
    box = Box.around(mesh.vertices)
    space = WarpSpace((3, 3, 3))
    warp = Warp(space, np.random.default_rng(0).normal(scale=0.4, size=space.dim))
    moved = warp_mesh(warp, mesh, box)
    assert np.abs(moved.vertices - mesh.vertices).max() > 0.01 * box.size
    back = warp_mesh(warp.inverse(), moved, box)
    assert np.abs(back.vertices - mesh.vertices).max() < 1e-6 * box.size
    np.testing.assert_array_equal(back.faces, mesh.faces)


def test_normals_follow_by_the_jacobian() -> None:
    """Against the normals of a finely cut surface that has been moved."""
    trimesh = pytest.importorskip("trimesh", reason="meshes need trimesh")
    ball = trimesh.creation.icosphere(subdivisions=4, radius=0.3)
    vertices = ball.vertices + 0.5
    normals = ball.vertices / 0.3
    space = WarpSpace((2, 2, 2))
    warp = Warp(space, np.random.default_rng(0).normal(scale=0.4, size=space.dim))
    found = warp.normals(vertices, normals)
    moved = trimesh.Trimesh(warp.points(vertices), ball.faces, process=False)
    cosines = (found * moved.vertex_normals).sum(axis=1)
    assert np.abs(found - normals).max() > 0.05 and np.quantile(cosines, 0.02) > 0.995
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
    with pytest.raises(ValueError, match="`normals` must have the shape of the points"):
        warp.normals(vertices, normals[:5])


def test_samples_are_written_as_meshes(tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh", reason="meshes need trimesh")
    rng = np.random.default_rng(0)
    ball = trimesh.creation.icosphere(subdivisions=1)
    for k in range(8):
        scaled = ball.copy()
        scaled.vertices = ball.vertices * (50 + 10 * rng.random(3))
        (tmp_path / "in" / "egg").mkdir(parents=True, exist_ok=True)
        scaled.export(tmp_path / "in" / "egg" / f"{k}.ply")
    shapes = load_shapes(tmp_path / "in")
    made = ShapeAugmenter(n_neighbors=2, progress=False).fit(shapes).sample(3)
    write_shapes(made, tmp_path / "out")
    again = load_shapes(tmp_path / "out")
    assert len(again) == 3 and again.y.tolist() == ["egg"] * 3
    np.testing.assert_array_equal(again.meshes[0].faces, ball.faces)
    np.testing.assert_allclose(again.points[0], made.points[0], rtol=1e-6, atol=1e-4)
