"""``dreamwarp report``: write a page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dreamwarp.commands.models import check_target, load_with_data
from dreamwarp.commands.options import (
    DataArgument,
    MaxSamplesOption,
    ModelArgument,
    OverwriteOption,
    SeedOption,
    output_option,
    reads_data,
)


@reads_data
def report(
    context: typer.Context,
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[Path, output_option("--output", "-o", help="Page to write: .html.")],
    max_samples: MaxSamplesOption = 1000,
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    *,
    options: dict[str, Any],
) -> None:
    """Write a page about a model: animated components, alignments, verdict, warnings.

    The page is one file and needs no network. Neighbours are aligned again, with the settings
    stored in the model, and samples that look unusual or mislabelled are listed.

    [bold]Examples[/bold]

    dreamwarp report digits.dwm mnist -o report.html

    dreamwarp report leaves.dwm leaves/ --resize 64x64 -o leaves.html

    dreamwarp report bones.dwm meshes/ -o bones.html
    """
    from dreamwarp.data.shapes import ShapeSet
    from dreamwarp.report.page import check_page_path
    from dreamwarp.report.shapes import write_shape_report
    from dreamwarp.report.story import write_report
    from dreamwarp.report.study import make_study

    check_page_path(output)
    check_target(str(output), overwrite=overwrite)
    warps, samples = load_with_data(model, data, options, context, "max_samples")
    if isinstance(samples, ShapeSet):
        path = write_shape_report(warps, samples, output, seed=seed)
    else:
        study = make_study(warps, samples, max_samples=max_samples, seed=seed)
        path = write_report(study, output, model_name=model, data_name=data)
        typer.echo(f"{study.judgement.verdict}")
    typer.echo(f"report written to {path}")
