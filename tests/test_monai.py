"""The dictionary transform for MONAI, against the real package."""

from __future__ import annotations

import numpy as np
import pytest

from dreamwarp import Warp
from tests.adapters import MODEL, SPACE, import_or_skip, volume_and_labels

monai = import_or_skip("monai.transforms")
torch = pytest.importorskip("torch")
LearnedWarpd = import_or_skip("dreamwarp.monai").LearnedWarpd

IMAGE, LABEL = volume_and_labels()
pytestmark = pytest.mark.filterwarnings("ignore")


def transform(**options: object) -> LearnedWarpd:  # type: ignore[valid-type]
    return LearnedWarpd(["image", "label"], MODEL, mode=["bilinear", "nearest"], **options)


def test_image_and_label_map_stay_in_step() -> None:
    warped = transform().set_random_state(0)({"image": IMAGE, "label": LABEL, "name": "x"})
    (done,) = warped["image"].applied_operations
    warp = Warp(SPACE, done["extra_info"]["theta"])
    np.testing.assert_allclose(warped["image"].numpy(), warp.image(IMAGE), atol=1e-5)
    np.testing.assert_array_equal(warped["label"].numpy(), warp.mask(LABEL))
    assert warped["label"].dtype == torch.int16 and set(np.unique(warped["label"])) <= {0, 7}
    assert warped["name"] == "x" and np.abs(warped["image"].numpy() - IMAGE).max() > 0.02


def test_inverse_in_a_compose_with_history() -> None:
    pipeline = monai.Compose(
        [monai.RandFlipd(["image", "label"], prob=1.0, spatial_axis=0), transform()]
    ).set_random_state(seed=3)
    warped = pipeline({"image": IMAGE, "label": LABEL})
    assert [done["class"] for done in warped["image"].applied_operations] == [
        "RandFlipd", "LearnedWarpd",
    ]  # fmt: skip
    back = pipeline.inverse(warped)
    assert not back["image"].applied_operations
    error = np.abs(back["image"].numpy() - IMAGE)
    # What is left is interpolation, twice; the warp itself is undone to rounding.
    assert error.mean() < 0.3 * np.abs(warped["image"].numpy()[:, ::-1] - IMAGE).mean()
    assert (back["label"].numpy() == LABEL).mean() > 0.98


def test_seeds_and_probability() -> None:
    first, again, other = (
        transform().set_random_state(seed)({"image": IMAGE, "label": LABEL}) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first["image"].numpy(), again["image"].numpy())
    assert not np.array_equal(first["image"].numpy(), other["image"].numpy())
    never = transform(prob=0.0)
    still = never({"image": IMAGE, "label": LABEL})
    np.testing.assert_array_equal(still["image"].numpy(), IMAGE)
    np.testing.assert_array_equal(never.inverse(still)["image"].numpy(), IMAGE)


def test_the_default_strength_is_that_of_networks() -> None:
    model = MODEL.with_settings(network_strength=0.8)
    assert LearnedWarpd("image", model).strength == 0.8
    assert LearnedWarpd("image", model, strength=2).strength == 2.0


def test_classes_and_meta_data() -> None:
    affine = torch.diag(torch.tensor([1.0, 2.0, 3.0, 1.0]))
    image = import_or_skip("monai.data").MetaTensor(torch.from_numpy(IMAGE), affine=affine)
    warp = LearnedWarpd("image", MODEL, label_key="class").set_random_state(0)
    out = warp({"image": image, "class": 1})
    assert torch.equal(out["image"].affine.float(), affine)
    with pytest.raises(KeyError, match="label_key"):
        warp({"image": image})
    with pytest.raises(ValueError, match="5"):
        warp({"image": image, "class": 5})


def test_wrong_use() -> None:
    with pytest.raises(TypeError, match="must be a WarpModel"):
        LearnedWarpd("image", "model")
    with pytest.raises(ValueError, match="`mode` must be one of"):
        LearnedWarpd("image", MODEL, mode="spline")
    with pytest.raises(ValueError, match=r"\(channels, \*spatial\) with 3 spatial axes"):
        LearnedWarpd("image", MODEL)({"image": IMAGE[0]})
