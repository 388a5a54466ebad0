"""Studies align as models say, and find samples that don't belong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dreamwarp import Augmenter, SmoothPrior, WarpModel, align_pairs, data, neighbor_pairs
from dreamwarp.augment.verdict import Judgement
from dreamwarp.report import find_odd, make_study, study_of
from dreamwarp.report.outliers import neighbor_votes, pair_energies
from dreamwarp.report.study import judgement_of
from tests.report import cases

QUICK: dict[str, Any] = {
    "n_neighbors": 3, "strength": 1.0, "method": "map", "model": "gaussian", "progress": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    found = data.digits()
    some = np.concatenate([np.flatnonzero(found.y == label)[:20] for label in (0, 3, 7)])
    return np.pad(found.X[some], ((0, 0), (2, 2), (2, 2))), found.y[some]


@pytest.fixture(scope="module")
def augmenter(digits: tuple[Any, Any]) -> Augmenter:
    return Augmenter(**QUICK, displacement=0.04).fit(*digits)


def test_a_study_aligns_as_the_model_was_fitted(augmenter: Augmenter, digits: Any) -> None:
    study = make_study(augmenter.model_, digits, progress=False)
    np.testing.assert_array_equal(study.edges, augmenter.edges_)
    np.testing.assert_allclose(study.alignments.theta, augmenter.alignments_.theta, atol=1e-6)
    assert study.learner.settings.n_neighbors == 3
    assert study.learner.settings.displacement == 0.04
    expected = augmenter.alignments_.loss_after / augmenter.alignments_.loss_before
    np.testing.assert_allclose(study.left_over, expected, rtol=1e-4)
    known = study_of(augmenter)
    np.testing.assert_array_equal(known.alignments.theta, augmenter.alignments_.theta)
    np.testing.assert_allclose(known.sizes, study.sizes, rtol=1e-3)


def test_the_verdict_is_that_of_the_fit(augmenter: Augmenter, digits: Any) -> None:
    fitted = augmenter.with_strength("auto")
    study = make_study(fitted.model_, digits, progress=False)
    assert study.judgement.verdict == fitted.verdict_
    assert study.judgement.errors == study_of(fitted).judgement.errors == fitted.strength_errors_
    np.testing.assert_array_equal(study.edges, augmenter.edges_)
    # A strength that was given was not judged, and what is no judgement is none.
    for text in (None, "", "{}", "[1]", '{"verdict": {"interval": 3}}'):
        assert Judgement.from_text(text) is None
    unjudged = judgement_of(augmenter.model_)
    assert not unjudged.errors and "not judged" in str(unjudged.verdict)


@pytest.mark.parametrize("kind", ["gaussian", "template"])
def test_of_volumes_few_pairs_are_aligned(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    monkeypatch.setattr("dreamwarp.report.study.MAX_VOLUME_PAIRS", 6)
    monkeypatch.setattr("dreamwarp.report.study.MAX_VOLUME_SIDE", 5)
    model = cases.model(3)
    if kind == "template":
        monkeypatch.setattr(type(model), "kind", kind)
    volumes = data.DataSet("x", *cases.data(3), affine=np.diag([2.0, 1.0, 3.0, 1.0]))
    study = make_study(model, volumes, progress=False)
    assert len(study.edges) == len(study.alignments) == 6
    assert study.learner.settings.kind == kind
    assert study.subject.X.shape == cases.data(3)[0].shape
    assert study.learner.images.shape == (16, 5, 5, 5)
    assert study.subject.look.spacing == (2.0, 1.0, 3.0)


def test_chains_are_of_samples_at_the_resolution_of_the_alignment(digits: Any) -> None:
    fitted = Augmenter(**QUICK, pixels_per_cell=2).fit(*digits)
    study = study_of(fitted)
    chains = study.sample_chains(np.array([0, 4]))
    assert len(chains.chains) == 2 and chains.similarity is fitted.alignments_.similarity
    np.testing.assert_allclose(chains.loss_before, fitted.alignments_.loss_before[[0, 4]])


def test_chains_have_the_prior_of_the_alignments(
    digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modes under it are those that were found, also where empirical Bayes learned it."""
    fitted = Augmenter(**QUICK | {"method": "eb"}, max_pairs=30).fit(*digits)
    study = study_of(fitted)
    given: dict[str, Any] = {}
    monkeypatch.setattr("dreamwarp.report.study.align_pairs", lambda *_, **more: given.update(more))
    study.sample_chains(np.array([0, 4]))
    images = study.learner.simple_images
    found = align_pairs(
        study.model.space, images, images, edges=given["edges"], prior=given["prior"],
        similarity=given["similarity"], tolerance=0.25, progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(found.theta, fitted.alignments_.theta[[0, 4]], atol=1e-5)


def test_a_study_has_no_more_pairs_than_the_fit(augmenter: Augmenter, digits: Any) -> None:
    study = make_study(augmenter.model_.with_settings(max_pairs=9), digits, progress=False)
    assert len(study.edges) == 9


def test_of_many_samples_some_are_taken(augmenter: Augmenter, digits: Any) -> None:
    study = make_study(augmenter.model_, digits, max_samples=24, progress=False)
    assert (len(study.subject.X), study.n_all) == (24, 60)
    np.testing.assert_array_equal(study.subject.X, digits[0][study.numbers])
    assert np.bincount(study.subject.codes).tolist() == [8, 8, 8]
    edges = neighbor_pairs(study.subject.X, study.subject.codes, n_neighbors=3)
    np.testing.assert_array_equal(study.edges, edges)
    # New samples are shown as they are made: from all data, whose own warps the model knows.
    assert len(study.whole.X) == 60
    assert study.whole.source.knows_templates


def test_sizes_are_lengths_in_the_model() -> None:
    study = cases.study(2)
    theta, label = study.alignments.theta[3], "left"
    precision = np.linalg.inv(study.model.covariance(label))
    expected = np.sqrt(theta @ precision @ theta / len(theta))
    assert study.sizes[3] == pytest.approx(expected)
    energy = 0.5 * theta @ precision @ theta + 0.5 * study.alignments.loss_after[3] / 0.1**2
    assert pair_energies(study)[3] == pytest.approx(energy)


def test_mislabelled_samples_are_found(augmenter: Augmenter, digits: Any) -> None:
    X, y = digits
    wrong = [4, 25, 47]
    labels = y.copy()
    labels[wrong] = [3, 7, 0]
    # As the model would be: fitted to what it was given.
    fitted = Augmenter(**QUICK).fit(X, labels)
    outliers = find_odd(study_of(fitted))
    suspects = {each.sample: each for each in outliers if each.looks_like is not None}
    assert set(wrong) <= set(suspects)
    assert len(suspects) <= 2 * len(wrong)
    assert [int(fitted.classes_[suspects[k].looks_like]) for k in wrong] == y[wrong].tolist()


def test_votes_are_those_of_the_nearest_others() -> None:
    rng = np.random.default_rng(0)
    X, codes = rng.random((40, 3, 3)), rng.integers(0, 3, 40)
    winners, counts = neighbor_votes(X, codes)
    for k in range(40):
        distances = [np.inf if j == k else ((X[j] - X[k]) ** 2).sum() for j in range(40)]
        votes = np.bincount(codes[np.argsort(distances)[:5]], minlength=3)
        assert counts[k] == votes.max() and votes[winners[k]] == votes.max()


def test_losses_that_are_no_squares_are_measured_by_gain() -> None:
    study = cases.study(2, similarity=object(), loss_after=np.linspace(0.0, 30.0, 14))
    assert study.left_over[0] == 0.0
    assert study.left_over[-1] == pytest.approx(0.75)


def test_settings_that_learned_a_model_give_its_warps(augmenter: Augmenter, digits: Any) -> None:
    X, y = digits
    edges, model = augmenter.edges_, augmenter.model_
    prior = SmoothPrior(model.space, displacement=0.04)
    result = align_pairs(model.space, X[edges[:3, 0]], X[edges[:3, 1]], prior=prior,
                         similarity=augmenter.alignments_.similarity, progress=False)  # fmt: skip
    np.testing.assert_allclose(result.theta, augmenter.alignments_.theta[:3], atol=1e-5)
    assert isinstance(model, WarpModel)
