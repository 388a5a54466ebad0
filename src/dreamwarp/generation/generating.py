"""Generation at scale: a set of samples on disk, in shards, that can be stopped and resumed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from dreamwarp.augment.source import Balance, SampleSource
from dreamwarp.core import compiled
from dreamwarp.core.draws import Seed
from dreamwarp.core.progress import ProgressOption, track
from dreamwarp.core.validation import check_whole
from dreamwarp.data.dataset import DataSet
from dreamwarp.data.sample_sets import MANIFEST
from dreamwarp.generation.ahead import map_ahead
from dreamwarp.generation.formats import ShardFormat, make_format
from dreamwarp.generation.manifest import (
    Digests,
    Manifest,
    new_manifest,
    read_manifest,
    refuse_difference,
    write_manifest,
)
from dreamwarp.generation.shards import Shard, make_plan
from dreamwarp.generation.stores import Store, open_store
from dreamwarp.generation.verification import check_all
from dreamwarp.model import WarpModel

if TYPE_CHECKING:
    from distributed import Client

Format = Literal["idx", "npz", "parquet", "webdataset", "folder"]


@dataclass(frozen=True)
class Generated:
    """A set of samples that is complete.

    Attributes
    ----------
    out : str
    n : int
        Samples in it.
    n_shards, n_made : int
        Shards in it, and how many of them this run has made.
    n_samples_made : int
    seconds : float
        Time that making those took.
    """

    out: str
    n: int
    n_shards: int
    n_made: int
    n_samples_made: int
    seconds: float


def generate(
    model: WarpModel,
    data: DataSet | tuple[Any, Any],
    out: str | os.PathLike[str],
    *,
    n: int | None = None,
    per_class: int | None = None,
    format: Format = "idx",
    seed: Seed = 0,
    first: int = 0,
    strength: float | None = None,
    balance: Balance = "classes",
    shard_size: int | None = None,
    resume: bool = False,
    client: Client | None = None,
    progress: ProgressOption = None,
    n_threads: int | None = None,
) -> Generated:
    """Write a set of new samples: data warped by draws from a model.

    Sample k depends on the seed and k alone. On one kind of processor the files are the same to the
    bit, whatever the number of threads or machines, and whether the run was interrupted or not;
    for others see :class:`~dreamwarp.augment.SampleSource`. Memory stays bounded whatever ``n``.

    Parameters
    ----------
    model : WarpModel
    data : DataSet, or pair (X, y)
        Samples to warp.
    out : path or address
        A folder that is empty or not there, or anything fsspec knows, such as
        ``s3://bucket/folder``.
    n, per_class : int
        How many samples in all, or of each class. Give one of the two.
    format : {"idx", "npz", "parquet", "webdataset", "folder"}
    seed : int, numpy.random.Generator or None
    first : int
        Number of the first sample.
    strength : float, optional
        Factor on the learned warps. Default: the one that the model recommends.
    balance : {"classes", "data"}
        Whether classes take turns, or come at random as often as they do in the data.
    shard_size : int, optional
        Samples per shard. Default: 100,000, or fewer if they take more than 128 MB.
    resume : bool
        Go on with a set that was begun with the same settings: shards that are there are checked,
        and only the others are made.
    client : distributed.Client, optional
        Have the workers of a cluster make the shards. They must be able to write to ``out``.
    progress : bool or callable, optional
        False: none. A function of (samples done, samples in all) is called. Default: a bar on a
        terminal or in a notebook, now and then a line in a log.
    n_threads : int, optional
        Default: every core that ``NUMBA_NUM_THREADS`` allows. On a cluster its own threads count.

    Returns
    -------
    Generated

    Raises
    ------
    FileExistsError
        If ``out`` holds something else, or a set and ``resume`` is not given.
    ValueError
        If a set that is to be resumed was made with other settings, or anything asked for can't be.
    OSError
        If files can't be written. What has been made stays, and can be resumed.
    """
    source = SampleSource(model, data, seed=seed, strength=strength, balance=balance)
    plan = make_plan(first, _count(n, per_class, source, balance), shard_size, source.form)
    file_format, store = make_format(format, source.form), open_store(out)
    file_format.check_size(plan[0].n)
    compiled.thread_count(n_threads)  # raises if it is no number of threads
    with store.claim():
        manifest = _find_manifest(store, new_manifest(source, plan, file_format), resume)
        with _explained(store, manifest):
            shards = [plan[k] for k in _find_unsound(store, manifest, progress, n_threads)]
            store.sweep()
        n_made = sum(shard.n for shard in shards)
        _check_room(store, file_format, n_made)
        start = time.perf_counter()
        with _explained(store, manifest):
            with track(plan.n, "samples", progress) as advance:
                advance(plan.n - n_made)
                maker = _choose_maker(client, n_threads)
                _make_missing(store, manifest, maker(source, file_format, store, shards, advance))
            seconds = time.perf_counter() - start
            store.sweep()
    return Generated(store.title, plan.n, len(plan), len(shards), n_made, seconds)


# -- making shards

Advance = Callable[[int], None]
Made = Generator[tuple[Shard, Digests], None, None]
Maker = Callable[[SampleSource, ShardFormat, Store, Sequence[Shard], Advance], Made]


def _make_missing(store: Store, manifest: Manifest, made: Made) -> None:
    """Make shards, and add each to the manifest once it is complete."""
    write_manifest(store, manifest)
    with closing(made):
        for shard, digests in made:
            manifest.shards[shard.number] = digests
            write_manifest(store, manifest)


def _choose_maker(client: Client | None, n_threads: int | None) -> Maker:
    if client is None:
        return partial(make_shards, n_threads=compiled.thread_count(n_threads))
    from dreamwarp.generation.distributed_shards import make_shards_on

    return partial(make_shards_on, client)


def make_shards(
    source: SampleSource,
    file_format: ShardFormat,
    store: Store,
    shards: Iterable[Shard],
    advance: Advance,
    *,
    n_threads: int,
) -> Made:
    """Make shards one after the other; threads make blocks while this one writes them.

    Parameters
    ----------
    advance : callable
        Told the number of samples after each block.

    Yields
    ------
    Shard and the hashes of its files, once it is there.
    """
    shards = list(shards)
    size = source.form.block_size
    blocks = (block for shard in shards for block in shard.blocks(size))

    def encode(block: tuple[int, int]) -> Any:
        first, n = block
        return file_format.encode(first, *source.make(first, n, n_threads=1))

    with closing(map_ahead(encode, blocks, n_threads)) as encoded:
        for shard in shards:
            with file_format.create(store, shard) as writing:
                for _, n in shard.blocks(size):
                    writing.add(next(encoded))
                    advance(n)
            yield shard, {name: writing.digests[name] for name in file_format.names(shard)}


# -- what is there


def _find_manifest(store: Store, wanted: Manifest, resume: bool) -> Manifest:
    """The manifest of the set to resume; ``wanted`` if the folder is empty."""
    names = store.names()
    if MANIFEST not in names:
        if names:
            raise FileExistsError(
                f"`{store.title}` must be empty or not there, and holds {names[0]}"
                f"{' and more' if len(names) > 1 else ''}, which is no set of samples. Choose "
                "another folder."
            )
        return wanted
    found = read_manifest(store)
    if not resume:
        raise FileExistsError(
            f"`{store.title}` holds a set of samples, {found.n_done} of {len(found.shards)} shards "
            "of it. Complete it with `--resume` (`resume=True`), or choose another folder."
        )
    refuse_difference(store, found, wanted)
    return found


def _find_unsound(
    store: Store, manifest: Manifest, progress: ProgressOption, n_threads: int | None
) -> list[int]:
    """Numbers of the shards to make; they are removed from the manifest."""
    quiet = False if progress is False or callable(progress) else progress
    states = check_all(store, manifest, quiet, n_threads)
    unsound = [number for number, state in states if state != "sound"]
    for number in unsound:
        manifest.shards[number] = None
    return unsound


# -- checks


def _count(n: int | None, per_class: int | None, source: SampleSource, balance: Balance) -> Any:
    """Total number of samples."""
    if (n is None) == (per_class is None):
        raise ValueError("give either `n`, samples in all, or `per_class`, samples of each class.")
    if per_class is None:
        return n
    if balance != "classes":
        raise ValueError(
            f"`per_class` needs classes that take turns, `balance='classes'`, got {balance!r}."
        )
    return check_whole("per_class", per_class, 1) * len(source.form.classes)


def _check_room(store: Store, file_format: ShardFormat, n: int) -> None:
    n_needed, n_free = file_format.count_bytes(n), store.count_free()
    if n_needed is not None and n_free is not None and n_needed > n_free:
        raise OSError(
            f"`{store.title}` must have room for {n:,} samples, {_show_size(n_needed)}, and has "
            f"{_show_size(n_free)}. Ask for fewer, or choose another disk."
        )


def _show_size(n_bytes: int) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:,.1f} {name}"
    return f"{n_bytes / 1e3:,.1f} kB"


@contextmanager
def _explained(store: Store, manifest: Manifest) -> Iterator[None]:
    """Add to errors of the disk how many shards are done, and how to resume."""
    try:
        yield
    except OSError as error:
        cause = str(error.strerror or error).rstrip(".")
        raise OSError(
            f"`{store.title}` could not be completed: {cause}. {manifest.n_done} of "
            f"{len(manifest.shards)} shards are done. Put the cause right, and go on with "
            "`--resume` (`resume=True`)."
        ) from error
