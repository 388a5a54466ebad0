"""New samples: estimators with the interface of scikit-learn, and the source of samples.

Names are imported at first use: scikit-learn is slow to load.
"""

from __future__ import annotations

from dreamwarp.core.listing import import_lazily

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

__all__ = list(PUBLIC)
__getattr__, __dir__ = import_lazily(globals(), PUBLIC)
