"""``dreamwarp compile``: compile the kernels ahead of time."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from dreamwarp.commands import options


def compile(
    cells: Annotated[
        Any,
        typer.Option(
            parser=options.sizes(1, 3),
            metavar="4x4",
            help="Cells per axis. Only the number of axes matters: 10 for series, 4x4 for images, "
            "3x3x3 for volumes and meshes.",
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
    compile_ahead(cells)
    typer.echo(f"compiled in {time.perf_counter() - start:.0f} s")
