"""Samples at scale: written in shards, so that writing can be stopped and resumed, or streamed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dreamwarp.augment.source import SampleSource, check_range
from dreamwarp.core import compiled
from dreamwarp.core.cluster import run_on
from dreamwarp.core.defaults import Balance, Format
from dreamwarp.core.draws import Seed
from dreamwarp.core.progress import ProgressOption, track, without_callback
from dreamwarp.core.validation import check_integer
from dreamwarp.data.dataset import DataSet
from dreamwarp.data.sample_sets import MANIFEST
from dreamwarp.generation.formats import ShardFormat, make_format
from dreamwarp.generation.manifest import (
    Digests,
    Manifest,
    new_manifest,
    read_manifest,
    refuse_difference,
    write_manifest,
)
from dreamwarp.generation.shards import Shard, block_size, make_plan
from dreamwarp.generation.stores import Store, check_room, open_store
from dreamwarp.generation.verification import check_all
from dreamwarp.model import WarpModel
from dreamwarp.space.resample import Interpolation

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class Generated:
    """A complete set of samples."""

    out: str
    n: int
    n_shards: int
    n_made: int  # shards made by this run
    n_samples_made: int
    seconds: float  # taken by this run


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
    interpolation: Interpolation = "linear",
    shard_size: int | None = None,
    resume: bool = False,
    client: Client | None = None,
    progress: ProgressOption = None,
    n_threads: int | None = None,
) -> Generated:
    """Write a set of new samples: data warped by draws from a model.

    Sample k depends only on the seed and k. On one type of processor the files are bit-identical
    for any number of threads or machines, and after interruptions; for other processors see
    :class:`~dreamwarp.augment.SampleSource`. Memory use does not grow with ``n``.

    Parameters
    ----------
    model : WarpModel
    data : DataSet, or pair (X, y)
        Samples to warp.
    out : path or URL
        A new or empty folder, or a URL that fsspec supports, such as ``s3://bucket/folder``.
    n, per_class : int
        Total number of samples, or number per class. Give one of the two.
    format : {"idx", "npz", "parquet", "webdataset", "folder", "nifti"}
    seed : int, numpy.random.Generator or None
    first : int
        Number of the first sample.
    strength : float, optional
        Factor on the learned warps. Default: the one that the model recommends.
    balance : {"classes", "data"}
        Classes take turns, or are drawn with their frequencies in the data.
    interpolation : {"linear", "nearest", "cubic"}
        How values between pixels are computed. Networks do better on ``"cubic"``, which is sharper.
    shard_size : int, optional
        Samples per shard. Default: 100,000, or fewer if they take more than 128 MB.
    resume : bool
        Complete a set that was begun with the same settings: verify its shards, and make only
        those that are missing or damaged.
    client : distributed.Client, optional
        Make shards on a cluster, whose workers must be able to write to ``out``.
    progress : bool or callable, optional
        False: none. A callable is called with (samples done, total). Default: a bar on a terminal
        or in a notebook, occasional lines in a log.
    n_threads : int, optional
        Default: every core that ``NUMBA_NUM_THREADS`` allows. Ignored on a cluster.

    Raises
    ------
    OSError
        If ``out`` holds other files, or files can't be written. Complete shards are kept, and the
        set can be resumed.
    """
    source = SampleSource(
        model, data, seed=seed, strength=strength, balance=balance, interpolation=interpolation
    )
    plan = make_plan(first, _count(n, per_class, source, balance), shard_size, source.form)
    file_format, store = make_format(format, source.form), open_store(out)
    n_threads = compiled.thread_count(n_threads)
    with store.claim():
        manifest = _find_manifest(store, new_manifest(source, plan, file_format), resume)
        with _explained(store, manifest):
            states = check_all(store, manifest, without_callback(progress), n_threads)
            shards = [plan[k] for k, state in enumerate(states) if state != "sound"]
            for shard in shards:
                manifest.shards[shard.number] = None
            store.sweep()
        n_samples_made = sum(shard.n for shard in shards)
        check_room(store, file_format.count_bytes(n_samples_made), f"{n_samples_made:,} samples")
        start = time.perf_counter()
        with _explained(store, manifest):
            with track(plan.n, "samples", progress) as advance:
                advance(plan.n - n_samples_made)
                if client is None:
                    made = make_shards(
                        source, file_format, store, shards, advance, n_threads=n_threads
                    )
                else:
                    made = _make_on_cluster(client, source, file_format, store, shards, advance)
                write_manifest(store, manifest)
                with closing(made):
                    for shard, digests in made:
                        manifest.shards[shard.number] = digests
                        write_manifest(store, manifest)
            seconds = time.perf_counter() - start
            store.sweep()
    return Generated(store.title, plan.n, len(plan), len(shards), n_samples_made, seconds)


def stream(
    model: WarpModel,
    data: DataSet | tuple[Any, Any],
    *,
    seed: Seed = 0,
    first: int = 0,
    n: int | None = None,
    batch_size: int = 256,
    strength: float | None = None,
    balance: Balance = "classes",
    interpolation: Interpolation = "linear",
    n_threads: int | None = None,
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield batches of new samples and their labels, made on demand.

    Sample k is the same as that of :func:`generate` with the same model, data, seed, strength,
    balance and interpolation, for any batch size.

    Parameters
    ----------
    n : int, optional
        Number of samples; the last batch may be smaller. Default: endless.
    others
        As for :func:`generate`.

    Yields
    ------
    X : (batch_size, ...), as in the data
    y : (batch_size,)

    Examples
    --------
    >>> for X, y in dw.stream(model, dw.data.mnist(), seed=0, batch_size=128):
    ...     train(X, y)
    """
    source = SampleSource(
        model, data, seed=seed, strength=strength, balance=balance, interpolation=interpolation
    )
    whole = Shard(0, *check_range(first, n))
    size = check_integer("batch_size", batch_size, 1)
    # A generator expression, so that the checks above run at once, not at the first batch.
    return (source.make(*block, n_threads=n_threads) for block in whole.blocks(size))


# -- making shards

Advance = Callable[[int], None]
Made = Generator[tuple[Shard, Digests], None, None]


def make_shards(
    source: SampleSource,
    file_format: ShardFormat,
    store: Store,
    shards: Sequence[Shard],
    advance: Advance,
    *,
    n_threads: int,
) -> Made:
    """Make shards in order: threads make blocks, and this thread writes them.

    ``advance`` is called with the number of samples of each block. Yields each complete shard and
    the hashes of its files.
    """
    size = block_size(source.form)
    blocks = (block for shard in shards for block in shard.blocks(size))

    def encode(block: tuple[int, int]) -> Any:
        first, n = block
        return file_format.encode(first, *source.make(first, n, n_threads=1))

    with closing(compiled.map_ahead(encode, blocks, n_threads)) as encoded:
        for shard in shards:
            digests: Digests = {}
            with file_format.create(store, shard, digests) as add:
                for _, n in shard.blocks(size):
                    add(next(encoded))
                    advance(n)
            yield shard, {name: digests[name] for name in file_format.names(shard)}


def _make_on_cluster(
    client: Client,
    source: SampleSource,
    file_format: ShardFormat,
    store: Store,
    shards: Sequence[Shard],
    advance: Advance,
) -> Made:
    """:func:`make_shards` by the workers of a cluster, in the order of completion."""
    tasks = [(file_format, store, shard) for shard in shards]
    for place, digests in run_on(client, _make_one, source, tasks):
        _check_visible(store, digests)
        advance(shards[place].n)
        yield shards[place], digests


def _make_one(
    source: SampleSource, file_format: ShardFormat, store: Store, shard: Shard
) -> Digests:
    """Make one shard on a worker, on one thread."""
    ((_, digests),) = make_shards(source, file_format, store, [shard], lambda _: None, n_threads=1)
    return digests


def _check_visible(store: Store, digests: Digests) -> None:
    """Raise if files written by a worker can't be opened here."""
    for name in digests:
        try:
            store.open(name).close()
        except FileNotFoundError:
            raise OSError(
                f"a worker has written {name}, which can't be seen from here. Use an output folder "
                "or address that all machines share."
            ) from None


# -- existing sets


def _find_manifest(store: Store, wanted: Manifest, resume: bool) -> Manifest:
    """The manifest of the set to resume; ``wanted`` if the folder is empty."""
    names = store.names()
    if MANIFEST not in names:
        if names:
            raise FileExistsError(
                f"`{store.title}` must be a new or empty folder, but holds {names[0]}"
                f"{' and more' if len(names) > 1 else ''}, not a set of samples. Choose "
                "another folder."
            )
        return wanted
    found = read_manifest(store)
    if not resume:
        raise FileExistsError(
            f"`{store.title}` holds a set of samples, {found.n_done} of {len(found.shards)} "
            "shards. Complete it with `--resume` (`resume=True`), or choose another folder."
        )
    refuse_difference(store, found, wanted)
    return found


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
    return check_integer("per_class", per_class, 1) * len(source.form.classes)


@contextmanager
def _explained(store: Store, manifest: Manifest) -> Iterator[None]:
    """Add to an OSError how many shards are done, and how to resume."""
    try:
        yield
    except OSError as error:
        cause = str(error.strerror or error).rstrip(".")
        raise OSError(
            f"`{store.title}` could not be completed: {cause}. {manifest.n_done} of "
            f"{len(manifest.shards)} shards are done. Fix the cause, then continue with "
            "`--resume` (`resume=True`)."
        ) from error
