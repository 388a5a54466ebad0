"""Test-time augmentation: average predictions over warps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from dreamwarp.core.draws import Seed, derive_seed
from dreamwarp.core.validation import check_integer
from dreamwarp.model import WarpModel
from dreamwarp.torch.drawing import RandomWarps, WarpOptions, check_numbers_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


def average_over_warps(
    predict_fn: Callable[[Tensor], Tensor],
    images: Tensor,
    model: WarpModel,
    *,
    n: int = 8,
    labels: Any = None,
    numbers: Any = None,
    seed: Seed = 0,
    **options: Unpack[WarpOptions],
) -> Tensor:
    """Average predictions over each image and ``n`` random warps of it.

    Parameters
    ----------
    predict_fn : callable
        Maps a batch of the shape of ``images`` to floating-point predictions (k, ...). It is called
        n + 1 times, and its outputs are averaged: usually they should be probabilities. Put the
        network into evaluation mode and call this function under ``torch.inference_mode()``.
    images : (k, *spatial) or (k, channels, *spatial)
    model : WarpModel
    n : int
        Warps of each image, in addition to the image itself.
    labels : (k,) labels, optional
        Classes whose warps are used. Default: all classes pooled.
    numbers : (k,) int, optional
        Index of each image in the data set; makes results independent of batches. Default: counted
        from 0.
    seed : int, numpy.random.Generator or None
    **options
        ``p``, ``strength``, ``spectrum_power``, ``unknown``, ``classes``, ``interpolation``,
        ``fill`` and ``fill_value``, as for :class:`LearnedWarp`.

    Returns
    -------
    (k, ...)
    """
    n = check_integer("n", n, 0)
    if labels is None:
        options = {**options, "unknown": "pool"}
    warps = RandomWarps(model, seed=seed, **options)
    warps.check_images(images)
    rows = check_numbers_of(images, np.arange(len(images)) if numbers is None else numbers)
    total = _predict(predict_fn, images)
    for step in range(n):
        theta = warps.draw(labels, rows, key=derive_seed(warps.key, step))
        total = total + _predict(predict_fn, warps.apply(theta, images))
    return total / (n + 1)


def _predict(predict_fn: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Call ``predict_fn`` and check its output (k, ...)."""
    predictions = predict_fn(images)
    if not isinstance(predictions, Tensor) or not predictions.is_floating_point():
        what = getattr(predictions, "dtype", type(predictions).__name__)
        raise TypeError(
            f"`predict_fn` must return a floating-point tensor, got {what}. Return probabilities "
            "rather than labels."
        )
    if predictions.ndim == 0 or len(predictions) != len(images):
        raise ValueError(
            f"`predict_fn` must return one row for each of {len(images)} images, got shape "
            f"{tuple(predictions.shape)}."
        )
    return predictions
