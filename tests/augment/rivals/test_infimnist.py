"""The InfiMNIST-style generator against its published arithmetic, written out as a slow loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dreamwarp.augment.rivals import infimnist
from dreamwarp.augment.rivals.infimnist import N_FIELDS, InfiMNIST, smooth_fields
from tests.compiled import callable_part

N_TEST, N_TRAIN, SHAPE = 5, 23, (9, 11)
SHIFTS = [
    "up", "down", "left", "right", "up-left", "up-right", "down-left", "down-right", "none",
]  # fmt: skip


def random_images(n: int, shape: tuple[int, int] = SHAPE, seed: int = 0) -> NDArray[np.uint8]:
    """Images with values at both ends of the range, so that clipping matters."""
    noise = np.random.default_rng(seed).integers(-200, 456, (n, *shape))
    return noise.clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def generator() -> InfiMNIST:
    test = random_images(N_TEST, seed=1), np.arange(N_TEST) + 100
    return InfiMNIST(random_images(N_TRAIN), np.arange(N_TRAIN), test=test, amplitude=1.5)


# -- the published formulae, as a loop


def published_image(
    train: Any, test: Any, fields: NDArray[np.float32], index: int
) -> NDArray[np.int64]:
    if index < N_TEST:
        return np.array(test[index])
    if index < N_TEST + N_TRAIN:
        return np.array(train[index - N_TEST])
    x = train[(index - N_TEST) % N_TRAIN]
    k1 = ((index * 131071) % 2**32) % 1521
    k2 = (k1 + 1 + 2 * index) % 1522
    sign = -1 if (k1 + k2) % 2 == 1 else 1
    field_1, field_2 = fields[k1].tolist(), fields[k2].tolist()
    last_row, last_column = SHAPE[0] - 1, SHAPE[1] - 1
    result = np.zeros(SHAPE, np.int64)
    for r in range(SHAPE[0]):
        for c in range(SHAPE[1]):
            tangent_0 = (x[min(r + 1, last_row)][c] - x[max(r - 1, 0)][c]) / 2
            tangent_1 = (x[r][min(c + 1, last_column)] - x[r][max(c - 1, 0)]) / 2
            value = x[r][c] + sign * (field_1[r][c] * tangent_0 - field_2[r][c] * tangent_1)
            result[r, c] = int(min(max(value, 0.0), 255.0))
    return shifted(result, SHIFTS[k1 % 9])


def shifted(image: NDArray[Any], direction: str) -> NDArray[Any]:
    result = image.copy()
    if "up" in direction:
        result = np.vstack([result[1:], np.zeros_like(result[:1])])
    if "down" in direction:
        result = np.vstack([np.zeros_like(result[:1]), result[:-1]])
    if "left" in direction:
        result = np.hstack([result[:, 1:], np.zeros_like(result[:, :1])])
    if "right" in direction:
        result = np.hstack([np.zeros_like(result[:, :1]), result[:, :-1]])
    return result


def some_indices() -> NDArray[np.int64]:
    """A thousand: all sizes, both sides of every 32-bit wrap, the ends of the parts."""
    wraps = np.array([-(-multiple * 2**32 // 131071) for multiple in range(1, 101)])
    generator = np.random.default_rng(5)
    parts = [
        np.arange(100),
        wraps - 1,
        wraps,
        wraps + 1,
        np.array([2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**46, 2**47, 2**62, 2**63 - 1]),
        generator.integers(0, 2**20, 392),
        2 ** generator.integers(20, 63, 200) + generator.integers(0, 2**20, 200),
    ]
    return np.concatenate(parts)


def test_a_thousand_images_follow_the_published_arithmetic(generator: InfiMNIST) -> None:
    indices = some_indices()
    assert len(indices) >= 1000
    made = generator.image(indices)
    assert made.dtype == np.uint8 and made.shape == (len(indices), *SHAPE)
    train, test = random_images(N_TRAIN).tolist(), random_images(N_TEST, seed=1).tolist()
    for index, image in zip(indices.tolist(), made, strict=True):
        expected = published_image(train, test, generator.fields, index)
        assert (image == expected).all(), index


def test_every_field_is_used_and_never_twice_in_an_image() -> None:
    choose_fields = callable_part(infimnist.choose_fields)
    chosen = np.array([choose_fields(index) for index in range(70_000, 90_000)])
    assert set(chosen[:, 0]) == set(range(N_FIELDS - 1))
    assert set(chosen[:, 1]) == set(range(N_FIELDS))
    assert (chosen.sum(axis=1) % 2 == 1).all()  # the sign is always negative
    assert (chosen[:, 0] != chosen[:, 1]).all()


def test_shifts_are_in_the_published_order() -> None:
    """Without fields nothing is left but the shift."""
    images = random_images(1)
    generator = InfiMNIST(images, [0], amplitude=0.0)
    seen = set()
    for index in range(1, 200):
        k1 = ((index * 131071) % 2**32) % 1521
        seen.add(k1 % 9)
        expected = shifted(images[0], SHIFTS[k1 % 9])
        np.testing.assert_array_equal(generator.image(index), expected)
    assert seen == set(range(9))


def test_the_layout_for_mnist_is_the_published_one() -> None:
    train, test = np.zeros((60_000, 1, 1), np.uint8), np.zeros((10_000, 1, 1), np.uint8)
    labels = np.random.default_rng(0).integers(0, 10, 70_000).astype(np.uint8)
    generator = InfiMNIST(
        train, labels[10_000:], test=(test, labels[:10_000]), width=1.0, amplitude=1.0
    )
    assert generator.first_generated == 70_000 and generator.n_test == 10_000
    for index in (0, 9_999, 10_000, 69_999, 70_000, 129_999, 130_000, 8_100_000, 10**15):
        a = (index - 10_000) % 60_000
        source = index if index < 70_000 else 10_000 + a
        assert generator.source(index) == source
        assert generator.label(index) == labels[source]


def test_a_subset_is_gone_through_over_and_over() -> None:
    images, labels = random_images(4), np.array(["a", "b", "b", "c"])
    generator = InfiMNIST(images, labels)
    np.testing.assert_array_equal(generator.source(range(10)), [0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
    assert generator.label(range(6)).tolist() == ["a", "b", "b", "c", "a", "b"]
    np.testing.assert_array_equal(generator.image(range(4)), images)
    assert (generator.image(range(4, 8)) != images).any(axis=(1, 2)).all()


def test_an_image_depends_on_its_number_alone(generator: InfiMNIST) -> None:
    indices = np.arange(2000)
    straight = generator.image(indices)
    order = np.random.default_rng(0).permutation(2000)
    np.testing.assert_array_equal(generator.image(indices[order]), straight[order])
    np.testing.assert_array_equal(generator.image(indices, n_threads=1), straight)
    np.testing.assert_array_equal(generator.image(indices, n_threads=3), straight)
    np.testing.assert_array_equal(generator.image(1234), straight[1234])
    np.testing.assert_array_equal(generator.image(indices.astype(np.uint16)), straight)


def test_no_indices_give_no_images(generator: InfiMNIST) -> None:
    assert generator.image([]).shape == (0, *SHAPE)
    assert generator.label([]).shape == (0,)


# -- fields


def test_fields_have_the_strength_and_smoothness_asked_for() -> None:
    fields = smooth_fields((28, 28), width=3.0, amplitude=1.5).astype(np.float64)
    assert fields.shape == (N_FIELDS, 28, 28)
    assert np.sqrt((fields**2).mean()) == pytest.approx(1.5, rel=0.02)
    border = np.sqrt((fields[:, 0] ** 2).mean())
    assert border == pytest.approx(1.5, rel=0.04)  # as strong at the border as inside
    for lag in (1, 3, 6):
        correlation = (fields[:, lag:] * fields[:, :-lag]).mean() / 1.5**2
        assert correlation == pytest.approx(np.exp(-((lag / 6.0) ** 2)), abs=0.03)
        across = (fields[:, :, lag:] * fields[:, :, :-lag]).mean() / 1.5**2
        assert across == pytest.approx(np.exp(-((lag / 6.0) ** 2)), abs=0.03)


def test_fields_are_fixed_by_the_seed_and_rounded() -> None:
    fields = smooth_fields((6, 7), width=2.0, amplitude=1.0, seed=3)
    assert fields.dtype == np.float32
    np.testing.assert_array_equal(fields, smooth_fields((6, 7), width=2.0, amplitude=1.0, seed=3))
    assert (fields != smooth_fields((6, 7), width=2.0, amplitude=1.0, seed=4)).any()
    np.testing.assert_array_equal(fields * 256, np.rint(fields * 256))
    assert len(np.unique(fields.reshape(N_FIELDS, -1), axis=0)) == N_FIELDS


def test_fields_do_not_depend_on_the_blocks_they_are_made_in(monkeypatch: Any) -> None:
    fields = smooth_fields((6, 7), width=2.0)
    monkeypatch.setattr(infimnist, "NOISE_BLOCK", 1000)
    np.testing.assert_array_equal(smooth_fields((6, 7), width=2.0), fields)


# -- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0.0}, r"`width` must be above 0 and at most 11 pixels.*got 0\.0"),
        ({"width": 12}, r"`width` must be above 0 and at most 11 pixels.*got 12"),
        ({"width": float("nan")}, r"`width` must be above 0.*got nan"),
        ({"width": "wide"}, r"`width` must be above 0.*got 'wide'"),
        ({"amplitude": -1.0}, r"`amplitude` must be from 0 to 11 pixels.*got -1\.0"),
        ({"amplitude": float("inf")}, r"`amplitude` must be from 0 to 11 pixels.*got inf"),
        ({"seed": -1}, r"`seed` must be at least 0"),
        (
            {"test": (random_images(2, (9, 9)), [0, 1])},
            r"`test` must have images of the size of the others, \(9, 11\), got \(9, 9\)",
        ),
        ({"test": (random_images(2), [0])}, r"labels of `test` must have shape \(2,\)"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InfiMNIST(random_images(3), [0, 1, 2], **options)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (random_images(3) / 255.0, [0, 1, 2], r"`images` must be uint8.*float64.*from 0 to 255"),
        (random_images(3).reshape(3, -1), [0, 1, 2], r"`images` must be uint8.*shape \(3, 99\)"),
        (random_images(3), [0, 1], r"labels of `images` must have shape \(3,\)"),
        (random_images(0), [], r"`images` must hold at least one sample"),
    ],
)
def test_bad_images_are_refused(images: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InfiMNIST(images, labels)


def test_bad_indices_are_refused(generator: InfiMNIST) -> None:
    with pytest.raises(ValueError, match=r"`indices` must be at least 0 and below 2\^63, got -1"):
        generator.image([3, -1])
    with pytest.raises(ValueError, match=r"`indices` must be at least 0 and below 2\^63"):
        generator.label(np.array([2**63], np.uint64))
    with pytest.raises(TypeError, match=r"`indices` must be one integer.*float64"):
        generator.image([1.0])
    with pytest.raises(TypeError, match=r"`indices` must be one integer.*\(1, 2\)"):
        generator.image([[1, 2]])
