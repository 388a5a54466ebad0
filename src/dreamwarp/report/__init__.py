"""Figures of warps and models, animations, and HTML reports.

Each figure is a function that returns a matplotlib figure, without touching matplotlib's global
state. Names are imported at first use: importing the package does not load matplotlib.
"""

from __future__ import annotations

from dreamwarp.core.listing import import_lazily

# Module of each public name.
PUBLIC = {
    "Study": "study",
    "component_frames": "warped",
    "draw_alignment": "aligned",
    "draw_class_similarity": "model_plots",
    "draw_components": "warped",
    "draw_field": "aligned",
    "draw_gallery": "aligned",
    "draw_samples": "warped",
    "draw_spectrum": "model_plots",
    "draw_strength": "model_plots",
    "draw_traces": "aligned",
    "find_odd": "outliers",
    "make_study": "study",
    "save_animation": "warped",
    "save_figure": "figures",
    "study_of": "study",
}

__all__ = list(PUBLIC)
__getattr__, __dir__ = import_lazily(globals(), PUBLIC)
