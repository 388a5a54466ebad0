"""The paper's ConvNet on few labels, with samples that every rival makes as training goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from typing import Literal, NamedTuple

import numpy as np

from experiments.rivals import (
    N_CLASSES,
    Array,
    Grids,
    Rival,
    Task,
    load_task,
    make_by_itself,
    make_rivals,
)

N_LABELS, N_VALIDATION = 100, 10_000
GRIDS = Grids(
    widths=(4.0, 5.0, 7.0), amplitudes=(1.0, 1.4, 2.0), displacements=(0.03, 0.04, 0.055, 0.075),
    methods=("map", "laplace"), strengths=(1.0, 1.3, 1.6),
)  # fmt: skip
# Steps, each of so many samples, of the networks that choose a candidate and of those that are
# told about.
N_TRIED, N_STEPS, BATCH = 1_000, 2_400, 128


class Training(NamedTuple):
    """A network to train.

    Attributes
    ----------
    draw : int
        Whose labels; also the seed of the network.
    rival, candidate : str
        Who makes the samples; without a candidate, the only one.
    n_steps : int
    judges : {"validation", "test"}
    """

    draw: int
    rival: str
    candidate: str
    n_steps: int
    judges: Literal["validation", "test"]


def run_all(
    trainings: Sequence[Training], n_processes: int = 2
) -> Iterator[tuple[Training, float]]:
    """Each training and its error, as they end: on a core each, which beats sharing cores."""
    with ProcessPoolExecutor(n_processes, get_context("spawn"), _use_one_core) as pool:
        futures = {pool.submit(train, training): training for training in trainings}
        for future in as_completed(futures):
            yield futures[future], future.result()


def candidates(draw: int) -> dict[str, list[str]]:
    """Names of the candidates of every rival."""
    return {name: list(rival.candidates) for name, rival in _prepare(draw)[1].items()}


def train(training: Training) -> float:
    """Share of images that a network mistakes after its last step."""
    import torch
    from torch import nn

    task, rivals = _prepare(training.draw)
    rival = rivals[training.rival]
    make = rival.candidates[training.candidate or next(iter(rival.candidates))]
    torch.manual_seed(training.draw)
    network = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(800, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, N_CLASSES),
    )  # fmt: skip
    network = network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters())
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, training.n_steps)

    def read(X: Array) -> torch.Tensor:
        images = torch.from_numpy(X[:, None].astype(np.float32) / 255.0)
        return images.contiguous(memory_format=torch.channels_last)

    for step in range(training.n_steps):
        X, y = make(step * BATCH, BATCH)
        loss = nn.functional.cross_entropy(network(read(X)), torch.from_numpy(y.astype(np.int64)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    X, y = task.test if training.judges == "test" else task.validation
    network.eval()
    with torch.no_grad():
        found = torch.cat([network(some).argmax(1) for some in read(X).split(1000)])
    return float(np.mean(found.numpy() != y))


def _use_one_core() -> None:
    import torch
    from numba import set_num_threads

    torch.set_num_threads(1)
    set_num_threads(1)


@cache
def _prepare(draw: int) -> tuple[Task, dict[str, Rival]]:
    """The labels of a draw and all rivals."""
    task = load_task(N_LABELS, draw, N_VALIDATION)
    rivals = [*make_rivals(task, GRIDS), make_by_itself(task)]
    return task, {rival.name: rival for rival in rivals}
