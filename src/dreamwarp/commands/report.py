"""``dreamwarp report``: write a page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dreamwarp.commands import options
from dreamwarp.commands.models import check_target, load_with_data


@options.reads_data
def report(
    model: options.Model,
    data: options.Data,
    output: Annotated[Path, options.output_path(help="Page to write: .html.")],
    max_samples: options.MaxSamples = 1000,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    *,
    reading: options.Reading,
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
    fitted, samples = load_with_data(model, data, reading, only_for_arrays=["max_samples"])
    if isinstance(samples, ShapeSet):
        path = write_shape_report(fitted, samples, output, seed=seed)
    else:
        study = make_study(fitted, samples, max_samples=max_samples, seed=seed)
        path = write_report(
            study, output, model_name=model, data_name=data, reading=reading.arguments
        )
        typer.echo(f"{study.judgement.verdict}")
    typer.echo(f"report written to {path}")
