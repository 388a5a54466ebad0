"""``dreamwarp fit``: learn the warps of each class, and keep them in a model file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dreamwarp.commands.models import check_place, save_model
from dreamwarp.commands.options import (
    ALIGNMENT,
    OUTPUT,
    WARPS,
    BoundaryOption,
    CellsOption,
    FieldsOption,
    LearnedDisplacementOption,
    LengthOption,
    MaxDrawsOption,
    MaxStepsOption,
    MissingOption,
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
from dreamwarp.core.defaults import LENGTH, MAX_DRAWS, MAX_STEPS, N_NEIGHBORS

if TYPE_CHECKING:
    from dreamwarp.data import DataSet

# By the number of spatial axes.
DEFAULT_CELLS = {1: (10,), 2: (4, 4), 3: (3, 3, 3)}


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
    cells: CellsOption = "auto",
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
    displacement: LearnedDisplacementOption = "auto",
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
    missing: MissingOption = None,
) -> None:
    """Learn how the members of each class deform into one another, and write a model file.

    [bold]Examples[/bold]

    dreamwarp fit mnist -o digits.dwm

    dreamwarp fit leaves/ -o leaves.dwm --resize 64x64 --cells 6x6 --neighbors 8

    dreamwarp fit GunPoint/ -o gestures.dwm

    dreamwarp fit scans/ -o scans.dwm --resize 32x32x32

    dreamwarp fit mnist -o paper.dwm --method metropolis --kind gaussian --boundary zero
    """
    from dreamwarp.augment import Augmenter
    from dreamwarp.data import load
    from dreamwarp.data.readers import are_meshes

    options = data_options(fields, shape, resize, pad, missing)
    parsed = None if cells == "auto" else parse_cells(cells)
    check_place(output, overwrite=overwrite)
    factor = parse_amount("strength", strength)
    moved = parse_amount("displacement", displacement)
    if are_meshes(data):
        fit_meshes(
            data, output, cells=parsed, boundary=boundary, n_neighbors=neighbors,
            sigma=parse_amount("sigma", sigma), strength=1.0 if factor == "auto" else factor,
            length=length, seed=seed, **{} if moved == "auto" else {"displacement": moved},
        )  # fmt: skip
        return
    samples = load(data, **options)
    parsed = parsed or choose_cells(samples)
    check_axes(samples, parsed)
    augmenter = Augmenter(
        cells=parsed, boundary=boundary, n_neighbors=neighbors, method=method,
        similarity=similarity, sigma=parse_amount("sigma", sigma), displacement=moved,
        length=length, max_steps=max_steps, max_draws=max_draws, max_pairs=max_pairs, model=kind,
        strength=factor, seed=seed,
    )  # fmt: skip
    typer.echo(f"{samples.describe()}; {in_words(parsed)} cells")
    with connected(scheduler) as client:
        augmenter.fit(samples.X, samples.y, client=client)
    save_model(augmenter.model_, output)
    typer.echo(str(augmenter.verdict_))
    typer.echo(
        f"{len(augmenter.edges_):,} pairs aligned, strength {augmenter.strength_:g}; model written "
        f"to {output}"
    )


def fit_meshes(data: str, output: str, **options: Any) -> None:
    """Learn the warps of meshes."""
    from dreamwarp.augment import ShapeAugmenter
    from dreamwarp.data import load_shapes

    shapes = load_shapes(data)
    typer.echo(shapes.describe())
    augmenter = ShapeAugmenter(**options).fit(shapes)
    save_model(augmenter.model_, output)
    found = augmenter.alignments_
    before, after = (float(loss.mean()) ** 0.5 for loss in (found.loss_before, found.loss_after))
    typer.echo(
        f"{len(found):,} pairs aligned, from {before:.4f} to {after:.4f} of the box apart; model "
        f"written to {output}"
    )


def choose_cells(samples: DataSet) -> tuple[int, ...]:
    """Cells that suit series, images or volumes.

    Rows of as many numbers as a square image has are not taken for series unless it is said.
    """
    from dreamwarp.data.dataset import count_spatial_axes

    shape = samples.X.shape[1:]
    if samples.n_axes is None and len(shape) == 1 and math.isqrt(shape[0]) ** 2 == shape[0]:
        return DEFAULT_CELLS[2]
    return DEFAULT_CELLS[count_spatial_axes(samples)]


def in_words(cells: tuple[int, ...]) -> str:
    """Cells as they are given on the command line."""
    return "x".join(map(str, cells))


def check_axes(samples: DataSet, cells: tuple[int, ...]) -> None:
    """Raise if samples have fewer axes than cells, in the words of the command line."""
    shape = samples.X.shape[1:]
    if len(shape) < len(cells):
        raise ValueError(
            f"`{samples.name}` has samples of shape {shape}, and warps of {in_words(cells)} cells "
            f"need {len(cells)} axes. Use `--shape 28x28` for images stored flat, `--cells 10` for "
            "series."
        )
