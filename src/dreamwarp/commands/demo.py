"""``dreamwarp demo``: learn warps of MNIST digits, compare classifiers, write a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dreamwarp.commands import options


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Page to write, .html; replaced if it exists.")
    ] = Path("dreamwarp-demo.html"),
    picture: Annotated[
        Path | None,
        typer.Option(help="Also write the picture of new digits to this file: .png, .svg or .pdf."),
    ] = None,
    seed: options.Seed = 0,
) -> None:
    """Learn warps of real digits, make new ones, and compare classifiers with and without them.

    [bold]Examples[/bold]

    dreamwarp demo
    dreamwarp demo --seed 7 --output out/seven.html
    """
    from dreamwarp.commands.contest import run_demo
    from dreamwarp.report.figures import check_picture_path
    from dreamwarp.report.page import check_page_path

    check_page_path(output)
    if picture is not None:
        check_picture_path(picture)
    run_demo(output, picture, seed)
