"""Generation on a cluster of dask.distributed: shards are tasks, and workers write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dreamwarp.augment.source import SampleSource
from dreamwarp.core.cluster import run_on
from dreamwarp.generation.formats import ShardFormat
from dreamwarp.generation.generating import Advance, Made, make_shards
from dreamwarp.generation.manifest import Digests
from dreamwarp.generation.shards import Shard
from dreamwarp.generation.stores import Store

if TYPE_CHECKING:
    from distributed import Client


def make_shards_on(
    client: Client,
    source: SampleSource,
    file_format: ShardFormat,
    store: Store,
    shards: Sequence[Shard],
    advance: Advance,
) -> Made:
    """:func:`make_shards` by the workers of a cluster, in the order in which they end."""
    tasks = [(file_format, store, shard) for shard in shards]
    for place, digests in run_on(client, make_one, source, tasks):
        _check_there(store, digests)
        advance(shards[place].n)
        yield shards[place], digests


def make_one(source: SampleSource, file_format: ShardFormat, store: Store, shard: Shard) -> Digests:
    """What a worker does: one shard, on the thread that dask gives it."""
    ((_, digests),) = make_shards(
        source, file_format, store, [shard], lambda amount: None, n_threads=1
    )
    return digests


def _check_there(store: Store, digests: Digests) -> None:
    """Raise if files of a worker can't be seen from here."""
    for name in digests:
        try:
            store.open(name).close()
        except FileNotFoundError:
            raise OSError(
                f"a worker has written {name} where it can't be seen from here, and the place must "
                "be one that all machines share"
            ) from None
