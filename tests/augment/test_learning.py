"""What is learned of a class whose warps are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dreamwarp as dw
from dreamwarp.align import evidence
from dreamwarp.align.images import equalize, simplify
from dreamwarp.align.prior import mass_matrix
from dreamwarp.align.similarity import SquaredError
from dreamwarp.augment.learning import Settings
from dreamwarp.model import kinds
from tests.augment.cases import warped_shapes

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


def test_components_that_are_left_out_are_negligible(monkeypatch: pytest.MonkeyPatch) -> None:
    prior, X = warped_wheels(60, seed=4)
    found = []
    for n_least in (evidence.MIN_COMPONENTS, prior.space.dim):
        monkeypatch.setattr(evidence, "MIN_COMPONENTS", n_least)
        augmenter = dw.Augmenter(model="gaussian", strength=1.0, progress=False)
        model = augmenter.fit(X, np.zeros(60, int)).model_
        displacement = displacement_of(prior.space, model.covariance(0))
        found.append((displacement, divergence_of(prior.space, model.sample(500, 0))))
    np.testing.assert_allclose(*found, rtol=0.05)


def drawings(n: int, seed: int) -> np.ndarray:
    """Dark dots on a background that is white in one channel and grey in the other."""
    dots = np.random.default_rng(seed).uniform(size=(1, 1, 20, 20)) < 0.2
    dots[..., [0, -1], :], dots[..., [0, -1]] = False, False
    ground = np.array([1.0, 0.5]).reshape(1, 2, 1, 1)
    return np.repeat(ground - 0.4 * dots, n, axis=0).astype(np.float32)


def test_equal_brightness_undoes_factors_about_the_background() -> None:
    images = drawings(6, seed=0)
    factors = np.array([0.5, 1.0, 1.5, 0.7, 1.2, 0.0]).reshape(-1, 1, 1, 1)
    ground = images[:, :, :1, :1]
    uneven = (ground + factors * (images - ground)).astype(np.float32)
    alike = np.array([(0, 1), (2, 3), (1, 4), (0, 2)])
    found = equalize(uneven, alike)
    np.testing.assert_allclose(found[:5], np.repeat(found[:1], 5, axis=0), atol=1e-6)
    np.testing.assert_allclose(found[:, :, 0, 0], uneven[:, :, 0, 0], atol=1e-6)
    np.testing.assert_array_equal(found[5], uneven[5])  # constant
    assert 0.3 < np.ptp(found[0]) / np.ptp(images[0]) < 1.5
    # Sizes whose squares overflow or underflow.
    for size in (1e-24, 1e25):
        scaled = equalize((size * uneven).astype(np.float32), alike)
        np.testing.assert_allclose(scaled / np.float32(size), found, rtol=1e-4, atol=1e-4)


def test_brightness_is_kept_unless_pairs_get_more_alike() -> None:
    alike = np.array([(0, 1), (1, 2)])
    strokes = np.zeros((3, 1, 20, 20), np.float32)
    strokes[0, :, 4:6], strokes[1, :, 4:8], strokes[2, :, 4:12] = 1.0, 1.0, 1.0
    strokes[:, :, :, [0, -1]] = 0.0
    assert equalize(strokes, alike) is strokes  # they differ in thickness
    rng = np.random.default_rng(1)
    signals = rng.normal(size=(3, 1, 50)).astype(np.float32) ** 3
    assert equalize(signals, alike) is signals
    constant = np.ones((3, 1, 4, 4), np.float32)
    assert equalize(constant, alike) is constant
    dark = drawings(3, seed=2)
    dark[2] = dark[2, :, :1, :1] + 1e-4 * (dark[2] - dark[2, :, :1, :1])
    dark[1] = dark[1, :, :1, :1] + 0.5 * (dark[1] - dark[1, :, :1, :1])
    found = equalize(dark, np.array([(0, 1)]))
    assert np.ptp(found[2, 0]) == pytest.approx(10.0 * np.ptp(dark[2, 0]), rel=0.01)


def test_samples_are_aligned_at_the_resolution_of_the_cells() -> None:
    images = np.random.default_rng(0).uniform(size=(2, 28, 20)).astype(np.float32)
    space = dw.WarpSpace((4, 6), "free")
    assert simplify(space, images).shape == (2, 1, 16, 20)
    assert simplify(space, images, 3).shape == (2, 1, 12, 18)
    assert simplify(dw.WarpSpace((1, 6), "free"), images, 1).shape == (2, 1, 12, 12)
    np.testing.assert_array_equal(simplify(space, images, None)[:, 0], images)
    shared = {
        "n_neighbors": 5, "similarity": "ssd", "sigma": "auto", "displacement": "auto",
        "length": 0.25, "kind": "gaussian",
    }  # fmt: skip
    assert Settings(method="eb", pixels_per_cell="auto", **shared).resolution == 4
    assert Settings(method="map", pixels_per_cell="auto", **shared).resolution is None
    assert Settings(method="map", pixels_per_cell=3, **shared).resolution == 3
    assert Settings(method="eb", pixels_per_cell=None, **shared).resolution is None
    with pytest.raises(ValueError, match="`pixels_per_cell`"):
        Settings(method="eb", pixels_per_cell=0, **shared)


@pytest.mark.parametrize("kind", ["template", "gaussian"])
def test_the_kind_of_higher_held_out_likelihood_is_learned(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So sure that templates, or classes, are likelier.
    monkeypatch.setattr(kinds, "DOUBT", 1e9 if kind == "template" else -1e9)
    X, y = warped_shapes()
    auto, asked = (
        dw.Augmenter(cells=(2, 2), strength=1.0, model=model, progress=False).fit(X, y)
        for model in ("auto", kind)
    )
    assert auto.model_.kind == kind
    learned, expected = (
        displacement_of(one.space_, one.model_.covariance(y[0])) for one in (auto, asked)
    )
    assert learned == pytest.approx(expected, rel=0.05)


def test_settings_are_of_types_that_a_file_holds() -> None:
    settings: Any = {
        "n_neighbors": 5, "method": "eb", "similarity": "ssd", "sigma": "auto",
        "displacement": "auto", "length": 0.25, "kind": "gaussian",
    }  # fmt: skip
    assert Settings(**settings).describe()["max_pairs"] == "auto"
    given = Settings(**settings, max_pairs=np.int64(50))  # type: ignore[arg-type]
    assert type(given.describe()["max_pairs"]) is int


def test_settings_are_read_back_from_a_model() -> None:
    space = dw.WarpSpace((2, 2))
    bare = dw.WarpModel.fit(space, {"a": dw.SmoothPrior(space).sample(20, 1)}, shrinkage=0.1)
    assert Settings.of(bare) == Settings(method="map", displacement=0.08)
    for given in (
        Settings(method="eb", displacement="auto", pixels_per_cell="auto"),
        Settings(9, "metropolis", "mi", "auto", 0.1, 0.4, "gaussian", 7, 80, 50, 3),
        Settings(similarity=SquaredError(0.2)),
    ):
        assert Settings.of(bare.with_settings(**given.describe())) == given
    custom = bare.with_settings(similarity="my_function", sigma="auto", learned_sigma=0.3)
    assert Settings.of(custom) == Settings(similarity="ssd", sigma=0.3)
    ignored = bare.with_settings(similarity="mi", sigma=0.3)  # files of earlier versions
    assert Settings.of(ignored) == Settings(similarity="mi")


def test_the_noise_of_a_similarity_is_kept() -> None:
    assert Settings(similarity=SquaredError(0.2)) == Settings(sigma=0.2)
    with pytest.raises(ValueError, match=r"left out, got 0.1 with similarity=SquaredError"):
        Settings(similarity=SquaredError(0.2), sigma=0.1)
    X, y = warped_shapes()
    for model in ("template", "gaussian"):
        fitted = dw.Augmenter(
            cells=(2, 2), similarity=SquaredError(0.2), model=model, strength=1.0, max_pairs=20,
            progress=False,
        ).fit(X, y)  # fmt: skip
        assert fitted.alignments_.sigma == 0.2
        assert fitted.model_.settings["sigma"] == 0.2
