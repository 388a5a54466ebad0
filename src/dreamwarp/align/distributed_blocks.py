"""Alignment on a cluster of dask.distributed: blocks of pairs are tasks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dreamwarp.align.block import Aligned, PairedImages, Problem, align_some, split_pairs
from dreamwarp.core.cluster import run_on
from dreamwarp.core.progress import ProgressOption, track

if TYPE_CHECKING:
    from distributed import Client


def align_all_on(
    client: Client, problem: Problem, pairs: PairedImages, keep: bool, progress: ProgressOption
) -> list[Aligned]:
    """Align pairs of images, block by block. Every worker gets all images, once.

    Parameters
    ----------
    keep : bool
        Whether to return all posterior draws.
    """
    blocks = split_pairs(len(pairs), problem.coordinates.dim)
    tasks = [(block, keep) for block in blocks]
    found: dict[int, Aligned] = {}
    with track(len(pairs), "aligning", progress) as advance:
        for place, aligned in run_on(client, align_one, (problem, pairs), tasks):
            found[place] = aligned
            advance(len(aligned.theta))
    return [found[place] for place in range(len(blocks))]


def align_one(shared: tuple[Problem, PairedImages], block: slice, keep: bool) -> Aligned:
    """What a worker does: one block of pairs."""
    problem, pairs = shared
    return align_some(problem, pairs, block, keep, threading.Event())
