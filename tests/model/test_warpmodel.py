"""The model as users see it: fit, sample, density, components; the same draws however made."""

from __future__ import annotations

import multiprocessing
import pickle
from contextlib import nullcontext
from itertools import combinations

import numpy as np
import pytest
import scipy.stats

from dreamwarp.align.prior import mass_matrix
from dreamwarp.model import WarpModel
from dreamwarp.model.labels import label_key
from tests.model.cases import (
    graph_classes,
    has_covariance,
    independent_classes,
    make_space,
    random_covariance,
    theta_of,
)

KINDS = ["gaussian", "template"]
AMOUNTS = {"gaussian": {}, "template": {"class_pairs": 4.0, "drift": 0.5}}


def fit(kind="gaussian", **options):
    """A model with all amounts given, so that fitting is quick."""
    theta, edges = graph_classes()
    settings = {"shrinkage": 0.1, "pooling": 0.1, **AMOUNTS[kind], **options}
    return WarpModel.fit(make_space(), theta, kind=kind, edges=edges, **settings)


# -- flattened spectra


@pytest.mark.parametrize("power", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("kind", KINDS)
def test_flattening_raises_variances_of_displacement_to_a_power(kind, power):
    model = fit(kind)
    flat = model.flattened(power)
    mass = mass_matrix(model.space)
    for label in (*model.classes, None):
        before, after = (
            np.sort(np.linalg.eigvals(mass @ one.covariance(label)).real) for one in (model, flat)
        )
        expected = before**power * before.sum() / (before**power).sum()
        np.testing.assert_allclose(after, expected, rtol=1e-6, atol=1e-9 * before.max())
        # Components are the same: in the coordinates of displacement the covariances commute.
        root = np.linalg.cholesky(mass)
        one, other = (root.T @ each.covariance(label) @ root for each in (model, flat))
        np.testing.assert_allclose(one @ other, other @ one, atol=1e-8 * np.abs(one @ other).max())
    assert flat.settings["power"] == power and flat.fingerprint != model.fingerprint
    assert flat.classes == model.classes and flat.strength == model.strength


def test_flattening_by_one_changes_nothing_and_by_halves_twice_is_a_quarter():
    model = fit()
    assert model.flattened(1.0) is model
    twice, once = model.flattened(0.5).flattened(0.5), model.flattened(0.25)
    assert twice.settings == once.settings
    for label in model.classes:
        np.testing.assert_allclose(twice.covariance(label), once.covariance(label), rtol=1e-6)


def test_directions_without_variance_stay_without():
    rng = np.random.default_rng(0)
    space = make_space()
    directions = rng.normal(size=(3, space.dim))
    theta = {0: rng.normal(size=(50, 3)) @ directions}
    model = WarpModel.fit(space, theta, shrinkage=0.0, pooling=0.0).flattened(0.1)
    deviations = np.linalg.svd(model.sample(40, 0), compute_uv=False)
    assert deviations[2] > 0.1 * deviations[0] and deviations[3] < 1e-6 * deviations[0]


def test_templates_keep_their_own_warps_when_flattened(tmp_path):
    model = fit("template", class_pairs=1e-9)
    flat = model.flattened(0.2)
    templates = np.full(5, graph_classes()[1][0][0, 0])
    draws = [one.draw(0, np.arange(5), templates=templates) for one in (model, flat)]
    np.testing.assert_allclose(*draws, atol=1e-3 * np.abs(draws[0]).max())
    flat.save(tmp_path / "flat.dwm")
    assert WarpModel.load(tmp_path / "flat.dwm").fingerprint == flat.fingerprint


@pytest.mark.parametrize("power", [-0.1, 1.5, "half", True, np.nan, None])
def test_powers_are_from_0_to_1(power):
    with pytest.raises(ValueError, match="`power` must be a number from 0 to 1"):
        fit().flattened(power)


# -- what is fitted


def test_without_shrinkage_it_is_the_paper_s_estimate_over_both_directions():
    theta = independent_classes()
    model = WarpModel.fit(make_space(), theta, shrinkage=0.0, pooling=0.0)
    for label, pairs in theta.items():
        both = np.concatenate([pairs, -pairs])
        expected = sum(np.outer(t, t) for t in both) / len(both)
        np.testing.assert_allclose(model.covariance(label), expected, atol=1e-14)
    every = np.concatenate(list(theta.values()))
    np.testing.assert_allclose(model.covariance(None), every.T @ every / len(every), atol=1e-14)


def test_the_direction_in_which_a_pair_is_given_changes_nothing():
    theta = independent_classes()
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(300, 1))
    model = WarpModel.fit(make_space(), theta)
    turned = WarpModel.fit(make_space(), {label: signs * t for label, t in theta.items()})
    assert model.settings == turned.settings
    for label in theta:
        np.testing.assert_allclose(model.covariance(label), turned.covariance(label), atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_the_identity_is_an_intrinsic_mean(kind):
    """The lemma: the gradient of the sum of squared distances, Σ Log, is zero at the identity."""
    space = make_space()
    theta, edges = graph_classes()
    model = fit(kind)
    for label in theta:
        both = np.concatenate([theta[label], -theta[label]])
        np.testing.assert_allclose(both.sum(axis=0), 0.0, atol=1e-12)
        # -θ is Log of the inverse warp: the two undo each other.
        points = np.random.default_rng(0).uniform(size=(20, 2))
        there = space.flow(theta[label][0], points, method="exact")
        np.testing.assert_allclose(space.flow(-theta[label][0], there, method="exact"), points)
        # Seen from every template, with as many draws of each: the mean of the model is zero too.
        templates = np.repeat(edges[label].ravel(), 30)
        drawn = model.draw(label, np.arange(len(templates)), templates=templates)
        deviations = np.sqrt(np.diag(drawn.T @ drawn) / len(drawn))
        assert np.abs(drawn.mean(axis=0) / deviations).max() < 5.0 / np.sqrt(len(drawn))


def test_weights_count_as_repetition():
    theta = independent_classes(n_pairs=60)
    times = {label: np.random.default_rng(1).integers(0, 3, 60) for label in theta}
    repeated = {label: np.repeat(t, times[label], axis=0) for label, t in theta.items()}
    settings = {"shrinkage": 0.2, "pooling": 0.3}
    weighted = WarpModel.fit(make_space(), theta, weights=times, **settings)
    plain = WarpModel.fit(make_space(), repeated, **settings)
    for label in (*theta, None):
        np.testing.assert_allclose(weighted.covariance(label), plain.covariance(label), atol=1e-14)
    assert weighted.fits["a"].n_pairs == (times["a"] > 0).sum()


def test_shrinkage_and_pooling_blend_as_documented():
    theta = independent_classes()
    model = WarpModel.fit(make_space(), theta, shrinkage=0.25, pooling=0.4)

    def shrunk(pairs):
        moment = pairs.T @ pairs / len(pairs)
        return 0.75 * moment + 0.25 * np.trace(moment) / 50 * np.eye(50)

    pool = shrunk(np.concatenate(list(theta.values())))
    for label, pairs in theta.items():
        expected = 0.6 * shrunk(pairs) + 0.4 * pool
        np.testing.assert_allclose(model.covariance(label), expected, atol=1e-14)
        assert (model.fits[label].shrinkage, model.fits[label].pooling) == (0.25, 0.4)
    np.testing.assert_allclose(model.covariance(None), pool, atol=1e-14)


@pytest.mark.parametrize(("formula", "estimator"), [("oas", "OAS"), ("ledoit-wolf", "LedoitWolf")])
def test_shrinkage_formulas_are_those_of_scikit_learn(formula, estimator):
    import sklearn.covariance

    theta = theta_of(random_covariance(50), 80)
    model = WarpModel.fit(make_space(), {"a": theta}, shrinkage=formula)
    expected = getattr(sklearn.covariance, estimator)(assume_centered=True).fit(theta)
    np.testing.assert_allclose(model.covariance("a"), expected.covariance_, atol=1e-13)
    assert model.fits["a"].shrinkage == pytest.approx(expected.shrinkage_)


def test_labels_keep_their_type():
    theta = theta_of(random_covariance(50), 20)
    for labels in ((3, -1), ("x", "y"), (False, True)):
        model = WarpModel.fit(make_space(), dict.fromkeys(labels, theta), shrinkage=0.1)
        assert model.classes == labels
        assert [type(label) for label in model.classes] == [type(label) for label in labels]
    model = WarpModel.fit(make_space(), {np.int64(3): theta, np.uint8(4): theta}, shrinkage=0.1)
    assert model.classes == (3, 4) and type(model.classes[0]) is int
    assert model.sample(2, np.int16(4)).shape == (2, 50)


def test_a_class_of_too_few_pairs_gets_the_pool_and_says_so():
    theta = independent_classes()
    theta["few"] = theta["a"][:3]
    theta["none"] = np.zeros((0, 50))
    message = r"fewer than 5 pairs get the warps of all classes: 'few' \(3\), 'none' \(0\)"
    with pytest.warns(RuntimeWarning, match=message):
        model = WarpModel.fit(make_space(), theta, shrinkage=0.1, pooling=0.0)
    assert model.fallbacks == ("few", "none")
    assert model.fits["few"].fell_back and model.fits["few"].n_pairs == 3
    assert not model.fits["a"].fell_back
    np.testing.assert_array_equal(model.covariance("few"), model.covariance(None))
    assert has_covariance(model.sample(20_000, "none"), model.covariance(None))


# -- densities, components


def test_log_prob_is_that_of_scipy():
    model = fit()
    theta = model.sample(50, 0, seed=3)
    expected = scipy.stats.multivariate_normal(np.zeros(50), model.covariance(0))
    np.testing.assert_allclose(model.log_prob(theta, 0), expected.logpdf(theta), rtol=1e-10)
    assert model.log_prob(theta[0], 0) == pytest.approx(expected.logpdf(theta[0]))
    pool = scipy.stats.multivariate_normal(np.zeros(50), model.covariance(None))
    np.testing.assert_allclose(model.log_prob(theta, None), pool.logpdf(theta), rtol=1e-10)


def test_a_singular_covariance_can_be_drawn_from_but_has_no_density():
    theta = theta_of(random_covariance(50), 20)
    model = WarpModel.fit(make_space(), {"a": theta}, shrinkage=0.0, pooling=0.0)
    drawn = model.sample(1000, "a")
    space_of_pairs = np.linalg.svd(theta)[2][20:]
    np.testing.assert_allclose(drawn @ space_of_pairs.T, 0.0, atol=1e-7)
    np.testing.assert_allclose(model.covariance("a"), theta.T @ theta / 20, atol=1e-14)
    with pytest.raises(
        ValueError, match=r'covariance of these warps is singular.*shrinkage="auto"'
    ):
        model.log_prob(drawn, "a")


@pytest.mark.parametrize("kind", KINDS)
def test_components_are_principal_directions(kind):
    model = fit(kind)
    parts = model.components(0)
    np.testing.assert_allclose(parts.directions.T @ parts.directions, np.eye(50), atol=1e-12)
    assert (np.diff(parts.standard_deviations) <= 0.0).all()
    rebuilt = (parts.directions * parts.standard_deviations**2) @ parts.directions.T
    np.testing.assert_allclose(rebuilt, model.covariance(0), atol=1e-12)
    variances = parts.standard_deviations**2
    np.testing.assert_allclose(parts.share, variances / variances.sum(), atol=1e-12)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"x": True}, "`x` of a model must be a word or a number, got True"),
        ({"x": np.inf}, "`x` of a model must be a word or a number, got inf"),
        ({"x": [1]}, "`x` of a model must be a word or a number"),
        ({"power": 2}, "`power` of a model must be a number from 0 to 1, got 2"),
        ({"kind": "odd"}, "`kind` of a model must be 'gaussian' or 'template', got 'odd'"),
    ],
)
def test_settings_that_no_file_holds_are_refused(more, message):
    with pytest.raises(ValueError, match=message):
        fit("gaussian").with_settings(**more)


def test_settings_are_stored_as_plain_words_and_numbers(tmp_path):
    model = fit("gaussian").with_settings(x=np.float64(0.5), y=np.int64(3), z=np.str_("a"))
    model.save(tmp_path / "model.dwm")
    assert WarpModel.load(tmp_path / "model.dwm").settings == model.settings
    assert [type(model.settings[name]) for name in "xyz"] == [float, int, str]


@pytest.mark.parametrize("kind", KINDS)
def test_a_recommended_strength_leaves_what_was_learned(kind):
    model = fit(kind)
    assert model.strength == 1.0
    for strength in (0.0, 0.25, 2):
        other = model.with_strength(strength)
        assert other.strength == strength and other.settings == model.settings
        assert other.with_settings(more=1).strength == strength
        options = {"seed": 4, "templates": np.arange(20)}
        drawn, same = (m.draw(1, np.arange(20), **options) for m in (model, other))
        np.testing.assert_array_equal(same, drawn)
        np.testing.assert_array_equal(other.sample(3, 0), model.sample(3, 0))
        np.testing.assert_array_equal(other.covariance(1), model.covariance(1))
        np.testing.assert_array_equal(other.log_prob(drawn, 1), model.log_prob(drawn, 1))
        np.testing.assert_array_equal(
            other.components(1).standard_deviations, model.components(1).standard_deviations
        )


# -- draws


def test_draws_have_the_fitted_covariance():
    model = fit()
    drawn = model.sample(40_000, 0, seed=1)
    assert has_covariance(drawn, model.covariance(0))
    assert not has_covariance(drawn, model.covariance(1))
    assert not has_covariance(1.05 * drawn, model.covariance(0))


@pytest.mark.parametrize("kind", KINDS)
def test_draws_do_not_depend_on_batch_order_or_threads(kind):
    model = fit(kind)
    rng = np.random.default_rng(0)
    n = 1500
    labels, numbers = rng.integers(0, 2, n), rng.integers(0, 2**40, n)
    templates = rng.integers(-1, 45, n)

    def draw(chosen, **options):
        return model.draw(
            labels[chosen], numbers[chosen], seed=8, templates=templates[chosen], **options
        )

    expected = draw(slice(None), n_threads=1)
    assert draw(slice(None), n_threads=3).tobytes() == expected.tobytes()
    for i in (0, 1, n - 1):
        assert draw([i])[0].tobytes() == expected[i].tobytes()
    order = rng.permutation(n)
    for part in np.array_split(order, 7):
        assert draw(part).tobytes() == expected[part].tobytes()


def test_draws_depend_on_seed_number_and_label():
    model = fit()
    first = model.draw([0, 0, 1], [5, 6, 5], seed=1)
    assert len(np.unique(first[:, 0])) == 3
    assert not np.isin(model.draw([0, 0, 1], [5, 6, 5], seed=2)[:, 0], first[:, 0]).any()
    np.testing.assert_array_equal(model.sample(20, 1, seed=1)[5], first[2])
    np.testing.assert_array_equal(model.sample(20, 1)[:5], model.sample(5, 1))
    rng = np.random.default_rng(0)
    assert (model.sample(2, 1, seed=rng) != model.sample(2, 1, seed=rng)).all()


@pytest.mark.parametrize(
    ("kind", "labels"),
    [*((kind, (0, 1)) for kind in KINDS), ("gaussian", ("0", "1")), ("gaussian", (False, True))],
)
def test_draws_of_different_labels_are_independent(kind, labels):
    theta, edges = graph_classes(labels)
    few = theta[labels[1]][:3]  # a class that falls back to the pool
    other = {int: 2, str: "2"}.get(type(labels[0]))
    if other is not None:
        theta[other], edges[other] = few, edges[labels[1]][:3]
    settings = {"shrinkage": 0.1, "pooling": 0.1, **AMOUNTS[kind]}
    fallback = pytest.warns(RuntimeWarning, match="fewer than 5 pairs")
    with nullcontext() if other is None else fallback:
        model = WarpModel.fit(make_space(), theta, kind=kind, edges=edges, **settings)
    n = 4000
    drawn = {label: model.sample(n, label, seed=1) for label in (*theta, None)}
    again = 2.0 * model.sample(n, labels[0], seed=1)
    assert correlation(drawn[labels[0]], again) > 0.999  # what the test below must reject
    for first, second in combinations(drawn.values(), 2):
        # Each of d² correlations has a deviation of n^-½.
        assert correlation(first, second) < 6.0 / np.sqrt(n)


def correlation(first, second):
    """Largest correlation of a coordinate of the one with a coordinate of the other, whitened."""
    whitened = [
        np.linalg.solve(np.linalg.cholesky(np.cov(theta.T)), (theta - theta.mean(axis=0)).T)
        for theta in (first, second)
    ]
    return np.abs(whitened[0] @ whitened[1].T / len(first)).max()


def test_keys_of_labels_never_change():
    """Runs depend on them."""
    labels = (0, True, "True", None, 1, -7, "1", "\u00e4\ud800")
    keys = [label_key(7, label) for label in labels]
    assert keys[:4] == [
        9572999609428968146, 11998036227626126027, 12250413415346135580, 4084922531191188247,
    ]  # fmt: skip
    assert len({*keys, label_key(8, 0)}) == len(labels) + 1


def test_labels_may_be_lists_arrays_and_of_any_width():
    theta = theta_of(random_covariance(50), 20)
    numbers = np.arange(4)
    model = WarpModel.fit(make_space(), {7: theta, -2: 0.5 * theta}, shrinkage=0.1, pooling=0.0)
    expected = model.draw([7, -2, -2, 7], numbers)
    for dtype in (np.int8, np.int64, object):
        found = model.draw(np.array([7, -2, -2, 7], dtype), numbers)
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        model.draw(np.full(4, 7, np.uint64), numbers), model.draw(7, numbers)
    )
    words = WarpModel.fit(make_space(), {"b": theta, "aa": 0.5 * theta}, shrinkage=0.1, pooling=0.0)
    expected = words.draw(np.array(["b", "aa", "aa", "b"]), numbers)
    for labels in (["b", "aa", "aa", "b"], np.array(["b", "aa", "aa", "b"], object)):
        np.testing.assert_array_equal(words.draw(labels, numbers), expected)
    truths = WarpModel.fit(
        make_space(), {True: theta, False: 0.5 * theta}, shrinkage=0.1, pooling=0.0
    )
    np.testing.assert_array_equal(
        truths.draw(np.array([True, False, False, True]), numbers),
        truths.draw([True, False, False, True], numbers),
    )
    assert model.draw([], []).shape == (0, 50)


def test_unknown_labels_get_the_pool_if_asked():
    model = fit()
    pool = model.draw(None, np.arange(3))
    np.testing.assert_array_equal(model.draw([9, 8, 7], np.arange(3), unknown="pool"), pool)
    np.testing.assert_array_equal(model.draw("x", np.arange(3), unknown="pool"), pool)
    np.testing.assert_array_equal(model.draw(9, np.arange(3), unknown="pool"), pool)
    np.testing.assert_array_equal(
        model.draw(np.array([2**64 - 1], np.uint64), [0], unknown="pool"), pool[:1]
    )
    mixed = model.draw([0, 9], [0, 1], unknown="pool")
    np.testing.assert_array_equal(mixed[0], model.sample(1, 0)[0])
    np.testing.assert_array_equal(mixed[1], pool[1])


def _draw(model):
    return model.draw([0, 1, 0], [3, 4, 5], seed=2, templates=[1, 2, 3])


@pytest.mark.parametrize("kind", ["gaussian", "template"])
def test_models_travel_to_other_processes(kind):
    model = fit(kind)
    assert _draw(pickle.loads(pickle.dumps(model))).tobytes() == _draw(model).tobytes()
    if kind == "gaussian":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(_draw, (model,)).tobytes() == _draw(model).tobytes()


@pytest.mark.parametrize(
    ("cells", "boundary"), [((6,), "free"), ((2, 2, 2), "zero"), ((4, 4), "slip")]
)
def test_other_spaces(cells, boundary):
    space = make_space(cells, boundary)
    theta = {i: theta_of(random_covariance(space.dim, seed=i), 60, seed=i) for i in range(2)}
    model = WarpModel.fit(space, theta)
    assert has_covariance(model.sample(20_000, 1), model.covariance(1))


def test_repr_says_what_it_is():
    assert repr(fit().with_strength(0.5)) == (
        "WarpModel(WarpSpace((4, 4), boundary='zero'), kind='gaussian', 2 classes, "
        "recommended strength 0.5)"
    )


# -- bad input


def refused(error, message, theta_by_class=None, **options):
    theta = independent_classes(n_pairs=20) if theta_by_class is None else theta_by_class
    with pytest.raises(error, match=message):
        WarpModel.fit(make_space(), theta, **options)


def test_bad_theta_is_refused():
    ones = np.ones((9, 50))
    refused(TypeError, "`theta_by_class` must be a mapping from labels to arrays", [ones])
    refused(ValueError, "at least one class, got none", {})
    message = r"`theta_by_class\['a'\]` must have shape \(n_pairs, 50\) for .*got \(9, 62\)"
    refused(ValueError, message, {"a": np.ones((9, 62))})
    refused(ValueError, r"got \(50,\)\. Use the space", {"a": np.ones(50)})
    bad = ones.copy()
    bad[2, 3] = np.nan
    refused(
        ValueError, r"`theta_by_class\['a'\]` must be finite, got nan at index \(2, 3\)", {"a": bad}
    )
    refused(
        ValueError, "at least 5 pairs of weight above 0 .*got 4", {"a": ones[:2], "b": ones[:2]}
    )
    refused(ValueError, "every θ is zero, so there is no warp to learn", {"a": 0.0 * ones})


def test_bad_labels_are_refused():
    ones = np.ones((9, 50))
    message = r"labels must be strings, integers or booleans, got {} \({}\).*astype\(int\)"
    refused(TypeError, message.format("1.0", "float"), {1.0: ones})
    refused(TypeError, message.format(".*", "float64"), {np.float64(1.5): ones})
    refused(TypeError, message.format("None", "NoneType"), {None: ones})
    refused(TypeError, "labels must be of one type, got int and str", {1: ones, "1": ones})
    refused(TypeError, "labels must be of one type, got bool and int", {False: ones, 1: ones})
    refused(ValueError, r"integer labels must be below 2\^63", {2**63: ones})
    refused(ValueError, "labels must not end in a zero character", {"a\0": ones})


def test_bad_weights_and_edges_are_refused():
    some = {"a": np.ones((9, 50))}
    refused(ValueError, "`weights` must have the same labels.*Labels in only one of them: 'b'",
            some, weights={"a": np.ones(9), "b": np.ones(9)})  # fmt: skip
    message = r"`weights\['a'\]` must be 9 numbers of at least 0.*got shape \({}\) and smallest {}"
    refused(ValueError, message.format("8,", "0"), some, weights={"a": np.ones(8)})
    refused(ValueError, message.format("9,", "-1"), some, weights={"a": -np.ones(9)})
    refused(ValueError, "at least 5 pairs of weight above 0", some, weights={"a": np.zeros(9)})
    message = r"`edges\['a'\]` must be integers of shape \(9, 2\), .*got float64 of shape"
    refused(ValueError, message, some, edges={"a": np.ones((9, 2))})
    refused(ValueError, "got int64 of shape", some, edges={"a": np.ones((8, 2), int)})
    refused(ValueError, r"`edges\['a'\]` must be indices of at least 0, got -1",
            some, edges={"a": -np.ones((9, 2), int)})  # fmt: skip
    refused(ValueError, 'kind="template" needs `edges`', some, kind="template")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "t"}, "`kind` must be one of 'gaussian', 'template', got 't'"),
        ({"shrinkage": 1.5}, '`shrinkage` must be a number from 0 to 1, or "auto" or "oas"'),
        ({"shrinkage": "lw"}, "`shrinkage` must be a number from 0 to 1.*got 'lw'"),
        ({"pooling": -0.1}, '`pooling` must be a number from 0 to 1, or "auto", got -0.1'),
        ({"pooling": True}, "`pooling` must be a number from 0 to 1"),
        ({"min_pairs": 0}, "`min_pairs` must be an integer of at least 1, got 0"),
        ({"kind": "template", "class_pairs": 0.0}, '`class_pairs` .* positive .*, or "auto"'),
        ({"kind": "template", "class_pairs": np.inf}, '`class_pairs` .*, or "auto", got inf'),
        ({"kind": "template", "drift": 2.0}, '`drift` must be a number from 0 to 1, or "auto"'),
    ],
)  # fmt: skip
def test_bad_options_are_refused(options, message):
    edges = {"a": np.zeros((20, 2), int)}
    refused(ValueError, message, {"a": theta_of(random_covariance(50), 20)}, edges=edges, **options)


def test_bad_questions_are_refused():
    model = fit()
    with pytest.raises(
        ValueError, match=r"label 5 is not one of the model's classes, 0, 1\. Use label=None"
    ):
        model.sample(2, 5)
    with pytest.raises(ValueError, match="label '0' is not one of the model's classes"):
        model.covariance("0")
    np.testing.assert_array_equal(model.covariance(True), model.covariance(1))
    with pytest.raises(TypeError, match=r"labels must be strings, integers or booleans, got 0\.0"):
        model.components(0.0)
    with pytest.raises(ValueError, match="label 3 is not one of"):
        model.draw(np.array([0, 3, 1]), np.arange(3))
    with pytest.raises(TypeError, match=r"`labels` must be .*got dtype float64.*astype"):
        model.draw(np.zeros(3), np.arange(3))
    with pytest.raises(ValueError, match="label 'a' is not one of"):
        model.draw([0, "a"], np.arange(2))
    with pytest.raises(ValueError, match=r"`labels` must have shape \(n,\), got \(1, 2\)"):
        model.draw([[0, 1]], np.arange(2))
    with pytest.raises(ValueError, match=r"`labels` must be one label or as many .* got 3 and 2"):
        model.draw([0, 1, 1], np.arange(2))
    with pytest.raises(ValueError, match="`unknown` must be one of 'error', 'pool', got 'ignore'"):
        model.draw([0], [0], unknown="ignore")
    with pytest.raises(ValueError, match=r"`templates` must be 2 sample indices.* got float64 of"):
        model.draw(0, [0, 1], templates=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"`theta` must have shape \(n, 50\) for .*got \(2, 3\)"):
        model.log_prob(np.zeros((2, 3)), 0)
    for strength in (-1.0, np.nan, np.inf, "1", True):
        with pytest.raises(ValueError, match="`strength` must be a finite, non-negative number"):
            model.with_strength(strength)
    for n in (-1, 2.0, True):
        with pytest.raises(ValueError, match="`n` must be an integer of at least 0, got"):
            model.sample(n, 0)


def test_an_error_lists_only_some_of_many_classes():
    theta = dict.fromkeys(range(30), theta_of(random_covariance(50), 20))
    model = WarpModel.fit(make_space(), theta, shrinkage=0.1, pooling=0.0)
    with pytest.raises(ValueError, match=r"classes, 0, 1, .*, 9 and 20 more\. "):
        model.sample(1, 99)
