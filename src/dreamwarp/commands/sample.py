"""``dreamwarp sample``: write new samples to files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dreamwarp.commands import options
from dreamwarp.commands.interruption import resumable
from dreamwarp.commands.models import load_with_data
from dreamwarp.core.defaults import Balance, Format
from dreamwarp.core.files import is_address, refuse_address
from dreamwarp.core.progress import track

if TYPE_CHECKING:
    from dreamwarp.data import DataSet, ShapeSet
    from dreamwarp.generation import Generated

MESHES_AT_A_TIME = 100


@options.reads_data
def sample(
    model: options.Model,
    data: options.Data,
    output: Annotated[
        str,
        options.output_path(
            help="Folder for the files, or a URL that fsspec supports, such as s3://bucket/set."
        ),
    ],
    n: Annotated[int | None, options.count("--number", "-n", help="Number of samples.")] = None,
    per_class: Annotated[
        int | None, options.count(help="Number of samples per class, instead of --number.")
    ] = None,
    format: Annotated[
        Format | None,
        options.output(
            help="File format. Default: folder for image folders, nifti for folders of volumes, "
            "parquet for Parquet files, npz for time series, else idx for integer labels and npz "
            "for strings."
        ),
    ] = None,
    resume: Annotated[
        bool,
        options.output(
            "--resume", help="Continue an interrupted run: check existing files, make the rest."
        ),
    ] = False,
    seed: options.Seed = 0,
    first: Annotated[int, options.count(min=0, help="Number of the first sample.")] = 0,
    strength: options.Strength = None,
    balance: Annotated[
        Balance,
        options.output(help="classes: all equally often; data: as often as in the data."),
    ] = "classes",
    interpolation: Annotated[
        Literal["linear", "nearest", "cubic"],
        options.output(help="Between pixels. Cubic samples are sharper, which suits networks."),
    ] = "linear",
    shard_size: Annotated[
        int | None,
        options.output(
            min=1, help="Samples per file. Default: 100,000, or fewer if samples are large."
        ),
    ] = None,
    scheduler: options.Scheduler = None,
    *,
    reading: options.Reading,
) -> None:
    """Write new samples: the data under random warps drawn from a model.

    For a given model and data, sample k depends only on the seed and k, not on the number of cores
    or machines. Continue an interrupted run with --resume; check the files with `dreamwarp verify`.

    [bold]Examples[/bold]

    dreamwarp sample digits.dwm mnist -n 10000000 -o alignmnist
    dreamwarp sample digits.dwm mnist -n 10000000 -o alignmnist --resume
    dreamwarp sample leaves.dwm leaves/ --resize 64x64 --per-class 500 -o more
    dreamwarp sample digits.dwm mnist -n 10000000 -o s3://bucket/set --scheduler tcp://10.0.0.1:8786
    """
    from dreamwarp.augment.shapes import sample_shapes
    from dreamwarp.data.dataset import list_classes
    from dreamwarp.data.meshes import SUFFIXES
    from dreamwarp.data.shapes import ShapeSet
    from dreamwarp.generation import generate

    if (n is None) == (per_class is None):
        raise typer.BadParameter("give either --number or --per-class")
    fitted, samples = load_with_data(
        model, data, reading,
        only_for_arrays=("format", "balance", "interpolation", "shard_size", "scheduler"),
    )  # fmt: skip
    total = n if n is not None else (per_class or 0) * len(samples.classes)
    if isinstance(samples, ShapeSet):
        make = partial(sample_shapes, fitted, samples, seed=seed, strength=strength)
        files, *_ = list_classes(Path(data), SUFFIXES, "meshes")
        suffix = files[0].suffix.lower()
        write_meshes(make, Path(output), suffix, range(first, first + total), resume=resume)
        typer.echo(f"{total:,} {suffix} meshes in {output}, a folder per class")
        return
    chosen = format or choose_format(data, samples)
    typer.echo(
        f"samples {first:,} to {first + total - 1:,} of {samples.name} as {chosen}, "
        f"seed {seed}, strength {fitted.strength if strength is None else strength:g}"
    )
    with (
        resumable("finished files are kept: run the same command with `--resume` to continue"),
        options.connected(scheduler) as client,
    ):
        done = generate(
            fitted, samples, output, n=n, per_class=per_class, format=chosen, seed=seed,
            first=first, strength=strength, balance=balance, interpolation=interpolation,
            shard_size=shard_size, resume=resume, client=client,
        )  # fmt: skip
    typer.echo(summarize(done))


def write_meshes(
    make: Callable[..., ShapeSet], folder: Path, suffix: str, numbers: range, *, resume: bool
) -> None:
    """Write the meshes with these numbers, some at a time to bound memory."""
    from dreamwarp.generation.formats.folder import write_shapes

    refuse_address(folder)
    if not resume and folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(
            f"`{folder}` must be a new or empty folder, and is not empty. Choose another, or write "
            "over the samples in it with `--resume`."
        )
    with (
        resumable("run the same command with `--resume` to write all meshes again"),
        track(len(numbers), "writing meshes") as advance,
    ):
        for first in numbers[::MESHES_AT_A_TIME]:
            made = make(min(MESHES_AT_A_TIME, numbers.stop - first), first=first)
            write_shapes(made, folder, suffix=suffix, first=first)
            advance(len(made))


def choose_format(source: str, data: DataSet) -> Format:
    """Choose the format of the input or, if it can't hold the samples, one that can."""
    from dreamwarp.augment.source import SampleForm
    from dreamwarp.data.readers import PARQUET, PICTURES, SERIES, SUFFIXES, VOLUMES, find_kind
    from dreamwarp.generation.formats import FORMATS

    own: Any = {PICTURES: "folder", PARQUET: "parquet", SERIES: "npz", VOLUMES: "nifti"}
    suffix = Path(source).suffix.lower()
    kind = SUFFIXES.get(suffix) if is_address(source) else find_kind(source)
    form = SampleForm(data.X.shape[1:], data.X.dtype.newbyteorder("="), data.classes)
    names = ([own[kind]] if kind in own else []) + ["idx"]
    return next((name for name in names if FORMATS[name].find_fault(form) is None), "npz")


def summarize(done: Generated) -> str:
    """Summarize a run in one line."""
    kept = done.n_shards - done.n_made
    checked = f", {kept:,} existing and intact" if kept else ""
    rate = f": {done.n_samples_made / done.seconds:,.0f} samples per second" if done.n_made else ""
    return (
        f"{done.n:,} samples in {done.out}, {done.n_shards:,} shards{checked}; "
        f"{done.n_made:,} made in {done.seconds:.1f} s{rate}"
    )
