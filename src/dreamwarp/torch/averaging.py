"""Test-time augmentation: predictions averaged over warps."""

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
    """Predictions averaged over an image as it is and ``n`` random warps of it.

    Parameters
    ----------
    predict_fn : callable
        Takes a batch of the shape of ``images`` and returns (k, ...) floating-point numbers for its
        k images. It is called n + 1 times. What it returns is averaged as it is: let it return
        probabilities, unless you want another mean. Put the network into evaluation mode first, and
        call this under ``torch.inference_mode()``.
    images : (k, *spatial) or (k, channels, *spatial)
    model : WarpModel
    n : int
        Warps of each image, besides the image itself.
    labels : None, "predicted" or (k,) labels
        Whose warps. None: those of all classes, since the class is what is asked for.
        ``"predicted"``: each warp from a class drawn with the probability that ``predict_fn`` gives
        it for the unwarped image. It must then return probabilities (k, c), a column for each of
        ``classes``, or of ``model.classes`` if that is left out.
    numbers : (k,) int, optional
        Which image of the data set each is: with them, results do not depend on batches. Default:
        counted from 0.
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
            f"`numbers` must be one for each of {len(images)} images, got {len(rows)}."
        )
    plain = total = _predict(predict_fn, images)
    for step in range(n):
        key = derive_seed(warps.key, step)
        whose = _draw_labels(plain, rows, key, warps) if isinstance(labels, str) else labels
        theta = torch.from_numpy(warps.draw(whose, rows, key=key))
        total = total + _predict(predict_fn, warps.apply(warps.check_theta(theta, images), images))
    return total / (n + 1)


def _predict(predict_fn: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Predictions (k, ...) for k images."""
    predictions = predict_fn(images)
    if not isinstance(predictions, Tensor) or not predictions.is_floating_point():
        what = getattr(predictions, "dtype", type(predictions).__name__)
        raise TypeError(
            f"`predict_fn` must return a tensor of floating-point numbers to average, got {what}. "
            "Return probabilities rather than labels."
        )
    if predictions.ndim == 0 or len(predictions) != len(images):
        raise ValueError(
            f"`predict_fn` must return a row for each of {len(images)} images, got shape "
            f"{tuple(predictions.shape)}."
        )
    return predictions


def _draw_labels(
    probabilities: Tensor, numbers: NDArray[np.int64], key: int, warps: RandomWarps
) -> list[Any]:
    """A label for each image, by its predicted probabilities (k, c)."""
    values = probabilities.detach().cpu().double().numpy()
    classes = warps.model.classes if warps.classes is None else range(len(warps.classes))
    if values.ndim != 2 or values.shape[1] != len(classes):
        raise ValueError(
            f'labels="{PREDICTED}" needs predictions of shape (k, {len(classes)}), a column for '
            f"each class, got {values.shape}. Use `classes` to say which columns are which classes."
        )
    if not (values >= 0.0).all() or not (values.sum(axis=1) > 0.0).all():
        raise ValueError(
            f'labels="{PREDICTED}" needs predictions that are probabilities, got a row with '
            f"{values.min():.3g}. Let `predict_fn` end in softmax(dim=1)."
        )
    heights = np.cumsum(values, axis=1)
    levels = uniforms(key, numbers, 1, stream=Stream.LABEL) * heights[:, -1:]
    return [classes[place] for place in (heights <= levels).sum(axis=1)]
