"""Figures of warps and models, animations, and HTML reports.

Each figure is a function that returns a matplotlib figure, without touching matplotlib's global
state. Names are imported at first use: importing the package does not load matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dreamwarp.core.listing import public_names

# Module of each public name.
PUBLIC = {
    "Study": "study",
    "component_frames": "animation",
    "draw_alignment": "pairs",
    "draw_class_similarity": "learned",
    "draw_components": "warped",
    "draw_field": "aligned",
    "draw_gallery": "aligned",
    "draw_samples": "warped",
    "draw_spectrum": "learned",
    "draw_strength": "learned",
    "draw_traces": "aligned",
    "find_odd": "outliers",
    "make_study": "study",
    "save_animation": "animation",
    "save_figure": "figures",
    "study_of": "study",
}

__all__ = list(PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return public_names(globals())
