"""New samples: estimators with the interface of scikit-learn, and the source of samples.

Names are imported at first use: scikit-learn is slow to load.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dreamwarp.core.listing import public_names

# Module of each name.
PUBLIC = {
    "AugmentedClassifier": "wrappers",
    "Augmenter": "augmenter",
    "Judgement": "verdict",
    "Resampler": "wrappers",
    "SampleSource": "source",
    "ShapeAugmenter": "shapes",
    "Verdict": "verdict",
}

__all__ = [
    "AugmentedClassifier",
    "Augmenter",
    "Judgement",
    "Resampler",
    "SampleSource",
    "ShapeAugmenter",
    "Verdict",
]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return public_names(globals())
