"""Empirical Bayes: covariances that are known, on pairs that show them in part."""

from __future__ import annotations

import numpy as np
import pytest

import dreamwarp as dw
from dreamwarp.align.evidence import EvidenceFinder
from dreamwarp.model import empirical_bayes as eb
from tests.align.test_evidence import make_evidence
from tests.augment.cases import warped_shapes

RANK = 6
TRUE = np.diag([4.0, 2.0, 1.0, 0.5, 0.25, 0.1])


def error(covariance: np.ndarray) -> float:
    return float(np.linalg.norm(covariance - TRUE) / np.linalg.norm(TRUE))


def displacement_of(pool: eb.Pool) -> float:
    return pool.finder.frame.displacement(pool.covariance)


def settle(evidence: object, n_rounds: int = 20) -> np.ndarray:
    pool = np.eye(RANK)
    for _ in range(n_rounds):
        pool = eb.fit_covariance(evidence, pool)  # type: ignore[arg-type]
    return pool


def test_a_known_covariance_is_recovered() -> None:
    errors = []
    for n in (100, 700, 5000):
        evidence, u = make_evidence(n, RANK, 0, TRUE)
        errors.append(error(settle(evidence)))
    assert errors[0] > errors[1] > errors[2]
    # Nothing does better than the warps themselves, of which pairs show half, with noise.
    assert errors[2] < 4.0 * error(u.T @ u / len(u))


def test_modes_are_too_small_and_draws_mostly_prior() -> None:
    evidence, _ = make_evidence(5000, RANK, 0, TRUE)
    unit, spreads = np.eye(RANK), np.zeros((5000, RANK, RANK), np.float32)
    found = evidence.condition(unit, covariances_out=spreads)
    modes = found.means.T @ found.means / len(evidence)
    draws = modes + spreads.mean(axis=0)
    learned = error(settle(evidence))
    assert error(modes) > 5 * learned and error(draws) > 5 * learned


def test_every_step_raises_the_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eb, "SMOOTH_PAIRS_PER_COMPONENT", 0.0)
    evidence, _ = make_evidence(300, RANK, 1, TRUE)
    pool, scores = np.eye(RANK), []
    for _ in range(10):
        pool = eb.fit_covariance(evidence, pool)
        scores.append(evidence.condition(pool).log_marginals.sum())
    assert (np.diff(scores) > -1e-9).all()


def make_noisy_pairs(n_pairs: int, noise: float, displacement: float) -> tuple[np.ndarray, ...]:
    """Smooth images, and the same under warps of a known prior, with noise of known size."""
    space, rng = dw.WarpSpace((2, 2)), np.random.default_rng(3)
    axis = (np.arange(24) + 0.5) / 24
    rows, columns = np.meshgrid(axis, axis, indexing="ij")
    waves = rng.uniform(1.0, 4.0, (n_pairs, 4, 2)) * rng.choice([-1, 1], (n_pairs, 4, 2))
    phases = rng.uniform(0, 2 * np.pi, (n_pairs, 4))
    angles = np.einsum("nkd,drc->nkrc", 2 * np.pi * waves / 3, np.stack([rows, columns]))
    images = np.sin(angles + phases[..., None, None]).mean(axis=1).astype(np.float32)
    theta = dw.SmoothPrior(space, displacement=displacement).sample(n_pairs, seed=5)
    warped = dw.Warp(space, theta).image(images)
    both = np.concatenate([images, warped + noise * rng.normal(size=warped.shape)])
    edges = np.stack([np.arange(n_pairs), np.arange(n_pairs) + n_pairs], axis=1)
    return both.astype(np.float32), edges


@pytest.mark.parametrize("start", [0.03, 0.1])
def test_the_scale_of_warps_is_found_from_either_side(start: float) -> None:
    images, edges = make_noisy_pairs(300, 0.05, 0.06)
    prior = dw.SmoothPrior(dw.WarpSpace((2, 2)), displacement=start)
    finder = EvidenceFinder.for_images(
        prior, images, edges, similarity="ssd", sigma="auto", max_steps=50, progress=False
    )
    pair_codes = np.zeros(len(edges), np.int64)
    pool = eb.find_pool(finder, edges, pair_codes)
    evidence = finder.find(edges, pool.covariance, sigma=pool.sigma)
    learned = eb.learn_classes(evidence, pool.covariance, edges, pair_codes)
    moment = (learned.means.T @ learned.means + learned.covariances.sum(axis=0)) / len(edges)
    assert finder.frame.displacement(moment) == pytest.approx(0.06, rel=0.15)
    assert pool.sigma == pytest.approx(0.05, rel=0.15)


def test_the_prior_is_chosen_by_held_out_pairs() -> None:
    images, edges = make_noisy_pairs(300, 0.05, 0.04)
    prior = dw.SmoothPrior(dw.WarpSpace((2, 2)), displacement=0.16)
    finder = EvidenceFinder.for_images(
        prior, images, edges, similarity="ssd", sigma="auto", max_steps=50, progress=False
    )
    pair_codes = np.zeros(len(edges), np.int64)
    pool = eb.find_pool(finder, edges, pair_codes, displacements=eb.DISPLACEMENTS)
    # With so many pairs for 18 parameters, the next larger one does as well.
    assert pool.finder.frame.prior.displacement in (0.04, 0.08)
    assert pool.finder.frame.prior.length == prior.length
    assert displacement_of(pool) == pytest.approx(0.04, rel=0.15)
    # One pair that no sample can be held out of: the prior stays.
    few = eb.find_pool(finder, edges[:1], pair_codes[:1], displacements=eb.DISPLACEMENTS)
    assert few.finder.frame.prior.displacement == 0.16


def test_pairs_to_begin_with_lie_within_halves_of_the_samples() -> None:
    edges = np.random.default_rng(0).integers(0, 1000, (4000, 2))
    pair_codes = np.arange(4000) % 4
    first = eb.choose_first(edges, pair_codes)
    assert len(first) == eb.N_FIRST and (np.bincount(pair_codes[first]) == eb.N_FIRST // 4).all()
    tested = np.concatenate([test for _, test in eb.split_by_sample(edges[first], eb.N_FOLDS)])
    np.testing.assert_array_equal(np.sort(tested), np.arange(len(first)))


def test_more_rounds_change_little(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = warped_shapes()
    edges = dw.neighbor_pairs(X, y, n_neighbors=5)
    prior = dw.SmoothPrior(dw.WarpSpace((2, 2)))
    finder = EvidenceFinder.for_images(
        prior, X, edges, similarity="ssd", sigma="auto", max_steps=50, progress=False
    )
    pair_codes = np.unique(y, return_inverse=True)[1][edges[:, 0]]
    pool = eb.find_pool(finder, edges, pair_codes)
    monkeypatch.setattr(eb, "MAX_ROUNDS", 20)
    monkeypatch.setattr(eb, "SETTLED", 0.0)  # so that all rounds are run
    longer = eb.find_pool(finder, edges, pair_codes)
    change = displacement_of(longer) / displacement_of(pool)
    assert change == pytest.approx(1.0, abs=0.05)


def test_classes_that_differ_are_told_apart_and_others_pooled() -> None:
    n = 600
    pair_codes = np.repeat([0, 1], n // 2)
    edges = np.random.default_rng(0).integers(0, 150, (n, 2)) + 150 * pair_codes[:, None]
    same, _ = make_evidence(n, RANK, 2, TRUE)
    halves = [make_evidence(n // 2, RANK, k, s)[0] for k, s in ((3, TRUE), (4, 5.0 * np.eye(RANK)))]
    different = type(same).join(halves)
    chosen = {}
    for name, evidence in (("same", same), ("different", different)):
        pool = settle(evidence)
        folds = eb.hold_out(evidence, edges, pair_codes, pool, None)
        chosen[name] = eb.choose_pool_pairs(evidence, pair_codes, folds, None)
    assert chosen["same"] >= 10.0 * RANK
    assert chosen["different"] <= RANK


def test_folds_learn_from_kept_samples_alone() -> None:
    n = 200
    edges, pair_codes = np.random.default_rng(0).integers(0, 60, (n, 2)), np.arange(n) % 2
    evidence, _ = make_evidence(n, RANK, 0, TRUE)
    folds = eb.hold_out(evidence, edges, pair_codes, TRUE, None)
    assert len(folds) == eb.N_FOLDS
    for fold in folds:
        out = fold.held_out[edges].sum(axis=1)
        np.testing.assert_array_equal(np.sort(fold.test), np.flatnonzero(out == 2))
        np.testing.assert_array_equal(np.sort(fold.crossing), np.flatnonzero(out == 1))
        kept = evidence.only(out == 0)
        np.testing.assert_allclose(fold.pool_covariance, eb.fit_covariance(kept, TRUE), rtol=1e-9)
        assert sum(n for n, _ in fold.moments.values()) == len(kept)


def test_held_out_pairs_share_no_sample_with_others() -> None:
    edges = np.random.default_rng(0).integers(0, 40, (300, 2))
    for train, test in eb.split_by_sample(edges, 2):
        assert len(train) and len(test)
        assert not set(edges[train].ravel()) & set(edges[test].ravel())
