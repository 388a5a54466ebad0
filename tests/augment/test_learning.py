"""What is learned of a class whose warps are known."""

from __future__ import annotations

import numpy as np

import dreamwarp as dw
from dreamwarp.align.prior import mass_matrix

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
