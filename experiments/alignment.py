"""Pairs of neighbours within classes, aligned as `Augmenter` does."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from dreamwarp.augment.learning import Settings, align_neighbors, choose_pairs
from dreamwarp.augment.samples import model_labels
from dreamwarp.core.draws import as_key

Array = NDArray[Any]


def align_classes(
    space: dw.WarpSpace, X: Array, y: Array, *, seed: int = 0, **options: Any
) -> tuple[dict[Any, Array], dict[Any, Array]]:
    """θ and edges of the pairs of each class that could be aligned, by its label.

    Options are those of `Augmenter` by which it learns; they default to its own.
    """
    defaults = dw.Augmenter().get_params()
    settings = Settings(
        **{field.name: defaults[field.name] for field in fields(Settings)} | options
    )
    classes, codes = np.unique(y, return_inverse=True)
    labels = model_labels(classes)
    edges, found = align_neighbors(
        space, X, codes, labels, settings, seed=as_key(seed), progress=False, n_threads=None
    )
    theta, edges_of, _ = choose_pairs(edges, found, codes, labels, settings).by_class()
    return theta, edges_of
