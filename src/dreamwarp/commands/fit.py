"""``dreamwarp fit``: learn the warps of each class and write a model file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dreamwarp.commands import options
from dreamwarp.commands.models import check_target, read_samples, write_model
from dreamwarp.core.defaults import (
    DEFAULT_CELLS,
    LENGTH,
    MAX_DRAWS,
    MAX_STEPS,
    N_NEIGHBORS,
    suit_cells,
)

if TYPE_CHECKING:
    from dreamwarp.data import DataSet

# Options that only arrays have.
NOT_FOR_MESHES = (
    "kind", "method", "max_pairs", "pixels_per_cell", "similarity", "max_draws", "scheduler",
)  # fmt: skip


@options.reads_data
def fit(
    data: Annotated[
        str,
        options.argument(
            metavar="DATA",
            help="A name, file or folder, as for `dreamwarp data`. Only the training part is used.",
        ),
    ],
    output: Annotated[
        str,
        options.output_path(
            help="Model file to write, .dwm: a path, or a URL that fsspec supports."
        ),
    ],
    cells: options.Cells = "auto",
    boundary: options.Boundary = "free",
    kind: Annotated[
        Literal["auto", "template", "gaussian"],
        options.warps(
            help="Distribution of the warps. template: depends on the sample that is warped; "
            "gaussian: one per class, as in the paper; auto: template, unless gaussian explains "
            "held-out pairs better."
        ),
    ] = "auto",
    strength: Annotated[
        Any,
        options.warps(
            parser=options.parse_amount,
            metavar="NUMBER|auto",
            help="Factor on the warps; auto: the best one on held-out samples for a nearest "
            "neighbour. Networks get one of their own.",
        ),
    ] = "auto",
    neighbors: Annotated[
        int,
        options.alignment(
            min=1,
            help="Number of neighbours in its class that each sample is aligned with; for meshes, "
            "of others of its class.",
        ),
    ] = N_NEIGHBORS,
    method: Annotated[
        Literal["eb", "map", "laplace", "metropolis", "hmc"],
        options.alignment(
            help="How the distribution is learned. eb: by empirical Bayes, maximizing the marginal "
            "likelihood of the pairs. map: from the most probable warp of each pair. The others: "
            "from one posterior draw per pair; metropolis is the paper's method, hmc is faster, "
            "laplace is approximate."
        ),
    ] = "eb",
    max_pairs: Annotated[
        int | None,
        options.alignment(
            min=5,
            help="Largest number of pairs to learn from, balanced over classes. Default: 1,000 for "
            "eb, or 50 per class if that is more; all for other methods. For template, all "
            "neighbours are aligned in any case.",
        ),
    ] = None,
    pixels_per_cell: Annotated[
        int | None,
        options.alignment(
            min=1,
            help="Reduce samples to at most this many pixels per cell and axis before aligning "
            "them. Default: 4 for eb, full resolution for other methods.",
        ),
    ] = None,
    similarity: options.Similarity = "ssd",
    match: options.Match = "auto",
    sigma: options.Sigma = "auto",
    displacement: options.LearnedDisplacement = "auto",
    length: options.Length = LENGTH,
    max_steps: options.MaxSteps = MAX_STEPS,
    max_draws: options.MaxDraws = MAX_DRAWS,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    scheduler: options.Scheduler = None,
    *,
    reading: options.Reading,
) -> None:
    """Learn how the members of each class deform into one another; write a model file.

    [bold]Examples[/bold]

    dreamwarp fit mnist -o digits.dwm
    dreamwarp fit leaves/ -o leaves.dwm --resize 64x64 --cells 6x6 --neighbors 8
    dreamwarp fit GunPoint/ -o gestures.dwm
    dreamwarp fit scans/ -o scans.dwm --resize 32x32x32
    dreamwarp fit mnist -o paper.dwm --method metropolis --kind gaussian --boundary zero
    """
    from dreamwarp.augment import Augmenter, ShapeAugmenter
    from dreamwarp.data import ShapeSet

    check_target(output, overwrite=overwrite)
    samples = read_samples(data, reading, only_for_arrays=NOT_FOR_MESHES)
    if isinstance(samples, ShapeSet):
        typer.echo(samples.describe())
        learned = ShapeAugmenter(
            cells=cells, boundary=boundary, n_neighbors=neighbors, match=match, sigma=sigma,
            displacement=displacement, length=length, max_steps=max_steps,
            strength=1.0 if strength == "auto" else strength, seed=seed,
        ).fit(samples)  # fmt: skip
        write_model(learned.model_, output)
        found = learned.alignments_
        losses = found.loss_before, found.loss_after
        before, after = (float(loss.mean()) ** 0.5 for loss in losses)
        typer.echo(
            f"{len(found):,} pairs aligned, RMS distance from {before:.4f} to {after:.4f} of the "
            f"box's side; model written to {output}"
        )
        return
    options.refuse_given(reading.context, "applies to meshes only", "match")
    cells = cells or choose_cells(samples)
    shape = samples.X.shape[1:]
    if len(shape) < len(cells):
        raise ValueError(
            f"`{samples.name}` must have samples with {len(cells)} axes for "
            f"{'x'.join(map(str, cells))} cells, got shape {shape}. Use `--shape 28x28` for images "
            "stored flat, `--cells 10` for series."
        )
    augmenter = Augmenter(
        cells=cells, boundary=boundary, n_neighbors=neighbors, method=method,
        similarity=similarity, sigma=sigma, displacement=displacement,
        length=length, max_steps=max_steps, max_draws=max_draws, max_pairs=max_pairs,
        pixels_per_cell=pixels_per_cell or "auto", model=kind, strength=strength, seed=seed,
    )  # fmt: skip
    typer.echo(f"{samples.describe()}; {'x'.join(map(str, cells))} cells")
    with options.connected(scheduler) as client:
        augmenter.fit(samples.X, samples.y, client=client)
    known = {} if samples.orientation is None else {"orientation": samples.orientation}
    write_model(augmenter.model_.with_settings(**known), output)
    typer.echo(str(augmenter.verdict_))
    typer.echo(
        f"{len(augmenter.edges_):,} pairs aligned, strength {augmenter.strength_:g} "
        f"({augmenter.model_.network_strength:.3g} for networks); model written to {output}"
    )


def choose_cells(samples: DataSet) -> tuple[int, ...]:
    """Choose the default cells for series, images or volumes.

    Flat samples whose length is a square number may be images: they count as series only if the
    data set says so.
    """
    from dreamwarp.data.dataset import count_spatial_axes

    shape = samples.X.shape[1:]
    if samples.n_axes is None and len(shape) == 1 and math.isqrt(shape[0]) ** 2 == shape[0]:
        return DEFAULT_CELLS[2]
    return suit_cells(shape[-count_spatial_axes(samples) :])
