"""How sets are cut into shards."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dreamwarp.augment.source import SampleForm
from dreamwarp.generation.shards import MAX_SHARDS, Plan, Shard, block_size, make_plan

DIGITS = SampleForm((28, 28), np.dtype(np.uint8), np.arange(10))
PHOTOS = SampleForm((3, 1024, 1024), np.dtype(np.uint8), np.arange(10))


def test_shards_and_their_blocks_cover_all_samples_once() -> None:
    plan = Plan(5, 103, 25)
    shards = [plan[k] for k in range(len(plan))]
    assert shards[0] == Shard(0, 5, 25) and shards[-1] == Shard(4, 105, 3)
    blocks = [block for shard in shards for block in shard.blocks(10)]
    numbers = [k for first, n in blocks for k in range(first, first + n)]
    assert numbers == list(range(5, 108)) and max(n for _, n in blocks) == 10


def test_blocks_are_bounded_and_never_empty() -> None:
    def size(*shape: int) -> int:
        return block_size(SampleForm(shape, np.dtype(np.uint8), np.arange(2)))

    assert size(28, 28) % 64 == 0 and 1000 < size(28, 28) < 1400
    assert size(8) == 4096 and size(3, 512, 512) == 1 and size(3, 4000, 4000) == 1


@pytest.mark.parametrize("number", [-1, 5])
def test_there_are_no_other_shards(number: int) -> None:
    with pytest.raises(IndexError, match=f"shard numbers must be from 0 to 4, got {number}"):
        Plan(5, 103, 25)[number]


def test_usual_sizes() -> None:
    assert make_plan(0, 10_000_000, None, DIGITS).shard_size == 100_000
    assert make_plan(0, 10_000_000, None, PHOTOS).shard_size == 1000
    assert make_plan(0, 100, None, PHOTOS).shard_size == 42
    assert len(make_plan(0, 10**13, None, DIGITS)) == MAX_SHARDS


@pytest.mark.parametrize(
    ("shard_size", "message"),
    [
        (0, "`shard_size` must be an integer of at least 1, got 0."),
        (-3, "`shard_size` must be an integer of at least 1, got -3."),
        (2.5, "`shard_size` must be an integer of at least 1, got 2.5."),
        (9, "`shard_size` must be from 10 (at most 10000 shards for 100000 samples) to "),
    ],
)
def test_bad_sizes_are_refused(shard_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_plan(0, 100_000, shard_size, DIGITS)
