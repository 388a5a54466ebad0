"""Augmenter: learning, making more, and what it refuses."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import dreamwarp as dw
from dreamwarp.augment import Resampler, augmenter, judge_nearest, learning
from dreamwarp.augment.race import STRENGTHS
from dreamwarp.augment.source import SampleSource, fingerprint_samples
from dreamwarp.augment.verdict import NOTHING_HELD_OUT, Judgement, network_strength
from tests.augment.cases import QUICK, SIZE, warped_shapes

# scikit-learn expects that what is trained on and what is predicted from are transformed alike.
EXPECTED_FAILURES = {
    "check_transformer_data_not_an_array": "only what comes with labels, to train on, is warped",
    "check_transformer_general": "only what comes with labels, to train on, is warped",
}


@pytest.fixture(scope="module", autouse=True)
def few_warped_samples() -> Iterator[None]:
    """Fewer warped samples to judge by: quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge_nearest, "N_WARPED", 500)
        patch.setattr(judge_nearest, "LEAST_WARPED", 500)
        yield


@pytest.fixture(scope="module")
def fitted() -> dw.Augmenter:
    return dw.Augmenter(strength=1.0, **QUICK).fit(*warped_shapes())


def quick(**options: Any) -> dw.Augmenter:
    return dw.Augmenter(**{"strength": 1.0, **QUICK, **options})


# -- what is learned


def test_fitting_leaves_what_it_learned(fitted: dw.Augmenter) -> None:
    X, y = warped_shapes()
    assert fitted.classes_.tolist() == ["bar", "ring", "wedge"]
    assert fitted.space_ == dw.WarpSpace((2, 2), boundary="free")
    np.testing.assert_array_equal(fitted.edges_, dw.neighbor_pairs(X, y, n_neighbors=5))
    assert len(fitted.alignments_) == len(fitted.edges_)
    assert fitted.model_.classes == ("bar", "ring", "wedge")
    assert fitted.model_.strength == fitted.strength_ == 1.0
    assert fitted.strength_errors_ == {} and fitted.verdict_.n_held_out == 0
    assert fitted.n_features_in_ == SIZE**2


@pytest.mark.parametrize("options", [{}, {"model": "gaussian"}, {"method": "map"}])
def test_constant_samples_are_refused_in_one_line(options: Any) -> None:
    X, y = warped_shapes()
    with pytest.raises(ValueError, match=r"at least 5 .*, got 0.* Constant samples do not count"):
        quick(**options).fit(np.zeros_like(X), y)  # without warnings, which are errors here


def test_samples_are_hashed_once(monkeypatch: Any) -> None:
    hashed: list[str] = []

    def fingerprint(X: Any) -> str:
        hashed.append(fingerprint_samples(X))
        return hashed[-1]

    monkeypatch.setattr("dreamwarp.augment.source.fingerprint_samples", fingerprint)
    fitted = quick(model="template", max_pairs=20).fit(*warped_shapes())
    assert fitted.model_.settings["samples"] == hashed[0] and len(hashed) == 1
    assert fitted.source_.knows_templates


def test_the_model_is_that_of_the_stages() -> None:
    X, y = warped_shapes()
    fitted = quick(method="map", model="gaussian").fit(X, y)
    edges = dw.neighbor_pairs(X, y, n_neighbors=5)
    space = dw.WarpSpace((2, 2), boundary="free")
    prior = dw.SmoothPrior(space, length=fitted.length)
    found = dw.align_pairs(
        space, X[edges[:, 0]], X[edges[:, 1]], prior=prior, sigma=0.3, progress=False
    )
    theta = {label: found.theta[y[edges[:, 0]] == label] for label in fitted.classes_}
    own_edges = {label: edges[y[edges[:, 0]] == label] for label in fitted.classes_}
    model = dw.WarpModel.fit(space, theta, edges=own_edges)
    for label in model.classes:
        np.testing.assert_allclose(fitted.model_.covariance(label), model.covariance(label))


def test_strength_scales_what_was_learned(fitted: dw.Augmenter) -> None:
    weaker = fitted.with_strength(0.5)
    assert (weaker.strength_, weaker.strength, fitted.strength_) == (0.5, 0.5, 1.0)
    assert weaker.model_.strength == 0.5
    np.testing.assert_array_equal(weaker.model_.covariance("bar"), fitted.model_.covariance("bar"))
    X, y = warped_shapes()
    for some in (fitted, weaker):
        np.testing.assert_array_equal(some.sample(9, strength=0.5)[0], weaker.sample(9)[0])
        np.testing.assert_array_equal(some.transform(X, y, strength=0.5), weaker.transform(X, y))
    theta = 0.5 * fitted.model_.draw(y, np.arange(len(X)), seed=0)
    np.testing.assert_array_equal(weaker.transform(X, y), dw.Warp(fitted.space_, theta).image(X))


def test_a_given_strength_is_not_judged_until_asked(fitted: dw.Augmenter, monkeypatch: Any) -> None:
    X, y = warped_shapes()
    judgement = fitted.judge()
    assert set(STRENGTHS) <= set(judgement.errors)
    assert judgement.verdict.n_held_out == len(X)
    assert fitted.strength_ == 1.0 and fitted.strength_errors_ == {}
    chosen = fitted.with_strength("auto")
    assert chosen.strength_errors_ == judgement.errors
    assert (chosen.strength_, chosen.verdict_) == (judgement.strength, judgement.verdict)
    assert quick(strength="auto").fit(X, y).strength_errors_ == judgement.errors

    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("judged")

    monkeypatch.setattr(augmenter, "judge_nearest", fail)
    for some in (quick().fit(X, y), chosen.with_strength(0.5)):
        assert some.strength_errors_ == {} and np.isnan(some.verdict_.improvement)
        assert "not judged" in str(some.verdict_) and 'strength="auto"' in str(some.verdict_)
        stored = Judgement.from_text(some.model_.settings["judgement"])
        assert (stored.strength, str(stored)) == (some.strength_, str(some.verdict_))


@pytest.mark.filterwarnings("ignore:warps do not reduce")
def test_networks_have_a_strength_of_their_own(
    fitted: dw.Augmenter, monkeypatch: Any, tmp_path: Path
) -> None:
    sizes = len(warped_shapes()[0]), len(fitted.classes_)
    assert fitted.model_.network_strength == network_strength((1.0, math.inf), *sizes)
    found = Judgement(0.0, {0.0: 0.3, 1.0: 0.4}, NOTHING_HELD_OUT, lowest=(0.8, 0.1))
    monkeypatch.setattr(augmenter, "judge_nearest", lambda *_, **__: found)
    judged = fitted.with_strength("auto")
    judged.with_strength(3.0).model_.save(tmp_path / "model.dwm")
    model = dw.WarpModel.load(tmp_path / "model.dwm")
    assert model.strength == 3.0
    assert model.network_strength == network_strength((0.8, 0.1), *sizes)
    assert judged.model_.network_strength == model.network_strength


def test_unusable_pairs_are_left_out() -> None:
    X, y = (values.copy() for values in warped_shapes())
    X[:3] = 100  # one flat sample in each class
    with pytest.warns(RuntimeWarning, match="pairs could not be aligned"):
        made = quick().fit(X, y)
    n_pairs = sum(fit.n_pairs for fit in made.model_.fits.values())
    assert n_pairs == made.alignments_.usable.sum() < len(made.edges_)


def test_samples_of_a_template_model_are_warped_templates() -> None:
    made = quick(model="template").fit(*warped_shapes())
    assert made.model_.kind == "template"
    X_new, y_new, templates = made.sample(9, return_templates=True)
    theta = made.model_.draw(y_new, np.arange(9), seed=0, templates=templates)
    expected = dw.Warp(made.space_, theta).image(warped_shapes()[0][templates])
    np.testing.assert_array_equal(X_new, expected)


def test_empirical_bayes_learns_from_what_pairs_show() -> None:
    X, y = warped_shapes()
    made = quick(model="gaussian").fit(X, y)
    assert made.model_.settings["method"] == "eb" and len(made.alignments_) == len(made.edges_)
    assert (made.alignments_.loss_after <= made.alignments_.loss_before).mean() > 0.95
    again = quick(model="gaussian", n_threads=1).fit(X, y)
    np.testing.assert_array_equal(made.sample(5)[0], again.sample(5)[0])
    some = quick(model="gaussian", max_pairs=30).fit(X, y)
    assert len(some.edges_) == 30
    judged = made.judge(strengths=[1.0])
    assert set(judged.errors) == {0.0, 1.0}
    whole = quick(method="eb", sigma="auto", boundary="free").fit(X > 100, y)
    assert whole.sample(3)[0].dtype == bool


def test_what_empirical_bayes_refuses_and_warns_of() -> None:
    X, y = (values.copy() for values in warped_shapes())
    with pytest.raises(ValueError, match=r"`max_pairs`.*got 2"):
        quick(max_pairs=2).fit(X, y)
    with pytest.raises(ValueError, match=r"`method` must be .*got 'vi'"):
        quick(method="vi").fit(X, y)
    X[:3] = 100  # one flat sample in each class
    with pytest.warns(RuntimeWarning, match=rf"3 of {len(X)} samples are constant"):
        made = quick(model="gaussian").fit(X, y)
    assert not np.isin(made.edges_, [0, 1, 2]).any()
    assert made.alignments_.usable.all()


def test_samples_that_are_no_templates_get_the_gaussian_of_empirical_bayes() -> None:
    X, y = warped_shapes()
    both, alone = quick().fit(X, y), quick(model="gaussian").fit(X, y)
    for label in both.model_.classes:
        own, other = both.model_.covariance(label), alone.model_.covariance(label)
        # The same pairs, aligned from another start.
        assert np.linalg.norm(own - other) < 0.1 * np.linalg.norm(other)
    drawn = both.model_.draw(["bar"], [0], seed=0)
    np.testing.assert_array_equal(drawn, both.model_.sample(1, "bar", seed=0))


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    made = quick(progress=lambda done, total: seen.append((done, total))).fit(*warped_shapes())
    assert seen[-1] == (len(made.edges_), len(made.edges_))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


# -- samples


def test_samples_are_class_balanced_and_like_the_data(fitted: dw.Augmenter) -> None:
    X, y = warped_shapes()
    X_new, y_new, templates = fitted.sample(30, return_templates=True)
    assert X_new.shape == (30, SIZE, SIZE) and X_new.dtype == np.uint8
    assert y_new.tolist() == ["bar", "ring", "wedge"] * 10
    np.testing.assert_array_equal(y[templates], y_new)
    np.testing.assert_array_equal(fitted.sample(30, strength=0)[0], X[templates])
    assert (X_new != X[templates]).any(axis=(1, 2)).all()


def test_a_sample_depends_on_seed_and_number_alone(fitted: dw.Augmenter, monkeypatch: Any) -> None:
    X_new, y_new = fitted.sample(50)
    monkeypatch.setattr("dreamwarp.augment.source.BLOCK_BYTES", 7 * 8 * SIZE**2)
    some = clone(fitted).set_params(n_threads=1).fit(*warped_shapes())
    X_part, y_part = some.sample(20, first=25)
    np.testing.assert_array_equal(X_part, X_new[25:45])
    np.testing.assert_array_equal(y_part, y_new[25:45])
    assert (fitted.sample(50, seed=1)[0] != X_new).any()
    np.testing.assert_array_equal(
        fitted.sample(50, seed=1)[0],
        clone(fitted).set_params(random_state=1).fit(*warped_shapes()).sample(50)[0],
    )


def test_samples_of_one_class_or_as_often_as_fitted(fitted: dw.Augmenter) -> None:
    assert set(fitted.sample(7, label="ring")[1]) == {"ring"}
    X, y = warped_shapes()
    two = np.where(y == "wedge", "ring", y)
    made = quick().fit(X, two)
    assert abs(np.mean(made.sample(2000, balance="data")[1] == "ring") - 2 / 3) < 0.05
    assert fitted.sample(0)[0].shape == (0, SIZE, SIZE)


def test_generation_gives_the_same_samples(fitted: dw.Augmenter) -> None:
    X_new, y_new = fitted.sample(40, first=5)
    X_other, y_other = SampleSource(fitted.model_, warped_shapes(), seed=0).make(5, 40)
    np.testing.assert_array_equal(X_new, X_other)
    np.testing.assert_array_equal(y_new, y_other)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, bool, ">f4"])
def test_type_and_range_are_kept(dtype: Any) -> None:
    X = warped_shapes()[0]
    X = X > 100 if dtype is bool else (X / 4.0 - 30.0).astype(dtype)
    made = quick(interpolation="cubic", sigma="auto").fit(X, warped_shapes()[1])
    for new in (made.sample(40)[0], made.transform(X, unknown="pool")):
        assert new.dtype == np.dtype(dtype).newbyteorder("=")
        assert new.min() >= X.min() and new.max() <= X.max()


# -- forms of data


def test_rows_are_images_of_the_shape_given(fitted: dw.Augmenter) -> None:
    X, y = warped_shapes()
    rows = X.reshape(len(X), -1)
    made = quick(image_shape=(SIZE, SIZE)).fit(rows, y)
    np.testing.assert_array_equal(made.sample(9)[0], fitted.sample(9)[0].reshape(9, -1))
    np.testing.assert_array_equal(
        made.transform(rows, y), fitted.transform(X, y).reshape(len(X), -1)
    )
    X_resampled = made.fit_resample(rows[:-1], y[:-1])[0]
    assert X_resampled.shape == rows.shape
    np.testing.assert_array_equal(made.get_feature_names_out()[:2], ["x0", "x1"])


def test_channels_move_together(fitted: dw.Augmenter) -> None:
    X, y = warped_shapes()
    made = quick().fit(np.stack([X, 255 - X], axis=1), y)
    X_new = made.sample(6)[0]
    assert X_new.shape == (6, 2, SIZE, SIZE)
    assert np.abs(X_new[:, 0].astype(int) + X_new[:, 1] - 255).max() <= 1
    rows = np.stack([X, 255 - X], axis=1).reshape(len(X), -1)
    flat = quick(image_shape=(2, SIZE, SIZE)).fit(rows, y)
    np.testing.assert_array_equal(flat.sample(6)[0], X_new.reshape(6, -1))


def test_channels_that_seem_to_be_last_are_refused(fitted: dw.Augmenter) -> None:
    X, y = warped_shapes()
    last = np.stack([X, X, X], axis=-1)
    for call in (fitted.transform, quick().fit):
        with pytest.raises(ValueError, match=r"np\.moveaxis\(X, -1, 1\)"):
            call(last, y)


def stop(*arguments: Any) -> None:
    raise RuntimeError("stop here")


def test_signals() -> None:
    X, y = warped_shapes()
    signals = X[:, 4:8].reshape(len(X), -1).astype(np.float32)
    made = quick(cells=(4,), sigma="auto").fit(signals, y)
    assert made.sample(5)[0].shape == (5, 4 * SIZE)
    assert made.transform(signals[:, None], y).shape == (len(X), 1, 4 * SIZE)


@pytest.mark.slow  # compiles alignment in 3-D
def test_volumes() -> None:
    X, y = warped_shapes()
    volumes = np.repeat(X[:, None, ::2, ::2], 4, axis=1)
    made = quick(cells=(1, 2, 2), boundary="slip").fit(volumes, y)
    assert made.sample(5)[0].shape == (5, 4, 6, 6)


@pytest.mark.parametrize(
    "names",
    [[3, 7, 8], [3.0, 7.0, 8.0], np.array(["a", "b", "c"], object), np.array([0, 1, 2], np.uint8)],
)
def test_labels_are_kept_as_they_are(names: Any) -> None:
    X, y = warped_shapes()
    labels = np.asarray(names)[np.searchsorted(["bar", "ring", "wedge"], y)]
    made = quick().fit(X, labels)
    y_new = made.sample(3)[1]
    assert y_new.tolist() == list(names)
    assert y_new.dtype == (np.array(list(names)) if labels.dtype == object else labels).dtype
    assert made.transform(X, labels).shape == X.shape


# -- transform


def test_transform_warps_each_sample_by_its_class(fitted: dw.Augmenter) -> None:
    X, y = warped_shapes()
    theta = fitted.model_.draw(y, np.arange(3, 3 + len(X)), seed=0)
    expected = dw.Warp(fitted.space_, theta).image(X)
    np.testing.assert_array_equal(fitted.transform(X, y, first=3), expected)
    pooled = fitted.model_.draw(None, np.arange(len(X)), seed=9)
    expected = dw.Warp(fitted.space_, pooled).image(X)
    np.testing.assert_array_equal(fitted.transform(X, unknown="pool", seed=9), expected)


def test_samples_without_labels_are_left_as_they_are(fitted: dw.Augmenter) -> None:
    X, _ = warped_shapes()
    for form in (X, X.astype(">f4"), np.ones((2, 3, 20, 20))):
        same = fitted.transform(form)
        assert same.dtype == form.dtype.newbyteorder("=") and not np.shares_memory(same, form)
        np.testing.assert_array_equal(same, form)
    with pytest.raises(ValueError, match="2 spatial axes"):
        fitted.transform(X[:, :, 0])


def test_unknown_labels_are_refused_or_pooled(fitted: dw.Augmenter) -> None:
    X, y = warped_shapes()
    with pytest.raises(ValueError, match=r"label 'cross' is not one of .*unknown=\"pool\""):
        fitted.transform(X[:2], ["bar", "cross"])
    mixed = fitted.transform(X[:2], ["bar", "cross"], unknown="pool")
    np.testing.assert_array_equal(mixed[0], fitted.transform(X[:2], y[:2])[0])
    np.testing.assert_array_equal(mixed[1], fitted.transform(X[:2], unknown="pool")[1])
    with pytest.raises(ValueError, match="label 3 is not one of"):
        fitted.transform(X[:1], [3])
    with pytest.raises(ValueError, match="`unknown` must be one of 'error', 'pool'"):
        fitted.transform(X[:1], ["bar"], unknown="drop")  # type: ignore[arg-type]


def test_samples_of_another_size_are_warped_alike(fitted: dw.Augmenter) -> None:
    X, y = warped_shapes()
    large = np.repeat(np.repeat(X, 4, axis=1), 4, axis=2).astype(np.float64)
    shrunk = fitted.transform(large, y).reshape(-1, SIZE, 4, SIZE, 4).mean(axis=(2, 4))
    warped = fitted.transform(X.astype(np.float64), y)
    assert np.abs(shrunk - warped).mean() < 0.5 * np.abs(X - warped).mean()


def test_templates_get_warps_of_their_own() -> None:
    X, y = warped_shapes()
    made = quick(model="template")
    with pytest.warns(UserWarning, match="replaces every training sample"):
        first = made.fit_transform(X, y)
    np.testing.assert_array_equal(first, made.transform(X, y, templates=np.arange(len(X))))
    assert (first != made.transform(X, y)).any()


# -- resampling and pipelines


def test_fit_resample_appends_what_is_missing() -> None:
    X, y = (values[:-5] for values in warped_shapes())
    made = quick()
    X_new, y_new = made.fit_resample(X, y)
    np.testing.assert_array_equal(X_new[: len(X)], X)
    assert np.unique(y_new, return_counts=True)[1].tolist() == [7, 7, 7]
    X_all, y_all = made.sample(9)
    rings = [X_all[k] for k in range(9) if y_all[k] == "wedge"]
    wedges = X_new[len(X) :][y_new[len(X) :] == "wedge"]
    np.testing.assert_array_equal(wedges, rings[: len(wedges)])
    ten_times = quick(sampling_strategy="10x").fit_resample(X, y)[1]
    assert np.unique(ten_times, return_counts=True)[1].tolist() == [70, 60, 60]
    made.set_params(sampling_strategy={"bar": 10})
    assert (made.fit_resample(X, y)[1] == "bar").sum() == 10
    with pytest.raises(ValueError, match="`sampling_strategy` must be one of"):
        quick(sampling_strategy="most").fit_resample(X, y)


def test_a_pipeline_of_imbalanced_learn_takes_the_resampler() -> None:
    pipeline = pytest.importorskip("imblearn.pipeline")
    X, y = (values[:-2] for values in warped_shapes())
    made = quick(image_shape=(SIZE, SIZE), sampling_strategy={"bar": 20})
    steps = pipeline.make_pipeline(made.resampler(), KNeighborsClassifier(1))
    steps.set_params(resampler__augmenter__seed=3)
    rows = X.reshape(len(X), -1)
    steps = clone(steps).fit(rows, y)
    assert len(steps[-1]._fit_X) == len(X) + 20 - (y == "bar").sum()
    assert steps.score(rows, y) == 1.0
    assert steps[0].augmenter_.seed == 3
    assert not hasattr(made, "classes_")
    assert Resampler(made).fit(rows, y).augmenter_.classes_.tolist() == ["bar", "ring", "wedge"]


def test_a_pipeline_of_scikit_learn_warps_what_it_is_trained_on_alone_and_says_so() -> None:
    X, y = warped_shapes()
    rows = X.reshape(len(X), -1)
    steps = make_pipeline(quick(image_shape=(SIZE, SIZE)), KNeighborsClassifier(1))
    message = r"replaces every training sample .*`augmenter\.wrap\(classifier\)`.*resampler\(\)"
    with pytest.warns(UserWarning, match=message):
        steps.fit(rows, y)
    warped = steps[0].transform(rows, y, templates=np.arange(len(rows)))
    np.testing.assert_array_equal(steps[-1]._fit_X, warped)
    np.testing.assert_array_equal(steps.predict(rows), steps[-1].predict(rows))


def test_it_can_be_cloned_and_pickled(fitted: dw.Augmenter) -> None:
    assert clone(fitted).get_params() == fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.sample(6)[0], fitted.sample(6)[0])


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_takes_it_for_one_of_its_own() -> None:
    # Signals: rows of features without a shape to give them.
    check_estimator(
        dw.Augmenter(cells=(2,), displacement=0.05, max_steps=5, strength=1.0, progress=False),
        expected_failed_checks=EXPECTED_FAILURES,
        on_skip=None,
    )


# -- bad input


def test_a_class_of_one_sample_gets_the_warps_of_all() -> None:
    X, y = warped_shapes()
    lonely = np.append(y[:-1], "lonely")
    with (
        pytest.warns(UserWarning, match=r"a single sample, which makes no pair: 'lonely'"),
        pytest.warns(RuntimeWarning, match=r"get the warps of all classes: 'lonely' \(0\)"),
    ):
        made = quick().fit(X, lonely)
    assert made.model_.fallbacks == ("lonely",)
    assert (made.sample(4, label="lonely")[0] != X[-1]).any()


def test_small_classes_with_pairs_enough_are_no_cause_for_a_warning() -> None:
    X, y = warped_shapes()
    made = quick(n_neighbors=8).fit(X, y)  # no more samples in a class than neighbours
    assert len(made.edges_) == 3 * 8 * 7 // 2 and made.model_.fallbacks == ()


def test_cells_that_do_not_suit_the_samples_are_noticed() -> None:
    series = np.random.default_rng(0).normal(size=(20, 1, 512))
    with pytest.raises(ValueError, match=r"\(20, 1, 512\).* 1 x 512 pixels.* cells=\(10,\)"):
        dw.Augmenter(progress=stop).fit(series, np.arange(20) % 2)
    slices = np.ones((20, 1, 12, 12))
    with pytest.raises(ValueError, match=r"1 x 12 x 12 pixels.* cells=\(4, 4\) for images"):
        dw.Augmenter(cells=(2, 2, 2), progress=stop).fit(slices, np.arange(20) % 2)
    for cells, X, message in (
        ((40, 40), np.ones((20, 28, 28)), r"at most 4,000 parameters.*got 6,562 for 40 x 40 cells"),
        ((7, 7, 7), np.ones((20, 8, 8, 8)), r"got 6,093 for 7 x 7 x 7 cells.*such as 3x3x3"),
    ):
        with pytest.raises(ValueError, match=message):
            dw.Augmenter(cells=cells, progress=stop).fit(X, np.arange(20) % 2)


def test_one_class_can_be_sampled_but_not_judged() -> None:
    X, y = warped_shapes()
    made = dw.Augmenter(**QUICK).fit(X[::3], y[::3])
    assert made.strength_ == 1.0 and made.strength_errors_ == {}
    assert not made.verdict_.helps and np.isnan(made.verdict_.improvement)
    assert "too few samples or classes" in str(made.verdict_)
    assert set(made.sample(3)[1]) == {"bar"}


def test_where_nothing_helps_samples_come_back_and_a_warning_says_so() -> None:
    X = np.zeros((24, SIZE, SIZE))
    X[:, 3:6, 3:6] = np.random.default_rng(0).uniform(0.5, 1.0, (24, 3, 3))
    y = np.arange(24) % 2
    X[y == 1] = X[y == 1][:, ::-1, ::-1]
    with pytest.warns(RuntimeWarning, match="strength 0 is chosen"):
        made = dw.Augmenter(**QUICK).fit(X, y)
    assert made.strength_ == 0.0 and not made.verdict_.helps
    for call in (lambda: made.transform(X, y), lambda: made.sample(24, balance="data")):
        with pytest.warns(RuntimeWarning, match=r"copies.*strength=1"):
            call()
    np.testing.assert_array_equal(made.transform(X, y, strength=0), X)
    assert made.model_.covariance(0).any()
    twice = made.with_strength(1.0).sample(24, strength=2)[0]
    np.testing.assert_array_equal(made.sample(24, strength=2)[0], twice)


def test_samples_of_several_shapes_are_refused() -> None:
    ragged = [np.zeros((8, 8)), np.zeros((8, 9)), np.zeros((8, 8)), np.zeros((9, 8))]
    for learn in (dw.Augmenter().fit, dw.Augmenter().fit_resample):
        with pytest.raises(ValueError, match=r"`X` must hold samples of one shape.*Resize or pad"):
            learn(ragged, [0, 0, 1, 1])


def test_what_is_not_fitted_says_so() -> None:
    for call in (lambda a: a.sample(3), lambda a: a.transform(np.ones((3, 4, 4)))):
        with pytest.raises(NotFittedError, match="not fitted"):
            call(dw.Augmenter())
    with pytest.raises(NotFittedError, match="not fitted"):
        dw.Augmenter().with_strength(1.0)


def with_one(value: float) -> Any:
    X = warped_shapes()[0].astype(np.float32)
    X[3, 2, 1] = value
    return X


@pytest.mark.parametrize(
    ("options", "X", "y", "message"),
    [
        ({}, warped_shapes()[0], warped_shapes()[1][:-1], r"`y` must have shape \(24,\).*\(23,\)"),
        ({}, warped_shapes()[0], np.eye(24), r"one-hot|one-hot labels as `y.argmax"),
        (
            {},
            warped_shapes()[0],
            np.linspace(0, 1, 24),
            r"float64, with values such as 0\.04.* Bin",
        ),
        (
            {},
            warped_shapes()[0],
            [np.nan, *range(23)],
            r"float64, with values such as nan. Leave out",
        ),
        ({}, warped_shapes()[0], np.full(24, 1j), r"Unknown label type: complex128"),
        ({}, warped_shapes()[0], np.array(["a", 1] * 12, object), r"of one type.*int and str"),
        ({}, warped_shapes()[0], None, r"requires y to be passed, but the target y is None"),
        ({}, with_one(np.nan), warped_shapes()[1], r"finite.*got NaN at index \(3, 2, 1\)"),
        ({}, with_one(-np.inf), warped_shapes()[1], r"finite, got -inf at index"),
        ({"image_shape": (6, 24)}, *warped_shapes(), r"samples of shape \(6, 24\).*\(12, 12\)"),
        ({}, warped_shapes()[0][:1], ["bar"], r"1 sample.*minimum of 2"),
        ({}, np.ones((24, 144)), warped_shapes()[1], r"2 spatial axes, got .*`image_shape`"),
        ({}, np.ones((24, 1, 2, 12, 12)), warped_shapes()[1], r"Flattened samples need `image_sh"),
        ({}, np.ones((24, 20, 20, 3)), warped_shapes()[1], r"channels before its spatial axes"),
        ({"cells": (4,)}, np.ones((24, 1)), warped_shapes()[1], r"at least 2 pixels.*1 feature"),
        ({"image_shape": (9, 9)}, np.ones((24, 80)), warped_shapes()[1], r"81 features.*got 80"),
        ({"image_shape": (81,)}, np.ones((24, 81)), warped_shapes()[1], r"list 2 sizes.*\(81,\)"),
        ({"image_shape": (9, -9)}, np.ones((24, 81)), warped_shapes()[1], r"list 2 sizes"),
        ({"strength": -1.0}, *warped_shapes(), r'`strength` must be a finite.*or "auto", got -1'),
        ({"strength": "most"}, *warped_shapes(), r"`strength` must be .*got 'most'"),
        ({"interpolation": "best"}, *warped_shapes(), r"`interpolation` must be one of"),
        ({"model": "best"}, *warped_shapes(), r"`model` must be one of"),
        ({"n_neighbors": 0}, *warped_shapes(), r"`n_neighbors` must be an integer of at least 1"),
    ],
)
def test_bad_input_is_refused(options: Any, X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(X, y)


def test_options_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(TypeError, match="`progress` must be True, False, None or a function"):
        quick(progress="x").fit(*warped_shapes())


def test_what_can_t_be_fitted_leaves_an_augmenter_as_it_was(monkeypatch: Any) -> None:
    X, y = warped_shapes()
    fresh, made = quick(strength="auto"), quick().fit(X, y).set_params(strength="auto")
    before, state = made.sample(5)[0], dict(vars(made))

    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(augmenter, "judge_nearest", fail)
    for some in (fresh, made):
        with pytest.raises(RuntimeError, match="no more"):
            some.fit(X[:, ::-1, :-1], y)
    assert vars(made) == state
    np.testing.assert_array_equal(made.sample(5)[0], before)
    assert vars(fresh) == vars(quick(strength="auto"))
    with pytest.raises(NotFittedError, match="not fitted"):
        fresh.sample(3)


def test_samples_are_kept_as_they_were() -> None:
    X, y = warped_shapes()
    changed = X.copy()
    made = quick().fit(changed, y)
    before = made.sample(5)[0]
    changed[:] = 0
    np.testing.assert_array_equal(made.sample(5)[0], before)


def test_pairs_are_aligned_where_they_are_told_to_be(monkeypatch: Any) -> None:
    seen: list[Any] = []
    original = learning.align_pairs

    def align_pairs(*arguments: Any, client: Any, **options: Any) -> Any:
        seen.append(client)
        return original(*arguments, **options)

    monkeypatch.setattr(learning, "align_pairs", align_pairs)
    quick(method="map").fit(*warped_shapes())
    quick(method="map").fit(*warped_shapes(), client="a client")  # type: ignore[arg-type]
    assert seen == [None, "a client"]


def test_a_model_file_says_how_it_was_learned(fitted: dw.Augmenter, tmp_path: Path) -> None:
    fitted.model_.save(tmp_path / "shapes.dwm")
    settings = dw.WarpModel.load(tmp_path / "shapes.dwm").settings
    expected = {
        "kind": "template", "min_pairs": 5, "n_neighbors": 5, "method": "eb", "similarity": "ssd",
        "sigma": 0.3, "displacement": "auto", "length": 0.25, "seed": 0, "strength": 1.0,
    }  # fmt: skip
    assert expected.items() <= settings.items()
    assert fitted.with_strength("auto").model_.settings["strength"] == "auto"


def test_too_few_pairs_are_refused() -> None:
    X, y = warped_shapes()
    with pytest.raises(ValueError, match=r"at least 5 pairs of neighbours within classes, got 3"):
        quick().fit(X[:6], y[:6])


def test_bad_calls_are_refused(fitted: dw.Augmenter) -> None:
    X, y = warped_shapes()
    for n in (-1, 2.5, True):
        with pytest.raises(ValueError, match="`n` must be an integer of at least 0"):
            fitted.sample(n)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`first` must be an integer of at least 0, got -3"):
        fitted.sample(3, first=-3)
    with pytest.raises(ValueError, match=r"label 'cross' is not one of.*Omit `label`"):
        fitted.sample(3, label="cross")
    for templates in ([0], np.zeros((24, 1), int)):
        with pytest.raises(ValueError, match="`templates` must be 24 sample indices, one for each"):
            fitted.transform(X, y, templates=templates)
    with pytest.raises(ValueError, match=r"`y` must have shape \(24,\)"):
        fitted.fit_resample(X, 3)
    with pytest.raises(ValueError, match="2 spatial axes"):
        fitted.transform(X[:, :, 0], y)
    with pytest.raises(ValueError, match=r"`y` must have shape \(24,\)"):
        fitted.transform(X, y[:3])
    rows = quick(image_shape=(SIZE, SIZE)).fit(X.reshape(len(X), -1), y)
    with pytest.raises(ValueError, match="X has 100 features, but Augmenter is expecting 144"):
        rows.transform(np.ones((3, 100)))
