"""Options that several commands have, defined once: names, units, words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer

NUMBER = r"\d{1,9}"

# Headings under which ``--help`` lists options.
DATA, WARPS, ALIGNMENT, OUTPUT = "Data", "Warps", "Alignment", "Output"

# What the library calls an option or its data, and what the command line does.
SPELLINGS = {
    "X": "DATA",
    "balance": "--balance",
    "cells": "--cells",
    "displacement": "--displacement",
    "first": "--first",
    "length": "--length",
    "max_draws": "--max-draws",
    "component": "--component",
    "label": "--label",
    "max_pairs": "--max-pairs",
    "max_samples": "--max-samples",
    "max_steps": "--max-steps",
    "n": "--number",
    "n_neighbors": "--neighbors",
    "per_class": "--per-class",
    "shard_size": "--shard-size",
    "sigma": "--sigma",
    "strength": "--strength",
    "width": "--width",
    "amplitude": "--amplitude",
}


def translate(message: str) -> str:
    """A message of the library in the command line's words, on one line.

    Options are named as they are given here, and there is no result to look into.
    """
    message = re.sub(r":? \(?see `\w+`( of the result)?\)?", "", " ".join(message.split()))
    message = re.sub(r"`(\w+)`", lambda name: f"`{SPELLINGS.get(name[1], name[1])}`", message)
    return re.sub(
        r"\b(\w+)=",
        lambda name: f"{SPELLINGS[name[1]]} " if name[1] in SPELLINGS else name[0],
        message,
    )


# -- what is written

SeedOption = Annotated[
    int,
    typer.Option("--seed", metavar="N", min=0, max=2**64 - 1, help="Fixes all that is random."),
]
OverwriteOption = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Replace files that are there already.", rich_help_panel=OUTPUT
    ),
]


def refuse_empty(value: str | None) -> str | None:
    """For names and paths: an empty one, as of a variable that is not set, is not this folder."""
    if value is not None and not value.strip():
        raise typer.BadParameter("it must not be empty")
    return value


# -- how data is read, for every command that reads some

FieldsOption = Annotated[
    str | None,
    typer.Option(
        "--fields",
        metavar="X,y",
        help="Names of samples and labels in .npz and Parquet files, of two .npy files, or their "
        "endings in WebDataset files.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
ShapeOption = Annotated[
    str | None,
    typer.Option(
        "--shape",
        metavar="28x28",
        help="Shape of a sample, for samples stored flat in .npz, .npy, Parquet and WebDataset "
        "files.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
ResizeOption = Annotated[
    str | None,
    typer.Option(
        "--resize",
        metavar="28x28",
        help="Rows and columns that pictures are brought to; three numbers for volumes.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
PadOption = Annotated[
    Literal["edge", "zero", "stretch"] | None,
    typer.Option(
        "--pad",
        help="Bring time series to the length of the longest: by their last value, by zeros, or by "
        "stretching them.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
MissingOption = Annotated[
    Literal["interpolate"] | None,
    typer.Option(
        "--missing",
        help="Fill in missing values of time series between their neighbours.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]


def data_options(
    fields: str | None,
    shape: str | None,
    resize: str | None,
    pad: str | None,
    missing: str | None = None,
) -> dict[str, Any]:
    """Those that were given, as ``dreamwarp.data.load`` takes them."""
    options = {
        "fields": None if fields is None else parse_fields(fields),
        "shape": None if shape is None else parse_sizes("shape", shape, 1, 4, "28x28"),
        "resize": None if resize is None else parse_sizes("resize", resize, 2, 3, "28x28"),
        "pad": pad,
        "missing": missing,
    }
    return {name: value for name, value in options.items() if value is not None}


def parse_fields(text: str) -> tuple[str, str]:
    """Two names with a comma between them."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names):
        raise typer.BadParameter(
            f"fields must be two names with a comma between them, such as X,y, got {text!r}",
            param_hint="'--fields'",
        )
    return names[0], names[1]


# -- a model and its data, for every command that shows them

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Model file that `dreamwarp fit` wrote: a path or an address.",
        show_default=False,
        callback=refuse_empty,
    ),
]
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="What the model was fitted to. A name, file or folder, as for `dreamwarp data`.",
        show_default=False,
        callback=refuse_empty,
    ),
]
MaxSamplesOption = Annotated[
    int,
    typer.Option(
        "--max-samples",
        metavar="N",
        min=2,
        help="Samples to align again, at most, as many of every class.",
        rich_help_panel=ALIGNMENT,
    ),
]


# -- warps, and how they are found

CellsOption = Annotated[
    str,
    typer.Option(
        "--cells",
        help="Cells per spatial axis: 10 for series, 4x4 for images, 3x3x3 for volumes. auto "
        "chooses so, where it is the default.",
        rich_help_panel=WARPS,
    ),
]
BoundaryOption = Annotated[
    Literal["zero", "slip", "free", "periodic"],
    typer.Option(
        "--boundary",
        help="What warps do at the border: zero holds it, slip moves along it, free across it, "
        "periodic joins opposite sides.",
        rich_help_panel=WARPS,
    ),
]
DisplacementOption = Annotated[
    float,
    typer.Option(
        "--displacement",
        help="How far warps typically move points, as a share of the image's width.",
        rich_help_panel=ALIGNMENT,
    ),
]
LengthOption = Annotated[
    float,
    typer.Option(
        "--length",
        help="Distance over which points move together, as a share of the image's width.",
        rich_help_panel=ALIGNMENT,
    ),
]
LearnedDisplacementOption = Annotated[
    str,
    typer.Option(
        "--displacement",
        help="How far warps typically move points, as a share of the image's width.",
        rich_help_panel=ALIGNMENT,
    ),
]
MethodOption = Annotated[
    Literal["map", "laplace", "metropolis", "hmc"],
    typer.Option(
        "--method",
        help="map: the most plausible warp of a pair, the fastest. The others draw one at random "
        "from the posterior: metropolis as the paper does, hmc faster, laplace approximately.",
        rich_help_panel=ALIGNMENT,
    ),
]
SimilarityOption = Annotated[
    Literal["ssd", "ncc", "mi"],
    typer.Option(
        "--similarity",
        help="What is alike. ssd: equal intensities; ncc: equal up to contrast and brightness; mi: "
        "any relation of intensities.",
        rich_help_panel=ALIGNMENT,
    ),
]
SigmaOption = Annotated[
    str,
    typer.Option(
        "--sigma",
        help="Noise of a pixel, for ssd: the less, the closer the fit. From black to white is 1 "
        "for whole numbers (uint8); other data counts in its own units. auto: estimated.",
        rich_help_panel=ALIGNMENT,
    ),
]
MaxStepsOption = Annotated[
    int,
    typer.Option(
        "--max-steps",
        min=1,
        help="Steps of the search, at most, at each resolution.",
        rich_help_panel=ALIGNMENT,
    ),
]
MaxDrawsOption = Annotated[
    int,
    typer.Option(
        "--max-draws",
        min=1,
        help="Draws of each chain, at most, for metropolis and hmc.",
        rich_help_panel=ALIGNMENT,
    ),
]


# -- numbers


def parse_cells(text: str) -> tuple[int, ...]:
    """Cells per axis."""
    return parse_sizes("cells", text, 1, 3, "4x4")


def parse_sizes(name: str, text: str, least: int, most: int, example: str) -> tuple[int, ...]:
    """Numbers between the x's: as many as ``least`` to ``most``."""
    if not re.fullmatch(rf"{NUMBER}(x{NUMBER}){{{least - 1},{most - 1}}}", text):
        count = f"{least} to {most}" if least < most else most
        raise typer.BadParameter(
            f"{name} must be {count} whole numbers with x between them, such as {example}, got "
            f"{text!r}",
            param_hint=f"'--{name}'",
        )
    return tuple(map(int, text.split("x")))


def parse_amount(name: str, text: str) -> float | Literal["auto"]:
    """A number, or "auto"."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"{name} must be a number or auto, got {text!r}", param_hint=f"'--{name}'"
        ) from None


@contextmanager
def connected(scheduler: str | None) -> Iterator[Any]:
    """A client of a scheduler; None without one."""
    if scheduler is None:
        yield None
        return
    from dreamwarp.core.cluster import connect

    with connect(scheduler) as client:
        yield client
