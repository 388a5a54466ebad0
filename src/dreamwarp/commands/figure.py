"""``dreamwarp figure``: one picture of what a model has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dreamwarp.commands.models import load_model
from dreamwarp.commands.options import (
    OUTPUT,
    WARPS,
    DataArgument,
    FieldsOption,
    MaxSamplesOption,
    ModelArgument,
    OverwriteOption,
    PadOption,
    ResizeOption,
    SeedOption,
    ShapeOption,
    data_options,
)
from dreamwarp.core.files import check_writable, refuse_existing

Name = Literal[
    "samples", "warp", "alignments", "components", "spectrum", "similarity", "strength", "traces"
]


def figure(
    name: Annotated[
        Name,
        typer.Argument(
            metavar="NAME",
            help="samples: originals beside random warps. warp: cells, pair, velocity and grid of "
            "an alignment. alignments: pairs, the worst first. components: along principal "
            "components. spectrum: of each class. similarity: between classes. strength: errors "
            "and verdict. traces: of posterior chains.",
            show_default=False,
        ),
    ],
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="File to write: .png, .svg or .pdf; components also .gif, .webp or, with ffmpeg, "
            ".mp4, which move.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ],
    label: Annotated[
        str | None,
        typer.Option(help="A class. By default all.", show_default=False, rich_help_panel=WARPS),
    ] = None,
    component: Annotated[
        int,
        typer.Option(min=1, help="Principal component, 1 the largest.", rich_help_panel=WARPS),
    ] = 1,
    strength: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Factor on the learned warps, for samples. By default the one that the model "
            "recommends.",
            show_default=False,
            rich_help_panel=WARPS,
        ),
    ] = None,
    max_samples: MaxSamplesOption = 1000,
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    fields: FieldsOption = None,
    shape: ShapeOption = None,
    resize: ResizeOption = None,
    pad: PadOption = None,
) -> None:
    """Draw one figure of a model: of its samples, its warps, or how well pairs align.

    For warp, alignments, strength and traces, neighbours are aligned again, as for the model.

    [bold]Examples[/bold]

    dreamwarp figure samples digits.dwm mnist -o samples.png

    dreamwarp figure warp digits.dwm mnist -o warp.pdf

    dreamwarp figure alignments digits.dwm mnist -o alignments.svg

    dreamwarp figure components digits.dwm mnist --label 3 -o three.gif
    """
    from dreamwarp.data import load
    from dreamwarp.report.catalog import Request, check_figure, write_figure

    check_figure(name, output)
    if not overwrite:
        refuse_existing(output)
    check_writable(output)
    options = data_options(fields, shape, resize, pad)
    request = Request(
        load_model(model), load(data, **options), label, component, strength, seed, max_samples
    )
    typer.echo(f"figure written to {write_figure(name, request, output)}")
