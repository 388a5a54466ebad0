"""``dreamwarp sample``: any number of new samples, as files of many formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dreamwarp.commands.interruption import resumable
from dreamwarp.commands.models import load_model
from dreamwarp.commands.options import (
    OUTPUT,
    WARPS,
    FieldsOption,
    MissingOption,
    PadOption,
    ResizeOption,
    SeedOption,
    ShapeOption,
    connected,
    data_options,
    refuse_empty,
)
from dreamwarp.core.files import is_address

if TYPE_CHECKING:
    from dreamwarp.data import DataSet
    from dreamwarp.generation import Generated
    from dreamwarp.generation.generating import Format
    from dreamwarp.model import WarpModel

MAX_SAMPLES = 2**62
MESHES_AT_A_TIME = 100


def sample(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Model file that `dreamwarp fit` wrote: a path or an address.",
            show_default=False,
            callback=refuse_empty,
        ),
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Samples to warp: what the model was fitted to. A name, file or folder, as for "
            "`dreamwarp data`.",
            show_default=False,
            callback=refuse_empty,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the files, or an address that fsspec knows, such as s3://bucket/set.",
            show_default=False,
            rich_help_panel=OUTPUT,
            callback=refuse_empty,
        ),
    ],
    n: Annotated[
        int | None,
        typer.Option(
            "--number",
            "-n",
            metavar="N",
            min=1,
            max=MAX_SAMPLES,
            help="How many samples.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    per_class: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MAX_SAMPLES,
            help="How many samples of each class, instead of --number.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    format: Annotated[
        Literal["idx", "npz", "parquet", "webdataset", "folder"] | None,
        typer.Option(
            help="Format of the files. By default folder for image folders and parquet for Parquet "
            "files; else idx where labels are whole numbers, and npz where they are words.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with a set: check what is there, and make what is missing.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    seed: SeedOption = 0,
    first: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=MAX_SAMPLES,
            help="Number of the first sample.",
            rich_help_panel=OUTPUT,
        ),
    ] = 0,
    strength: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Factor on the learned warps. By default the one that the model recommends.",
            show_default=False,
            rich_help_panel=WARPS,
        ),
    ] = None,
    balance: Annotated[
        Literal["classes", "data"],
        typer.Option(
            help="Whether classes take turns, or come as often as in the data.",
            rich_help_panel=OUTPUT,
        ),
    ] = "classes",
    shard_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Samples per file. By default 100,000, or fewer of a large kind.",
            show_default=False,
            rich_help_panel=OUTPUT,
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
    fields: FieldsOption = None,
    shape: ShapeOption = None,
    resize: ResizeOption = None,
    pad: PadOption = None,
    missing: MissingOption = None,
) -> None:
    """Write new samples: data warped at random, by the warps that a model has learned.

    Sample k depends on the seed and k alone: the files are the same whatever the number of cores
    or machines. A run that was stopped goes on with --resume; `dreamwarp verify` checks the files.

    [bold]Examples[/bold]

    dreamwarp sample digits.dwm mnist -n 10000000 -o alignmnist

    dreamwarp sample digits.dwm mnist -n 10000000 -o alignmnist --resume

    dreamwarp sample leaves.dwm leaves/ --resize 64x64 --per-class 500 -o more

    dreamwarp sample digits.dwm mnist -n 10000000 -o s3://bucket/set --scheduler tcp://10.0.0.1:8786
    """
    from dreamwarp.data import load
    from dreamwarp.data.readers import are_meshes
    from dreamwarp.generation import generate

    if (n is None) == (per_class is None):
        raise typer.BadParameter("give either --number or --per-class")
    options = data_options(fields, shape, resize, pad, missing)
    if are_meshes(data):
        sample_meshes(
            load_model(model), data, output, (n, per_class), seed=seed, first=first,
            strength=strength,
        )  # fmt: skip
        return
    warps, templates = load_model(model), load(data, **options)
    chosen = format or choose_format(data, templates)
    total = n if n is not None else (per_class or 0) * len(templates.classes)
    typer.echo(
        f"samples {first:,} to {first + total - 1:,} of {templates.name} as {chosen}, "
        f"seed {seed}, strength {warps.strength if strength is None else strength:g}"
    )
    with (
        resumable("what is done is kept: go on with the same command and `--resume`"),
        connected(scheduler) as client,
    ):
        done = generate(
            warps, templates, output, n=n, per_class=per_class, format=chosen, seed=seed,
            first=first, strength=strength, balance=balance, shard_size=shard_size,
            resume=resume, client=client,
        )  # fmt: skip
    typer.echo(summarize(done))


def sample_meshes(
    model: WarpModel,
    data: str,
    output: str,
    total: tuple[int | None, int | None],
    **options: Any,
) -> None:
    """Write meshes, in the format of those that they are made of."""
    from dreamwarp.augment.shapes import sample_shapes
    from dreamwarp.core.files import refuse_address
    from dreamwarp.data import load_shapes
    from dreamwarp.data.meshes import SUFFIXES
    from dreamwarp.generation.shape_files import write_shapes

    refuse_address(output)
    normalize = model.settings.get("shapes", "set")
    shapes = load_shapes(data, normalize="each" if normalize == "each" else "set")
    n, per_class = total
    count = n if n is not None else (per_class or 0) * len(shapes.classes)
    suffix = next(s for s in SUFFIXES if any(Path(data).rglob(f"*{s}")))
    # In parts: meshes are large, and those written need not stay in memory.
    for first in range(0, count, MESHES_AT_A_TIME):
        some = options | {"first": options["first"] + first}
        made = sample_shapes(model, shapes, min(MESHES_AT_A_TIME, count - first), **some)
        write_shapes(made, output, suffix=suffix, first=some["first"])
    typer.echo(f"{count:,} meshes in {output}, a folder per class")


def choose_format(source: str, data: DataSet) -> Format:
    """The format that data of this kind is kept in or, if it can't be, one that holds it."""
    from dreamwarp.augment.source import SampleForm
    from dreamwarp.data.readers import PARQUET, PICTURES, SUFFIXES, find_kind
    from dreamwarp.generation.formats import first_that_holds

    suffix = Path(source).suffix.lower()
    kind = SUFFIXES.get(suffix) if is_address(source) else find_kind(source)
    own: tuple[Format, ...] = ("folder",) if kind is PICTURES else ()
    own = ("parquet",) if kind is PARQUET else own
    form = SampleForm(data.X.shape[1:], data.X.dtype.newbyteorder("="), data.classes)
    return first_that_holds(form, (*own, "idx", "npz"))


def summarize(done: Generated) -> str:
    """What a run has made, in a line."""
    kept = done.n_shards - done.n_made
    checked = f", {kept:,} were there and sound" if kept else ""
    rate = f": {done.n_samples_made / done.seconds:,.0f} samples per second" if done.n_made else ""
    return (
        f"{done.n:,} samples in {done.out}, {done.n_shards:,} shards{checked}; "
        f"{done.n_made:,} made in {done.seconds:.1f} s{rate}"
    )
