"""Pairs of neighbours within classes, aligned as in the study of few labels."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from dreamwarp.augment.learning import Settings, learn_pairs
from dreamwarp.augment.samples import model_labels
from dreamwarp.core.draws import as_key

Array = NDArray[Any]

# What `Augmenter` had by default when the study began.
STUDIED = {"method": "map", "model": "gaussian", "displacement": 0.05}


def align_classes(
    space: dw.WarpSpace, X: Array, y: Array, *, seed: int = 0, **options: Any
) -> tuple[dict[Any, Array], dict[Any, Array]]:
    """θ and edges of the pairs of each class that could be aligned, by its label.

    Options are those of `Augmenter` by which it learns.
    """
    defaults = dw.Augmenter().get_params()
    settings = Settings(
        **{field.name: defaults[field.name] for field in fields(Settings)} | STUDIED | options
    )
    classes, codes = np.unique(y, return_inverse=True)
    labels = model_labels(classes)
    _, _, pairs = learn_pairs(
        space, X, codes, labels, settings, seed=as_key(seed), progress=False, n_threads=None,
        client=None,
    )  # fmt: skip
    classes_of = pairs.by_class()
    return (
        {label: some.theta for label, some in classes_of.items()},
        {label: some.edges for label, some in classes_of.items()},
    )
