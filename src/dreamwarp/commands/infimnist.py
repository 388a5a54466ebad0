"""``dreamwarp infimnist``: endless MNIST digits, by hand-designed deformations."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from dreamwarp.commands import options
from dreamwarp.core.files import refuse_address, refuse_existing
from dreamwarp.core.progress import track

# MNIST's own file names, so that any MNIST reader can read them.
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
# Images held in memory at a time.
BLOCK = 2**14
# The format counts images in 32 bits.
MAX_IMAGES = 2**32 - 1
BYTES_PER_IMAGE = 28 * 28 + 1


def infimnist(
    n: Annotated[int, options.count("--number", "-n", max=MAX_IMAGES, help="Number of images.")],
    output: Annotated[str, options.output_path(help="Folder for the files.")],
    first: Annotated[
        int,
        options.count(
            min=0,
            help="Number of the first image. Images 0 to 9,999 are MNIST's test images and 10,000 "
            "to 69,999 its training images, unchanged; deformed images follow.",
        ),
    ] = 70_000,
    width: Annotated[
        float | None,
        typer.Option(
            help="Width of the Gaussian that smooths the deformations, in pixels. Default: the "
            "best on validation data."
        ),
    ] = None,
    amplitude: Annotated[
        float | None,
        typer.Option(
            help="Strength of the deformations in pixels. Default: the best on validation data."
        ),
    ] = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> None:
    """Write deformed MNIST digits, made as in InfiMNIST, as IDX files.

    This hand-designed augmentation is a baseline for learned warps. MNIST is fetched if necessary.

    [bold]Examples[/bold]

    dreamwarp infimnist -n 1000000 -o infimnist
    dreamwarp infimnist -n 60000 -o more --first 1070000 --width 6 --amplitude 1.5
    """
    import numpy as np

    from dreamwarp.augment.rivals.infimnist import AMPLITUDE, WIDTH, InfiMNIST
    from dreamwarp.data import mnist
    from dreamwarp.data.idx import encode_header
    from dreamwarp.generation.stores import check_room, open_store

    refuse_address(output)
    for name in () if overwrite else (IMAGES, LABELS):
        refuse_existing(Path(output, name))
    data = mnist()
    width = WIDTH if width is None else width
    amplitude = AMPLITUDE if amplitude is None else amplitude
    generator = InfiMNIST(
        data.X, data.y, test=data.test, width=width, amplitude=amplitude, seed=seed
    )
    typer.echo(
        f"images {first:,} to {first + n - 1:,}: fields of width {width:g} and "
        f"amplitude {amplitude:g} pixels, seed {seed}"
    )
    start = time.perf_counter()
    store = open_store(output)
    with store.claim():
        store.sweep()
        check_room(store, n * BYTES_PER_IMAGE, f"{n:,} images")
        # Both files appear when complete.
        with (
            store.create(IMAGES) as images,
            store.create(LABELS) as labels,
            track(n, "images") as advance,
        ):
            shape = (n, *generator.image_shape)
            images.write(encode_header(np.dtype(np.uint8), shape))
            labels.write(encode_header(np.dtype(np.uint8), shape[:1]))
            for begin in range(first, first + n, BLOCK):
                indices = np.arange(begin, min(begin + BLOCK, first + n))
                images.write(generator.image(indices).data)
                labels.write(generator.label(indices).astype(np.uint8).data)
                advance(len(indices))
    seconds = time.perf_counter() - start
    typer.echo(
        f"{n:,} images and labels in {output} after {seconds:.1f} s: "
        f"{n / seconds:,.0f} images per second"
    )
