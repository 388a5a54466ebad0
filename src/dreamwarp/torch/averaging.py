"""Test-time augmentation: average predictions over warps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dreamwarp.core.draws import Seed, Stream, check_numbers, derive_seed, uniforms
from dreamwarp.core.validation import check_choice, check_whole
from dreamwarp.model import WarpModel
from dreamwarp.torch.drawing import RandomWarps, WarpOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

PREDICTED = "predicted"


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
    labels : None, "predicted" or (k,) labels
        Classes whose warps are used. None: all classes pooled. ``"predicted"``: for each warp a
        class is drawn from the predicted probabilities of the unwarped image; ``predict_fn`` must
        return probabilities (k, c), one column per entry of ``classes``, or of ``model.classes`` by
        default.
    numbers : (k,) int, optional
        Index of each image in the data set; makes results independent of batches. Default: counted
        from 0.
    seed : int, numpy.random.Generator or None
    **options
        ``p``, ``strength``, ``unknown``, ``classes``, ``interpolation``, ``fill`` and
        ``fill_value``, as for :class:`LearnedWarp`.

    Returns
    -------
    (k, ...)
    """
    n = check_whole("n", n, 0)
    if isinstance(labels, str):
        check_choice("labels", labels, (PREDICTED,))
    if labels is None:
        options = {**options, "unknown": "pool"}
    warps = RandomWarps(model, seed=seed, **options)
    warps.check_images(images)
    rows = check_numbers(np.arange(len(images)) if numbers is None else numbers)
    if len(rows) != len(images):
        raise ValueError(
            f"`numbers` must have one entry for each of {len(images)} images, got {len(rows)}."
        )
    plain = total = _predict(predict_fn, images)
    for step in range(n):
        key = derive_seed(warps.key, step)
        whose = _draw_labels(plain, rows, key, warps) if isinstance(labels, str) else labels
        theta = torch.from_numpy(warps.draw(whose, rows, key=key))
        total = total + _predict(predict_fn, warps.apply(warps.check_theta(theta, images), images))
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


def _draw_labels(
    probabilities: Tensor, numbers: NDArray[np.int64], key: int, warps: RandomWarps
) -> list[Any]:
    """Draw a label for each image from its predicted probabilities (k, c)."""
    values = probabilities.detach().cpu().double().numpy()
    classes = warps.model.classes if warps.classes is None else range(len(warps.classes))
    if values.ndim != 2 or values.shape[1] != len(classes):
        raise ValueError(
            f'labels="{PREDICTED}" needs predictions of shape (k, {len(classes)}), one column per '
            f"class, got {values.shape}. Use `classes` to name the classes of the columns."
        )
    if not (values >= 0.0).all() or not (values.sum(axis=1) > 0.0).all():
        raise ValueError(
            f'labels="{PREDICTED}" needs probabilities as predictions, got a row with '
            f"{values.min():.3g}. End `predict_fn` with softmax(dim=1)."
        )
    heights = np.cumsum(values, axis=1)
    levels = uniforms(key, numbers, 1, stream=Stream.LABEL) * heights[:, -1:]
    return [classes[place] for place in (heights <= levels).sum(axis=1)]
