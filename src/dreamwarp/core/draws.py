"""Counter-based random numbers: those of sample k depend only on the seed and k.

The generator is Philox 4x32 with 10 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random
numbers: as easy as 1, 2, 3", 2011), a stateless function of a 64-bit key and a 128-bit counter. The
key is the seed. The counter holds the sample number (64 bits), the block within the sample (32)
and the stream (32). So any thread or machine can draw any part of any sample, and streams never
share bits.

The kernels use only operations that every machine rounds identically, with fused multiply-add only
where ``fused`` is called, and no mathematical library. So results are bit-identical everywhere.
"""

from __future__ import annotations

import secrets
from enum import IntEnum
from math import factorial
from typing import Any, TypeAlias

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.compiled import count_chunks, inlined, kernel, part, spread
from dreamwarp.core.lanes import LANES, read, write

Seed: TypeAlias = "int | np.random.Generator | np.random.RandomState | None"

# Multipliers of the rounds and increments of the key, from the paper.
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
INCREMENTS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
N_ROUNDS = 10
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)

# Highest powers of s² and x² in the series below that still change a float64.
N_LOGARITHM, N_SINE = 10, 8
COSINE = tuple((-1.0) ** k / factorial(2 * k) for k in range(N_SINE + 1))
SINE = tuple((-1.0) ** k / factorial(2 * k + 1) for k in range(N_SINE + 1))
ROOT_HALF = np.uint64(0x3FE6A09E667F3BCD)  # the bits of sqrt(1/2)
LOG_2 = float(np.log(2.0))

# Numbers of samples are below this.
MAX_SAMPLE_NUMBER = 2**62
# Float64 numbers per cache line.
LINE = 8
# A block of tasks should take well over the 50 µs that starting it costs.
TASKS_PER_BLOCK = 16


class Stream(IntEnum):
    """Purpose of random numbers. Draws from different streams are independent.

    The values must never change: runs would no longer be repeatable.
    """

    WARP = 0  # normals that make a θ
    MIXTURE = 1  # normals that combine the warps of a template
    TEMPLATE = 2  # the sample to warp
    LABEL = 3  # no longer used, and reserved
    APPLY = 4  # whether to warp at all
    ORDER = 5  # shuffling
    ALIGNMENT = 6  # proposals of Markov chains, and draws from the Laplace approximation
    ACCEPTANCE = 7  # acceptance of proposals
    SEED = 2**32 - 1  # seeds derived from seeds


# -- public functions


def as_key(seed: Seed) -> int:
    """The 64-bit key for a seed.

    An integer below 2^64 is the key itself. A generator gives its next 64 bits, so each call
    returns another key. None: 64 bits from the operating system.
    """
    if seed is None:
        return secrets.randbits(64)
    if isinstance(seed, np.random.Generator | np.random.RandomState):
        return int.from_bytes(seed.bytes(8), "little")
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
        raise TypeError(
            "`seed` must be an integer, a numpy.random.Generator or None, got "
            f"{seed!r} ({type(seed).__name__})."
        )
    if not 0 <= seed < 2**64:
        raise ValueError(f"`seed` must be at least 0 and below 2^64, got {seed}.")
    return int(seed)


def derive_seed(seed: Seed, *steps: int) -> int:
    """A seed for one part of a run, such as ``derive_seed(seed, epoch)``."""
    key = as_key(seed)
    for step in steps:
        key = int(_draw(_fill_words, np.uint64, key, [step], 1, Stream.SEED)[0, 0])
    return key


def normals(
    seed: Seed,
    numbers: ArrayLike,
    dim: int,
    *,
    stream: int = Stream.WARP,
    n_threads: int | None = None,
) -> NDArray[np.float64]:
    """Standard normal numbers (n, dim): row i depends only on (seed, stream, numbers[i]).

    Box-Muller transform with 64 bits for the radius and 64 for the angle, so tails reach 9.4
    standard deviations. A smaller ``dim`` gives the first columns of a larger one.
    """
    return _draw(_fill_normals, np.float64, seed, numbers, dim, stream, n_threads)


def uniforms(
    seed: Seed,
    numbers: ArrayLike,
    dim: int,
    *,
    stream: int,
    n_threads: int | None = None,
) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), multiples of 2^-53: (n, dim). Parameters as :func:`normals`."""
    words = _draw(_fill_words, np.uint64, seed, numbers, dim, stream, n_threads)
    words >>= np.uint64(11)
    return np.multiply(words, 2.0**-53, dtype=np.float64)


def integers(
    seed: Seed,
    numbers: ArrayLike,
    n_choices: ArrayLike,
    *,
    stream: int = Stream.TEMPLATE,
    n_threads: int | None = None,
) -> NDArray[np.int64]:
    """A uniform integer from 0 to n_choices - 1 for every sample number: (n,).

    ``n_choices`` is below 2^32, one for all samples or one each. Probabilities are equal to a
    relative error of 2^-32.
    """
    words = _draw(_fill_words, np.uint64, seed, numbers, 1, stream, n_threads)[:, 0]
    # floor(word * choices / 2^64), without a product of more than 64 bits.
    wide = np.asarray(n_choices, np.uint64)
    below = ((words & LOW) * wide) >> HALF
    return (((words >> HALF) * wide + below) >> HALF).astype(np.int64)


# -- checks


def check_numbers(
    numbers: ArrayLike, name: str = "numbers", *, or_one: bool = False
) -> NDArray[np.int64]:
    """Return sample numbers as a C-ordered int64 array (n,); raise if any is negative.

    ``or_one``: a single number is allowed too, and returned as an array without axes.
    """
    values = np.asarray(numbers)
    if values.size == 0:
        values = values.astype(np.int64)
    if values.dtype.kind not in "iu" or values.ndim > 1 or values.ndim < 1 - or_one:
        raise TypeError(
            f"`{name}` must be {'one integer or ' if or_one else ''}integers of shape (n,), got "
            f"{values.dtype} {values.shape}."
        )
    if values.size and not 0 <= values.min() <= values.max() < 2**63:
        raise ValueError(
            f"`{name}` must be at least 0 and below 2^63, got {values.min()} to {values.max()}."
        )
    # Copy read-only arrays: numba would compile another kernel for them.
    return np.require(values, np.int64, ["C", "W"])


def split_key(key: int) -> tuple[np.uint64, np.uint64]:
    """The low and the high 32 bits of a key."""
    return np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)


def _draw(
    fill_fn: Any,
    dtype: Any,
    seed: Seed,
    numbers: ArrayLike,
    dim: int,
    stream: int,
    n_threads: int | None = None,
) -> NDArray[Any]:
    """Random numbers (n, dim), as the kernel ``fill_fn`` writes them."""
    key, rows = as_key(seed), check_numbers(numbers)
    out = np.empty((len(rows), dim), dtype)
    spread(
        fill_fn, count_chunks(len(rows), LANES), *split_key(key), np.uint64(stream), rows, out,
        n_threads=n_threads, smallest_block=TASKS_PER_BLOCK,
    )  # fmt: skip
    return out


# -- kernels


@intrinsic
def fused(typing_context, a, b, c):
    """a * b + c, rounded once."""

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@inlined
def philox(key_low, key_high, c0, c1, c2, c3):
    """The four 32-bit words of one block, as uint64."""
    for _ in range(N_ROUNDS):
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> HALF) ^ c1 ^ key_low,
            second & LOW,
            (first >> HALF) ^ c3 ^ key_high,
            first & LOW,
        )
        key_low, key_high = (key_low + INCREMENTS[0]) & LOW, (key_high + INCREMENTS[1]) & LOW
    return c0, c1, c2, c3


@inlined
def radius_squared(word):
    """-2 log u for u = (word + 1/2) / 2^64, at most 1.

    u = 2^k m with m from sqrt(1/2) to sqrt(2), and log m = 2 artanh s with s = (m - 1) / (m + 1).
    """
    bits = np.float64((np.float64(word) + 0.5) * 2.0**-64).view(np.uint64)
    exponent = np.int64(bits - ROOT_HALF) >> np.int64(52)
    m = np.uint64(bits - np.uint64(exponent << np.int64(52))).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    series = 0.0
    for k in range(N_LOGARITHM, -1, -1):
        series = fused(series, s * s, 1.0 / (2 * k + 1))
    return max(-2.0 * (np.float64(exponent) * LOG_2 + 2.0 * s * series), 0.0)


@inlined
def direction(word):
    """A uniform point on the unit circle: 62 bits give an angle within ±45°, two the quadrant.

    Quadrants are reached by mirroring in the diagonal (bit 62) and in the origin (bit 63).
    """
    fraction = np.int64(word & np.uint64(2**62 - 1)) - np.int64(2**61)
    x = np.float64(fraction) * (np.pi / 2.0 * 2.0**-62)
    cosine, sine = 0.0, 0.0
    for k in range(N_SINE, -1, -1):
        cosine = fused(cosine, x * x, COSINE[k])
        sine = fused(sine, x * x, SINE[k])
    sine *= x
    sign = 1.0 - 2.0 * np.float64(np.int64(word >> np.uint64(63)))
    if (word >> np.uint64(62)) & np.uint64(1):
        cosine, sine = sine, cosine
    return sign * cosine, sign * sine


@part
def normal_pairs(key_low, key_high, stream, counters, active, target, out):
    """Two normals for each of ``active`` counters, into rows target and target + 1 of ``out``.

    ``counters`` (2 * LANES,) are a row of sample numbers, then a row of block numbers.
    """
    for w in range(active):
        number, block = read(counters, 0, w), read(counters, 1, w)
        w0, w1, w2, w3 = philox(key_low, key_high, number & LOW, number >> HALF, block, stream)
        radius = np.sqrt(radius_squared((w0 << HALF) | w1))
        cosine, sine = direction((w2 << HALF) | w3)
        write(out, target, w, radius * cosine)
        write(out, target + 1, w, radius * sine)


@part
def normal_rows(key_low, key_high, stream, numbers, start, active, dim, counters, out):
    """``dim`` normals of samples ``numbers[start:start + active]``, one sample per lane.

    Normal j goes into row j of ``out``, which has an even number of rows, at least ``dim``.
    """
    for w in range(active):
        write(counters, 0, w, np.uint64(numbers[start + w]))
    for block in range((dim + 1) // 2):
        for w in range(active):
            write(counters, 1, w, np.uint64(block))
        normal_pairs(key_low, key_high, stream, counters, active, 2 * block, out)


@part
def transpose(lanes, active, dim, start, out):
    """Lanes to rows of ``out``: out[start + w, j] = row j, lane w."""
    for base in range(0, active, LINE):
        for j in range(dim):
            for w in range(base, min(base + LINE, active)):
                out[start + w, j] = read(lanes, j, w)


@kernel
def _fill_normals(first, last, key_low, key_high, stream, numbers, out):
    """Normals (n, dim); one task is ``LANES`` samples."""
    dim = out.shape[1]
    counters = np.empty(2 * LANES, np.uint64)
    lanes = np.empty((dim + 1) // 2 * 2 * LANES)
    for task in range(first, last):
        start = task * LANES
        active = min(LANES, len(numbers) - start)
        normal_rows(key_low, key_high, stream, numbers, start, active, dim, counters, lanes)
        transpose(lanes, active, dim, start, out)


@kernel
def _fill_words(first, last, key_low, key_high, stream, numbers, out):
    """64-bit words (n, dim); one task is ``LANES`` samples."""
    dim = out.shape[1]
    for i in range(first * LANES, min(last * LANES, len(numbers))):
        number = np.uint64(numbers[i])
        for block in range((dim + 1) // 2):
            w0, w1, w2, w3 = philox(
                key_low, key_high, number & LOW, number >> HALF, np.uint64(block), stream
            )
            out[i, 2 * block] = (w0 << HALF) | w1
            if 2 * block + 1 < dim:
                out[i, 2 * block + 1] = (w2 << HALF) | w3
