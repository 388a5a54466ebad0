"""The dictionary transform for MONAI, against the real package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dreamwarp import Warp, WarpModel, WarpSpace
from dreamwarp.data import write_volume
from tests.adapters import (
    MODEL,
    SPACE,
    import_or_skip,
    oblong_volume,
    turned,
    volume_and_labels,
)

monai = import_or_skip("monai.transforms")
torch = pytest.importorskip("torch")
LearnedWarpd = import_or_skip("dreamwarp.monai").LearnedWarpd

RAS_MODEL = MODEL.with_settings(orientation="RAS")
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
        [
            monai.RandFlipd(["image", "label"], prob=1.0, spatial_axis=0),
            transform(orientation="RAS"),
        ]
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
    warp = LearnedWarpd("image", RAS_MODEL, label_key="class").set_random_state(0)
    out = warp({"image": image, "class": 1})
    assert torch.equal(out["image"].affine.float(), affine)
    with pytest.raises(KeyError, match="label_key"):
        warp({"image": image})
    with pytest.raises(ValueError, match="5"):
        warp({"image": image, "class": 5})


@pytest.mark.parametrize("orientation", ["RAS", "LPS", "SAR", "PIL"])
def test_warps_act_along_the_axes_of_the_model(tmp_path: Path, orientation: str) -> None:
    volume = oblong_volume()
    values, affine = turned(volume, orientation)
    write_volume(tmp_path / "a.nii", values[0], affine)
    pipeline = monai.Compose(
        [
            monai.LoadImaged("image", ensure_channel_first=True),
            LearnedWarpd("image", RAS_MODEL, mode="bilinear", strength=1.0),
        ]
    ).set_random_state(seed=0)
    out = pipeline({"image": str(tmp_path / "a.nii")})["image"]
    theta = np.array(out.applied_operations[-1]["extra_info"]["theta"])
    moved = Warp(SPACE, theta).image(volume)
    np.testing.assert_allclose(out.numpy(), turned(moved, orientation)[0], atol=1e-5)
    np.testing.assert_allclose(out.affine, affine)
    back = pipeline.transforms[1].inverse({"image": out})["image"]
    restored = Warp(SPACE, -theta).image(moved)
    np.testing.assert_allclose(back.numpy(), turned(restored, orientation)[0], atol=1e-5)


def test_an_affine_in_lps_coordinates() -> None:
    values, affine = turned(oblong_volume(), "PIL")
    item = import_or_skip("monai.data").MetaTensor(torch.from_numpy(values))
    in_lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine
    warped = [
        LearnedWarpd("image", RAS_MODEL)
        .set_random_state(0)(
            {"image": type(item)(values, affine=torch.from_numpy(a), meta={"space": space})}
        )["image"]
        .numpy()
        for a, space in ((affine, "RAS"), (in_lps, "LPS"))
    ]
    np.testing.assert_array_equal(*warped)


def test_a_model_of_unknown_orientation_takes_axes_as_stored() -> None:
    values, affine = turned(oblong_volume(), "LPS")
    meta = import_or_skip("monai.data").MetaTensor(values, affine=torch.from_numpy(affine))
    for options in ({}, {"orientation": "stored"}):
        stored = LearnedWarpd("image", MODEL, **options).set_random_state(0)
        out = stored({"image": meta})["image"]
        warp = Warp(SPACE, out.applied_operations[0]["extra_info"]["theta"])
        np.testing.assert_allclose(out, warp.image(values), atol=1e-5)
    for wrong in ("RAF", "RA", "RLS", "ras", 3):
        with pytest.raises(ValueError, match="`orientation` must be 'auto', 'stored' or 3 letters"):
            LearnedWarpd("image", MODEL, orientation=wrong)


def test_pictures_that_monai_reads_as_column_and_row(tmp_path: Path) -> None:
    from PIL import Image

    space = WarpSpace((3, 3))
    thetas = np.random.default_rng(0).normal(scale=0.3, size=(40, space.dim))
    picture = np.random.default_rng(1).integers(0, 255, (20, 30)).astype(np.uint8)
    Image.fromarray(picture).save(tmp_path / "a.png")
    item = monai.LoadImage(ensure_channel_first=True)(tmp_path / "a.png")
    model = WarpModel.fit(space, {0: thetas})
    out = LearnedWarpd("image", model, orientation="AR", mode="bilinear")({"image": item})["image"]
    warp = Warp(space, out.applied_operations[-1]["extra_info"]["theta"])
    moved = warp.image(picture.astype(np.float32))
    np.testing.assert_allclose(out.numpy()[0], moved.T, atol=1e-3)


def test_wrong_use() -> None:
    with pytest.raises(TypeError, match="must be a WarpModel"):
        LearnedWarpd("image", "model")
    with pytest.raises(ValueError, match="`mode` must be one of"):
        LearnedWarpd("image", MODEL, mode="spline")
    with pytest.raises(ValueError, match=r"\(channels, \*spatial\) with 3 spatial axes"):
        LearnedWarpd("image", MODEL)({"image": IMAGE[0]})
