"""Verification of sets: finds missing and changed shards."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dreamwarp.core import compiled
from dreamwarp.core.progress import ProgressOption, tracked
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
        [number for number, state in enumerate(states) if state == fault]
        for fault in ("missing", "damaged")
    )
    return Verification(manifest, missing, damaged)


def check_all(
    store: Store, manifest: Manifest, progress: ProgressOption, n_threads: int | None
) -> list[str]:
    """``"sound"``, ``"missing"`` or ``"damaged"`` for every shard."""
    file_format, plan = manifest.format, manifest.plan

    def check(number: int) -> str:
        digests = manifest.shards[number]
        if digests is None:
            return "missing"
        try:
            return "sound" if file_format.digests(store, plan[number]) == digests else "damaged"
        except FileNotFoundError:
            return "missing"
        except ValueError:
            return "damaged"

    states = compiled.map_ahead(check, range(len(plan)), compiled.thread_count(n_threads))
    return list(tracked(states, len(plan), "verifying", progress))
