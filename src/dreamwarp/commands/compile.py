"""``dreamwarp compile``: compile the kernels ahead of time."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from dreamwarp.commands.options import parse_sizes


def compile(
    cells: Annotated[
        str,
        typer.Option(
            help="Cells per axis. Only the number of axes matters: 10 for series, 4x4 for images, "
            "3x3x3 for volumes and meshes."
        ),
    ] = "4x4",
) -> None:
    """Compile the kernels for one kind of data now, and cache them on disk, not at first use.

    Useful for container images, and for clusters, where each worker would compile them.

    [bold]Examples[/bold]

    dreamwarp compile

    dreamwarp compile --cells 10

    dreamwarp compile --cells 3x3x3
    """
    from dreamwarp.augment.precompile import compile_ahead

    start = time.perf_counter()
    compile_ahead(parse_sizes("cells", cells, 1, 3, "4x4"))
    typer.echo(f"compiled in {time.perf_counter() - start:.0f} s")
