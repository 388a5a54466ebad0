"""Classifiers on few labels, with augmentation during training: 1-NN, MLP, ConvNet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.class_distances import ClassDistances
from experiments.rivals import Deform
from experiments.tasks import Samples, Task

Array = NDArray[Any]
# Steps of training, and samples per step; `longer` tells whether more steps change the errors.
N_STEPS, BATCH = 7200, 128
# New samples for a nearest neighbour: so many, or so many of each labelled sample.
N_NEW, N_COPIES, BLOCK = 100_000, 500, 4_000
NETWORKS = ("MLP", "ConvNet")
CLASSIFIERS = ("1-NN", *NETWORKS)


def classify(
    classifier: str,
    task: Task,
    deform: Deform | None,
    judges: dict[str, Samples],
    *,
    seed: int,
    n_steps: int = N_STEPS,
    n_new: int = N_NEW,
) -> dict[str, Any]:
    """Error rate by classifier; ``deform`` None: no augmentation. Networks: also the precision."""
    if classifier == "1-NN":
        return find_nearest(task, deform, judges, min(n_new, N_COPIES * len(task.X)))
    return train(classifier, task, deform, judges, seed, n_steps)


def find_nearest(
    task: Task, deform: Deform | None, judges: dict[str, Samples], n_new: int
) -> dict[str, float]:
    """Errors of the nearest of the labelled and of the new samples."""
    found = {
        name: ClassDistances.among(_scaled(task, X), _scaled(task, task.X), task.y, task.n_classes)
        for name, (X, _) in judges.items()
    }
    for first in range(0, n_new if deform is not None else 0, BLOCK):
        templates = np.arange(first, min(first + BLOCK, n_new)) % len(task.X)
        made = _scaled(task, deform(templates, first))
        found = {name: near.improve(made, task.y[templates]) for name, near in found.items()}
    return {name: float(found[name].errors(y).mean()) for name, (_, y) in judges.items()}


def take_batches(n: int, n_steps: int, seed: int) -> Iterator[Array]:
    """Samples of each batch: all in turn, in a new order every epoch. The same for all rivals."""
    for step in range(n_steps):
        epochs, places = np.divmod(np.arange(step * BATCH, (step + 1) * BATCH), n)
        orders = {e: np.random.default_rng((seed, int(e))).permutation(n) for e in set(epochs)}
        yield np.array([orders[e][place] for e, place in zip(epochs, places, strict=True)])


def train(
    classifier: str,
    task: Task,
    deform: Deform | None,
    judges: dict[str, Samples],
    seed: int,
    n_steps: int,
) -> dict[str, Any]:
    """Errors of a network after its last step, and the precision it was trained in."""
    import torch

    torch.manual_seed(seed)
    network = build(classifier, task)

    def make() -> Iterator[Samples]:
        for step, templates in enumerate(take_batches(len(task.X), n_steps, seed)):
            made = task.X[templates] if deform is None else deform(templates, step * BATCH)
            yield made, task.y[templates]

    half = classifier == "ConvNet" and precision() == "bfloat16"
    predict = train_network(network, make(), n_steps, task.scale, half_precision=half)
    errors = {name: float(np.mean(predict(X) != y)) for name, (X, y) in judges.items()}
    return errors | {"precision": "bfloat16" if half else "float32"}


def train_network(
    network: Any,
    batches: Iterator[Samples],
    n_steps: int,
    scale: float,
    *,
    half_precision: bool = False,
) -> Callable[[Array], Array]:
    """Train by Adam, with a learning rate that falls to 0; returns a function that predicts.

    ``half_precision`` multiplies matrices in bfloat16 while training.
    """
    import torch
    from torch import nn

    layout = torch.channels_last  # faster, for images
    network = network.to(memory_format=layout)
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)

    def read(X: Array) -> Any:
        samples = torch.from_numpy(X[:, None].astype(np.float32) / np.float32(scale))
        return samples.contiguous(memory_format=layout) if samples.ndim == 4 else samples

    network.train()
    for X, y in batches:
        with torch.autocast("cpu", torch.bfloat16, enabled=half_precision):
            logits = network(read(X))
        loss = nn.functional.cross_entropy(logits.float(), torch.from_numpy(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    network.eval()

    def predict(X: Array) -> Array:
        with torch.no_grad():
            parts = [network(read(X[k : k + 1000])).argmax(1) for k in range(0, len(X), 1000)]
        return torch.cat(parts).numpy()

    return predict


def precision() -> str:
    """Precision in which large networks are trained: bfloat16 where it is faster.

    Not with AMX, which may be advertised and not usable.
    """
    import torch

    fast = torch.cpu._is_avx512_bf16_supported() and not torch.cpu._is_amx_tile_supported()
    return "bfloat16" if fast else "float32"


def build(classifier: str, task: Task) -> Any:
    """An untrained network: an MLP of 3 x 512 units, the paper's ConvNet, or `make_network`'s.

    The paper's ConvNet takes images of 16 x 16 pixels and more; for other samples "ConvNet" is
    `make_network`'s.
    """
    from torch import nn

    from dreamwarp.torch.networks import make_network

    too_small = task.n_axes != 2 or min(task.X.shape[1:]) < 16
    if classifier == "small ConvNet" or (classifier == "ConvNet" and too_small):
        return make_network(1, task.X.shape[1:], task.n_classes)
    n_pixels = int(np.prod(task.X.shape[1:]))
    if classifier == "MLP":
        layers: list[Any] = [nn.Flatten()]
        for n_inputs in (n_pixels, 512, 512):
            layers += [nn.Linear(n_inputs, 512), nn.ReLU(), nn.Dropout(0.2)]
        return nn.Sequential(*layers, nn.Linear(512, task.n_classes))
    # Pooling before ReLU gives the same numbers and is faster.
    n_left = 50 * int(np.prod([((size - 4) // 2 - 4) // 2 for size in task.X.shape[1:]]))
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(n_left, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, task.n_classes),
    )  # fmt: skip


def _scaled(task: Task, X: Array) -> NDArray[np.float32]:
    return X.astype(np.float32) / np.float32(task.scale)
