"""Samples by number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp import Warp
from dreamwarp.augment import SampleSource
from dreamwarp.augment.source import Members, check_range
from dreamwarp.core.draws import MAX_SAMPLE_NUMBER, Stream, integers
from dreamwarp.data import DataSet
from dreamwarp.space.warpspace import FLOW_TOLERANCE
from tests.generation.cases import SHAPE, make_data, make_model


def test_a_sample_is_a_member_of_its_class_warped_by_a_draw_of_its_class() -> None:
    model, data = make_model(), make_data()
    X, y = SampleSource(model, data, seed=7).make(100, 40)
    for k, (sample, label) in enumerate(zip(X, y, strict=True), start=100):
        members = np.flatnonzero(data.y == label)
        template = members[integers(7, [k], len(members), stream=Stream.TEMPLATE)[0]]
        theta = model.draw([label], [k], seed=7)
        np.testing.assert_array_equal(sample, Warp(model.space, theta).image(data.X[template])[0])
    np.testing.assert_array_equal(y, np.arange(100, 140) % 3)
    assert X.dtype == np.uint8 and X.shape == (40, *SHAPE)


@pytest.mark.parametrize("balance", ["classes", "data"])
def test_batches_and_threads_leave_no_trace(balance: str) -> None:
    source = SampleSource(make_model(), make_data(), seed=3, balance=balance)
    X, y = source.make(5, 200, n_threads=2)
    for first, n in ((5, 1), (6, 63), (69, 136)):
        X_part, y_part = source.make(first, n, n_threads=1)
        np.testing.assert_array_equal(X_part, X[first - 5 :][:n])
        np.testing.assert_array_equal(y_part, y[first - 5 :][:n])


def test_narrow_images_are_no_channels() -> None:
    """Many images of few columns look like one image with channels last."""
    X, _ = SampleSource(make_model(), make_data(shape=(16, 4))).make(0, 9)
    assert X.shape == (9, 16, 4)


def test_sharp_samples_stay_within_the_range_of_their_data() -> None:
    data = make_data(dtype="float32")
    steps = DataSet("steps", np.where(data.X > 100, 7.0, -3.0), data.y)
    X, _ = SampleSource(make_model(), steps, interpolation="cubic").make(0, 20)
    assert X.min() == -3.0 and X.max() == 7.0 and len(np.unique(X)) > 100


def test_seeds_differ() -> None:
    X, other = (SampleSource(make_model(), make_data(), seed=s).make(0, 9)[0] for s in (0, 1))
    assert not (other == X).all(axis=(1, 2)).any()


def test_balance_of_the_data_is_kept() -> None:
    _, y = SampleSource(make_model(), make_data(), balance="data").make(0, 5000)
    np.testing.assert_allclose(np.bincount(y) / 5000, [0.2, 0.2, 0.6], atol=0.03)


def test_strength_scales_the_warps() -> None:
    model, data = make_model(), make_data()
    X, _ = SampleSource(model, data, strength=0.5).make(0, 9)
    for recommended in (0.0, 3.0):
        other = SampleSource(model.with_strength(recommended), data, strength=0.5)
        np.testing.assert_array_equal(X, other.make(0, 9)[0])
    recommending = SampleSource(model.with_strength(0.5), data)
    assert recommending.strength == 0.5
    np.testing.assert_array_equal(X, recommending.make(0, 9)[0])
    still, labels = SampleSource(model, data, strength=0.0).make(0, 9)
    for sample, label in zip(still, labels, strict=True):
        assert (sample == data.X[data.y == label]).all(axis=(1, 2)).any()


def test_a_model_that_recommends_no_warps_says_so() -> None:
    still = make_model().with_strength(0.0)
    with pytest.warns(RuntimeWarning, match=r"copies.*strength=1"):
        SampleSource(still, make_data())
    X, _ = SampleSource(still, make_data(), strength=2).make(0, 9)
    np.testing.assert_array_equal(
        X, SampleSource(make_model(), make_data(), strength=2).make(0, 9)[0]
    )


def test_channels_signals_strings_and_foreign_byte_order() -> None:
    names = ("cat", "dog", "ox")
    colored = make_data(names, shape=(3, *SHAPE))
    X, y = SampleSource(make_model(names), colored).make(0, 6)
    assert X.shape == (6, 3, *SHAPE) and y.tolist() == [*names, *names]
    signals = make_data(shape=(30,), dtype="float32")
    swapped = DataSet("swapped", signals.X.astype(">f4"), signals.y)
    model = make_model(cells=(6,))
    found = [SampleSource(model, data).make(0, 6)[0] for data in (signals, swapped)]
    np.testing.assert_array_equal(found[0], found[1])
    assert found[1].dtype == np.float32 and found[1].dtype.isnative


def test_the_fingerprint_of_data_is_that_of_its_values() -> None:
    data = make_data()
    X, y = data.X, data.y
    alike = [(X, y), DataSet("other name", X.copy(), y.astype(np.int32))]
    different = [(X[:-1], y[:-1]), (X + 1, y), (X, np.roll(y, 1)), (X.astype(np.int16), y)]
    of = [SampleSource(make_model(), d).data_fingerprint for d in (data, *alike, *different)]
    assert len(set(of[:3])) == 1 and len(set(of)) == 1 + len(different)


def test_models_that_do_not_fit_are_refused() -> None:
    data = make_data()
    with pytest.raises(ValueError, match=r"must have every class of `small`, but lacks 2\. It has"):
        SampleSource(make_model((0, 1)), data)
    with pytest.raises(ValueError, match=r"lacks 0, 1, 2\. It has '0', '1', '2'\. Use the data"):
        SampleSource(make_model(("0", "1", "2")), data)
    with pytest.raises(ValueError, match=r"1 spatial axis, got \(50, 4, 4, 4\).*fitted to"):
        SampleSource(make_model(cells=(4,)), make_data(shape=(4, 4, 4)))
    with pytest.raises(TypeError, match=r"`model` must be a WarpModel, got str"):
        SampleSource("model.dwm", data)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"`data` must be a DataSet or a pair \(X, y\), got str"):
        SampleSource(make_model(), "mnist")  # type: ignore[arg-type]
    for strength in (-1.0, "auto"):
        with pytest.raises(ValueError, match=r"`strength` must be a finite, non-negative number"):
            SampleSource(make_model(), data, strength=strength)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`balance` must be one of 'classes', 'data', got 'even'"):
        SampleSource(make_model(), data, balance="even")  # type: ignore[arg-type]


def test_many_classes_are_not_all_listed() -> None:
    classes = tuple(range(100, 112))
    with pytest.raises(ValueError, match=r"lacks 100, 101, .* 109 and 2 more\."):
        SampleSource(make_model(), make_data(classes, n=200))


@pytest.mark.parametrize(
    ("first", "n", "message"),
    [
        (0, 0, "`n` must be an integer of at least 1, got 0."),
        (0, -5, "`n` must be an integer of at least 1, got -5."),
        (0, 1.5, "`n` must be an integer of at least 1, got 1.5."),
        (0, True, "`n` must be an integer of at least 1, got True."),
        (-1, 5, "`first` must be an integer of at least 0, got -1."),
        (1, MAX_SAMPLE_NUMBER, "samples are numbered below 2^62"),
        (
            MAX_SAMPLE_NUMBER,
            1,
            "`first` must be below 2^62, as all numbers of samples, got 4611686018",
        ),
    ],
)
def test_absurd_numbers_are_refused(first: int, n: int, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_range(first, n)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("part_bytes", [1, 2**20])
def test_data_that_is_not_finite_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: float, part_bytes: int
) -> None:
    monkeypatch.setattr("dreamwarp.core.samples.CHUNK_BYTES", part_bytes)
    data = make_data(dtype="float32")
    X = data.X.copy()
    X[17, 2, 3] = X[30, 0, 0] = value
    with pytest.raises(ValueError, match=r"`data` must be finite, got .* at index \(17, 2, 3\)"):
        SampleSource(make_model(), (X, data.y))


def test_an_augmenter_gives_the_same_samples() -> None:
    from dreamwarp import Augmenter

    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (24, 12, 12)).astype(np.uint8)
    y = np.arange(24) % 2
    augmenter = Augmenter(
        cells=(2, 2), n_neighbors=2, strength=0.5, sigma=0.1, seed=4, progress=False
    )
    augmenter.fit(X, y)
    for balance in ("classes", "data"):
        X_new, y_new = augmenter.sample(30, balance=balance, first=11)
        source = SampleSource(augmenter.model_, (X, y), seed=4, balance=balance)  # type: ignore[arg-type]
        X_same, y_same = source.make(11, 30)
        np.testing.assert_array_equal(X_new, X_same)
        np.testing.assert_array_equal(y_new, y_same)


@pytest.mark.filterwarnings("ignore:.*could not be aligned")
def test_numbers_of_samples_that_were_not_fitted_mean_nothing() -> None:
    from dreamwarp import Augmenter

    X = np.random.default_rng(0).integers(0, 256, (24, 12, 12)).astype(np.uint8)
    y = np.arange(24) % 2 == 0
    augmenter = Augmenter(
        cells=(2, 2), n_neighbors=2, model="template", strength=1.0, sigma=0.1,
        image_shape=(12, 12), progress=False,
    ).fit(X.reshape(24, -1), y)  # fmt: skip
    model = augmenter.model_
    X_new, y_new = SampleSource(model, (X, y)).make(0, 20)
    X_same, y_same = augmenter.sample(20)
    np.testing.assert_array_equal(X_new.reshape(20, -1), X_same)
    np.testing.assert_array_equal(y_new, y_same)
    source = SampleSource(model, (X[::-1], y[::-1]))
    X_new, labels = source.make(0, 20)
    templates = source.choose(np.arange(20))
    theta = model.draw(labels == 1, np.arange(20))
    np.testing.assert_array_equal(X_new, Warp(model.space, theta).image(X[::-1][templates]))


# -- the same on another machine

ELSEWHERE = """
import sys
import numpy as np
from dreamwarp.augment import SampleSource
from tests.generation.cases import make_data, make_model

source = SampleSource(make_model(), make_data(), seed=7)
numbers = np.arange(100, 400)
templates = source.choose(numbers)
theta = source.model.draw(source.data.y[templates], numbers, seed=7)
np.savez(sys.argv[1], X=source.make(100, 300)[0], templates=templates, theta=theta)
"""


@pytest.mark.slow
def test_a_plainer_processor_makes_the_same_samples_within_the_tolerance(
    run_python: Any, tmp_path: Path
) -> None:
    """Draws to the bit; positions to twice the tolerance, so values to that times their slope."""
    plain, here = tmp_path / "plain.npz", tmp_path / "here.npz"
    cache = str(tmp_path / "cache")
    done = run_python("-c", ELSEWHERE, str(plain), NUMBA_CPU_NAME="generic", NUMBA_CACHE_DIR=cache)
    assert done.returncode == 0, done.stderr
    run_python("-c", ELSEWHERE, str(here))
    with np.load(plain) as a, np.load(here) as b:
        np.testing.assert_array_equal(a["templates"], b["templates"])
        assert a["theta"].tobytes() == b["theta"].tobytes()
        difference = np.abs(a["X"].astype(float) - b["X"])
    # From one pixel to the next, values change by 255 at most; each machine rounds to whole ones.
    steepest = 2 * FLOW_TOLERANCE * max(SHAPE) * 255 * len(SHAPE)
    assert difference.max() <= np.ceil(steepest) + 1
    assert np.mean(difference > 0) < 0.05


def test_every_sample_of_a_class_is_picked_once() -> None:
    codes = np.array([2, 0, 2, 1, 0, 2])
    members = Members(codes)
    assert members.counts.tolist() == [2, 1, 3]
    for code, count in enumerate(members.counts):
        picked = members.pick(np.full(count, code), np.arange(count))
        np.testing.assert_array_equal(picked, np.flatnonzero(codes == code))
