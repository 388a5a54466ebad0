"""average_over_warps: test-time augmentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dreamwarp.core.draws import derive_seed
from dreamwarp.model.strength import NETWORK_STRENGTH
from dreamwarp.torch import average_over_warps, warp
from tests.torch.cases import make_images, make_model


def predict(images: Tensor) -> Tensor:
    """Probabilities (k, 3) that depend on every pixel of an image."""
    weights = torch.linspace(-1.0, 1.0, 3 * images[0].numel()).reshape(-1, 3)
    return (images.flatten(1) @ torch.cos(40 * weights)).softmax(dim=1)


IMAGES = make_images(5, 1, 10, 10)


@pytest.mark.parametrize("labels", [None, [0, 2, 1, 1, 0]], ids=["pool", "labels"])
def test_mean_of_the_image_and_its_warps(labels: Any) -> None:
    model = make_model()
    expected = predict(IMAGES)
    for step in range(4):
        theta = NETWORK_STRENGTH * model.flattened(0.5).draw(
            labels, np.arange(5), seed=derive_seed(3, step)
        )
        expected = expected + predict(warp(model.space, torch.from_numpy(theta).float(), IMAGES))
    averaged = average_over_warps(
        predict, IMAGES, model, n=4, labels=labels, seed=3, interpolation="linear"
    )
    torch.testing.assert_close(averaged, expected / 5)


def test_no_warps_are_the_image_alone() -> None:
    assert torch.equal(average_over_warps(predict, IMAGES, make_model(), n=0), predict(IMAGES))


def test_numbers_and_not_batches_decide() -> None:
    options: dict[str, Any] = {"n": 3}
    whole = average_over_warps(predict, IMAGES, make_model(), **options)
    for i in range(5):
        one = average_over_warps(predict, IMAGES[i : i + 1], make_model(), numbers=[i], **options)
        torch.testing.assert_close(one[0], whole[i])


def test_options_are_passed_on() -> None:
    still = average_over_warps(predict, IMAGES, make_model(), n=3, strength=0.0)
    torch.testing.assert_close(still, predict(IMAGES))
    never = average_over_warps(predict, IMAGES, make_model(), n=3, p=0.0)
    torch.testing.assert_close(never, predict(IMAGES))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n": -1}, ValueError, "`n` must be an integer of at least 0, got -1"),
        ({"labels": [0, 1]}, ValueError, "`labels` must be one label or as many as `numbers`"),
        ({"numbers": [0, 1]}, ValueError, "one entry for each of 5 images, got 2"),
        ({"images": IMAGES[0, 0]}, ValueError, "`images` must have shape"),
        ({"predict_fn": lambda x: predict(x).argmax(1)}, TypeError, "got torch.int64.*probabil"),
        ({"predict_fn": lambda x: predict(x).tolist()}, TypeError, "tensor, got list"),
        ({"predict_fn": lambda x: predict(x)[:2]}, ValueError, r"5 images, got shape \(2, 3\)"),
    ],
)
def test_wrong_input_is_refused(change: dict[str, Any], error: Any, message: str) -> None:
    given = {"predict_fn": predict, "images": IMAGES, "model": make_model(), "n": 1, **change}
    with pytest.raises(error, match=message):
        average_over_warps(**given)
