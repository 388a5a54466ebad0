"""``dreamwarp align``: align one sample to another and show the result."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from dreamwarp.commands.options import (
    BoundaryOption,
    CellsOption,
    DisplacementOption,
    LengthOption,
    MaxDrawsOption,
    MaxStepsOption,
    MethodOption,
    OverwriteOption,
    SeedOption,
    SigmaOption,
    SimilarityOption,
    output_option,
    parse_amount,
    parse_cells,
)
from dreamwarp.core.defaults import DISPLACEMENT, LENGTH, MAX_DRAWS, MAX_STEPS
from dreamwarp.core.files import check_suffix, refuse_existing, write_beside

if TYPE_CHECKING:
    from dreamwarp import Alignments, WarpSpace

# Default output.
PICTURE = Path("align.png")


def align(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            help="Sample to warp: a PNG or JPEG picture, or a .npy array, channels first.",
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="B", help="Sample to align it to, of the same shape.")
    ],
    cells: CellsOption = "4x4",
    boundary: BoundaryOption = "free",
    method: MethodOption = "map",
    similarity: SimilarityOption = "ssd",
    sigma: SigmaOption = "auto",
    displacement: DisplacementOption = DISPLACEMENT,
    length: LengthOption = LENGTH,
    max_steps: MaxStepsOption = MAX_STEPS,
    max_draws: MaxDrawsOption = MAX_DRAWS,
    seed: SeedOption = 0,
    output: Annotated[
        Path | None,
        output_option(
            "--output",
            "-o",
            help="Picture to write: .png, .svg or .pdf. Default: align.png, replaced if it exists.",
        ),
    ] = None,
    theta: Annotated[
        Path | None, output_option(help="File for the warp's parameters: .json or .npy.")
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Align a sample to another; draw both, the warp and the remaining difference.

    [bold]Examples[/bold]

    dreamwarp align a.png b.png

    dreamwarp align a.png b.png --method hmc --cells 6x6 --output out/pair.svg --theta pair.json

    dreamwarp align heart1.npy heart2.npy --cells 16
    """
    from dreamwarp import SmoothPrior, WarpSpace, align_pairs
    from dreamwarp.report.figures import check_picture_path, save_figure
    from dreamwarp.report.one_pair import draw_alignment

    picture = PICTURE if output is None else output
    check_picture_path(picture)
    if theta is not None:
        check_suffix(theta, (".json", ".npy"), "theta")
    for path in (output, theta):
        if path is not None and not overwrite:
            refuse_existing(path)
    noise = parse_amount("sigma", sigma)
    space = WarpSpace(parse_cells(cells), boundary)
    pair = [_read_sample(space, path) for path in (source, target)]
    if pair[0].shape != pair[1].shape:
        raise ValueError(
            f"`{source}` and `{target}` must have the same shape, got {pair[0].shape} and "
            f"{pair[1].shape}. Resize one, or convert both to grey or both to colour."
        )
    prior = SmoothPrior(space, displacement=displacement, length=length)
    start = time.perf_counter()
    with warnings.catch_warnings():
        # The lines printed below say the same.
        warnings.simplefilter("ignore", RuntimeWarning)
        result = align_pairs(
            space, pair[0][None], pair[1][None], method=method, prior=prior, sigma=noise,
            similarity=similarity, seed=seed, max_steps=max_steps, max_draws=max_draws,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    typer.echo(f"{method}, {space.dim} parameters, {seconds:.2f} s")
    for line in describe_result(result, similarity):
        typer.echo(line)
    if theta is not None:
        write_theta(theta, space, result, method)
        typer.echo(f"theta written to {theta}")
    save_figure(draw_alignment(space, pair[0], pair[1], result), picture)
    typer.echo(f"picture written to {picture}")


def describe_result(result: Alignments, similarity: str) -> Iterator[str]:
    """Yield losses and diagnostics of the first pair, line by line."""
    before, after = float(result.loss_before[0]), float(result.loss_after[0])
    if similarity == "ssd":
        share = f", {after / before:.1%} of it" if before > 0 else ""
        yield f"squared difference before {before:.4g}, after {after:.4g}{share}"
        yield f"noise sigma {result.sigma:.3g}"
    else:
        yield f"minus log-likelihood before {before:.4g}, after {after:.4g}"
    found = {name: values[0] for name, values in result.diagnostics.items()}
    if "r_hat" in found:
        yield (
            f"R-hat {found['r_hat']:.3f}, {found['ess']:.0f} effective draws, acceptance "
            f"{found['acceptance']:.2f}, {found['n_sweeps']} sweeps of each chain"
        )
    yield f"log-posterior {found['log_posterior']:.4g}, {found['n_steps']} steps of the search"
    if result.converged[0]:
        yield "converged"
    else:
        remedy = "--max-draws" if "r_hat" in found else "--max-steps"
        yield f"not converged: a larger {remedy} may help"
    if not result.usable[0]:
        yield "not usable: the warp does not bring the source closer to the target"


def write_theta(path: Path, space: WarpSpace, result: Alignments, method: str) -> None:
    """Write θ (d,) alone as ``.npy``, or with its space and losses as ``.json``."""
    with write_beside(path) as temporary:
        if path.suffix.lower() == ".npy":
            np.save(temporary, result.theta[0])
            return
        content = {
            "cells": space.cells,
            "boundary": space.boundary,
            "method": method,
            "sigma": result.sigma,
            "theta": result.theta[0].tolist(),
            "loss_before": float(result.loss_before[0]),
            "loss_after": float(result.loss_after[0]),
            "converged": bool(result.converged[0]),
            "diagnostics": {name: float(v[0]) for name, v in result.diagnostics.items()},
        }
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _read_sample(space: WarpSpace, path: Path) -> NDArray[Any]:
    """Read a sample (*spatial) or (channels, *spatial); raise if it can't be aligned."""
    from dreamwarp.data import read_image
    from dreamwarp.data.numpy_files import read_npy

    values = read_npy(path) if path.suffix.lower() == ".npy" else read_image(path)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"`{path}` must hold real numbers, got {values.dtype}.")
    if values.ndim not in (space.ndim, space.ndim + 1) or values.size == 0:
        raise ValueError(
            f"`{path}` must have {space.ndim} spatial axes, as many as --cells, after optional "
            f"channels, got shape {values.shape}. Use --cells 16 for signals, 4x4 for images, "
            "4x4x4 for volumes."
        )
    if not np.isfinite(values).all():
        raise ValueError(f"`{path}` must be finite, got NaN or infinity.")
    if values.min() == values.max():
        raise ValueError(f"`{path}` is constant, {values.flat[0]}: there is nothing to align.")
    return values
