"""The figures of ``dreamwarp figure``, by name."""

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
from dreamwarp.report import aligned, animation, figures, model_plots, warped
from dreamwarp.report.study import MAX_SAMPLES, SAMPLERS, Study, make_study, sample_chains


@dataclass(frozen=True, eq=False)
class Request:
    """A model and its data, and the options of figures."""

    model: WarpModel
    data: Data
    label: Any = None
    component: int = 1
    strength: float | None = None
    seed: int = 0
    max_samples: int = MAX_SAMPLES
    known: Study | None = None

    @cached_property
    def study(self) -> Study:
        """The samples, aligned: the known study, or one that is made at first use."""
        return self.known or make_study(
            self.model, self.data, max_samples=self.max_samples, seed=self.seed
        )


def _draw_traces(request: Request) -> Figure:
    study = request.study
    worst, typical = aligned.choose_pairs(study, request.label, 4)
    chosen = np.concatenate([worst[:1], typical[-2:]])
    stored = request.model.settings.get("method")
    method: Literal["metropolis", "hmc"] = stored if stored in SAMPLERS else "hmc"
    chains = sample_chains(study, chosen, method)
    titles = []
    for name, pair in zip(["worst pair", "typical pair", "best pair"], chosen, strict=False):
        label = study.subject.labels[study.pair_codes[pair]]
        titles.append(f"{name}, class {label}, {method}")
    return aligned.draw_traces(chains, titles=titles)


FIGURES: dict[str, Callable[[Request], Figure]] = {
    "samples": lambda r: warped.draw_samples(
        r.model, r.data, label=r.label, strength=r.strength, seed=r.seed
    ),
    "warp": lambda r: aligned.draw_best(r.study, label=r.label),
    "alignments": lambda r: aligned.draw_gallery(r.study, label=r.label),
    "components": lambda r: warped.draw_components(
        r.model, r.data, label=r.label, component=r.component
    ),
    "spectrum": lambda r: model_plots.draw_spectrum(r.model),
    "similarity": lambda r: model_plots.draw_class_similarity(r.model),
    "strength": lambda r: model_plots.draw_strength(r.study.judgement),
    "traces": _draw_traces,
}


def check_figure(name: str, path: str | os.PathLike[str]) -> Path:
    """Return ``path``, or raise if the figure can't be written in its format."""
    check_choice("name", name, list(FIGURES))
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix in animation.SUFFIXES and name == "components":
        return animation.check_animation_path(target)
    if suffix not in figures.SUFFIXES:
        raise ValueError(
            f"`{target}` must end in one of {', '.join(figures.SUFFIXES)}; only the figure "
            f"components can be animated: {', '.join(animation.SUFFIXES)}."
        )
    return target


def write_figure(name: str, request: Request, path: str | os.PathLike[str]) -> Path:
    """Draw a figure and write it; the suffix sets the format, a picture or an animation."""
    target = check_figure(name, path)
    if target.suffix.lower() in animation.SUFFIXES:
        frames = animation.component_frames(
            request.model, request.data, label=request.label, component=request.component
        )
        return animation.save_animation(frames, target)
    return figures.save_figure(FIGURES[name](request), target, dpi=200)
