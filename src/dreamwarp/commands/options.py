"""Options that several commands share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from typing import Annotated, Any, Literal, NamedTuple

import typer

NUMBER = r"\d{1,9}"


def refuse_empty(value: Any) -> Any:
    """Raise for an empty name or path, such as an unset shell variable."""
    if isinstance(value, str) and not value.strip():
        raise typer.BadParameter("it must not be empty")
    return value


# Options by the heading under which ``--help`` lists them. Typer shows no default that is None.
data = partial(typer.Option, rich_help_panel="Data")
warps = partial(typer.Option, rich_help_panel="Warps")
alignment = partial(typer.Option, rich_help_panel="Alignment")
output = partial(typer.Option, rich_help_panel="Output")
output_path = partial(output, "--output", "-o", callback=refuse_empty)
count = partial(output, metavar="N", min=1, max=2**62)
argument = partial(typer.Argument, callback=refuse_empty)

# Names in the library's messages, and what the command line calls them.
SPELLINGS = {"X": "DATA", "n": "--number", "n_neighbors": "--neighbors"} | {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "amplitude", "balance", "cells", "component", "displacement", "first", "label", "length",
        "match", "max_draws", "max_pairs", "max_samples", "max_steps", "per_class",
        "pixels_per_cell", "shard_size", "sigma", "strength", "width",
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


# -- values


def sizes(least: int, most: int) -> Callable[[str], tuple[int, ...]]:
    """A parser of ``least`` to ``most`` integers separated by x."""

    def parse(text: str) -> tuple[int, ...]:
        if not re.fullmatch(rf"{NUMBER}(x{NUMBER}){{{least - 1},{most - 1}}}", text):
            raise typer.BadParameter(
                f"it must be {least} to {most} integers separated by x, such as 4x4, got {text!r}"
            )
        return tuple(map(int, text.split("x")))

    return parse


def parse_cells(text: str) -> tuple[int, ...] | None:
    """Parse cells per axis; None for "auto"."""
    return None if text == "auto" else sizes(1, 3)(text)


def parse_amount(text: str) -> float | Literal["auto"]:
    """Parse a number or "auto"."""
    try:
        return "auto" if text == "auto" else float(text)
    except ValueError:
        raise typer.BadParameter(f"it must be a number or auto, got {text!r}") from None


def parse_fields(text: str) -> tuple[str, ...]:
    """Parse two names separated by a comma."""
    names = tuple(name.strip() for name in text.split(","))
    if len(names) != 2 or not all(names):
        raise typer.BadParameter(
            f"it must be two names separated by a comma, such as X,y, got {text!r}"
        )
    return names


# -- output

Seed = Annotated[int, typer.Option(metavar="N", min=0, max=2**64 - 1, help="Random seed.")]
Overwrite = Annotated[bool, output("--overwrite", help="Replace existing files.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Address of a dask scheduler whose workers do the work. Default: threads of this "
        "process."
    ),
]


# -- reading data

DATA_OPTIONS: dict[str, Any] = {
    "fields": Annotated[
        Any,
        data(
            parser=parse_fields,
            metavar="X,y",
            help="Names of samples and labels: fields of .npz and Parquet files, two .npy files, "
            "or extensions in WebDataset files.",
        ),
    ],
    "shape": Annotated[
        Any,
        data(
            parser=sizes(1, 4),
            metavar="28x28",
            help="Shape of a sample, if .npz, .npy, Parquet or WebDataset files store it flat.",
        ),
    ],
    "resize": Annotated[
        Any,
        data(
            parser=sizes(2, 3),
            metavar="28x28",
            help="Resize pictures to rows x columns; volumes need three numbers.",
        ),
    ],
    "pad": Annotated[
        Literal["edge", "zero", "stretch"] | None,
        data(
            help="Bring time series to the length of the longest: repeat the last value, append "
            "zeros, or stretch."
        ),
    ],
    "missing": Annotated[
        Literal["interpolate"] | None, data(help="Interpolate missing values of time series.")
    ],
}


class Reading(NamedTuple):
    """The values of ``DATA_OPTIONS`` that were given, and the context of the command."""

    options: dict[str, Any]
    context: typer.Context

    @property
    def arguments(self) -> list[str]:
        """The options as on the command line, to be repeated in other commands."""
        words: list[str] = []
        for name, value in self.options.items():
            separator = "," if isinstance(value[0], str) else "x"  # between names, or sizes
            given = value if isinstance(value, str) else separator.join(map(str, value))
            words += [f"--{name}", given]
        return words

    def refuse_for_meshes(self, *names: str) -> None:
        """Raise if one of these options, or one of the data's, was given: none suits meshes."""
        refuse_given(self.context, "does not apply to meshes", *names, *DATA_OPTIONS)


def refuse_given(context: typer.Context, why: str, *names: str) -> None:
    """Raise if one of these options was given on the command line."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option} {why}. Leave it out", param_hint=f"'{option}'")


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``DATA_OPTIONS`` to a command, which receives them as ``reading``."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "reading"]
    keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    shared = [keyword("context", annotation=typer.Context)]
    shared += [keyword(name, default=None, annotation=kind) for name, kind in DATA_OPTIONS.items()]

    @wraps(command)
    def run(context: typer.Context, **named: Any) -> None:
        given = {name: named.pop(name) for name in DATA_OPTIONS}
        given = {name: value for name, value in given.items() if value is not None}
        command(reading=Reading(given, context), **named)

    run.__signature__ = signature.replace(parameters=own + shared)  # type: ignore[attr-defined]
    return run


# -- a model and its data

Model = Annotated[
    str, argument(metavar="MODEL", help="Model file written by `dreamwarp fit`: a path or a URL.")
]
Data = Annotated[
    str,
    argument(
        metavar="DATA",
        help="Data the model was fitted to: a name, file or folder, as for `dreamwarp data`.",
    ),
]
MaxSamples = Annotated[
    int,
    alignment(
        metavar="N", min=2, help="Largest number of samples to align again, balanced over classes."
    ),
]
Strength = Annotated[
    float | None,
    warps(
        min=0.0,
        help="Factor on the sampled warps. Default: the strength stored in the model; 0: no warps.",
    ),
]


# -- warps and alignment

Cells = Annotated[
    Any,
    warps(
        parser=parse_cells,
        metavar="4x4|auto",
        help="Cells per spatial axis. auto: 10 for series, 4x4 for images, 3x3x3 for volumes, "
        "2x2x2 for meshes.",
    ),
]
Boundary = Annotated[
    Literal["zero", "slip", "free", "periodic"],
    warps(
        help="How warps treat the border. zero: fixed; slip: points move along it; free: points "
        "may cross it; periodic: opposite sides are joined."
    ),
]
Displacement = Annotated[
    float,
    alignment(help="Typical distance that warps move points, as a fraction of a sample's width."),
]
LearnedDisplacement = Annotated[
    Any,
    alignment(
        parser=parse_amount,
        metavar="NUMBER|auto",
        help="Typical distance that warps move points, as a fraction of a sample's width. auto: "
        "for eb and meshes, chosen by the likelihood of held-out pairs; else 0.08.",
    ),
]
Length = Annotated[
    float,
    alignment(
        help="Correlation length: points this close move together. A fraction of a sample's width."
    ),
]
Method = Annotated[
    Literal["map", "laplace", "metropolis", "hmc"],
    alignment(
        help="map: the most probable warp, fastest. The others draw one warp from the posterior: "
        "metropolis is the paper's method, hmc is faster, laplace is approximate."
    ),
]
Similarity = Annotated[
    Literal["ssd", "ncc", "mi"],
    alignment(
        help="ssd: squared differences of intensities; ncc: normalized cross-correlation, ignores "
        "contrast and brightness; mi: mutual information, any relation of intensities."
    ),
]
Sigma = Annotated[
    Any,
    alignment(
        parser=parse_amount,
        metavar="NUMBER|auto",
        help="Standard deviation of the pixel noise, for ssd; smaller values fit more closely. "
        "In the units of the data for floats, on the 0..1 scale for integers. auto: estimated.",
    ),
]
Match = Annotated[
    Literal["auto", "known", "nearest"],
    alignment(
        help="For meshes, how vertices correspond. known: by number, within a class; nearest: to "
        "the nearest vertex, in both directions; auto: known in every class whose meshes have the "
        "same number of vertices and the same faces."
    ),
]
MaxSteps = Annotated[int, alignment(min=1, help="Largest number of steps per stage of the search.")]
MaxDraws = Annotated[
    int, alignment(min=1, help="Largest number of draws per chain, for metropolis and hmc.")
]


def connected(scheduler: str | None) -> AbstractContextManager[Any]:
    """A context: a client of a dask scheduler, or None without a scheduler."""
    if scheduler is None:
        return nullcontext()
    from dreamwarp.core.cluster import connect

    return connect(scheduler)
