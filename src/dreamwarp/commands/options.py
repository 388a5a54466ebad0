"""Options that several commands share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from typing import Annotated, Any, Literal

import typer

NUMBER = r"\d{1,9}"

# Options by the heading under which ``--help`` lists them. Typer shows no default that is None.
data_option = partial(typer.Option, rich_help_panel="Data")
warp_option = partial(typer.Option, rich_help_panel="Warps")
alignment_option = partial(typer.Option, rich_help_panel="Alignment")
output_option = partial(typer.Option, rich_help_panel="Output")

# Names in the library's messages, and what the command line calls them.
SPELLINGS = {"X": "DATA", "n": "--number", "n_neighbors": "--neighbors"} | {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "amplitude", "balance", "cells", "component", "displacement", "first", "label", "length",
        "max_draws", "max_pairs", "max_samples", "max_steps", "per_class", "pixels_per_cell",
        "shard_size", "sigma", "strength", "width",
    )
}  # fmt: skip


def translate(message: str) -> str:
    """Rewrite a message of the library for the command line, on one line.

    Parameters become options, and references to attributes of a result are dropped.
    """
    message = re.sub(r":? \(?see `\w+`( of the result)?\)?", "", " ".join(message.split()))
    message = re.sub(r"`(\w+)`", lambda name: f"`{SPELLINGS.get(name[1], name[1])}`", message)
    return re.sub(
        r"\b(\w+)=",
        lambda name: f"{SPELLINGS[name[1]]} " if name[1] in SPELLINGS else name[0],
        message,
    )


# -- output

SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, max=2**64 - 1, help="Random seed.")
]
OverwriteOption = Annotated[bool, output_option("--overwrite", help="Replace existing files.")]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        help="Address of a dask scheduler whose workers do the work. Default: threads of this "
        "process.",
    ),
]


def refuse_empty(value: str | None) -> str | None:
    """Raise for an empty name or path, such as an unset shell variable."""
    if value is not None and not value.strip():
        raise typer.BadParameter("it must not be empty")
    return value


# -- reading data

DATA_OPTIONS: dict[str, Any] = {
    "fields": Annotated[
        str | None,
        data_option(
            metavar="X,y",
            help="Names of samples and labels: fields of .npz and Parquet files, two .npy files, "
            "or extensions in WebDataset files.",
        ),
    ],
    "shape": Annotated[
        str | None,
        data_option(
            metavar="28x28",
            help="Shape of a sample, if .npz, .npy, Parquet or WebDataset files store it flat.",
        ),
    ],
    "resize": Annotated[
        str | None,
        data_option(
            metavar="28x28", help="Resize pictures to rows x columns; volumes need three numbers."
        ),
    ],
    "pad": Annotated[
        Literal["edge", "zero", "stretch"] | None,
        data_option(
            help="Bring time series to the length of the longest: repeat the last value, append "
            "zeros, or stretch."
        ),
    ],
    "missing": Annotated[
        Literal["interpolate"] | None,
        data_option(help="Interpolate missing values of time series."),
    ],
}


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``DATA_OPTIONS`` to a command, which receives their values as the dict ``options``."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "options"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in DATA_OPTIONS.items()
    ]

    @wraps(command)
    def run(*arguments: Any, **named: Any) -> None:
        given = {name: named.pop(name, None) for name in DATA_OPTIONS}
        command(*arguments, options=parse_data_options(given), **named)

    run.__signature__ = signature.replace(parameters=own + shared)  # type: ignore[attr-defined]
    return run


def parse_data_options(given: dict[str, Any]) -> dict[str, Any]:
    """Options that were given, as ``dreamwarp.data.load`` takes them."""
    options = {name: value for name, value in given.items() if value is not None}
    if "fields" in options:
        names = tuple(name.strip() for name in options["fields"].split(","))
        if len(names) != 2 or not all(names):
            raise typer.BadParameter(
                "fields must be two names separated by a comma, such as X,y, got "
                f"{options['fields']!r}",
                param_hint="'--fields'",
            )
        options["fields"] = names
    if "shape" in options:
        options["shape"] = parse_sizes("shape", options["shape"], 1, 4, "28x28")
    if "resize" in options:
        options["resize"] = parse_sizes("resize", options["resize"], 2, 3, "28x28")
    return options


def refuse_for_meshes(context: typer.Context, *names: str) -> None:
    """Raise if one of these options, or one of the data's, was given: they don't suit meshes."""
    for name in (*names, *DATA_OPTIONS):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(
                f"{option} does not apply to meshes. Leave it out", param_hint=f"'{option}'"
            )


# -- a model and its data

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Model file written by `dreamwarp fit`: a path or a URL.",
        callback=refuse_empty,
    ),
]
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Data the model was fitted to: a name, file or folder, as for `dreamwarp data`.",
        callback=refuse_empty,
    ),
]
MaxSamplesOption = Annotated[
    int,
    alignment_option(
        "--max-samples",
        metavar="N",
        min=2,
        help="Largest number of samples to align again, balanced over classes.",
    ),
]
StrengthOption = Annotated[
    float | None,
    warp_option(
        "--strength",
        min=0.0,
        help="Factor on the sampled warps. Default: the strength stored in the model.",
    ),
]


# -- warps and alignment

CellsOption = Annotated[
    str,
    warp_option(
        "--cells",
        help="Cells per spatial axis: 10 for series, 4x4 for images, 3x3x3 for volumes, "
        "2x2x2 for meshes. auto picks one of these, where it is the default.",
    ),
]
BoundaryOption = Annotated[
    Literal["zero", "slip", "free", "periodic"],
    warp_option(
        "--boundary",
        help="How warps treat the border. zero: fixed; slip: points move along it; free: points "
        "may cross it; periodic: opposite sides are joined.",
    ),
]
DisplacementOption = Annotated[
    float,
    alignment_option(
        "--displacement",
        help="Typical distance that warps move points, as a fraction of the image width.",
    ),
]
LearnedDisplacementOption = Annotated[
    str,
    alignment_option(
        "--displacement",
        help="Typical distance that warps move points, as a fraction of the image width. auto: "
        "chosen by the likelihood of held-out pairs, for eb.",
    ),
]
LengthOption = Annotated[
    float,
    alignment_option(
        "--length",
        help="Correlation length: points this close move together. A fraction of the image width.",
    ),
]
MethodOption = Annotated[
    Literal["map", "laplace", "metropolis", "hmc"],
    alignment_option(
        "--method",
        help="map: the most probable warp, fastest. The others draw one warp from the posterior: "
        "metropolis is the paper's method, hmc is faster, laplace is approximate.",
    ),
]
SimilarityOption = Annotated[
    Literal["ssd", "ncc", "mi"],
    alignment_option(
        "--similarity",
        help="ssd: squared differences of intensities; ncc: normalized cross-correlation, ignores "
        "contrast and brightness; mi: mutual information, any relation of intensities.",
    ),
]
SigmaOption = Annotated[
    str,
    alignment_option(
        "--sigma",
        help="Standard deviation of the pixel noise, for ssd; smaller values fit more closely. "
        "In the units of the data for floats, on the 0..1 scale for integers. auto: estimated.",
    ),
]
MaxStepsOption = Annotated[
    int,
    alignment_option("--max-steps", min=1, help="Largest number of optimizer steps per level."),
]
MaxDrawsOption = Annotated[
    int,
    alignment_option(
        "--max-draws", min=1, help="Largest number of draws per chain, for metropolis and hmc."
    ),
]


# -- numbers


def parse_cells(text: str) -> tuple[int, ...] | None:
    """Parse cells per axis; None for "auto"."""
    return None if text == "auto" else parse_sizes("cells", text, 1, 3, "4x4")


def parse_sizes(name: str, text: str, least: int, most: int, example: str) -> tuple[int, ...]:
    """Parse ``least`` to ``most`` integers separated by x."""
    if not re.fullmatch(rf"{NUMBER}(x{NUMBER}){{{least - 1},{most - 1}}}", text):
        count = f"{least} to {most}" if least < most else most
        raise typer.BadParameter(
            f"{name} must be {count} integers separated by x, such as {example}, got {text!r}",
            param_hint=f"'--{name}'",
        )
    return tuple(map(int, text.split("x")))


def parse_amount(name: str, text: str) -> float | Literal["auto"]:
    """Parse a number or "auto"."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"{name} must be a number or auto, got {text!r}", param_hint=f"'--{name}'"
        ) from None


def connected(scheduler: str | None) -> AbstractContextManager[Any]:
    """Yield a client of a dask scheduler, or None without a scheduler."""
    if scheduler is None:
        return nullcontext()
    from dreamwarp.core.cluster import connect

    return connect(scheduler)
