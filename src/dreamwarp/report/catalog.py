"""Figures by name, each from a model and its data: what ``dreamwarp figure`` draws."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from dreamwarp.augment.subject import Data
from dreamwarp.core.validation import check_choice
from dreamwarp.model import WarpModel
from dreamwarp.report import aligned, animation, figures, judged, learned, warped
from dreamwarp.report.study import MAX_SAMPLES, SAMPLERS, Study, make_study, sample_chains


@dataclass(frozen=True, eq=False)
class Request:
    """What a figure is drawn of, and the options that some figures have."""

    model: WarpModel
    data: Data
    label: Any = None
    component: int = 1
    strength: float | None = None
    seed: int = 0
    max_samples: int = MAX_SAMPLES

    @cached_property
    def study(self) -> Study:
        """The samples, aligned again."""
        return make_study(self.model, self.data, max_samples=self.max_samples, seed=self.seed)


def _samples(request: Request) -> Figure:
    return warped.draw_samples(
        request.model, request.data, label=request.label, strength=request.strength,
        seed=request.seed,
    )  # fmt: skip


def _components(request: Request) -> Figure:
    return warped.draw_components(
        request.model, request.data, label=request.label, component=request.component
    )


def _warp(request: Request) -> Figure:
    study = request.study
    pair = most_gained(study, request.label)
    source, target = (study.subject.X[end] for end in study.edges[pair])
    return aligned.draw_field(request.model.space, source, target, study.alignments.theta[pair])


def _alignments(request: Request) -> Figure:
    return aligned.draw_gallery(request.study, label=request.label)


def _spectrum(request: Request) -> Figure:
    return learned.draw_spectrum(request.model)


def _similarity(request: Request) -> Figure:
    return learned.draw_class_similarity(request.model)


def _strength(request: Request) -> Figure:
    return judged.draw_strength(request.study.judgement)


def _traces(request: Request) -> Figure:
    study = request.study
    worst, typical = aligned.choose_pairs(study, request.label, 4)
    chosen = np.concatenate([worst[:1], typical[-2:]])
    said = request.model.settings.get("method")
    method: Literal["metropolis", "hmc"] = "hmc" if said not in SAMPLERS else said
    chains = sample_chains(study, chosen, method)
    titles = []
    for name, pair in zip(["worst pair", "typical pair", "best pair"], chosen, strict=False):
        label = study.subject.labels[study.subject.codes[study.edges[pair, 0]]]
        titles.append(f"{name}, class {label}, {method}")
    return aligned.draw_traces(chains, titles=titles)


# By name, and what it shows.
FIGURES: dict[str, tuple[Callable[[Request], Figure], str]] = {
    "samples": (_samples, "originals beside random warps of them (the paper's figure 1)"),
    "warp": (_warp, "cells, pair, velocity field and grid of one alignment (figure 2)"),
    "alignments": (_alignments, "pairs before and after, the worst first (figure 3)"),
    "components": (_components, "-3 to +3 deviations along principal components (figure 4)"),
    "spectrum": (_spectrum, "standard deviations and variance of the components of each class"),
    "similarity": (_similarity, "how alike the learned warps of classes are"),
    "strength": (_strength, "errors on held-out samples by strength, and the verdict"),
    "traces": (_traces, "traces of posterior chains of three pairs"),
}


def most_gained(study: Study, label: Any = None) -> int:
    """The pair whose difference its warp reduced most; of a class or of all."""
    gain = study.alignments.loss_before - study.alignments.loss_after
    gain = np.where(study.alignments.usable, gain, -np.inf)
    if label is not None:
        classes = study.subject.codes[study.edges[:, 0]]
        gain = np.where(classes == study.subject.place(label), gain, -np.inf)
    return int(np.argmax(gain))


def check_figure(name: str, path: str | os.PathLike[str]) -> Path:
    """``path``, if the figure of that name can be written to it."""
    check_choice("name", name, list(FIGURES))
    target = Path(path)
    if target.suffix.lower() not in animation.SUFFIXES:
        return _check_still(target)
    if name != "components":
        raise ValueError(
            f"`{target}` must end in one of {', '.join(figures.SUFFIXES)}: only the figure "
            f"components moves, and this is {name}."
        )
    return animation.check_animation_path(target)


def _check_still(target: Path) -> Path:
    if target.suffix.lower() in figures.SUFFIXES:
        return target
    raise ValueError(
        f"`{target}` must end in one of {', '.join(figures.SUFFIXES)}, which says the format of "
        f"the picture; components may also move: {', '.join(animation.SUFFIXES)}."
    )


def write_figure(name: str, request: Request, path: str | os.PathLike[str]) -> Path:
    """Draw a figure and write it; by the suffix, still or moving."""
    target = check_figure(name, path)
    if target.suffix.lower() in animation.SUFFIXES:
        frames = animation.component_frames(
            request.model, request.data, label=request.label, component=request.component
        )
        return animation.save_animation(frames, target)
    draw_fn, _ = FIGURES[name]
    return figures.save_figure(draw_fn(request), target, dpi=200)
