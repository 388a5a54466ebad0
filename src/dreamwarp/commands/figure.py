"""``dreamwarp figure``: draw one figure of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dreamwarp.commands.models import check_target, load_model, load_shapes_of
from dreamwarp.commands.options import (
    DataArgument,
    MaxSamplesOption,
    ModelArgument,
    OverwriteOption,
    SeedOption,
    StrengthOption,
    output_option,
    reads_data,
    refuse_for_meshes,
    warp_option,
)

Name = Literal[
    "samples", "warp", "alignments", "components", "spectrum", "similarity", "strength", "traces"
]


@reads_data
def figure(
    context: typer.Context,
    name: Annotated[
        Name,
        typer.Argument(
            metavar="NAME",
            help="samples: originals and random warps. warp: cells, pair, velocity and grid of an "
            "alignment. alignments: pairs, worst first. components: principal components. "
            "spectrum: component variances by class. similarity: of classes. strength: error by "
            "strength. traces: posterior chains.",
        ),
    ],
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[
        Path,
        output_option(
            "--output",
            "-o",
            help="File to write: .png, .svg or .pdf; for components also an animation: .gif, .webp "
            "or, with ffmpeg, .mp4.",
        ),
    ],
    label: Annotated[str | None, warp_option(help="A class. Default: all.")] = None,
    component: Annotated[
        int, warp_option(min=1, help="Principal component; 1 is the largest.")
    ] = 1,
    strength: StrengthOption = None,
    max_samples: MaxSamplesOption = 1000,
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    *,
    options: dict[str, Any],
) -> None:
    """Draw one figure of a model: samples, warps or alignments.

    The figures warp, alignments, strength and traces align neighbours again, with the settings
    stored in the model. Meshes have the figures samples, components, spectrum and similarity.

    [bold]Examples[/bold]

    dreamwarp figure samples digits.dwm mnist -o samples.png

    dreamwarp figure warp digits.dwm mnist -o warp.pdf

    dreamwarp figure alignments digits.dwm mnist -o alignments.svg

    dreamwarp figure components digits.dwm mnist --label 3 -o three.gif
    """
    from dreamwarp.data import load
    from dreamwarp.data.readers import are_meshes
    from dreamwarp.report.catalog import Request, check_figure, write_figure

    check_figure(name, output)
    check_target(str(output), overwrite=overwrite)
    if are_meshes(data):
        from dreamwarp.report.figures import save_figure
        from dreamwarp.report.shapes import draw_shape_figure

        refuse_for_meshes(context, "max_samples")
        shape_model = load_model(model)
        drawn = draw_shape_figure(
            name, shape_model, load_shapes_of(shape_model, data), label=label, component=component,
            strength=strength, seed=seed,
        )  # fmt: skip
        typer.echo(f"figure written to {save_figure(drawn, output, dpi=200)}")
        return
    request = Request(
        load_model(model), load(data, **options), label, component, strength, seed, max_samples
    )
    typer.echo(f"figure written to {write_figure(name, request, output)}")
