"""Verification of sets: finds missing and changed shards."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dreamwarp.core import compiled
from dreamwarp.core.progress import ProgressOption, track
from dreamwarp.generation.manifest import Manifest, read_manifest
from dreamwarp.generation.stores import Store, open_store


@dataclass(frozen=True)
class Verification:
    """Numbers of the missing and of the damaged shards of a set."""

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
    """Compare the hashes of all shards of a set, the output of :func:`generate`, with its manifest.

    ``progress`` as for :func:`generate`, in shards.
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
            return number, "sound" if is_same else "damaged"
        except FileNotFoundError:
            return number, "missing"
        except ValueError:
            return number, "damaged"

    states = []
    with track(len(plan), "verifying", progress) as advance:
        for state in compiled.map_ahead(check, range(len(plan)), compiled.thread_count(n_threads)):
            states.append(state)
            advance(1)
    return states
