"""``dreamwarp sample``: any number of new samples, as files of many formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dreamwarp.commands.infimnist import show_progress

if TYPE_CHECKING:
    from dreamwarp.augment import Generated

MAX_SAMPLES = 2**62


def sample(
    model: Annotated[
        Path, typer.Argument(help="Model file that `dreamwarp fit` wrote.", show_default=False)
    ],
    data: Annotated[
        str,
        typer.Argument(
            help="Samples to warp: what the model was fitted to. A name, file or folder, as for "
            "`dreamwarp data`.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the files, or an address that fsspec knows, such as s3://bucket/set.",
            show_default=False,
        ),
    ],
    n: Annotated[
        int | None,
        typer.Option(
            "--number", "-n", min=1, max=MAX_SAMPLES, help="How many samples.", show_default=False
        ),
    ] = None,
    per_class: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_SAMPLES,
            help="How many samples of each class, instead of --number.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        Literal["idx", "npz", "parquet", "webdataset", "folder"],
        typer.Option(help="Format of the files."),
    ] = "idx",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with a set: check what is there, and make what is missing."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Fixes all that is random.")] = 0,
    from_index: Annotated[
        int, typer.Option(min=0, max=MAX_SAMPLES, help="Number of the first sample.")
    ] = 0,
    strength: Annotated[
        float, typer.Option(min=0.0, help="What the model's warps are scaled by.")
    ] = 1.0,
    balance: Annotated[
        Literal["classes", "data"],
        typer.Option(help="Whether classes take turns, or come as often as in the data."),
    ] = "classes",
    shard_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Samples per file. By default 100,000, or fewer of a large kind.",
            show_default=False,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Address of a dask scheduler whose workers do the work. By default threads of "
            "this process do.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write new samples: data warped at random, by the warps that a model has learned.

    Sample k depends on the seed and k alone: the files are the same whatever the number of cores
    or machines. A run that was stopped goes on with --resume; `dreamwarp verify` checks the files.

    [bold]Examples[/bold]

    dreamwarp sample digits.dwm mnist -n 10000000 -o alignmnist

    dreamwarp sample digits.dwm mnist -n 10000000 -o alignmnist --resume

    dreamwarp sample leaves.dwm leaves/ --per-class 500 -o more --format folder --strength 0.7

    dreamwarp sample digits.dwm mnist -n 10000000 -o s3://bucket/set --scheduler tcp://10.0.0.1:8786
    """
    from dreamwarp.augment import generate
    from dreamwarp.data import load
    from dreamwarp.model import WarpModel

    if (n is None) == (per_class is None):
        raise typer.BadParameter("give either --number or --per-class")
    warps, templates = WarpModel.load(model), load(data)
    total = n if n is not None else (per_class or 0) * len(templates.classes)
    typer.echo(
        f"samples {from_index:,} to {from_index + total - 1:,} of {templates.name} as {format}, "
        f"seed {seed}, strength {strength:g}"
    )
    with _clients(scheduler) as client, _counted(total) as progress:
        done = generate(
            warps, templates, output, n=n, per_class=per_class, format=format, seed=seed,
            first=from_index, strength=strength, balance=balance, shard_size=shard_size,
            resume=resume, client=client, progress=progress,
        )  # fmt: skip
    typer.echo(summarize(done))


def summarize(done: Generated) -> str:
    """What a run has made, in a line."""
    kept = done.n_shards - done.n_made
    checked = f", {kept:,} were there and sound" if kept else ""
    rate = f": {done.n_samples_made / done.seconds:,.0f} samples per second" if done.n_made else ""
    return (
        f"{done.n:,} samples in {done.out}, {done.n_shards:,} shards{checked}; "
        f"{done.n_made:,} made in {done.seconds:.1f} s{rate}"
    )


@contextmanager
def _clients(scheduler: str | None) -> Iterator[Any]:
    """A client of a scheduler; None without one."""
    if scheduler is None:
        yield None
        return
    from dreamwarp.cluster import connect

    with connect(scheduler) as client:
        yield client


@contextmanager
def _counted(total: int) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, total) that shows rate and time left on a terminal."""
    before = 0
    with show_progress(total) as advance:

        def tell(done: int, total: int) -> None:
            nonlocal before
            advance(done - before)
            before = done

        yield tell
