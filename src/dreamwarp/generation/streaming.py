"""The samples of :func:`generate`, without files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from dreamwarp.augment.source import Balance, SampleSource, check_range
from dreamwarp.core.draws import Seed
from dreamwarp.core.validation import check_integer
from dreamwarp.data.dataset import DataSet
from dreamwarp.generation.shards import Shard
from dreamwarp.model import WarpModel
from dreamwarp.space.resample import Interpolation

Batch = tuple[NDArray[Any], NDArray[Any]]


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
) -> Iterator[Batch]:
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
