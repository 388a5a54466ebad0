"""``dreamwarp verify``: check a set of samples against its manifest."""

from __future__ import annotations

from typing import Annotated

import typer

from dreamwarp.commands import options

# Shards listed by number; the rest is only counted.
MAX_LISTED = 10


def verify(
    output: Annotated[
        str, options.argument(metavar="OUT", help="Folder or URL written by `dreamwarp sample`.")
    ],
) -> None:
    """Compare every file of a set of samples with the hash in its manifest.

    Exit code 0: all files are present and unchanged; 1: some are missing or damaged. Meshes have no
    hashes.

    [bold]Examples[/bold]

    dreamwarp verify alignmnist
    dreamwarp verify s3://bucket/set
    """
    from dreamwarp.data.readers import are_meshes
    from dreamwarp.generation import verify as check

    if are_meshes(output):
        raise ValueError(
            f"`{output}` holds meshes, which are written without hashes to compare them with. To "
            "make sure, write them again: `dreamwarp sample` with `--resume` and the same options."
        )
    found = check(output)
    settings = found.manifest.settings
    if not found.is_sound:
        raise ValueError(
            f"`{output}` is not intact: {_listed('missing', found.missing)}, "
            f"{_listed('damaged', found.damaged)}, of {len(found.manifest.shards):,} shards. "
            "Make them again: `dreamwarp sample` with `--resume` and the settings in the manifest."
        )
    typer.echo(
        f"{output} is intact: {len(found.manifest.shards):,} shards, {settings['n']:,} samples, "
        f"{settings['format']}, seed {settings['seed']}"
    )


def _listed(what: str, numbers: list[int]) -> str:
    if not numbers:
        return f"none {what}"
    few = ", ".join(map(str, numbers[:MAX_LISTED]))
    more = f" and {len(numbers) - MAX_LISTED:,} more" if len(numbers) > MAX_LISTED else ""
    return f"{len(numbers):,} {what} (shard{'s' if len(numbers) > 1 else ''} {few}{more})"
