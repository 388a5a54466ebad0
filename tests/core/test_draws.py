"""Random numbers by number: the right ones, the same ones, and of the right distribution."""

from __future__ import annotations

import hashlib
import math
from functools import partial

import numpy as np
import pytest
import scipy.stats

from dreamwarp.core import draws
from dreamwarp.core.draws import Stream, as_key, derive_seed, integers, normals, uniforms
from tests.compiled import callable_part

# Counter, key and output of Philox 4x32 with 10 rounds, as published with Random123.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def plain_philox(counter, key):
    """The generator in Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [
            (second >> 32) ^ c[1] ^ k[0],
            second % 2**32,
            (first >> 32) ^ c[3] ^ k[1],
            first % 2**32,
        ]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return tuple(c)


def plain_words(seed, number, dim, stream):
    words = []
    for block in range((dim + 1) // 2):
        counter = (number % 2**32, number >> 32, block, stream)
        w = plain_philox(counter, (seed % 2**32, seed >> 32))
        words += [(w[0] << 32) | w[1], (w[2] << 32) | w[3]]
    return words[:dim]


def plain_normals(seed, number, dim, stream):
    values = []
    for block in range((dim + 1) // 2):
        a, b = plain_words(seed, number, 2 * block + 2, stream)[-2:]
        radius = math.sqrt(-2.0 * math.log((a + 0.5) / 2**64))
        angle = ((b % 2**62) / 2**62 - 0.5) * math.pi / 2
        pair = [math.cos(angle), math.sin(angle)]
        if (b >> 62) & 1:
            pair.reverse()
        sign = -1.0 if b >> 63 else 1.0
        values += [sign * radius * pair[0], sign * radius * pair[1]]
    return values[:dim]


# -- the right numbers


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, output):
    found = callable_part(draws.philox)(*map(np.uint64, key), *map(np.uint64, counter))
    assert tuple(map(int, found)) == output
    assert plain_philox(counter, key) == output


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_numbers_are_those_of_the_plain_version(dim):
    seed, stream = 0x0123456789ABCDEF, 7
    numbers = [0, 1, 2**32 - 1, 2**32, 2**63 - 1]
    found = normals(seed, numbers, dim, stream=stream)
    expected = [plain_normals(seed, number, dim, stream) for number in numbers]
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-15)
    words = [plain_words(seed, number, dim, stream) for number in numbers]
    found = uniforms(seed, numbers, dim, stream=stream)
    assert found.tolist() == [[(word >> 11) / 2**53 for word in row] for row in words]
    if dim == 1:
        for n_choices in (1, 7, 2**32 - 1):
            chosen = integers(seed, numbers, n_choices, stream=stream)
            assert chosen.tolist() == [word[0] * n_choices >> 64 for word in words]


def test_extreme_words_give_finite_numbers():
    for word in (0, 1, 2**62, 2**63, 2**64 - 1):
        squared = callable_part(draws.radius_squared)(np.uint64(word))
        assert squared == pytest.approx(-2.0 * math.log((word + 0.5) / 2**64), rel=1e-15, abs=1e-15)
        assert np.hypot(*callable_part(draws.direction)(np.uint64(word))) == pytest.approx(
            1.0, abs=1e-15
        )
    assert math.sqrt(callable_part(draws.radius_squared)(np.uint64(0))) > 9.4


# -- the same numbers


def test_numbers_do_not_depend_on_batch_or_threads():
    numbers = np.random.default_rng(0).integers(0, 2**40, 3001)
    expected = normals(5, numbers, 7, n_threads=1)
    assert normals(5, numbers, 7, n_threads=3).tobytes() == expected.tobytes()
    pieces = [normals(5, part, 7) for part in np.array_split(numbers, 97)]
    assert np.concatenate(pieces).tobytes() == expected.tobytes()
    backwards = normals(5, numbers[::-1], 7)
    assert backwards[::-1].tobytes() == expected.tobytes()
    for dim in (1, 2, 3, 6):
        np.testing.assert_array_equal(normals(5, numbers, dim), expected[:, :dim])
    for draw in (partial(uniforms, stream=Stream.MIXTURE), integers):
        whole = draw(5, numbers, 4, n_threads=1)
        parts = [draw(5, part, 4, n_threads=2) for part in np.array_split(numbers, 13)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_seeds_and_streams_are_independent():
    numbers = np.arange(100_000)
    drawn = np.hstack(
        [normals(s, numbers, 2, stream=k) for s in (0, 1, 2**63) for k in (*list(Stream)[:3], 99)]
    )
    correlations = np.corrcoef(drawn.T) - np.eye(drawn.shape[1])
    assert np.abs(correlations).max() < 5.0 / np.sqrt(len(numbers))
    bits = {tuple(row) for k in Stream for row in uniforms(0, numbers[:1000], 2, stream=k)}
    assert len(bits) == 1000 * len(Stream)


# -- of the right distribution


def is_normal(values):
    """Kolmogorov-Smirnov, moments, and numbers in the tails, all within chance at 1e-6."""
    n = values.size
    moments = [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
    right = all(
        abs((values**power).mean() - mean) < 5.0 * np.sqrt(variance / n)
        for power, mean, variance in moments
    )
    for bound in (2.0, 3.0, 4.0, 4.5):
        expected = n * 2.0 * scipy.stats.norm.sf(bound)
        right &= abs((np.abs(values) > bound).sum() - expected) < 5.0 * np.sqrt(expected) + 1.0
    return bool(right and scipy.stats.kstest(values, "norm").pvalue > 1e-6)


def test_normals_are_normal_in_their_tails_too():
    values = normals(11, np.arange(40_000), 50).ravel()
    assert is_normal(values)
    assert is_normal(normals(11, np.arange(400_000), 5)[:, 4])
    assert np.abs(values).max() > 4.9


def test_a_poor_generator_would_be_noticed():
    rng = np.random.default_rng(0)
    sums = rng.uniform(size=(2_000_000, 12)).sum(axis=1) - 6.0
    assert not is_normal(sums)
    assert not is_normal(normals(0, np.arange(2_000_000), 1).ravel() * 1.005)


def test_pairs_of_normals_fill_the_plane_evenly():
    first, second = normals(2, np.arange(400_000), 2).T
    angles = np.arctan2(second, first) / (2.0 * np.pi) + 0.5
    assert scipy.stats.kstest(angles, "uniform").pvalue > 1e-6
    assert scipy.stats.kstest(first**2 + second**2, "chi2", args=(2,)).pvalue > 1e-6


def test_normals_lie_on_no_lattice():
    values = normals(3, np.arange(200_000), 5).astype(np.float32).ravel()
    # What is expected of a million float32 roundings of exact normals.
    exact = np.random.default_rng(0).standard_normal(values.size).astype(np.float32)
    assert len(np.unique(values)) == pytest.approx(len(np.unique(exact)), rel=0.002)


def test_uniforms_and_integers_are_even():
    values = uniforms(4, np.arange(300_000), 3, stream=Stream.MIXTURE)
    assert values.min() >= 0.0 and values.max() < 1.0
    assert scipy.stats.kstest(values.ravel(), "uniform").pvalue > 1e-6
    counts = np.bincount(integers(4, np.arange(300_000), 7), minlength=7)
    assert scipy.stats.chisquare(counts).pvalue > 1e-6 and len(counts) == 7


def test_integers_take_a_number_of_choices_for_each_sample():
    choices = np.tile([1, 2, 1000], 1000)
    chosen = integers(0, np.arange(3000), choices)
    assert chosen.dtype == np.int64
    assert (chosen < choices).all() and (chosen >= 0).all()
    assert chosen[2::3].max() > 900
    np.testing.assert_array_equal(chosen[1::3], integers(0, np.arange(3000), 2)[1::3])


def test_no_numbers_at_all():
    assert normals(0, [], 3).shape == (0, 3)
    assert normals(0, [1, 2], 0).shape == (2, 0)
    assert integers(0, [], np.zeros(0, int)).shape == (0,)


# -- seeds


def test_keys_of_seeds():
    assert as_key(7) == 7 and as_key(np.uint64(2**64 - 1)) == 2**64 - 1
    assert as_key(None) != as_key(None)
    assert as_key(np.random.default_rng(3)) == as_key(np.random.default_rng(3))
    assert as_key(np.random.RandomState(3)) == as_key(np.random.RandomState(3))
    rng = np.random.default_rng(3)
    assert as_key(rng) != as_key(rng)


def test_derived_seeds_differ():
    seeds = [derive_seed(s, epoch) for s in (0, 1) for epoch in range(100)]
    seeds += [derive_seed(0, 1, epoch) for epoch in range(100)]
    assert len(set(seeds)) == 300
    assert derive_seed(0, 1, 2) == derive_seed(derive_seed(0, 1), 2)
    assert derive_seed(9) == 9


# -- bad input


@pytest.mark.parametrize("seed", ["0", 1.0, True])
def test_bad_types_of_seed(seed):
    with pytest.raises(TypeError, match=r"`seed` must be an integer, a numpy.random.Generator"):
        normals(seed, [0], 1)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_out_of_range(seed):
    with pytest.raises(ValueError, match=r"`seed` must be at least 0 and below 2\^64, got"):
        normals(seed, [0], 1)


@pytest.mark.parametrize("numbers", [[0.5], [[1, 2]], ["a"], 3])
def test_bad_numbers(numbers):
    with pytest.raises(TypeError, match=r"`numbers` must be integers of shape \(n,\), got"):
        normals(0, numbers, 1)


@pytest.mark.parametrize("number", [-1, np.uint64(2**63)])
def test_numbers_out_of_range(number):
    with pytest.raises(ValueError, match=r"`numbers` must be at least 0 and below 2\^63, got"):
        uniforms(0, [number], 1, stream=Stream.MIXTURE)


# -- the same bits on another machine


def test_a_plainer_processor_gives_the_same_bits(run_python, tmp_path):
    code = (
        "import hashlib, numpy; from dreamwarp.core.draws import normals;"
        "print(hashlib.sha256(normals(1, numpy.arange(999), 9).tobytes()).hexdigest())"
    )
    plain = run_python("-c", code, NUMBA_CPU_NAME="generic", NUMBA_CACHE_DIR=str(tmp_path))
    assert all("compiling" in line for line in plain.stderr.splitlines())  # if it takes long
    here = hashlib.sha256(normals(1, np.arange(999), 9).tobytes()).hexdigest()
    assert plain.stdout == f"{here}\n"
