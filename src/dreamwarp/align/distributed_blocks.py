"""Alignment on a cluster of dask.distributed: blocks of pairs are tasks."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dreamwarp.align.block import Aligned, Images, Problem, align_block, split_pairs
from dreamwarp.core.cluster import run_on
from dreamwarp.core.progress import ProgressOption, track

if TYPE_CHECKING:
    from distributed import Client


def align_all_on(
    client: Client,
    problem: Problem,
    sources: Images,
    targets: Images,
    keep: bool,
    progress: ProgressOption,
) -> list[Aligned]:
    """Align pairs of images (n, channels, *spatial), block by block.

    Parameters
    ----------
    keep : bool
        Whether to return all posterior draws.
    """
    blocks = split_pairs(len(sources), problem.coordinates.dim)
    tasks = [(sources[block], targets[block], block.start, keep) for block in blocks]
    found: dict[int, Aligned] = {}
    with track(len(sources), "aligning", progress) as advance:
        for place, aligned in run_on(client, align_one, problem, tasks):
            found[place] = aligned
            advance(len(aligned.theta))
    return [found[place] for place in range(len(blocks))]


def align_one(
    problem: Problem, sources: Images, targets: Images, first: int, keep: bool
) -> Aligned:
    """What a worker does: one block of pairs, numbered from ``first`` on."""
    numbers = np.arange(first, first + len(sources))
    found = align_block(problem, sources, targets, numbers, threading.Event())
    return found if keep else replace(found, chains=[], densities=[])
