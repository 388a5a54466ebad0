"""Transforms for TorchIO, against the real package."""

from __future__ import annotations

import numpy as np
import pytest

from dreamwarp import Warp
from tests.adapters import MODEL, SPACE, import_or_skip, volume_and_labels

torchio = import_or_skip("torchio")
torch = pytest.importorskip("torch")
adapter = import_or_skip("dreamwarp.torchio")

IMAGE, LABEL = volume_and_labels()
pytestmark = pytest.mark.filterwarnings("ignore")


def subject(**more: object) -> torchio.Subject:  # type: ignore[name-defined]
    return torchio.Subject(
        image=torchio.ScalarImage(tensor=torch.from_numpy(IMAGE)),
        label=torchio.LabelMap(tensor=torch.from_numpy(LABEL)),
        **more,
    )


def test_images_and_label_maps_stay_in_step() -> None:
    torch.manual_seed(0)
    warped = adapter.LearnedWarp(MODEL)(subject())
    (done,) = warped.history
    warp = Warp(SPACE, done.theta)
    np.testing.assert_allclose(warped.image.data.numpy(), warp.image(IMAGE), atol=1e-5)
    np.testing.assert_array_equal(warped.label.data.numpy(), warp.mask(LABEL))
    assert np.abs(warped.image.data.numpy() - IMAGE).max() > 0.02


def test_history_replays_and_inverts() -> None:
    torch.manual_seed(1)
    composed = torchio.Compose([torchio.RandomFlip(axes=0, flip_probability=1.0),
                                adapter.LearnedWarp(MODEL, label_key="kind")])  # fmt: skip
    warped = composed(subject(kind=1))
    replayed = warped.get_composed_history()(subject(kind=1))
    np.testing.assert_array_equal(replayed.image.data.numpy(), warped.image.data.numpy())
    back = warped.apply_inverse_transform(warn=False)
    assert np.abs(back.image.data.numpy() - IMAGE).mean() < 0.005
    assert (back.label.data.numpy() == LABEL).mean() > 0.98


def test_probability_and_strength() -> None:
    still = adapter.LearnedWarp(MODEL, p=0)(subject())
    np.testing.assert_array_equal(still.image.data.numpy(), IMAGE)
    still = adapter.LearnedWarp(MODEL, strength=0.0)(subject())
    np.testing.assert_array_equal(still.image.data.numpy(), IMAGE)
    assert adapter.LearnedWarp(MODEL.with_settings(network_strength=0.8)).strength == 0.8


def test_wrong_use() -> None:
    with pytest.raises(TypeError, match="must be a WarpModel"):
        adapter.LearnedWarp("model")
    with pytest.raises(ValueError, match="`theta` must have shape"):
        adapter.FixedWarp(SPACE, np.zeros((2, SPACE.dim)))
    flat = torchio.ScalarImage(tensor=torch.zeros(1, 8, 8, 1))
    with pytest.raises(ValueError, match="several slices"):
        adapter.FixedWarp(SPACE, np.ones(SPACE.dim))(flat)
