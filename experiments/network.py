"""The paper's ConvNet on few labels, with samples that every rival makes as training goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import numpy as np

from experiments.rivals import N_CLASSES, Array, Samples
from experiments.trials import Errors, Plan, Trial

BATCH, N_PROCESSES = 128, 2


def run_all(plan: Plan, trials: Sequence[Trial]) -> Iterator[tuple[Trial, Errors]]:
    """Each trial and its errors as they end: on a core each, which beats sharing cores."""
    pool = ProcessPoolExecutor(N_PROCESSES, get_context("spawn"), use_one_core)
    try:
        futures = {pool.submit(run, plan, trial): trial for trial in trials}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def run(plan: Plan, trial: Trial) -> Errors:
    """Shares of images that a network mistakes after its last step."""
    import torch
    from torch import nn

    _, make, n_steps, judges = plan.prepare(trial)
    torch.manual_seed(trial.seed)
    network = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(800, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, N_CLASSES),
    )  # fmt: skip
    network = network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters())
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)

    def read(X: Array) -> torch.Tensor:
        images = torch.from_numpy(X[:, None].astype(np.float32) / 255.0)
        return images.contiguous(memory_format=torch.channels_last)

    for step in range(n_steps):
        X, y = make(step * BATCH, BATCH)
        loss = nn.functional.cross_entropy(network(read(X)), torch.from_numpy(y.astype(np.int64)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    network.eval()

    def judge(images: Samples) -> float:
        X, y = images
        parts = np.array_split(X, -(-len(X) // 1000))
        found = np.concatenate([network(read(part)).argmax(1).numpy() for part in parts])
        return float(np.mean(found != y))

    with torch.no_grad():
        return {name: judge(images) for name, images in judges.items()}


def use_one_core() -> None:
    """Leave the other cores to other processes."""
    import torch
    from numba import set_num_threads

    torch.set_num_threads(1)
    set_num_threads(1)
