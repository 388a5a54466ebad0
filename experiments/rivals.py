"""Ways to deform labelled samples: hand-made, random, learned. Each has settings to choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from dreamwarp.augment.rivals.elastic import deform_elastically
from dreamwarp.augment.rivals.infimnist import InfiMNIST
from experiments.tasks import Task

Array = NDArray[Any]
# Deforms samples ``templates`` (n,) of a task, as numbers ``first`` to ``first + n - 1``.
Deform = Callable[[Array, int], Array]
# Elastic noise is given for images of this many pixels per axis, and scaled for others.
PIXELS = 28
# Width of elastic noise in pixels: the best of 3 to 7 for nearest neighbours and networks on MNIST.
WIDTH = 5.0
AMPLITUDES = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
# Elastic amplitude, in pixels, that goes with an affine map of strength 1.
AMPLITUDE_PER_AFFINE = 1.4


@dataclass(frozen=True)
class Rival:
    """One way to make more samples.

    Attributes
    ----------
    name : str
    prepare : callable (task, setting, for_network) -> Deform
        Learns from the labelled samples of the task.
    settings : tuple of float
        To choose from on validation samples; empty if there is nothing to choose.
    tuned_as : str
        Another rival, whose chosen setting is used.
    """

    name: str
    prepare: Callable[[Task, float | None, bool], Deform]
    settings: tuple[float, ...] = ()
    tuned_as: str = ""


def _nothing(task: Task, setting: float | None, for_network: bool) -> Deform:
    return lambda templates, first: task.X[templates]


def _by_hand(
    elastic: bool, affine: bool, interpolation: Any = "linear"
) -> Callable[[Task, float | None, bool], Deform]:
    def prepare(task: Task, setting: float | None, for_network: bool) -> Deform:
        assert setting is not None
        scale = task.X.shape[-1] / PIXELS
        amplitude = setting * (AMPLITUDE_PER_AFFINE if affine else 1.0) if elastic else 0.0
        options: Any = {
            "width": WIDTH * scale, "amplitude": amplitude * scale,
            "affine": setting if affine else 0.0, "n_axes": task.n_axes, "seed": task.draw,
            "interpolation": interpolation,
        }  # fmt: skip
        return lambda templates, first: deform_elastically(
            task.X[templates], first=first, **options
        )

    return prepare


def _from_prior(task: Task, setting: float | None, for_network: bool) -> Deform:
    assert setting is not None
    prior = dw.SmoothPrior(dw.WarpSpace(cells_of(task), "free"), displacement=setting)

    def deform(templates: Array, first: int) -> Array:
        theta = prior.sample(len(templates), seed=np.random.default_rng([task.draw, first]))
        return dw.Warp(prior.space, theta).image(task.X[templates])

    return deform


def _infimnist(task: Task, setting: float | None, for_network: bool) -> Deform:
    assert setting is not None
    levels = task.X if task.X.dtype == np.uint8 else np.rint(255.0 * task.X).astype(np.uint8)
    scale, n = task.X.shape[-1] / PIXELS, len(levels)
    generator = InfiMNIST(levels, task.y, width=4.0 * scale, amplitude=setting * scale)

    def deform(templates: Array, first: int) -> Array:
        # Images are numbered in turns through the originals: turn ``first + k`` of each template.
        turns = 1 + np.arange(first, first + len(templates))
        made = generator.image(n * turns + templates)
        return made if task.X.dtype == np.uint8 else (made / 255.0).astype(task.X.dtype)

    return deform


def _learned(model: str | None) -> Callable[[Task, float | None, bool], Deform]:
    def prepare(task: Task, setting: float | None, for_network: bool) -> Deform:
        if for_network and model != "template":
            fitted = learn(task.name, task.draw, task, judged=setting is None)
            return warp_for_networks(task, fitted.model_, task.draw, strength=setting)
        augmenter = learn(task.name, task.draw, task, judged=setting is None)
        of_class = model == "gaussian"

        def deform(templates: Array, first: int) -> Array:
            return augmenter.transform(
                task.X[templates], task.y[templates], first=first, strength=setting,
                templates=np.full(len(templates), -1) if of_class else templates,
            )  # fmt: skip

        return deform

    return prepare


def warp_for_networks(task: Task, model: dw.WarpModel, seed: int, **options: Any) -> Deform:
    """What ``LearnedWarp`` gives, with every default where there is no option."""
    import torch

    from dreamwarp.torch import LearnedWarp

    warp = LearnedWarp(model, seed=seed, **options)

    def deform(templates: Array, first: int) -> Array:
        numbers = np.arange(first, first + len(templates))
        images = torch.from_numpy(task.X[templates])
        return warp(images, task.y[templates], numbers=numbers)[0].numpy()

    return deform


@lru_cache(maxsize=2)
def learn(name: str, draw: int, task: Task, *, judged: bool) -> dw.Augmenter:
    """All defaults, fitted to the labelled samples of a task and nothing else."""
    strength: Any = "auto" if judged else 1.0
    augmenter = dw.Augmenter(cells=cells_of(task), strength=strength, seed=draw, progress=False)
    return augmenter.fit(task.X, task.y)


def cells_of(task: Task) -> tuple[int, ...]:
    """Cells that all rivals of a task use."""
    return (10,) if task.n_axes == 1 else (4, 4)


ELASTIC_AND_AFFINE = "elastic with affine"
ELASTIC_CUBIC = "elastic, cubic interpolation"
BY_DEFAULT = "learned, all defaults"
RIVALS = {
    rival.name: rival
    for rival in (
        Rival("nothing", _nothing),
        Rival("elastic", _by_hand(True, False), AMPLITUDES),
        Rival(ELASTIC_CUBIC, _by_hand(True, False, "cubic"), AMPLITUDES, tuned_as="elastic"),
        Rival("affine", _by_hand(False, True), (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)),
        Rival(
            ELASTIC_AND_AFFINE, _by_hand(True, True), (0.18, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
        ),
        Rival("prior", _from_prior, (0.014, 0.02, 0.03, 0.045, 0.065, 0.09, 0.13, 0.18)),
        Rival("InfiMNIST-style", _infimnist, (0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)),
        Rival(
            "learned per class", _learned("gaussian"), (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
        ),
        Rival(
            "learned per template", _learned("template"), (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
        ),
        Rival(BY_DEFAULT, _learned(None)),
    )
}
