"""``dreamwarp align``: align one sample to another and show the result."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from dreamwarp.commands import options
from dreamwarp.core.defaults import (
    DEFAULT_SHAPE_CELLS,
    DISPLACEMENT,
    LENGTH,
    MAX_DRAWS,
    MAX_STEPS,
    suit_cells,
)
from dreamwarp.core.files import check_suffix, refuse_existing, write_beside
from dreamwarp.core.samples import check_finite

if TYPE_CHECKING:
    from dreamwarp import Alignments, WarpSpace
    from dreamwarp.align import PointAlignments


# From this share of the difference left on, the pair counts as not explained by a warp.
UNEXPLAINED = 0.95
# Options that only arrays have.
NOT_FOR_MESHES = "method", "similarity", "max_draws", "seed"


@options.reads_data
def align(
    source: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="Sample to warp: a picture, a NIfTI volume, a mesh, a .npy array with channels "
            "first, or DATA:K, sample K (from 0) of the training part of a data set.",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="B", help="Sample to align it to, of the same shape or a mesh too."),
    ],
    cells: options.Cells = "auto",
    boundary: options.Boundary = "free",
    method: options.Method = "map",
    similarity: options.Similarity = "ssd",
    match: options.Match = "auto",
    sigma: options.Sigma = "auto",
    displacement: options.Displacement = DISPLACEMENT,
    length: options.Length = LENGTH,
    max_steps: options.MaxSteps = MAX_STEPS,
    max_draws: options.MaxDraws = MAX_DRAWS,
    seed: options.Seed = 0,
    output: Annotated[
        Path | None,
        options.output_path(
            help="Picture to write: .png, .svg or .pdf. Default: align.png, replaced if it exists."
        ),
    ] = None,
    theta: Annotated[
        Path | None, options.output(help="File for the warp's parameters: .json or .npy.")
    ] = None,
    overwrite: options.Overwrite = False,
    *,
    reading: options.Reading,
) -> None:
    """Align a sample to another; draw both, the warp and the remaining difference.

    Options about data are for samples of a data set, DATA:K.

    [bold]Examples[/bold]

    dreamwarp align a.png b.png
    dreamwarp align a.png b.png --method hmc --cells 6x6 --output out/pair.svg --theta pair.json
    dreamwarp align heart1.npy heart2.npy
    dreamwarp align GunPoint/:0 GunPoint/:1
    dreamwarp align vowels_TRAIN.ts:0 vowels_TRAIN.ts:7 --pad stretch
    dreamwarp align scan1.nii.gz scan2.nii.gz --similarity mi
    dreamwarp align bone1.ply bone2.ply
    """
    from dreamwarp import SmoothPrior, WarpSpace, align_pairs
    from dreamwarp.report.aligned import describe_alignment, draw_alignment
    from dreamwarp.report.figures import check_picture_path, save_figure
    from dreamwarp.report.subject import Look

    picture = output or Path("align.png")
    check_picture_path(picture)
    if theta is not None:
        check_suffix(theta, (".json", ".npy"), "theta")
    for path in (output, theta):
        if path is not None and not overwrite:
            refuse_existing(path)
    places = split_place(source), split_place(target)
    if reading.options and places == (None, None):
        raise ValueError(
            f"`--{next(iter(reading.options))}` is for samples of a data set, such as DATA:0, got "
            f"the files `{source}` and `{target}`. Leave it out."
        )
    meshes = [read_mesh_sample(*item) for item in zip((source, target), places, strict=True)]
    if meshes[0] is not None and meshes[1] is not None:
        reading.refuse_for_meshes(*NOT_FOR_MESHES)
        align_meshes(
            meshes, picture, theta, cells=cells, boundary=boundary, match=match, sigma=sigma,
            displacement=displacement, length=length, max_steps=max_steps,
        )  # fmt: skip
        return
    if any(mesh is not None for mesh in meshes):
        raise ValueError(f"`{source}` and `{target}` must both be meshes, or neither.")
    options.refuse_given(reading.context, "applies to meshes only", "match")
    (first, n_axes, directions), (second, _, _) = (
        read_file(name) if place is None else read_of_set(*place, reading.options)
        for name, place in zip((source, target), places, strict=True)
    )
    pair = first, second
    for place, values in zip((source, target), pair, strict=True):
        check_sample(place, values, len(cells) if cells else n_axes)
    space = WarpSpace(cells or suit_cells(first.shape[-n_axes:]), boundary)
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
            space, pair[0][None], pair[1][None], method=method, prior=prior, sigma=sigma,
            similarity=similarity, seed=seed, max_steps=max_steps, max_draws=max_draws,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    typer.echo(f"{method}, {space.dim} parameters, {seconds:.2f} s")
    for line in describe_alignment(result):
        typer.echo(options.translate(line))
    is_noise = sigma == "auto" and similarity == "ssd"
    if is_noise and result.loss_after[0] > UNEXPLAINED * result.loss_before[0]:
        typer.echo(
            "no likely warp explains the difference, which counts as noise; a smaller `--sigma` or "
            "a larger `--displacement` allows larger warps"
        )
    if theta is not None:
        write_theta(theta, space, result, method)
        typer.echo(f"theta written to {theta}")
    look = Look.of(np.stack(pair), space.ndim, **directions)
    save_figure(draw_alignment(space, *pair, result, look=look), picture)
    typer.echo(f"picture written to {picture}")


def align_meshes(
    meshes: list[Any],
    picture: Path,
    theta: Path | None,
    *,
    cells: tuple[int, ...] | None,
    boundary: Any,
    match: Any,
    displacement: float,
    length: float,
    **settings: Any,
) -> None:
    """Align a mesh to another, in one box; print distances and draw both and the aligned one."""
    from dreamwarp import SmoothPrior, WarpSpace, align_points
    from dreamwarp.augment.shapes import find_known, match_edges
    from dreamwarp.data import ShapeSet
    from dreamwarp.report.figures import save_figure
    from dreamwarp.report.shapes import draw_shape_pair

    space = WarpSpace(cells or DEFAULT_SHAPE_CELLS[3], boundary)
    n, m = (len(mesh.vertices) for mesh in meshes)
    if match == "known" and n != m:
        raise ValueError(
            f"meshes must have equal numbers of vertices for `--match known`, got {n:,} and {m:,}. "
            "Use `--match nearest`."
        )
    pair = ShapeSet.of([np.asarray(mesh.vertices) for mesh in meshes], [0, 0], meshes=meshes)
    words = match_edges(find_known(pair, match), np.array([[0, 1]]))
    first, second = pair.unit_points()
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the lines printed below say the same
        found = align_points(
            space, [first], [second], match=words,
            prior=SmoothPrior(space, displacement=displacement, length=length), **settings,
        )  # fmt: skip
    by = "by number" if words == ["known"] else "to the nearest"
    typer.echo(
        f"vertices matched {by}, {space.dim} parameters, {time.perf_counter() - start:.2f} s"
    )
    before, after = (float(loss[0]) ** 0.5 for loss in (found.loss_before, found.loss_after))
    typer.echo(f"RMS distance from {before:.4g} to {after:.4g} of the box's side")
    typer.echo(f"noise sigma {found.sigma:.3g}")
    is_done = bool(found.converged[0])
    typer.echo("converged" if is_done else "not converged: a larger `--max-steps` may help")
    if theta is not None:
        write_theta(theta, space, found, "map")
        typer.echo(f"theta written to {theta}")
    save_figure(draw_shape_pair(space, pair, found.theta[0]), picture)
    typer.echo(f"picture written to {picture}")


def write_theta(
    path: Path, space: WarpSpace, result: Alignments | PointAlignments, method: str
) -> None:
    """Write θ (d,) alone as ``.npy``, or with its space and losses as ``.json``."""
    with write_beside(path) as temporary:
        if path.suffix.lower() == ".npy":
            np.save(temporary, result.theta[0])
            return
        diagnostics = getattr(result, "diagnostics", {})  # of arrays
        content = {
            "cells": space.cells,
            "boundary": space.boundary,
            "method": method,
            "sigma": result.sigma,
            "theta": result.theta[0].tolist(),
            "loss_before": float(result.loss_before[0]),
            "loss_after": float(result.loss_after[0]),
            "converged": bool(result.converged[0]),
            "diagnostics": {name: float(v[0]) for name, v in diagnostics.items()},
        }
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


# A sample, the number of its spatial axes and, of a volume, options of ``Look.of``.
Sample = tuple[NDArray[Any], int, dict[str, Any]]


def split_place(place: str) -> tuple[str, int] | None:
    """The data set and the number of a sample ``DATA:K``; None if it names a file."""
    name, _, number = place.rpartition(":")
    is_of_set = name and number.isdecimal() and not Path(place).exists()
    return (name, int(number)) if is_of_set else None


def read_mesh_sample(name: str, place: tuple[str, int] | None) -> Any:
    """Read a mesh, a file or one of a folder; None if it is something else."""
    from dreamwarp.data import load_shapes, read_mesh
    from dreamwarp.data.meshes import SUFFIXES
    from dreamwarp.data.readers import are_meshes

    if Path(name).suffix.lower() in SUFFIXES:
        return read_mesh(name)
    if place is None or not are_meshes(place[0]):
        return None
    meshes = load_shapes(place[0]).meshes
    check_number(*place, len(meshes))
    return meshes[place[1]]


def check_number(name: str, number: int, n: int) -> None:
    """Raise unless the sample with a number is one of n."""
    if number >= n:
        raise ValueError(
            f"`{name}:{number}` must name one of the {n:,} training samples of `{name}`, 0 to "
            f"{n - 1}."
        )


def read_of_set(name: str, number: int, reading: dict[str, Any]) -> Sample:
    """Read a sample of the training part of a data set."""
    from dreamwarp.data import load
    from dreamwarp.data.dataset import count_spatial_axes

    data = load(name, **reading)
    check_number(name, number, len(data.X))
    directions = {"affine": data.affine, "is_anatomical": data.orientation is not None}
    return np.asarray(data.X[number]), count_spatial_axes(data), directions


def read_file(place: str) -> Sample:
    """Read a picture, a volume or an array."""
    from dreamwarp.data import read_image, read_volume
    from dreamwarp.data.dataset import guess_axes
    from dreamwarp.data.numpy_files import read_npy
    from dreamwarp.data.volumes import SUFFIXES

    path = Path(place)
    if path.name.lower().endswith(SUFFIXES):
        values, grid = read_volume(path)
        return values, 3, {"affine": grid.affine, "is_anatomical": grid.has_affine}
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        return values, guess_axes(values.shape) if values.ndim else 1, {}
    return read_image(path), 2, {}


def check_sample(place: str, values: NDArray[Any], n_axes: int) -> None:
    """Raise if a sample (*spatial) or (channels, *spatial) can't be aligned."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"`{place}` must hold real numbers, got {values.dtype}.")
    if values.ndim not in (n_axes, n_axes + 1) or values.size == 0:
        raise ValueError(
            f"`{place}` must have {n_axes} spatial {'axis' if n_axes == 1 else 'axes'}, as many as "
            f"--cells, after optional channels, got shape {values.shape}. Use --cells 10 for "
            "series, 4x4 for images, 3x3x3 for volumes."
        )
    check_finite(place, values)
    if values.min() == values.max():
        raise ValueError(f"`{place}` is constant, {values.flat[0]}: there is nothing to align.")
