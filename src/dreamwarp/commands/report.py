"""``dreamwarp report``: a page of what a model has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dreamwarp.commands.models import load_model
from dreamwarp.commands.options import (
    OUTPUT,
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


def report(
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Page to write: .html.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ],
    max_samples: MaxSamplesOption = 1000,
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    fields: FieldsOption = None,
    shape: ShapeOption = None,
    resize: ResizeOption = None,
    pad: PadOption = None,
) -> None:
    """Write a page of what a model has learned: moving components, alignments, verdict, warnings.

    One file that needs no network. Neighbours are aligned again, as for the model, and samples that
    look odd or mislabelled are pointed out.

    [bold]Examples[/bold]

    dreamwarp report digits.dwm mnist -o report.html

    dreamwarp report leaves.dwm leaves/ --resize 64x64 -o leaves.html
    """
    from dreamwarp.data import load
    from dreamwarp.report.page import check_page_path
    from dreamwarp.report.story import write_report
    from dreamwarp.report.study import make_study

    check_page_path(output)
    if not overwrite:
        refuse_existing(output)
    check_writable(output)
    options = data_options(fields, shape, resize, pad)
    warps, samples = load_model(model), load(data, **options)
    study = make_study(warps, samples, max_samples=max_samples, seed=seed)
    path = write_report(study, output, model_name=model, data_name=data)
    typer.echo(f"{study.judgement.verdict}")
    typer.echo(f"report written to {path}")
