"""Samples in the shapes that estimators of scikit-learn take: with their axes, or as rows.

The number of ``cells`` says how many axes of a sample are spatial. They come last; an axis between
the samples and them is the channels. Rows (n, features) are flattened samples where an
``image_shape`` is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.labels import check_label
from dreamwarp.core.samples import check_image_shape, check_layout, unflatten
from dreamwarp.core.validation import check_resolution
from dreamwarp.space import WarpSpace

FLAT = (
    "Flattened samples need `image_shape`; signals need `cells` of one number, such as (8,); one "
    "sample goes in as `X[None]`."
)


def count_axes(X: Any) -> int:
    """Axes of samples that are an array, or can be made one."""
    if hasattr(X, "ndim"):
        return int(X.ndim)
    try:
        return np.asarray(X).ndim
    except ValueError:
        raise ValueError(
            "`X` must hold samples of one shape, got some that differ. Resize or pad them first."
        ) from None


def count_samples(X: Any) -> int:
    """Samples in what is an array, or can be made one; 0 if it is a single number."""
    if count_axes(X) == 0:
        return 0
    return int(X.shape[0]) if hasattr(X, "shape") else len(np.asarray(X))


def as_images(
    space: WarpSpace, values: NDArray[Any], image_shape: Sequence[int] | None
) -> NDArray[Any]:
    """Samples as (n, *spatial) or (n, channels, *spatial)."""
    if image_shape is not None and values.ndim == 2:
        return unflatten("X", values, check_image_shape(image_shape, space.ndim))
    check_layout("X", values.shape, space.ndim, FLAT)
    return values


def check_sizes(space: WarpSpace, images: NDArray[Any], image_shape: Sequence[int] | None) -> None:
    """Raise if samples are too small to show a warp, or of another shape than ``image_shape``."""
    if image_shape is not None and images.shape[1:] != check_image_shape(image_shape, space.ndim):
        raise ValueError(
            f"`X` must have rows, or samples of shape {tuple(image_shape)}, for `image_shape`, got "
            f"samples of shape {images.shape[1:]}. Leave out `image_shape`, which only rows need."
        )
    spatial = images.shape[images.ndim - space.ndim :]
    if max(spatial) < 2:
        raise ValueError(
            f"`X` must have samples of at least 2 pixels along an axis, got {math.prod(spatial)} "
            "feature(s) per sample and channel."
        )
    check_resolution("X", images.shape, space.cells)


def in_given_type(y: Any, labels: NDArray[Any]) -> NDArray[Any]:
    """Labels (n,) as they are returned: whole numbers in floating point stay what they were."""
    given = np.asarray(y)
    return given.reshape(-1) if given.dtype.kind == "f" else labels


def model_labels(classes: NDArray[Any]) -> list[Any]:
    """Classes as a model knows them: whole numbers in floating point become integers."""
    values = classes.astype(np.int64) if classes.dtype.kind == "f" else classes
    return [check_label(label) for label in values.tolist()]


def require_labels(estimator: Any, y: Any) -> Any:
    """``y``, if it is there; in words that scikit-learn expects."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None. Warps "
            "are learned per class; give all samples one label if they have none."
        )
    return y
