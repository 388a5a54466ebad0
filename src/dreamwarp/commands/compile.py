"""``dreamwarp compile``: machine code before it is needed."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from dreamwarp.commands.options import parse_cells


def compile(
    cells: Annotated[
        str,
        typer.Option(help="Cells per spatial axis; only their number matters: 4x4 for images."),
    ] = "4x4",
) -> None:
    """Compile now what is otherwise compiled when it is first used, and kept on disk.

    For container images, and for clusters, whose workers would each do it.

    [bold]Examples[/bold]

    dreamwarp compile

    dreamwarp compile --cells 4x4x4
    """
    from dreamwarp.augment.precompile import compile_ahead

    start = time.perf_counter()
    compile_ahead(parse_cells(cells))
    typer.echo(f"compiled in {time.perf_counter() - start:.0f} s")
