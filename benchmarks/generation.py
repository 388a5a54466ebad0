"""Question: how many samples does generation write per second, and where does the time go.

28 x 28 uint8 images to IDX files, as ``dreamwarp sample`` writes them: templates and warps drawn,
warped, hashed and written. The stages are then measured one by one on the same blocks, each on one
thread, and held against what the machine can do.
"""

from __future__ import annotations

import hashlib
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import STRENGTHS, draw_theta, pixel_centers
from benchmarks.measure import Contestant, Timing, measure
from benchmarks.report import Report, Target, duration
from benchmarks.settings import Settings
from dreamwarp import WarpModel, WarpSpace
from dreamwarp.augment import SampleSource
from dreamwarp.generation import generate
from dreamwarp.generation.formats import make_format
from dreamwarp.generation.shards import Shard, block_size
from dreamwarp.generation.stores import LocalStore
from dreamwarp.space.resample import resample
from dreamwarp.space.warp import default_tolerance

Array = NDArray[Any]

CELLS, SHAPE, N_CLASSES = (4, 4), (28, 28), 10
# What is asked of two cores: ten million images in ten minutes, and in a gigabyte.
N_ASKED, SECONDS_ASKED, MEMORY_ASKED = 10_000_000, 600.0, 1.0


def run(settings: Settings) -> Report:
    report = Report(
        "generation", "how many samples are written per second, and what takes how long?"
    )
    n, n_rounds = settings.pick(200_000, 500), settings.pick(3, 1)
    source = make_source(settings)
    report.details = {"cells": CELLS, "images": SHAPE, "n_images": n, "format": "idx"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = _time_whole(source, folder, n, n_rounds, settings)
        stages = time_stages(source, folder, settings.pick(9, 2))
    report.add("Generation to IDX, all threads", "image", [whole])
    report.add("Stages, one thread", "image", stages)
    rates = tuple(1.0 / seconds for seconds in whole.seconds)
    report.targets.append(
        Target("ten million images in ten minutes", N_ASKED / SECONDS_ASKED, rates, "images/s")
    )
    memory = measure_memory(n)
    report.targets.append(Target("peak memory", MEMORY_ASKED, (memory,), "GB", at_least=False))
    report.notes.append(explain(whole, stages, settings.n_threads, machine_times(n_rounds)))
    return report


def make_source(settings: Settings) -> SampleSource:
    """A model of natural warps, and noise to warp: what an image shows changes no cost."""
    space, rng = WarpSpace(CELLS), np.random.default_rng(settings.seed)
    theta = draw_theta(space, 500, STRENGTHS["natural"], pixel_centers(SHAPE), seed=settings.seed)
    by_class = {label: theta[label::N_CLASSES].astype(np.float64) for label in range(N_CLASSES)}
    model = WarpModel.fit(space, by_class, shrinkage=0.1, pooling=0.1)
    n_templates = settings.pick(60_000, 100)
    images = rng.integers(0, 256, (n_templates, *SHAPE), np.uint8)
    return SampleSource(model, (images, np.arange(n_templates) % N_CLASSES), seed=settings.seed)


def time_stages(source: SampleSource, folder: Path, n_rounds: int) -> list[Timing]:
    """Random numbers, templates, flow, interpolation and writing of one block, on one thread."""
    n, space = block_size(source.form), source.model.space
    numbers, centers = np.arange(n), pixel_centers(SHAPE)
    templates = source.choose(numbers, n_threads=1)
    codes = source.codes[templates]
    theta = source.model.draw(codes, numbers, seed=source.key, n_threads=1)
    tolerance = default_tolerance(SHAPE)
    moved = space.flow(theta, centers, tolerance=tolerance, n_threads=1)
    images = source.data.X[templates]
    X, y = source.make(0, n, n_threads=1)

    def draw() -> None:
        source.choose(numbers, n_threads=1)
        source.model.draw(codes, numbers, seed=source.key, n_threads=1)

    stages = {
        "random numbers": draw,
        "copies of templates": lambda: source.data.X[templates],
        "flow": lambda: space.flow(theta, centers, tolerance=tolerance, n_threads=1),
        "interpolation": lambda: resample(images[:, None], moved, n_threads=1),
        "writing": lambda: _write(source, folder, X, y),
    }
    return measure([Contestant(name, call, n) for name, call in stages.items()], n_rounds=n_rounds)


def machine_times(n_rounds: int) -> dict[str, float]:
    """Seconds per image that the machine itself takes to copy, hash and draw as many numbers."""
    n, dim, rng = 2**14, WarpSpace(CELLS).dim, np.random.default_rng(0)
    images, normals = np.zeros((n, *SHAPE), np.uint8), np.empty((n, dim))
    target = np.empty_like(images)
    timings = measure(
        [
            Contestant("copy", lambda: np.copyto(target, images), n),
            Contestant("hash", lambda: hashlib.sha256(images.data).digest(), n),
            Contestant("draw", lambda: rng.standard_normal(out=normals), n),
        ],
        n_rounds=n_rounds,
    )
    return {timing.name: timing.median for timing in timings}


def explain(whole: Timing, stages: list[Timing], n_threads: int, machine: dict[str, float]) -> str:
    """One paragraph made of the figures."""
    total = sum(stage.median for stage in stages)
    shares = ", ".join(f"{stage.name} {stage.median / total:.0%}" for stage in stages)
    by_name = {stage.name: stage.median for stage in stages}
    used = total / n_threads / whole.median
    return (
        f"{1.0 / whole.median:,.0f} images per second on {n_threads} threads, at which ten million "
        f"take {duration(N_ASKED * whole.median)}. One thread's work on an image adds up to "
        f"{duration(total)}: {shares}. So threads are used to {used:.0%} of what they could give. "
        "How far the flow is from what the machine can do is a question of its own (hardware). "
        f"Interpolation takes {by_name['interpolation'] / machine['copy']:.0f} times as long as "
        f"copying an image, writing {by_name['writing'] / machine['hash']:.1f} times as long as "
        f"hashing it, and random numbers {by_name['random numbers'] / machine['draw']:.1f} times "
        "as long as numpy takes for as many normals, which it does not turn into warps."
    )


def measure_memory(n: int) -> float:
    """Peak memory of a process that only generates n images, in GB.

    A process of its own: this one may have had other benchmarks and their peers in it.
    """
    command = [sys.executable, "-m", "benchmarks.generation", str(n)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main(n: int) -> None:
    """Generate n images; return the peak memory in GB."""
    source = make_source(Settings(Path()))
    with tempfile.TemporaryDirectory() as name:
        generate(source.model, source.data, Path(name, "set"), n=n, progress=False)
    print(peak_memory() / 1e9)


def peak_memory() -> int:
    """Peak memory of this process in bytes.

    On Linux by its own account: what ``getrusage`` says starts with what the process held that
    started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _time_whole(
    source: SampleSource, folder: Path, n: int, n_rounds: int, settings: Settings
) -> Timing:
    generate(source.model, source.data, folder / "warm", n=1, progress=False)
    seconds = []
    for k in range(n_rounds):
        done = generate(
            source.model, source.data, folder / str(k), n=n, seed=source.key, progress=False,
            n_threads=settings.n_threads,
        )  # fmt: skip
        seconds.append(done.seconds / n)
        for file in (folder / str(k)).iterdir():
            file.unlink()
    return Timing("dreamwarp", n, 1, tuple(seconds))


def _write(source: SampleSource, folder: Path, X: Array, y: Array) -> None:
    file_format = make_format("idx", source.form)
    with file_format.create(LocalStore(folder), Shard(0, 0, len(X)), {}) as add:
        add(file_format.encode(0, X, y))


if __name__ == "__main__":
    main(int(sys.argv[1]))
