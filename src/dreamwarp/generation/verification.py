"""Verification of sets: finds missing and changed shards."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dreamwarp.core import compiled
from dreamwarp.core.progress import ProgressOption, track
from dreamwarp.generation.ahead import map_ahead
from dreamwarp.generation.manifest import Manifest, read_manifest
from dreamwarp.generation.stores import Store, open_store


@dataclass(frozen=True)
class Verification:
    """Missing and damaged shards of a set.

    Attributes
    ----------
    manifest : Manifest
    missing, damaged : list of int
        Numbers of the shards.
    """

    manifest: Manifest
    missing: list[int]
    damaged: list[int]

    @property
    def is_sound(self) -> bool:
        """Whether no shard is missing or damaged."""
        return not self.missing and not self.damaged


def verify(
    out: str | os.PathLike[str], *, progress: ProgressOption = None, n_threads: int | None = None
) -> Verification:
    """Compare the hashes and sizes of all shards of a set with its manifest.

    Parameters
    ----------
    out : path or URL
        Output of :func:`generate`.
    progress : bool or callable, optional
        A progress bar, or a function of (shards done, total).
    n_threads : int, optional
    """
    store = open_store(out)
    manifest = read_manifest(store)
    states = check_all(store, manifest, progress, n_threads)
    missing, damaged = (
        [number for number, state in states if state == kind] for kind in ("missing", "damaged")
    )
    return Verification(manifest, missing, damaged)


def check_all(
    store: Store, manifest: Manifest, progress: ProgressOption, n_threads: int | None
) -> list[tuple[int, str]]:
    """Number of every shard, and ``"sound"``, ``"missing"`` or ``"damaged"``."""
    file_format, plan = manifest.format, manifest.plan

    def check(number: int) -> tuple[int, str]:
        shard, digests = plan[number], manifest.shards[number]
        if digests is None:
            return number, "missing"
        try:
            is_same = file_format.digests(store, shard) == digests
            is_sound = is_same and file_format.holds(store, shard)
            return number, "sound" if is_sound else "damaged"
        except FileNotFoundError:
            return number, "missing"
        except ValueError:
            return number, "damaged"

    states = []
    with track(len(plan), "verifying", progress) as advance:
        for state in map_ahead(check, range(len(plan)), compiled.thread_count(n_threads)):
            states.append(state)
            advance(1)
    return states
