"""``dreamwarp fit``: learn the warps of each class, and keep them in a model file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dreamwarp.commands.models import check_place, save_model
from dreamwarp.commands.options import (
    ALIGNMENT,
    OUTPUT,
    WARPS,
    BoundaryOption,
    CellsOption,
    DisplacementOption,
    FieldsOption,
    LengthOption,
    MaxDrawsOption,
    MaxStepsOption,
    OverwriteOption,
    PadOption,
    ResizeOption,
    SeedOption,
    ShapeOption,
    SigmaOption,
    SimilarityOption,
    connected,
    data_options,
    parse_amount,
    parse_cells,
    refuse_empty,
)
from dreamwarp.core.defaults import DISPLACEMENT, LENGTH, MAX_DRAWS, MAX_STEPS, N_NEIGHBORS

if TYPE_CHECKING:
    from dreamwarp.data import DataSet


def fit(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
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
            rich_help_panel=OUTPUT,
            callback=refuse_empty,
        ),
    ],
    cells: CellsOption = "4x4",
    boundary: BoundaryOption = "free",
    kind: Annotated[
        Literal["gaussian", "kde", "template"],
        typer.Option(
            help="Kind of distribution of warps: template knows how each sample differs from its "
            "neighbours, gaussian is the paper's.",
            rich_help_panel=WARPS,
        ),
    ] = "template",
    strength: Annotated[
        str,
        typer.Option(
            help="Factor on the warps; auto: the one that does best on held-out samples.",
            rich_help_panel=WARPS,
        ),
    ] = "auto",
    neighbors: Annotated[
        int,
        typer.Option(
            min=1,
            help="Neighbours in its class that each sample is aligned with.",
            rich_help_panel=ALIGNMENT,
        ),
    ] = N_NEIGHBORS,
    method: Annotated[
        Literal["eb", "map", "laplace", "metropolis", "hmc"],
        typer.Option(
            help="How warps are learned. eb: the distribution under which the pairs are likeliest. "
            "map: from the most plausible warp of each pair. The others: from one drawn at random "
            "from its posterior, as metropolis does in the paper, hmc faster, laplace "
            "approximately.",
            rich_help_panel=ALIGNMENT,
        ),
    ] = "eb",
    max_pairs: Annotated[
        int | None,
        typer.Option(
            min=5,
            help="Pairs to align, at most, as many of every class.",
            rich_help_panel=ALIGNMENT,
        ),
    ] = None,
    similarity: SimilarityOption = "ssd",
    sigma: SigmaOption = "auto",
    displacement: DisplacementOption = DISPLACEMENT,
    length: LengthOption = LENGTH,
    max_steps: MaxStepsOption = MAX_STEPS,
    max_draws: MaxDrawsOption = MAX_DRAWS,
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
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

    dreamwarp fit leaves/ -o leaves.dwm --resize 64x64 --cells 6x6 --neighbors 8

    dreamwarp fit mnist -o paper.dwm --method metropolis --kind gaussian --boundary zero
    """
    from dreamwarp.augment import Augmenter
    from dreamwarp.data import load

    augmenter = Augmenter(
        cells=parse_cells(cells), boundary=boundary, n_neighbors=neighbors, method=method,
        similarity=similarity, sigma=parse_amount("sigma", sigma), displacement=displacement,
        length=length, max_steps=max_steps, max_draws=max_draws, max_pairs=max_pairs, model=kind,
        strength=parse_amount("strength", strength), seed=seed,
    )  # fmt: skip
    options = data_options(fields, shape, resize, pad)
    check_place(output, overwrite=overwrite)
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
    """Raise if samples have fewer axes than cells, in the words of the command line."""
    n_axes, shape = len(parse_cells(cells)), samples.X.shape[1:]
    if len(shape) < n_axes:
        raise ValueError(
            f"`{samples.name}` has samples of shape {shape}, and warps of {cells} cells need "
            f"{n_axes} axes. Use `--shape 28x28` for images stored flat, `--cells 16` for signals."
        )
