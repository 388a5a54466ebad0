"""``dreamwarp figure``: draw one figure of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dreamwarp.commands import options
from dreamwarp.commands.models import check_target, load_with_data

Name = Literal[
    "samples", "warp", "alignments", "components", "spectrum", "similarity", "strength", "traces"
]


@options.reads_data
def figure(
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
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path,
        options.output_path(
            help="File to write: .png, .svg or .pdf; for components also an animation: .gif or "
            ".webp."
        ),
    ],
    label: Annotated[str | None, options.warps(help="A class. Default: all.")] = None,
    component: Annotated[
        int, options.warps(min=1, help="Principal component; 1 is the largest.")
    ] = 1,
    strength: Annotated[
        float | None,
        options.warps(
            min=0.0,
            help="Factor on the warps of samples. Default: the strength stored in the model, or 1 "
            "if that is 0.",
        ),
    ] = None,
    max_samples: options.MaxSamples = 1000,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    *,
    reading: options.Reading,
) -> None:
    """Draw one figure of a model: samples, warps or alignments.

    The figures warp, alignments and traces align neighbours again, with the settings stored in the
    model. The figure strength shows errors stored when the model was fitted. Meshes have the
    figures samples, components, spectrum and similarity.

    [bold]Examples[/bold]

    dreamwarp figure samples digits.dwm mnist -o samples.png
    dreamwarp figure warp digits.dwm mnist -o warp.pdf
    dreamwarp figure alignments digits.dwm mnist -o alignments.svg
    dreamwarp figure components digits.dwm mnist --label 3 -o three.gif
    """
    from dreamwarp.report.catalog import check_figure, write_figure

    check_figure(name, output)
    check_target(str(output), overwrite=overwrite)
    fitted, samples = load_with_data(model, data, reading, only_for_arrays=["max_samples"])
    path = write_figure(
        name, fitted, samples, output, label=label, component=component, strength=strength,
        seed=seed, max_samples=max_samples,
    )  # fmt: skip
    typer.echo(f"figure written to {path}")
