"""Options that several commands read alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer

NUMBER = r"\d{1,9}"


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
    ),
]
ResizeOption = Annotated[
    str | None,
    typer.Option(
        "--resize",
        metavar="28x28",
        help="Rows and columns that pictures are brought to.",
        show_default=False,
    ),
]
PadOption = Annotated[
    Literal["edge", "zero"] | None,
    typer.Option(
        "--pad",
        help="Bring time series to the length of the longest: by their last value, or zeros.",
        show_default=False,
    ),
]


def data_options(
    fields: str | None, shape: str | None, resize: str | None, pad: str | None
) -> dict[str, Any]:
    """Those that were given, as ``dreamwarp.data.load`` takes them."""
    options = {
        "fields": None if fields is None else parse_fields(fields),
        "shape": None if shape is None else parse_sizes("shape", shape, 1, 4, "28x28"),
        "resize": None if resize is None else parse_sizes("resize", resize, 2, 2, "28x28"),
        "pad": pad,
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
    from dreamwarp.cluster import connect

    with connect(scheduler) as client:
        yield client
