"""New samples: estimators with the interface of scikit-learn, and the source of samples.

Steps of ``Augmenter.fit`` and ``Augmenter.sample``:

augmenter                       checks; keeps the results as attributes
learning                        pairs, and their alignments by ``align`` and ``empirical_bayes``
training_pairs                  the pairs by class, and a model fitted to them
folds                           the same without held-out samples
judge_nearest, judge_estimator  errors by strength (``race``, ``class_distances``)
verdict                         strength and verdict from these errors
source                          sample k: choose a sample, draw θ, warp

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
