"""New samples: an augmenter in the manner of scikit-learn, and generation at scale.

Names are looked up when they are used: scikit-learn takes its time to load.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dreamwarp.listing import public_names

# Name to the module that has it.
PUBLIC = {
    "AugmentedClassifier": "classifier",
    "Augmenter": "augmenter",
    "Generated": "generation",
    "Judgement": "strength",
    "Resampler": "resampler",
    "SampleSource": "source",
    "Verdict": "strength",
    "Verification": "verification",
    "generate": "generation",
    "stream": "streaming",
    "verify": "verification",
}

__all__ = [
    "AugmentedClassifier",
    "Augmenter",
    "Generated",
    "Judgement",
    "Resampler",
    "SampleSource",
    "Verdict",
    "Verification",
    "generate",
    "stream",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return public_names(globals())
