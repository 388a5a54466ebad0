"""NIfTI volumes: affines, spacings, channels, and files that are not what they say."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp.data import load, read_volume, write_volume
from dreamwarp.data.volumes import VoxelGrid, read_nifti_folder

nibabel = pytest.importorskip("nibabel", reason="volumes need nibabel")

VALUES = np.random.default_rng(0).integers(0, 1000, (5, 6, 7)).astype(np.int16)
# Rows run back, columns left, slices up; voxels of 2 x 1 x 3 mm.
TURNED = np.array([[0.0, -1.0, 0.0, 9.0], [-2.0, 0.0, 0.0, 4.0], [0, 0, 3.0, -5.0], [0, 0, 0, 1]])


IDENTITY = np.eye(4)


def save(path: Path, values: np.ndarray, affine: Any = IDENTITY) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(values, affine), path)
    return path


def save_classes(folder: Path, *affines: Any, values: np.ndarray = VALUES) -> Path:
    for k, affine in enumerate(affines):
        save(folder / "ab"[k % 2] / f"{k}.nii.gz", values, affine)
    return folder


def test_a_folder_of_volumes_keeps_type_and_affine(tmp_path: Path) -> None:
    data = load(save_classes(tmp_path, np.diag([1, 1, 2, 1]), np.diag([1, 1, 2, 1])))
    assert data.X.shape == (2, 5, 6, 7) and data.X.dtype == np.int16 and data.n_axes == 3
    np.testing.assert_array_equal(data.X[0], VALUES)
    np.testing.assert_array_equal(data.affine, np.diag([1, 1, 2, 1]))
    assert data.y.tolist() == ["a", "b"]


def test_axes_run_to_the_right_the_front_and_the_top(tmp_path: Path) -> None:
    values, grid = read_volume(save(tmp_path / "a.nii", VALUES, TURNED))
    canonical = nibabel.as_closest_canonical(nibabel.Nifti1Image(VALUES, TURNED))
    np.testing.assert_array_equal(values, np.asarray(canonical.dataobj))
    np.testing.assert_allclose(grid.affine, canonical.affine)
    np.testing.assert_allclose(grid.spacing, [1, 2, 3])


def test_points_of_the_unit_cube_are_found_in_the_world() -> None:
    grid = VoxelGrid((5, 6, 7), TURNED)
    center = grid.to_world((np.array([2, 3, 4]) + 0.5) / grid.shape)
    np.testing.assert_allclose(center, (TURNED @ [2, 3, 4, 1])[:3])
    np.testing.assert_allclose(grid.to_unit(center), (np.array([2, 3, 4]) + 0.5) / grid.shape)


def test_volumes_turned_differently_are_brought_together(tmp_path: Path) -> None:
    straight = nibabel.as_closest_canonical(nibabel.Nifti1Image(VALUES, TURNED))
    save(tmp_path / "a" / "1.nii", VALUES, TURNED)
    save(tmp_path / "a" / "2.nii", np.asarray(straight.dataobj), straight.affine)
    data = load(tmp_path)
    np.testing.assert_array_equal(data.X[0], data.X[1])
    assert data.orientation == "RAS"


def test_scaled_values_are_real_numbers(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(VALUES.astype(np.float64) / 7.0, np.eye(4))
    image.header.set_data_dtype(np.int16)
    nibabel.save(image, tmp_path / "a.nii")
    values, _ = read_volume(tmp_path / "a.nii")
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, VALUES / 7.0, atol=0.01)


def test_a_fourth_axis_is_channels(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.nii", np.stack([VALUES, VALUES + 1], axis=-1))
    X = load(tmp_path).X
    assert X.shape == (1, 2, 5, 6, 7)
    np.testing.assert_array_equal(X[0, 1], VALUES + 1)
    assert read_volume(save(tmp_path / "b.nii", VALUES[..., None]))[0].shape == (5, 6, 7)


def test_films_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.nii", np.zeros((3, 3, 3, 20), np.uint8))
    with pytest.raises(ValueError, match=r"shape \(3, 3, 3, 20\).*Split a time series"):
        load(tmp_path)


def test_images_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.nii", np.zeros((5, 6), np.uint8))
    with pytest.raises(ValueError, match=r"three axes, got shape \(5, 6\).*as images"):
        load(tmp_path)


def test_values_that_are_not_finite_are_refused_by_file(tmp_path: Path) -> None:
    save_classes(tmp_path, np.eye(4), np.eye(4), values=VALUES.astype(np.float32))
    holed = VALUES.astype(np.float32)
    holed[0, 0, 0] = np.nan
    save(tmp_path / "b" / "1.nii.gz", holed)
    with pytest.raises(ValueError, match=r"1\.nii\.gz` must be finite, got NaN at index .*fill in"):
        load(tmp_path)


def test_shapes_and_spacings_must_agree(tmp_path: Path) -> None:
    save_classes(tmp_path / "x", np.eye(4), np.diag([1, 1, 2, 1]))
    with pytest.raises(ValueError, match=r"voxels of one size.* 1 x 1 x 1 mm.*1 x 1 x 2 mm.*resiz"):
        load(tmp_path / "x")
    save_classes(tmp_path / "y", np.eye(4))
    save(tmp_path / "y" / "b" / "9.nii", VALUES[:4])
    with pytest.raises(ValueError, match=r"same shape.*5 x 6 x 7.*4 x 6 x 7.*resize"):
        load(tmp_path / "y")


def test_resizing_keeps_sizes_in_the_world(tmp_path: Path) -> None:
    """A ball of 6 mm, in voxels of 1 and of 2 mm, is one ball afterwards."""
    masses = []
    for name, n, spacing in (("1", 24, 1.0), ("2", 10, 2.0)):
        places = (np.indices((n,) * 3) - (n - 1) / 2) * spacing
        ball = (np.sqrt((places**2).sum(0)) < 6.0).astype(np.float32)
        masses.append(ball.sum() * spacing**3)
        save(tmp_path / "a" / f"{name}.nii", ball, np.diag([spacing] * 3 + [1.0]))
    data = read_nifti_folder(tmp_path, resize=(12, 12, 12))
    volumes = data.X.sum(axis=(1, 2, 3)) * 8.0  # voxels of 2 mm
    np.testing.assert_allclose(volumes, masses, rtol=0.02)
    np.testing.assert_allclose(np.diag(data.affine)[:3], 2.0)
    with pytest.raises(ValueError, match=r"three integers for volumes.*got 12x12"):
        read_nifti_folder(tmp_path, resize=(12, 12))


@pytest.mark.parametrize("slope", [0.0, 1e-13])
def test_affines_must_be_invertible(tmp_path: Path, slope: float) -> None:
    affine = np.diag([1e4, slope, 1e4, 1.0])
    affine[0, 1] = 1e4
    with pytest.raises(ValueError, match=r"a\.nii`.* inver"):
        read_volume(save(tmp_path / "a.nii", VALUES, affine))


def test_affines_may_be_missing_from_all_but_not_from_some(tmp_path: Path) -> None:
    for name in ("1", "2"):
        save(tmp_path / "a" / f"{name}.nii", VALUES, None)
    with pytest.warns(UserWarning, match="no affine"):
        data = load(tmp_path)
    np.testing.assert_array_equal(data.X[0], VALUES)
    assert data.orientation is None
    save(tmp_path / "b" / "3.nii", VALUES)
    with pytest.raises(ValueError, match=r"must all have an affine or none.*1\.nii"):
        load(tmp_path)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    affine = np.diag([1.0, 2.0, 3.0, 1.0])
    for name, values in (("a.nii", VALUES), ("b.nii.gz", VALUES.astype(np.float32) / 3)):
        write_volume(tmp_path / name, values, affine)
        found, grid = read_volume(tmp_path / name)
        np.testing.assert_array_equal(found, values)
        np.testing.assert_array_equal(grid.affine, affine)
    with pytest.raises(ValueError, match=r"must end in \.nii"):
        write_volume(tmp_path / "a.png", VALUES, affine)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    whole = save(tmp_path / "a.nii", VALUES).read_bytes()
    (tmp_path / "cut.nii").write_bytes(whole[:-100])
    (tmp_path / "cut.nii.gz").write_bytes(gzip.compress(whole)[:-40])
    (tmp_path / "text.nii").write_text("no volume")
    huge = bytearray(whole[:400])
    huge[40:56] = np.array([3, 30000, 30000, 30000, 1, 1, 1, 1], "<i2").tobytes()
    (tmp_path / "huge.nii.gz").write_bytes(gzip.compress(bytes(huge)))
    for name in ("cut.nii", "cut.nii.gz", "text.nii", "huge.nii.gz"):
        with pytest.raises(ValueError, match=name):
            read_volume(tmp_path / name)
    save(tmp_path / "complex.nii", VALUES.astype(np.complex64))
    with pytest.raises(ValueError, match="must hold real numbers"):
        read_volume(tmp_path / "complex.nii")
