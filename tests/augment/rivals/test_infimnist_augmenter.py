"""The InfiMNIST-style augmenter, and the choice of its strength."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dreamwarp import Augmenter
from dreamwarp.augment.rivals import infimnist_augmenter
from dreamwarp.augment.rivals.infimnist_augmenter import InfiMNISTAugmenter, choose_strength

LABELS = np.array(["one", "two", "one", "one", "three", "three"])
SHAPE = (8, 10)


def blobs(n: int = len(LABELS), shape: tuple[int, ...] = SHAPE) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (n, *shape)).astype(np.uint8)


@pytest.fixture(scope="module")
def fitted() -> InfiMNISTAugmenter:
    return InfiMNISTAugmenter(width=2.0).fit(blobs(), LABELS)


def test_samples_are_class_balanced_and_members_take_turns(fitted: InfiMNISTAugmenter) -> None:
    X_new, y_new = fitted.sample(12)
    assert X_new.shape == (12, *SHAPE) and X_new.dtype == np.uint8
    assert y_new.tolist() == ["one", "three", "two"] * 4
    assert fitted.classes_.tolist() == ["one", "three", "two"]
    # Without deformation, what is drawn is the members in turn, up to a shift.
    still = InfiMNISTAugmenter(width=2.0, amplitude=0.0).fit(blobs(), LABELS)
    ones = still.sample(12)[0][0::3, 1:-1, 1:-1]
    for image, member in zip(ones, (0, 2, 3, 0), strict=True):
        assert is_shifted(image, blobs()[member])


def is_shifted(inside: NDArray[Any], image: NDArray[Any]) -> bool:
    rows, columns = inside.shape
    return any(
        np.array_equal(inside, image[r : r + rows, c : c + columns])
        for r in range(3)
        for c in range(3)
    )


def test_unbalanced_samples_come_as_often_as_fitted(fitted: InfiMNISTAugmenter) -> None:
    y_new = fitted.sample(18, balanced=False)[1]
    assert y_new.tolist() == LABELS.tolist() * 3


def test_a_sample_depends_on_seed_and_number_alone(fitted: InfiMNISTAugmenter) -> None:
    X_new, y_new = fitted.sample(300)
    alone = clone(fitted).set_params(n_threads=1).fit(blobs(), LABELS)
    X_part, y_part = alone.sample(120, first=150)
    np.testing.assert_array_equal(X_part, X_new[150:270])
    np.testing.assert_array_equal(y_part, y_new[150:270])
    again = clone(fitted).fit(blobs(), LABELS)
    np.testing.assert_array_equal(again.sample(300)[0], X_new)
    other = clone(fitted).set_params(seed=1).fit(blobs(), LABELS)
    assert (other.sample(300)[0] != X_new).any()
    assert len(np.unique(X_new.reshape(300, -1), axis=0)) > 250


def test_samples_of_one_class_and_what_they_come_from(fitted: InfiMNISTAugmenter) -> None:
    X_new, y_new, templates = fitted.sample(7, label="one", first=1, return_templates=True)
    assert set(y_new) == {"one"} and templates.tolist() == [2, 3, 0, 2, 3, 0, 2]
    np.testing.assert_array_equal(X_new[2:], fitted.sample(5, label=np.str_("one"), first=3)[0])
    np.testing.assert_array_equal(y_new, LABELS[templates])


def test_another_seed_gives_other_deformations(fitted: InfiMNISTAugmenter) -> None:
    X_new = fitted.sample(20, seed=0)[0]
    np.testing.assert_array_equal(X_new, fitted.sample(20)[0])  # 0 was fitted with
    assert (X_new != fitted.sample(20, seed=1)[0]).any()
    assert (fitted.transform(blobs()) != fitted.transform(blobs(), seed=1)).any()


def test_strength_scales_the_amplitude(fitted: InfiMNISTAugmenter) -> None:
    strong = fitted.with_strength(2.0)
    direct = InfiMNISTAugmenter(width=2.0, amplitude=2 * fitted.amplitude).fit(blobs(), LABELS)
    np.testing.assert_array_equal(strong.sample(20)[0], direct.sample(20)[0])
    again = clone(strong).fit(blobs(), LABELS)
    np.testing.assert_array_equal(strong.sample(20)[0], again.sample(20)[0])
    np.testing.assert_array_equal(fitted.sample(9, strength=2.0)[0], strong.sample(9)[0])
    np.testing.assert_array_equal(
        fitted.transform(blobs(), strength=2.0), strong.transform(blobs())
    )
    assert fitted.strength == 1.0 and not strong.with_strength(0.0).fields_.any()


def test_fit_transform_and_resampler_are_the_augmenters(fitted: InfiMNISTAugmenter) -> None:
    with pytest.warns(UserWarning, match="replaces every training sample"):
        X_new = InfiMNISTAugmenter(width=2.0).fit_transform(blobs(), LABELS)
    np.testing.assert_array_equal(X_new, fitted.transform(blobs(), LABELS))
    X_more, y_more = fitted.resampler().fit_resample(blobs(), LABELS)
    X_same, y_same = clone(fitted).fit_resample(blobs(), LABELS)
    np.testing.assert_array_equal(X_more, X_same)
    np.testing.assert_array_equal(y_more, y_same)


def test_the_interface_is_that_of_the_learned_augmenter() -> None:
    """Every public method, with the same parameters and defaults, so that one can be swapped."""

    def methods(kind: type) -> dict[str, list[tuple[str, Any, Any]]]:
        return {
            name: [(p.name, p.kind, p.default) for p in signature(method).parameters.values()]
            for name, method in vars(kind).items()
            if not name.startswith("_") and callable(method)
        }

    learned = methods(Augmenter)
    del learned["judge"]  # `choose_strength` compares on validation data
    # Nothing is learned here that a cluster could help with.
    learned["fit"] = [parameter for parameter in learned["fit"] if parameter[0] != "client"]
    assert methods(InfiMNISTAugmenter) == learned


def test_a_generator_as_seed_gives_other_samples_each_fit() -> None:
    seed = np.random.default_rng(0)
    first, second = (InfiMNISTAugmenter(width=2.0, seed=seed).fit(blobs(), LABELS) for _ in "12")
    assert (first.sample(20)[0] != second.sample(20)[0]).any()
    np.testing.assert_array_equal(first.sample(20)[0], first.sample(20)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_type_and_range_are_kept(dtype: Any) -> None:
    X = (blobs().astype(np.float64) / 4 - 30).astype(dtype)
    augmenter = InfiMNISTAugmenter(width=2.0, amplitude=2.0).fit(X, LABELS)
    for new in (augmenter.sample(50)[0], augmenter.transform(X)):
        assert new.dtype == dtype
        assert new.min() >= X.min() and new.max() <= X.max()
    assert augmenter.value_range_ == (X.min(), X.max())


def test_zero_fill_stays_in_range() -> None:
    X = np.full((4, 6, 6), 5.0, np.float32)
    X[:, 2:4, 2:4] = 9.0
    X_new = InfiMNISTAugmenter(width=2.0).fit(X, [0, 0, 1, 1]).sample(40)[0]
    assert X_new.min() == 5.0 and X_new.max() <= 9.0


def test_float_images_agree_with_uint8_before_truncation() -> None:
    X = blobs().astype(np.float32)
    X[0, 0, :2] = 0.0, 255.0  # the same range as uint8
    whole = InfiMNISTAugmenter(width=2.0).fit(X.astype(np.uint8), LABELS).sample(60)[0]
    exact = InfiMNISTAugmenter(width=2.0).fit(X, LABELS).sample(60)[0]
    np.testing.assert_array_equal(np.trunc(exact), whole)


def test_channels_move_together_and_flat_rows_come_back_flat() -> None:
    X = np.stack([blobs(), blobs()], axis=1)
    X_new, y_new = InfiMNISTAugmenter(width=2.0).fit(X, LABELS).sample(9)
    assert X_new.shape == (9, 2, *SHAPE)
    np.testing.assert_array_equal(X_new[:, 0], X_new[:, 1])
    flat = InfiMNISTAugmenter(width=2.0, image_shape=(2, *SHAPE)).fit(X.reshape(6, -1), LABELS)
    np.testing.assert_array_equal(flat.sample(9)[0], X_new.reshape(9, -1))
    assert flat.transform(X.reshape(6, -1)).shape == (6, 160)


def test_transform_deforms_each_sample_once(fitted: InfiMNISTAugmenter) -> None:
    X = blobs(40)
    X_new = fitted.transform(X, LABELS[np.arange(40) % 6])
    assert X_new.shape == X.shape
    assert (X_new != X).any(axis=(1, 2)).all()
    np.testing.assert_array_equal(fitted.transform(X[10:], first=10), X_new[10:])
    assert (fitted.transform(X, first=40) != X_new).any()
    assert fitted.transform(X[:0]).shape == (0, *SHAPE)


def test_read_only_and_big_endian_samples_are_taken(fitted: InfiMNISTAugmenter) -> None:
    X = blobs()
    X.flags.writeable = False
    np.testing.assert_array_equal(fitted.transform(X), fitted.transform(blobs()))
    swapped = InfiMNISTAugmenter(width=2.0).fit(blobs().astype(">f4"), LABELS)
    assert swapped.sample(3)[0].dtype == np.float32


def test_fit_resample_fills_small_classes() -> None:
    X_new, y_new = InfiMNISTAugmenter(width=2.0).fit_resample(blobs(), LABELS)
    np.testing.assert_array_equal(X_new[:6], blobs())
    assert y_new.tolist() == [*LABELS.tolist(), "three", "two", "two"]
    X_sampled, y_sampled = InfiMNISTAugmenter(width=2.0).fit(blobs(), LABELS).sample(6)
    np.testing.assert_array_equal(X_new[6:], X_sampled[[1, 2, 5]])


def test_fit_resample_fills_as_told() -> None:
    augmenter = InfiMNISTAugmenter(width=2.0, sampling_strategy={"two": 4, "one": 3})
    y_new = augmenter.fit_resample(blobs(), LABELS)[1]
    assert np.unique(y_new, return_counts=True)[1].tolist() == [3, 2, 4]


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("some", r"`sampling_strategy` must be one of 'auto', .* got 'some'"),
        ({"four": 9}, r"`sampling_strategy` must have labels of `y` as keys, got 'four'"),
        ({"one": 2}, r"at least the 3 that class 'one' has, got 2"),
    ],
)
def test_bad_strategies_are_refused(strategy: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InfiMNISTAugmenter(width=2.0, sampling_strategy=strategy).fit_resample(blobs(), LABELS)


def test_bad_samples_are_refused(fitted: InfiMNISTAugmenter) -> None:
    new = InfiMNISTAugmenter(width=2.0)
    with pytest.raises(NotFittedError, match="not fitted"):
        new.sample(3)
    with pytest.raises(NotFittedError, match="not fitted"):
        new.transform(blobs())
    with pytest.raises(TypeError, match=r"`X` must be integers, float32 or float64, got bool"):
        new.fit(blobs() > 3, LABELS)
    with pytest.raises(TypeError, match=r"`X` must be integers, float32 or float64, got float16"):
        new.fit(blobs().astype(np.float16), LABELS)
    with pytest.raises(ValueError, match=r"`X` must be finite"):
        new.fit(np.full((6, 3, 3), np.nan), LABELS)
    with pytest.raises(ValueError, match=r"`X` must be images.*\(6, 80\) and image_shape=None"):
        new.fit(blobs().reshape(6, -1), LABELS)
    with pytest.raises(ValueError, match=r"`X` must be images.*image_shape=\(9, 9\)"):
        InfiMNISTAugmenter(image_shape=(9, 9)).fit(blobs().reshape(6, -1), LABELS)
    with pytest.raises(ValueError, match=r"`X` must have one label per sample"):
        new.fit(blobs(), LABELS[:-1])
    with pytest.raises(ValueError, match=r"`width` must be above 0 and at most 10 pixels"):
        InfiMNISTAugmenter(width=11.0).fit(blobs(), LABELS)
    with pytest.raises(ValueError, match=r"`X` must be uint8 of shape \(n, 8, 10\).*got float32"):
        fitted.transform(blobs().astype(np.float32))
    with pytest.raises(ValueError, match=r"`X` must be uint8 of shape \(n, 8, 10\).*\(6, 10, 8\)"):
        fitted.transform(blobs(shape=(10, 8)))
    with pytest.raises(ValueError, match=r"`n` must be a whole number, at least 0, got -1"):
        fitted.sample(-1)
    with pytest.raises(ValueError, match=r"label 'four' is not one of .* 'one', 'three', 'two'\."):
        fitted.sample(3, label="four")
    with pytest.raises(ValueError, match=r"label 0 is not one of the classes fitted, 'one', 'thr"):
        fitted.transform(blobs(), np.zeros(6))
    assert fitted.transform(blobs(), np.zeros(6), unknown="pool").shape == (6, *SHAPE)
    with pytest.raises(ValueError, match=r"`unknown` must be one of 'error', 'pool', got 'skip'"):
        fitted.transform(blobs(), LABELS, unknown="skip")  # type: ignore[arg-type]
    for strength in (-1.0, np.inf, "auto", True):
        with pytest.raises(ValueError, match=r"`strength` must be a finite number, not negative"):
            fitted.with_strength(strength)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`first` must be a whole number, at least 0, got 0\.5"):
        fitted.sample(3, first=0.5)  # type: ignore[arg-type]


# -- the choice of strength


def bars(n: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Upright and level bars, at places that a few examples do not cover."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = np.zeros((n, 12, 12), np.uint8)
    for image, label, place in zip(X, y, generator.integers(1, 10, n), strict=True):
        (image if label else image.T)[place : place + 2] = 255
    return X, y


def test_strength_is_chosen_by_validation_error(monkeypatch: Any) -> None:
    monkeypatch.setattr(infimnist_augmenter, "BLOCK", 64)
    (X, y), (X_validation, y_validation) = bars(6, 0), bars(60, 1)
    options: dict[str, Any] = {"widths": (2.0, 4.0), "amplitudes": (0.0, 1.0, 12.0)}
    chosen = choose_strength(X, y, X_validation, y_validation, n_samples=300, **options)
    assert chosen.errors.shape == (2, 3)
    assert chosen.errors.min() < chosen.error_without
    row, column = np.unravel_index(chosen.errors.argmin(), (2, 3))
    assert chosen.width == options["widths"][row]
    assert chosen.amplitude == options["amplitudes"][column]
    # One setting again, with the neighbours found the obvious way.
    augmenter = InfiMNISTAugmenter(width=4.0, amplitude=1.0).fit(X, y)
    X_new, y_new = augmenter.sample(300)
    everything = np.concatenate([X, X_new]).astype(float)
    distances = ((X_validation[:, None] - everything) ** 2).sum(axis=(2, 3))
    labels = np.concatenate([y, y_new])[distances.argmin(axis=1)]
    assert chosen.errors[1, 1] == np.mean(labels != y_validation)


def test_bad_comparisons_are_refused() -> None:
    X, y = bars(6, 0)
    with pytest.raises(ValueError, match=r"`X_validation` must have samples of shape \(12, 12\)"):
        choose_strength(X, y, X[:, 1:], y)
    with pytest.raises(ValueError, match=r"`X_validation` must have one label per sample"):
        choose_strength(X, y, X, y[1:])
    with pytest.raises(ValueError, match=r"`widths` and `amplitudes` must have.*got 0 and 4"):
        choose_strength(X, y, X, y, widths=())
    with pytest.raises(ValueError, match=r"`n_samples` must be a whole number, at least 0, got -1"):
        choose_strength(X, y, X, y, n_samples=-1)
