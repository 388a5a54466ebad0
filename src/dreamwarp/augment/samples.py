"""How the samples and labels that users pass are read.

The number of ``cells`` says how many axes of a sample are spatial. They come last; an axis between
the samples and them is the channels. Rows (n, features) are flattened samples where an
``image_shape`` is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.validation import check_resolution, warn_user
from dreamwarp.model.labels import check_label
from dreamwarp.space import WarpSpace

# Whole numbers below this are exact in float64.
MAX_WHOLE = 2**53
# Channels that pictures have at most: red, green, blue and how opaque they are.
MOST_COLORS = 4


def count_axes(X: Any) -> int:
    """Axes of samples that are an array, or can be made one."""
    if hasattr(X, "ndim"):
        return int(X.ndim)
    try:
        return np.asarray(X).ndim
    except ValueError:
        raise ValueError(
            "`X` must have samples of one shape, got some that differ. Resize or pad them first."
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
    ndim = space.ndim
    if image_shape is not None and values.ndim == 2:
        shape = check_image_shape(space, image_shape)
        if math.prod(shape) != values.shape[1]:
            raise ValueError(
                f"`X` must have rows of {math.prod(shape)} features for image_shape={shape}, got "
                f"{values.shape[1]}. Change `image_shape`, or pass samples of their own shape."
            )
        return values.reshape(len(values), *shape)
    if values.ndim not in (ndim + 1, ndim + 2):
        raise ValueError(
            f"`X` must have shape (n, *spatial) or (n, channels, *spatial) with {ndim} spatial "
            f"axes, as many as `cells` has numbers, got {values.shape}. Flattened samples need "
            "`image_shape`; signals need `cells` of one number, such as (8,)."
        )
    return values


def warn_of_channels_last(name: str, shape: Sequence[int], ndim: int, remedy: str) -> None:
    """Warn of samples (n, channels, *spatial) whose last axis looks like the channels."""
    if len(shape) == ndim + 2 and shape[-1] <= MOST_COLORS < min(shape[1:-1]):
        spatial = " x ".join(map(str, shape[2:]))
        warn_user(
            f"`{name}` of shape {tuple(shape)} reads as {shape[1]} channels of {spatial}. If its "
            f"last axis is the channels, use {remedy}.",
            UserWarning,
        )


def check_finite(values: NDArray[Any]) -> None:
    """Refuse samples with values that are none."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return
    place = tuple(np.argwhere(~np.isfinite(values))[0].tolist())
    found = "NaN" if np.isnan(values[place]) else values[place]
    raise ValueError(
        f"`X` must hold finite numbers, got {found} at index {place}. Leave out such samples, or "
        "fill in what is missing."
    )


def check_image_shape(space: WarpSpace, image_shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of one sample: (*spatial) or (channels, *spatial)."""
    sizes = tuple(np.ravel(image_shape).tolist())
    whole = all(isinstance(size, int) and size > 0 for size in sizes)
    if not whole or len(sizes) not in (space.ndim, space.ndim + 1):
        raise ValueError(
            f"`image_shape` must list {space.ndim} sizes, or {space.ndim + 1} with the number of "
            f"channels first, for `cells` of {space.ndim} numbers, got {image_shape!r}."
        )
    return sizes


def check_sizes(space: WarpSpace, images: NDArray[Any], image_shape: Sequence[int] | None) -> None:
    """Refuse samples in which no warp could be seen, and those of another shape than was said."""
    if image_shape is not None and images.shape[1:] != check_image_shape(space, image_shape):
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


def as_labels(y: ArrayLike, n_samples: int) -> NDArray[Any]:
    """Labels (n,): an array of whole numbers, words or booleans."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n_samples,):
        raise ValueError(
            f"`y` must have shape ({n_samples},), a label for each sample of `X`, got "
            f"{labels.shape}: inconsistent numbers of samples. One-hot labels go in as "
            "`y.argmax(axis=1)`."
        )
    if labels.dtype.kind == "O":
        labels = _as_plain(labels)
    if labels.dtype.kind not in "biufU" or (labels.dtype.kind == "f" and not _is_whole(labels)):
        value, remedy = _find_wrong(labels)
        raise ValueError(
            "`y` must hold classes: whole numbers, words or booleans. Unknown label type: "
            f"{labels.dtype}, with values such as {value!r}. {remedy}"
        )
    return labels


def _find_wrong(labels: NDArray[Any]) -> tuple[Any, str]:
    """The first value that is no label, and what to do about it."""
    if labels.dtype.kind == "S":
        return labels[0].item(), "Turn bytes into words: `y.astype(str)`."
    if labels.dtype.kind == "c":
        return labels[0].item(), "Complex data not supported."
    if labels.dtype.kind != "f":
        return labels[0].item(), "Give every class a number or a name."
    if not np.isfinite(labels).all():
        return labels[~np.isfinite(labels)][0].item(), "Leave out samples without a label."
    value = labels[labels != np.round(labels)][0].item()
    return value, "Cut a measured quantity into classes first."


def _as_plain(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels of dtype object as an array of what they are."""
    kinds = sorted({type(label).__name__ for label in labels})
    words = {isinstance(label, str) for label in labels}
    plain = np.array(labels.tolist()) if len(words) == 1 else labels
    if plain.ndim != 1 or plain.dtype.kind == "O":
        raise ValueError(
            f"`y` must hold labels of one type, words or numbers. Unknown label type: "
            f"{' and '.join(kinds)}."
        )
    return plain


def _is_whole(labels: NDArray[Any]) -> bool:
    finite = np.isfinite(labels).all()
    return bool(finite and (labels == np.rint(labels)).all() and (abs(labels) < MAX_WHOLE).all())


def model_labels(classes: NDArray[Any]) -> list[Any]:
    """Classes as a model knows them: whole numbers in floating point become integers."""
    values = classes.astype(np.int64) if classes.dtype.kind == "f" else classes
    return [check_label(label) for label in values.tolist()]


def encode_labels(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Place of each label (n,) among sorted classes; -1 where it is none of them."""
    # Words and numbers never match, and numpy would make words of numbers to compare them.
    if (labels.dtype.kind == "U") != (classes.dtype.kind == "U"):
        return np.full(len(labels), -1)
    places = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[places] == labels, places, -1)


def require_labels(estimator: Any, y: Any) -> Any:
    """``y``, if it is there; in words that scikit-learn expects."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None. Warps "
            "are learned per class; give all samples one label if they have none."
        )
    return y
