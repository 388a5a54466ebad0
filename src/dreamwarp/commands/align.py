"""``dreamwarp align``: align one sample to another and show the result."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from dreamwarp.commands import options
from dreamwarp.commands.models import read_samples
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
    from matplotlib.figure import Figure

    from dreamwarp import Alignments, WarpSpace
    from dreamwarp.align import PointAlignments
    from dreamwarp.data import ShapeSet


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
    from dreamwarp import SmoothPrior, WarpSpace
    from dreamwarp.report.figures import check_picture_path, save_figure

    picture = check_picture_path(output or "align.png")
    if theta is not None:
        check_suffix(theta, (".json", ".npy"), "theta")
    for path in (output, theta):
        if path is not None and not overwrite:
            refuse_existing(path)
    names = source, target
    samples = read_pair(names, reading)
    are_arrays = all(isinstance(sample, Sample) for sample in samples)
    if are_arrays:
        options.refuse_given(reading.context, "applies to meshes only", "match")
        check_pair(names, samples, len(cells) if cells else samples[0].n_axes)
        cells = cells or suit_cells(samples[0].values.shape[-samples[0].n_axes :])
    else:
        reading.refuse_for_meshes(*NOT_FOR_MESHES)
        cells = cells or DEFAULT_SHAPE_CELLS[3]
    space = WarpSpace(cells, boundary)
    settings: dict[str, Any] = {
        "prior": SmoothPrior(space, displacement=displacement, length=length),
        "sigma": sigma, "max_steps": max_steps,
    }  # fmt: skip
    start = time.perf_counter()
    if are_arrays:
        settings |= {"method": method, "similarity": similarity, "max_draws": max_draws}
        aligned = align_arrays(space, *samples, seed=seed, **settings)
    else:
        aligned = align_meshes(space, join_meshes(samples, match), match=match, **settings)
    typer.echo(f"{aligned.how}, {space.dim} parameters, {time.perf_counter() - start:.2f} s")
    for line in aligned.lines:
        typer.echo(options.translate(line))
    if theta is not None:
        write_theta(theta, space, aligned.result, method)
        typer.echo(f"theta written to {theta}")
    save_figure(aligned.draw(), picture)
    typer.echo(f"picture written to {picture}")


class Aligned(NamedTuple):
    """Two samples or meshes, aligned."""

    result: Alignments | PointAlignments
    how: str
    lines: list[str]  # how well
    draw: Callable[[], Figure]


def align_arrays(space: WarpSpace, source: Sample, target: Sample, **settings: Any) -> Aligned:
    """Align a series, image or volume to another."""
    from dreamwarp import align_pairs
    from dreamwarp.report.aligned import describe_alignment, draw_alignment
    from dreamwarp.report.subject import Look

    first, second = source.values, target.values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the lines printed say the same
        found = align_pairs(space, first[None], second[None], **settings)
    lines = list(describe_alignment(found))
    is_noise = settings["sigma"] == "auto" and settings["similarity"] == "ssd"
    if is_noise and found.loss_after[0] > UNEXPLAINED * found.loss_before[0]:
        lines.append(
            "no likely warp explains the difference, which counts as noise; a smaller `sigma` or a "
            "larger `displacement` allows larger warps"
        )
    look = Look.of(np.stack((first, second)), space.ndim, **source.directions)
    draw = partial(draw_alignment, space, first, second, found, look=look)
    return Aligned(found, settings["method"], lines, draw)


def align_meshes(space: WarpSpace, shapes: ShapeSet, **settings: Any) -> Aligned:
    """Align the first of two meshes to the second."""
    from dreamwarp.report.shapes import align_shapes, draw_shape_pair

    found, (matched,) = align_shapes(space, shapes, np.array([[0, 1]]), **settings)
    how = f"vertices matched {'by number' if matched == 'known' else 'to the nearest'}"
    before, after = (float(loss[0]) ** 0.5 for loss in (found.loss_before, found.loss_after))
    lines = [
        f"RMS distance from {before:.4g} to {after:.4g} of the box's side",
        f"noise sigma {found.sigma:.3g}",
        "converged" if found.converged[0] else "not converged: a larger `max_steps` may help",
    ]
    return Aligned(found, how, lines, partial(draw_shape_pair, space, shapes, found.theta[0]))


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


class Sample(NamedTuple):
    """A sample, the number of its spatial axes and, of a volume, options of ``Look.of``."""

    values: NDArray[Any]
    n_axes: int
    directions: dict[str, Any]


def read_pair(texts: tuple[str, str], reading: options.Reading) -> list[Any]:
    """Read two samples or two meshes, each from a file or from a data set, ``DATA:K``."""
    places = [split_place(text) for text in texts]
    if reading.options and places == [None, None]:
        raise ValueError(
            f"`--{next(iter(reading.options))}` is for samples of a data set, such as DATA:0, got "
            f"the files `{texts[0]}` and `{texts[1]}`. Leave it out."
        )
    samples = [
        read_file(text) if place is None else read_of_set(*place, reading)
        for text, place in zip(texts, places, strict=True)
    ]
    if len({isinstance(sample, Sample) for sample in samples}) > 1:
        raise ValueError(f"`{texts[0]}` and `{texts[1]}` must both be meshes, or neither.")
    return samples


def split_place(place: str) -> tuple[str, int] | None:
    """The data set and the number of a sample ``DATA:K``; None if it names a file."""
    name, _, number = place.rpartition(":")
    is_of_set = name and number.isdecimal() and not Path(place).exists()
    return (name, int(number)) if is_of_set else None


def read_of_set(name: str, number: int, reading: options.Reading) -> Any:
    """Read a sample of the training part of a data set, or a mesh of a folder."""
    from dreamwarp.data import ShapeSet
    from dreamwarp.data.dataset import count_spatial_axes

    data = read_samples(name, reading)
    n = len(data.y)
    if number >= n:
        raise ValueError(
            f"`{name}:{number}` must name one of the {n:,} training samples of `{name}`, 0 to "
            f"{n - 1}."
        )
    if isinstance(data, ShapeSet):
        return data.meshes[number]
    directions = {"affine": data.affine, "is_anatomical": data.orientation is not None}
    return Sample(np.asarray(data.X[number]), count_spatial_axes(data), directions)


def read_file(place: str) -> Any:
    """Read a picture, a volume, an array or a mesh."""
    from dreamwarp.data import meshes, read_image, read_mesh, read_volume, volumes
    from dreamwarp.data.dataset import guess_axes
    from dreamwarp.data.numpy_files import read_npy

    path = Path(place)
    if path.suffix.lower() in meshes.SUFFIXES:
        return read_mesh(path)
    if path.name.lower().endswith(volumes.SUFFIXES):
        values, grid = read_volume(path)
        return Sample(values, 3, {"affine": grid.affine, "is_anatomical": grid.has_affine})
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        return Sample(values, guess_axes(values.shape) if values.ndim else 1, {})
    return Sample(read_image(path), 2, {})


def check_pair(texts: tuple[str, str], samples: list[Sample], n_axes: int) -> None:
    """Raise if two samples (*spatial) or (channels, *spatial) can't be aligned."""
    pair = [sample.values for sample in samples]
    for text, values in zip(texts, pair, strict=True):
        if values.dtype.kind not in "biuf":
            raise ValueError(f"`{text}` must hold real numbers, got {values.dtype}.")
        if values.ndim not in (n_axes, n_axes + 1) or values.size == 0:
            raise ValueError(
                f"`{text}` must have {n_axes} spatial {'axis' if n_axes == 1 else 'axes'}, as many "
                f"as --cells, after optional channels, got shape {values.shape}. Use --cells 10 "
                "for series, 4x4 for images, 3x3x3 for volumes."
            )
        check_finite(text, values)
        if values.min() == values.max():
            raise ValueError(f"`{text}` is constant, {values.flat[0]}: there is nothing to align.")
    if pair[0].shape != pair[1].shape:
        raise ValueError(
            f"`{texts[0]}` and `{texts[1]}` must have the same shape, got {pair[0].shape} and "
            f"{pair[1].shape}. Resize one, or convert both to grey or both to colour."
        )


def join_meshes(meshes: list[Any], match: str) -> ShapeSet:
    """Two meshes in one box."""
    from dreamwarp.data import ShapeSet

    n, m = (len(mesh.vertices) for mesh in meshes)
    if match == "known" and n != m:
        raise ValueError(
            f"meshes must have equal numbers of vertices for `--match known`, got {n:,} and {m:,}. "
            "Use `--match nearest`."
        )
    return ShapeSet.of([np.asarray(mesh.vertices) for mesh in meshes], [0, 0], meshes=meshes)
