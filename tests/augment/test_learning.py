"""What is learned of a class whose warps are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dreamwarp as dw
from dreamwarp.align.images import equalizing_factors, simplify
from dreamwarp.align.prior import mass_matrix
from dreamwarp.augment.learning import Settings

SIZE, DISPLACEMENT = 24, 0.04


def warped_texture(n: int, seed: int) -> tuple[dw.SmoothPrior, np.ndarray]:
    """The distribution of warps, and noisy copies of one smooth texture under draws of it."""
    rng = np.random.default_rng(seed)
    prior = dw.SmoothPrior(dw.WarpSpace((2, 2), "free"), displacement=DISPLACEMENT)
    axis = (np.arange(SIZE) + 0.5) / SIZE
    waves = np.sin(6.0 * axis[:, None] + 3.0 * axis) + np.sin(4.0 * axis[:, None] - 9.0 * axis)
    images = np.repeat(waves[None].astype(np.float32), n, axis=0)
    warped = dw.Warp(prior.space, prior.sample(n, seed=seed)).image(images)
    return prior, (warped + 0.05 * rng.normal(size=warped.shape)).astype(np.float32)


def displacement_of(space: dw.WarpSpace, covariance: np.ndarray) -> float:
    return float(np.sqrt(np.trace(mass_matrix(space) @ covariance)))


def test_the_covariance_is_that_of_members_about_their_centre() -> None:
    prior, X = warped_texture(80, seed=1)
    options = {"cells": (2, 2), "strength": 1.0, "progress": False}
    model = dw.Augmenter(model="gaussian", **options).fit(X, np.zeros(80, int)).model_
    found = displacement_of(prior.space, model.covariance(0))
    true = displacement_of(prior.space, prior.covariance)
    assert abs(found / true - 1.0) < 0.15
    # Two members differ by √2 times as much, but nearest neighbours by less.
    near = dw.Augmenter(method="map", model="gaussian", boundary="free", **options)
    between = near.fit(X, np.zeros(80, int)).model_.covariance(0)
    assert displacement_of(prior.space, between) < 1.3 * true


def test_templates_share_the_gaussian_of_their_class() -> None:
    _, X = warped_texture(40, seed=2)
    augmenter = dw.Augmenter(cells=(2, 2), strength=1.0, progress=False).fit(X, np.zeros(40, int))
    model = augmenter.model_
    theta = model.draw([0] * 4000, range(4000), templates=[7] * 4000, seed=0)
    seen = np.cov(theta.T)
    # θ ~ N(s b θ̄, s S + (1 - s) Σ): at least the class's share, in every direction.
    share = 1.0 - 1.0 / (1.0 + 3.0 / np.isin(augmenter.edges_, 7).any(axis=1).sum())
    least = np.linalg.eigvalsh(seen - share * model.covariance(0)).min()
    assert least > -0.1 * np.linalg.eigvalsh(model.covariance(0)).max()


def warped_wheels(n: int, seed: int) -> tuple[dw.SmoothPrior, np.ndarray]:
    """The distribution of warps, and wheels under draws of it, with strokes of varying width."""
    rng = np.random.default_rng(seed)
    prior = dw.SmoothPrior(dw.WarpSpace((4, 4), "free"), displacement=DISPLACEMENT)
    axis = (np.arange(28) + 0.5) / 28 - 0.5
    radius = np.hypot(axis[:, None], axis)
    spoke = np.where(radius < 0.25, np.minimum(np.abs(axis[:, None]), np.abs(axis)), 1.0)
    distance = np.minimum(np.abs(radius - 0.25), spoke)
    width = rng.uniform(0.03, 0.09, size=(n, 1, 1))
    wheels = np.exp(-((distance / width) ** 4)).astype(np.float32)
    return prior, dw.Warp(prior.space, prior.sample(n, seed=seed)).image(wheels)


def divergence_of(space: dw.WarpSpace, theta: np.ndarray) -> float:
    """Root mean square divergence of displacements over the middle of the domain."""
    axis = np.linspace(0.15, 0.85, 21)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    moved = space.flow(theta, grid.reshape(-1, 2)).reshape(-1, *grid.shape) - grid
    slopes = [np.gradient(moved[..., k], axis, axis=1 + k) for k in range(2)]
    return float(np.sqrt(np.mean((slopes[0] + slopes[1]) ** 2)))


def test_the_width_of_strokes_is_not_taken_for_warps() -> None:
    prior, X = warped_wheels(100, seed=3)
    true = divergence_of(prior.space, prior.sample(500, seed=0))
    found = {}
    for pixels_per_cell in ("auto", None):
        augmenter = dw.Augmenter(
            model="gaussian", strength=1.0, pixels_per_cell=pixels_per_cell, progress=False
        ).fit(X, np.zeros(100, int))
        found[pixels_per_cell] = divergence_of(prior.space, augmenter.model_.sample(500, 0)) / true
    assert 0.8 < found["auto"] < 1.3
    assert found[None] > 2.0  # at full resolution, warps stand in for the width


def test_brightness_is_not_taken_for_warps() -> None:
    prior, X = warped_texture(80, seed=1)
    true = displacement_of(prior.space, prior.covariance)
    dimmed = X * np.random.default_rng(5).uniform(0.5, 1.5, size=(80, 1, 1)).astype(np.float32)
    found = {}
    for pixels_per_cell in ("auto", None):
        augmenter = dw.Augmenter(
            cells=(2, 2), model="gaussian", strength=1.0, pixels_per_cell=pixels_per_cell,
            progress=False,
        ).fit(dimmed, np.zeros(80, int))  # fmt: skip
        covariance = augmenter.model_.covariance(0)
        found[pixels_per_cell] = displacement_of(prior.space, covariance) / true
    assert abs(found["auto"] - 1.0) < 0.15
    assert found[None] > 1.25  # as they are, warps stand in for brightness


def test_simple_images_do_not_depend_on_brightness() -> None:
    rng, space = np.random.default_rng(0), dw.WarpSpace((2, 2), "free")
    images = 1.0 - (rng.uniform(size=(6, 20, 20)) < 0.2)  # strokes on a white background
    images[4] = 0.3
    simple = simplify(space, images)
    assert simple.shape == (6, 1, 12, 12)
    assert not simple[4].any()  # constant
    dimmed = 1.0 + (images - 1.0) * rng.uniform(0.5, 1.0, size=(6, 1, 1))
    dimmed[4] = 0.8
    again = simplify(space, dimmed)
    assert 0.5 < np.ptp(again) / np.ptp(simple) < 1.0
    np.testing.assert_allclose(again / np.ptp(again), simple / np.ptp(simple), atol=1e-5)
    # The thickness of strokes makes no difference, and what is almost constant is not scaled up.
    wide = np.zeros((2, 20, 20))
    wide[0, 4:6], wide[1, 4:12] = 1.0, 1.0
    strokes = wide[:, None].astype(np.float32)
    np.testing.assert_allclose(equalizing_factors(strokes, 0.0), 1.0, rtol=1e-6)
    strokes[1] *= 0.01
    assert 0.01 * equalizing_factors(strokes, 0.0)[1] < 0.1


def test_samples_are_aligned_at_the_resolution_of_the_cells() -> None:
    images = np.random.default_rng(0).uniform(size=(2, 28, 20)).astype(np.float32)
    space = dw.WarpSpace((4, 6), "free")
    assert simplify(space, images).shape == (2, 1, 16, 20)
    assert simplify(space, images, 3).shape == (2, 1, 12, 18)
    assert simplify(dw.WarpSpace((1, 6), "free"), images, 1).shape == (2, 1, 12, 12)
    np.testing.assert_array_equal(simplify(space, images, None)[:, 0], images)
    shared = {
        "n_neighbors": 5, "similarity": "ssd", "sigma": "auto", "displacement": "auto",
        "length": 0.25, "model": "gaussian", "keep_unusable": False, "discount_poor": False,
    }  # fmt: skip
    assert Settings(method="eb", **shared).resolution == 4
    assert Settings(method="map", **shared).resolution is None
    assert Settings(method="map", pixels_per_cell=3, **shared).resolution == 3
    assert Settings(method="eb", pixels_per_cell=None, **shared).resolution is None
    with pytest.raises(ValueError, match="`pixels_per_cell`"):
        Settings(method="eb", pixels_per_cell=0, **shared)


def test_settings_are_of_types_that_a_file_holds() -> None:
    settings: Any = {
        "n_neighbors": 5, "method": "eb", "similarity": "ssd", "sigma": "auto",
        "displacement": "auto", "length": 0.25, "model": "gaussian", "keep_unusable": False,
        "discount_poor": False,
    }  # fmt: skip
    assert Settings(**settings).describe()["max_pairs"] == "auto"
    given = Settings(**settings, max_pairs=np.int64(50))  # type: ignore[arg-type]
    assert type(given.describe()["max_pairs"]) is int
