"""Pictures of warps and models, and pages of them.

Each figure is one function that returns a matplotlib figure, without touching matplotlib's global
state. Names are looked up when they are used: importing the package loads no matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dreamwarp.core.listing import public_names

# Name to the module that has it.
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
    "draw_strength": "judged",
    "draw_traces": "aligned",
    "find_odd": "oddities",
    "make_study": "study",
    "save_animation": "animation",
    "save_figure": "figures",
    "study_of": "study",
}

__all__ = [
    "Study",
    "component_frames",
    "draw_alignment",
    "draw_class_similarity",
    "draw_components",
    "draw_field",
    "draw_gallery",
    "draw_samples",
    "draw_spectrum",
    "draw_strength",
    "draw_traces",
    "find_odd",
    "make_study",
    "save_animation",
    "save_figure",
    "study_of",
]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return public_names(globals())
