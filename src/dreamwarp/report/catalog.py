"""The figures of ``dreamwarp figure``, by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dreamwarp.core.validation import check_choice
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.model import WarpModel
from dreamwarp.report import aligned, figures, model_plots, warped
from dreamwarp.report.shapes import draw_shape_components, draw_shape_samples
from dreamwarp.report.study import MAX_SAMPLES, Study, judgement_of, make_study
from dreamwarp.report.subject import Data

NAMES = (
    "samples", "warp", "alignments", "components", "spectrum", "similarity", "strength", "traces",
)  # fmt: skip
OF_MODELS = {"spectrum": model_plots.draw_spectrum, "similarity": model_plots.draw_class_similarity}


def draw_figure(
    name: str,
    model: WarpModel,
    data: Data | ShapeSet,
    *,
    label: Any = None,
    component: int = 1,
    strength: float | None = None,
    seed: int = 0,
    max_samples: int = MAX_SAMPLES,
    study: Study | None = None,
) -> Figure:
    """Draw a figure by its name. Without ``study``, figures of pairs align the pairs again."""
    check_choice("name", name, NAMES)
    if name in OF_MODELS:
        return OF_MODELS[name](model)
    if isinstance(data, ShapeSet):
        if name == "samples":
            return draw_shape_samples(model, data, label=label, strength=strength, seed=seed)
        if name == "components":
            return draw_shape_components(model, data, label=label, component=component)
        raise ValueError(
            f"the figure {name!r} needs series, images or volumes, got meshes in `{data.name}`. "
            "For meshes use samples, components, spectrum or similarity."
        )
    if name == "strength":
        return model_plots.draw_strength(judgement_of(model))
    if name == "samples":
        return warped.draw_samples(model, data, label=label, strength=strength, seed=seed)
    if name == "components":
        return warped.draw_components(model, data, label=label, component=component)
    study = study or make_study(model, data, max_samples=max_samples, seed=seed)
    draw_pairs = {
        "warp": aligned.draw_best, "alignments": aligned.draw_gallery,
        "traces": aligned.draw_chains,
    }[name]  # fmt: skip
    return draw_pairs(study, label=label)


def check_figure(name: str, path: str | os.PathLike[str]) -> Path:
    """Return ``path``, or raise if the figure can't be written in its format."""
    check_choice("name", name, NAMES)
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix in figures.SUFFIXES or (suffix in warped.SUFFIXES and name == "components"):
        return target
    raise ValueError(
        f"`{target}` must end in one of {', '.join(figures.SUFFIXES)}; only the figure components "
        f"can be animated: {', '.join(warped.SUFFIXES)}."
    )


def write_figure(
    name: str,
    model: WarpModel,
    data: Data | ShapeSet,
    path: str | os.PathLike[str],
    *,
    label: Any = None,
    component: int = 1,
    **options: Any,
) -> Path:
    """Draw a figure and write it; the suffix sets the format, a picture or an animation."""
    target = check_figure(name, path)
    if target.suffix.lower() in figures.SUFFIXES:
        figure = draw_figure(name, model, data, label=label, component=component, **options)
        return figures.save_figure(figure, target, dpi=200)
    if isinstance(data, ShapeSet):
        raise ValueError(f"`{target}` must be a picture: figures of meshes are not animated.")
    frames = warped.component_frames(model, data, label=label, component=component)
    return warped.save_animation(frames, target)
