"""Elastic and affine deformation: draws by number, stated sizes, one to three axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dreamwarp.augment.rivals.elastic import (
    ROTATION,
    SHIFT,
    STRETCH,
    deform_elastically,
    draw_matrices,
    smooth_noise,
)

SHAPES = [(64,), (24, 20), (12, 10, 8)]


def ramps(shape: tuple[int, ...], n: int = 1) -> np.ndarray:
    """Images (n, n_axes, *shape): channel k is the pixel index along axis k."""
    return np.repeat(np.stack(np.indices(shape))[None].astype(np.float64), n, axis=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("options", [{"amplitude": 1.0}, {"amplitude": 0.0, "affine": 1.0}])
def test_a_deformation_depends_on_seed_and_number_alone(
    shape: tuple[int, ...], options: Any
) -> None:
    images = np.random.default_rng(0).random((6, *shape)).astype(np.float32)
    given: Any = {"width": 3.0, "n_axes": len(shape), **options}
    whole = deform_elastically(images, seed=1, **given)
    part = deform_elastically(images[2:5], seed=1, first=2, **given)
    assert whole.shape == images.shape and whole.dtype == images.dtype
    np.testing.assert_array_equal(part, whole[2:5])
    assert (whole != images).any(axis=tuple(range(1, images.ndim))).all()
    assert (deform_elastically(images, seed=2, **given) != whole).any()
    same = np.repeat(images[:1], 2, axis=0)
    assert (np.diff(deform_elastically(same, **given), axis=0) != 0).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_no_amplitude_changes_nothing(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).random((2, *shape))
    same = deform_elastically(images, width=2.0, amplitude=0.0, n_axes=len(shape))
    np.testing.assert_allclose(same, images, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [1.0, 4.0])
def test_displacements_are_smooth_and_of_unit_size(shape: tuple[int, ...], width: float) -> None:
    noise = smooth_noise(3, np.arange(200), shape, width)
    assert noise.shape == (200, int(np.prod(shape)), len(shape))
    np.testing.assert_allclose(np.mean(noise**2, axis=(1, 2)), 1.0)
    # White noise smoothed by a Gaussian: neighbours correlate by exp(-1 / (4 width²)).
    fields = noise.reshape(200, *shape, len(shape))
    product = np.mean(fields * np.roll(fields, 1, axis=1)) / np.mean(fields**2)
    assert product == pytest.approx(np.exp(-0.25 / width**2), abs=0.03)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_amplitude_is_the_root_mean_square_displacement(shape: tuple[int, ...]) -> None:
    # A ramp shows how far each pixel is read from; pixels near the border are cut off.
    images, n_axes = ramps(shape, 100), len(shape)
    moved = deform_elastically(images, width=2.0, amplitude=0.5, n_axes=n_axes) - images
    inner = moved[(slice(None), slice(None), *n_axes * (slice(3, -3),))]
    assert np.sqrt(np.mean(inner**2)) == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_affine_maps_have_the_stated_deviations(n_axes: int) -> None:
    matrices = draw_matrices(5, np.arange(20_000), n_axes)
    diagonal = np.einsum("nii->ni", matrices)
    assert diagonal.std() == pytest.approx(STRETCH, rel=0.05)
    if n_axes > 1:
        skew = (matrices - np.swapaxes(matrices, 1, 2))[:, 0, 1] / 2
        assert skew.std() == pytest.approx(np.hypot(ROTATION, STRETCH / np.sqrt(2)), rel=0.05)


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_the_affine_displacement_follows_from_these(strength: float) -> None:
    shape = (40, 40)
    images = ramps(shape, 400)
    moved = deform_elastically(images, width=1.0, amplitude=0.0, affine=strength) - images
    inner = moved[:, :, 15:25, 15:25] / 40
    offsets = (np.arange(15, 25) + 0.5) / 40 - 0.5
    square = np.mean(offsets**2)  # along each axis
    expected = (2 * STRETCH**2 + ROTATION**2) * square + SHIFT**2
    assert np.sqrt(np.mean(inner**2)) == pytest.approx(strength * np.sqrt(expected), rel=0.1)


@pytest.mark.parametrize("shape", SHAPES)
def test_channels_move_alike(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).random((3, *shape))
    options: Any = {"width": 2.0, "amplitude": 1.0, "affine": 0.5, "n_axes": len(shape)}
    alone = deform_elastically(images, **options)
    both = deform_elastically(np.stack([images, 1.0 - images], axis=1), **options)
    assert both.shape == (3, 2, *shape)
    np.testing.assert_array_equal(both[:, 0], alone)
    np.testing.assert_allclose(both[:, 1], 1.0 - alone, atol=1e-6)


@pytest.mark.parametrize(("shape", "n_axes"), [((5,), 1), ((3, 8), 2), ((2, 1, 1, 8, 8), 2)])
def test_bad_shapes_are_refused(shape: tuple[int, ...], n_axes: int) -> None:
    with pytest.raises(ValueError, match=rf"{n_axes} spatial axes, got .*`n_axes` is 1 for series"):
        deform_elastically(np.ones(shape), width=1.0, amplitude=1.0, n_axes=n_axes)
