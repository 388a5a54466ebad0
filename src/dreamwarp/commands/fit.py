"""``dreamwarp fit``: learn the warps of each class, and keep them in a model file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dreamwarp.commands.models import check_place, save_model
from dreamwarp.commands.options import (
    FieldsOption,
    PadOption,
    ResizeOption,
    ShapeOption,
    connected,
    data_options,
    parse_amount,
    parse_cells,
    refuse_empty,
)

if TYPE_CHECKING:
    from dreamwarp.data import DataSet


def fit(
    data: Annotated[
        str,
        typer.Argument(
            help="A name, file or folder, as for `dreamwarp data`. The part to learn from is "
            "taken.",
            show_default=False,
            callback=refuse_empty,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="Model file to write: .dwm. A path, or an address that fsspec knows.",
            show_default=False,
            callback=refuse_empty,
        ),
    ],
    cells: Annotated[
        str, typer.Option(help="Cells per spatial axis: 16 for signals, 4x4 for images, 4x4x4.")
    ] = "4x4",
    boundary: Annotated[
        Literal["zero", "slip", "free", "periodic"], typer.Option(help="What warps do at borders.")
    ] = "zero",
    neighbors: Annotated[
        int, typer.Option(min=1, help="Neighbours in its class that each sample is aligned with.")
    ] = 5,
    method: Annotated[
        Literal["map", "laplace", "metropolis", "hmc"],
        typer.Option(help="How pairs are aligned: metropolis is the paper's way, map the fastest."),
    ] = "map",
    kind: Annotated[
        Literal["gaussian", "low-rank", "kde", "template"],
        typer.Option(help="Kind of distribution: gaussian is the paper's."),
    ] = "gaussian",
    strength: Annotated[
        str,
        typer.Option(help="Factor on the warps; auto: the one that does best on held-out samples."),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Fixes all that is random.")] = 0,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Address of a dask scheduler whose workers align the pairs. By default threads "
            "of this process do.",
            show_default=False,
        ),
    ] = None,
    fields: FieldsOption = None,
    shape: ShapeOption = None,
    resize: ResizeOption = None,
    pad: PadOption = None,
) -> None:
    """Learn how the members of each class deform into one another, and write a model file.

    [bold]Examples[/bold]

    dreamwarp fit mnist -o digits.dwm

    dreamwarp fit leaves/ -o leaves.dwm --resize 64x64 --cells 6x6 --neighbors 8 --kind template

    dreamwarp fit mnist -o digits.dwm --method metropolis --scheduler tcp://10.0.0.1:8786
    """
    from dreamwarp.augment import Augmenter
    from dreamwarp.data import load

    augmenter = Augmenter(
        cells=parse_cells(cells), boundary=boundary, n_neighbors=neighbors, method=method,
        model=kind, strength=parse_amount("strength", strength), seed=seed,
    )  # fmt: skip
    options = data_options(fields, shape, resize, pad)
    check_place(output)
    samples = load(data, **options)
    check_axes(samples, cells)
    typer.echo(samples.describe())
    with connected(scheduler) as client:
        augmenter.fit(samples.X, samples.y, client=client)
    save_model(augmenter.model_, output)
    typer.echo(str(augmenter.verdict_))
    typer.echo(
        f"{len(augmenter.edges_):,} pairs aligned, strength {augmenter.strength_:g}; model written "
        f"to {output}"
    )


def check_axes(samples: DataSet, cells: str) -> None:
    """Refuse samples with fewer axes than warps need, in the command line's words."""
    n_axes, shape = len(parse_cells(cells)), samples.X.shape[1:]
    if len(shape) < n_axes:
        raise ValueError(
            f"`{samples.name}` has samples of shape {shape}, and warps of {cells} cells need "
            f"{n_axes} axes. Use `--shape 28x28` for images stored flat, `--cells 16` for signals."
        )
