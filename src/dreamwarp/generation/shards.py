"""How a set of samples is divided into shards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dreamwarp.augment.source import SampleForm, check_range
from dreamwarp.core.validation import check_integer

# The IDX format counts in 32 bits.
MAX_SHARD_SAMPLES = 2**32 - 1
# Limited because the manifest lists all shards and is rewritten after each.
MAX_SHARDS = 10_000
# Default limits of a shard, before compression. A killed run should lose only seconds of work.
SHARD_SAMPLES, SHARD_BYTES = 100_000, 2**27

# Largest numbers of values and of samples per block. With intermediate results a value takes about
# 16 bytes: blocks fit into a processor's cache, and are so large that Python's overhead is small.
BLOCK_VALUES, MAX_BLOCK = 2**20, 4096
# Larger blocks are multiples of this, which is a multiple of the number of warps that kernels
# process at a time.
ABREAST = 64


class Shard(NamedTuple):
    """Samples ``first`` to ``first + n - 1``, written and verified as a whole."""

    number: int
    first: int
    n: int

    def blocks(self, size: int) -> Iterator[tuple[int, int]]:
        """First number and number of samples of each block."""
        end = self.first + self.n
        return ((start, min(size, end - start)) for start in range(self.first, end, size))


@dataclass(frozen=True)
class Plan:
    """Samples ``first`` to ``first + n - 1`` in shards of ``shard_size``; the last may be smaller.

    ``len(plan)`` is the number of shards and ``plan[k]`` the k-th.
    """

    first: int
    n: int
    shard_size: int

    def __len__(self) -> int:
        return -(-self.n // self.shard_size)

    def __getitem__(self, number: int) -> Shard:
        start = number * self.shard_size
        if not 0 <= start < self.n:
            raise IndexError(f"shard numbers must be from 0 to {len(self) - 1}, got {number}.")
        return Shard(number, self.first + start, min(self.shard_size, self.n - start))


def block_size(form: SampleForm) -> int:
    """Samples of a form to make at a time."""
    size = max(1, min(MAX_BLOCK, BLOCK_VALUES // max(1, math.prod(form.shape))))
    return size // ABREAST * ABREAST or size


def make_plan(first: int, n: int, shard_size: int | None, form: SampleForm) -> Plan:
    """The plan for n samples of a form; ``shard_size`` None: the default size."""
    first, n = check_range(first, n)
    fewest = -(-n // MAX_SHARDS)
    if shard_size is None:
        shard_size = max(min(SHARD_SAMPLES, SHARD_BYTES // max(1, form.n_bytes)), fewest, 1)
    plan = Plan(first, n, check_integer("shard_size", shard_size, 1))
    if len(plan) > MAX_SHARDS or plan[0].n > MAX_SHARD_SAMPLES:
        raise ValueError(
            f"`shard_size` must be from {fewest} (at most {MAX_SHARDS} shards for {n} samples) to "
            f"{MAX_SHARD_SAMPLES}, got {shard_size}. Or ask for fewer samples."
        )
    return plan
