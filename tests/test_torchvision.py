"""dreamwarp.torchvision with the real torchvision: all parts of a sample stay in step."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as PILImage
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.transforms import v2
from torchvision.tv_tensors import BoundingBoxes, Image, KeyPoints, Mask, Video

from benchmarks.landmarks import BOUND, make_transforms, measure_landmarks
from dreamwarp import Warp, WarpSpace
from dreamwarp.core.draws import derive_seed
from dreamwarp.model.strength import NETWORK_STRENGTH
from dreamwarp.torchvision import FixedWarp, LearnedWarp
from tests.torch.cases import Pictures, make_images, make_model, make_template_model

SPACE = WarpSpace((3, 3))
THETA = make_model().draw([1], [0])[0]
HEIGHT, WIDTH = 20, 30
CANVAS = {"canvas_size": (HEIGHT, WIDTH)}


def picture(*lead: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    return make_images(1, *lead, HEIGHT, WIDTH, dtype=dtype)[0]


def make_sample(label: Any = 1) -> dict[str, Any]:
    return {
        "image": Image(picture(3)),
        "mask": Mask(picture(dtype=torch.int64)),
        "boxes": BoundingBoxes([[3.0, 4.0, 12.0, 15.0]], format="XYXY", **CANVAS),
        "keypoints": KeyPoints([[3.0, 4.0], [20.5, 11.0]], **CANVAS),
        "labels": label,
        "name": "a sample",
    }


@pytest.fixture
def fixed() -> FixedWarp:
    return FixedWarp(SPACE, THETA)


# -- the parts of a sample


@pytest.mark.parametrize("interpolation", ["linear", "nearest", "cubic"])
def test_images_are_those_of_warp(interpolation: Any) -> None:
    fixed = FixedWarp(SPACE, THETA, interpolation=interpolation)
    values = picture(3)
    expected = Warp(SPACE, np.float32(THETA)).image(values.numpy()[None],
                                                     interpolation=interpolation)[0]  # fmt: skip
    if interpolation == "cubic":
        expected = expected.clip(int(values.min()), int(values.max()))
    for kind in (Image, lambda tensor: tensor):
        warped = fixed(kind(values))
        assert type(warped) is type(kind(values)) and warped.dtype == torch.uint8
        np.testing.assert_array_equal(warped, expected)
    assert torch.equal(fixed(values[0]), fixed(values)[0])


@pytest.mark.parametrize("kind", ["tensor", "PIL"])
def test_sharp_images_stay_within_their_range(kind: str) -> None:
    values = torch.where(picture(3) > 127, 200, 50).to(torch.uint8)
    image = values if kind == "tensor" else PILImage.fromarray(values.permute(1, 2, 0).numpy())
    warped = np.asarray(FixedWarp(SPACE, THETA, interpolation="cubic")(image))
    assert warped.min() == 50 and warped.max() == 200 and len(np.unique(warped)) > 50


def test_all_frames_of_a_video_are_warped_alike(fixed: FixedWarp) -> None:
    video = Video(picture(4, 3))
    warped = fixed(video)
    assert isinstance(warped, Video) and warped.shape == video.shape
    for before, after in zip(video, warped, strict=True):
        assert torch.equal(fixed(Image(before)), after)


def test_masks_take_the_nearest_label(fixed: FixedWarp) -> None:
    for mask in (picture(dtype=torch.int64), picture(2, dtype=torch.bool)):
        warped = fixed({"image": Image(picture(3)), "mask": Mask(mask)})["mask"]
        assert isinstance(warped, Mask) and warped.dtype == mask.dtype
        assert torch.equal(warped, FixedWarp(SPACE, THETA, interpolation="nearest")(mask))
    assert fixed(Mask(torch.empty(0, 5, 6))).shape == (0, 5, 6)


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [("L", "u1"), ("RGB", "u1"), ("RGBA", "u1"), ("CMYK", "u1"), ("I;16", "<u2"), ("F", "f4")],
)
def test_pil_images_keep_their_mode(fixed: FixedWarp, mode: str, dtype: str) -> None:
    bands = () if mode in ("L", "I;16", "F") else (len(PILImage.new(mode, (1, 1)).getbands()),)
    values = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, *bands)).astype(dtype)
    image = PILImage.frombytes(mode, (WIDTH, HEIGHT), values.tobytes())
    warped = fixed(image)
    assert warped.mode == mode and warped.size == image.size
    planes = np.moveaxis(np.atleast_3d(values), -1, 0)
    expected = np.moveaxis(Warp(SPACE, THETA).image(planes[None])[0], 0, -1)
    np.testing.assert_array_equal(np.atleast_3d(np.asarray(warped)), expected)


@pytest.mark.parametrize("mode", ["1", "P"])
def test_named_colors_are_not_mixed(fixed: FixedWarp, mode: str) -> None:
    values = picture().numpy()
    image = PILImage.fromarray(values > 127) if mode == "1" else PILImage.fromarray(values)
    if mode == "P":
        image.putpalette(list(range(256)) * 3)
    warped = fixed(image)
    expected = Warp(SPACE, THETA).mask(np.asarray(image))
    assert warped.mode == mode and warped.getpalette() == image.getpalette()
    np.testing.assert_array_equal(np.asarray(warped), expected)


def test_keypoints_move_by_the_inverse(fixed: FixedWarp) -> None:
    points = torch.rand(2, 3, 2, dtype=torch.float64) * torch.tensor([WIDTH - 1, HEIGHT - 1])
    moved = fixed(KeyPoints(points, **CANVAS))
    assert isinstance(moved, KeyPoints) and moved.canvas_size == (HEIGHT, WIDTH)
    places = (points.reshape(-1, 2).numpy()[:, ::-1] + 0.5) / (HEIGHT, WIDTH)
    expected = Warp(SPACE, THETA).points(places) * (HEIGHT, WIDTH) - 0.5
    np.testing.assert_allclose(moved.reshape(-1, 2), expected[:, ::-1], atol=1e-12)
    back = FixedWarp(SPACE, -THETA)(moved)
    torch.testing.assert_close(back.as_subclass(Tensor), points)
    whole = fixed(KeyPoints(points.round().int(), **CANVAS))
    assert whole.dtype == torch.int32
    exact = fixed(KeyPoints(points.round(), **CANVAS)).as_subclass(Tensor)
    assert torch.equal(whole.as_subclass(Tensor), exact.round().int())


def test_keypoints_far_outside_stay_and_those_across_a_seam_come_back(fixed: FixedWarp) -> None:
    far = KeyPoints([[-500.0, 3.0], [4000.0, -70.0]], **CANVAS)
    torch.testing.assert_close(fixed(far).as_subclass(Tensor), far.as_subclass(Tensor))
    model = make_model(boundary="periodic", speed=1.0)
    wrapped = FixedWarp(model.space, model.draw([0], [0])[0])
    corners = KeyPoints([[0.0, 0.0], [WIDTH - 1.0, HEIGHT - 1.0], [0.0, 10.0]], **CANVAS)
    moved = wrapped(corners)
    assert (moved >= -0.5).all() and (moved <= torch.tensor([WIDTH, HEIGHT]) - 0.5).all()


@pytest.mark.parametrize("layout", ["XYXY", "XYWH", "CXCYWH"])
def test_boxes_of_every_upright_format(fixed: FixedWarp, layout: str) -> None:
    corners = torch.tensor([[3.0, 4.0, 12.0, 15.0], [0.0, 0.0, 30.0, 20.0]], dtype=torch.float64)
    boxes = BoundingBoxes(corners, format="XYXY", **CANVAS)
    given = v2.functional.convert_bounding_box_format(boxes, new_format=layout)
    moved = fixed(given)
    assert moved.format.value == layout and moved.canvas_size == (HEIGHT, WIDTH)
    found = v2.functional.convert_bounding_box_format(moved, new_format="XYXY")
    size = np.array([HEIGHT, WIDTH, HEIGHT, WIDTH])
    expected = Warp(SPACE, THETA).boxes(corners.numpy()[:, [1, 0, 3, 2]] / size) * size
    np.testing.assert_allclose(found, expected[:, [1, 0, 3, 2]], atol=1e-9)
    whole = fixed(given.int())
    assert whole.dtype == torch.int32
    empty = fixed(BoundingBoxes(torch.empty(0, 4), format=layout, **CANVAS))
    assert empty.shape == (0, 4)


def test_boxes_are_clamped_to_the_canvas() -> None:
    model = make_model(boundary="free", speed=1.0)
    fixed = FixedWarp(model.space, model.draw([0], [3])[0])
    whole = BoundingBoxes([[0.0, 0.0, 30.0, 20.0]], format="XYXY", **CANVAS)
    moved = fixed(whole)[0]
    assert (moved[:2] >= 0).all() and moved[2] <= WIDTH and moved[3] <= HEIGHT


@pytest.mark.parametrize("layout", ["XYWHR", "CXCYWHR", "XYXYXYXY"])
def test_rotated_boxes_are_refused(fixed: FixedWarp, layout: str) -> None:
    boxes = BoundingBoxes(torch.rand(2, 8 if layout == "XYXYXYXY" else 5), format=layout, **CANVAS)
    with pytest.raises(ValueError, match=rf"XYXY, XYWH, CXCYWH, got {layout}.*KeyPoints"):
        fixed(boxes)


def test_constant_fill_of_images_and_masks() -> None:
    model = make_model(boundary="free", speed=1.5)
    theta = model.draw([0], [1])[0]
    fixed = FixedWarp(model.space, theta, fill="constant", fill_value=7, mask_fill_value=9)
    blank = torch.ones(1, HEIGHT, WIDTH, dtype=torch.uint8)
    image, mask = fixed(Image(blank), Mask(blank))
    assert 7 in image and set(mask.unique().tolist()) == {1, 9}


def test_no_warp_is_no_change_and_the_rest_passes() -> None:
    sample = make_sample()
    same = FixedWarp(SPACE, np.zeros(SPACE.dim))(sample)
    assert all(same[key] is value for key, value in sample.items())
    warped = FixedWarp(SPACE, THETA)(sample)
    assert warped["labels"] == 1 and warped["name"] == "a sample"


def test_landmarks_agree_with_the_image() -> None:
    """Keypoints, boxes and masks to half a pixel; benchmarks/landmarks.py shows the figures."""
    found = {}
    for name, transform in make_transforms(seed=0).items():
        errors = measure_landmarks(transform, 10, seed=0)
        found[name] = {what: values.max() for what, values in errors.items()}
    ours = found["dreamwarp"]
    assert ours["moved"] > 5.0
    assert max(ours["keypoints"], ours["boxes"], ours["masks"]) <= BOUND
    assert found["torchvision, as far as ours"]["keypoints"] > BOUND


# -- random ones


def test_warp_is_one_of_its_class_and_can_be_repeated() -> None:
    transform, sample = LearnedWarp(make_model(), strength=1.0), make_sample()
    torch.manual_seed(0)
    theta = transform.draw(sample)
    torch.manual_seed(0)
    key = int(torch.randint(2**63 - 1, ()))
    expected = make_model().flattened(0.5).draw([1], [0], seed=key)
    np.testing.assert_array_equal(theta, expected[0])
    torch.manual_seed(0)
    warped, again = transform(sample), transform.fixed(theta)(sample)
    for part in ("image", "mask", "boxes", "keypoints"):
        assert type(warped[part]) is type(sample[part])
        assert torch.equal(warped[part], again[part])
        assert not torch.equal(warped[part], sample[part])


def test_compose_with_other_transforms() -> None:
    transform = v2.Compose([
        v2.Resize((40, 60)),
        LearnedWarp(make_model()),
        v2.RandomHorizontalFlip(p=1.0),
        v2.ToDtype(torch.float32, scale=True),
        v2.ClampBoundingBoxes(),
        v2.SanitizeBoundingBoxes(labels_getter=None),
    ])  # fmt: skip
    torch.manual_seed(1)
    sample = transform(make_sample())
    assert sample["image"].shape == (3, 40, 60) and sample["image"].dtype == torch.float32
    assert sample["mask"].shape == (40, 60) and sample["keypoints"].canvas_size == (40, 60)
    assert sample["boxes"].shape == (1, 4)
    torch.manual_seed(1)
    image, label = transform.transforms[1](Image(picture(3)), 2)
    assert label == 2 and image.shape == (3, HEIGHT, WIDTH)
    assert "3 classes" in repr(transform)


def test_probability_and_strength() -> None:
    transform = LearnedWarp(make_model(), p=0.25)
    sample = (Image(picture(1)), 0)
    n_warped = sum(transform(sample)[0] is not sample[0] for _ in range(400))
    assert abs(n_warped - 100) < 5 * (400 * 0.25 * 0.75) ** 0.5
    assert LearnedWarp(make_model(), p=0.0)(sample) is sample
    torch.manual_seed(0)
    full = LearnedWarp(make_model(), strength=1.0).draw(sample)
    torch.manual_seed(0)
    np.testing.assert_allclose(LearnedWarp(make_model(), strength=2.0).draw(sample), 2 * full)
    torch.manual_seed(0)
    still = make_model().with_strength(0.0)
    np.testing.assert_allclose(LearnedWarp(still, strength=2.0).draw(sample), 2 * full)
    with pytest.warns(RuntimeWarning, match=r"recommends strength 0.*choose_strength"):
        assert f"strength={NETWORK_STRENGTH:g}" in repr(LearnedWarp(still))


@pytest.mark.parametrize(
    "sample",
    [
        (Image(picture(1)), 1),
        [Image(picture(1)), torch.tensor(1)],
        (Image(picture(1)), torch.tensor([1])),
        (Image(picture(1)), {"Labels": [1, 1], "label_of_nothing": 0}),
        {"image": Image(picture(1)), "my_label": np.int64(1)},
        (picture(1), 1, "the rest"),
    ],
)
def test_labels_are_found(sample: Any) -> None:
    torch.manual_seed(3)
    found = LearnedWarp(make_model()).draw(sample)
    torch.manual_seed(3)
    getter = LearnedWarp(make_model(), labels_getter=lambda _: 1)
    np.testing.assert_array_equal(found, getter.draw(sample))


def test_names_of_classes() -> None:
    model = make_model(("a", "b"))
    torch.manual_seed(3)
    by_name = LearnedWarp(model).draw((picture(1), "b"))
    torch.manual_seed(3)
    by_place = LearnedWarp(model, classes=("a", "b")).draw((picture(1), 1))
    np.testing.assert_array_equal(by_name, by_place)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (picture(1), "got none.*labels_getter=None.*use its `transforms`.*WarpedDataset"),
        ({"image": picture(1)}, "got none. Use unknown="),
        ((picture(1), {"boxes": 3}), "got none. Use unknown="),
        ((picture(1), 9), "label 9 is not one of the model's classes"),
        ((picture(1), [0, 1]), "a sample must have one label, .* got 0, 1. Use unknown="),
        ((picture(1), torch.empty(0)), "got none. Use unknown="),
        ((picture(1), None), "got none. Use unknown="),
        ((picture(1), Mask(torch.zeros(8, 8))), "got none. Use unknown="),
        ((picture(1), [{"bbox": [0, 0, 2, 2], "category_id": 3}]), "got none. Use unknown="),
    ],
)
def test_missing_and_unknown_labels_are_refused(sample: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LearnedWarp(make_model())(sample)


@pytest.mark.parametrize(
    "sample",
    [
        *((picture(1), label) for label in (9, [0, 1], None, Mask(torch.zeros(8, 8)))),
        (picture(1), [{"category_id": 3}]),
        (picture(1), {"boxes": 3}),
        {"image": picture(1)},
        picture(1),
    ],
)
def test_missing_and_unknown_labels_are_pooled_if_asked(sample: Any) -> None:
    torch.manual_seed(3)
    pooled = LearnedWarp(make_model(), labels_getter=None).draw(picture(1))
    torch.manual_seed(3)
    np.testing.assert_array_equal(LearnedWarp(make_model(), unknown="pool").draw(sample), pooled)
    warped = LearnedWarp(make_model(), unknown="pool")(sample)
    assert type(warped) is type(sample)


def test_errors_of_a_labels_getter_are_not_taken_for_a_missing_label() -> None:
    def fail(sample: Any) -> Any:
        raise ValueError("a mistake of the user's")

    with pytest.raises(ValueError, match="a mistake"):
        LearnedWarp(make_model(), labels_getter=fail, unknown="pool")(picture(1))


# -- numbers, workers, files


class Numbered(Pictures):
    def __init__(self, transform: LearnedWarp) -> None:
        super().__init__(11)
        self.transform = transform

    def __getitem__(self, index: int) -> Any:
        image, label, _ = super().__getitem__(index)
        return self.transform({"image": Image(image), "label": label, "index": index})["image"]


def number_of(sample: Any) -> int:
    return int(sample["index"])


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_numbered_samples_do_not_depend_on_workers() -> None:
    transform = LearnedWarp(make_model(), number_getter=number_of, seed=5)
    dataset = Numbered(transform)
    expected = [dataset[i] for i in range(11)]
    loaders = [DataLoader(dataset, batch_size=4, num_workers=n, multiprocessing_context=start)
               for n, start in ((0, None), (2, "fork"))]  # fmt: skip
    for loader in loaders:
        transform.set_epoch(0)
        assert torch.equal(torch.cat(list(loader)), torch.stack(expected))
    transform.set_epoch(1)
    assert not torch.equal(dataset[0], expected[0])
    copied = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(copied[4], dataset[4])
    with pytest.warns(UserWarning, match=r"sample 4 was drawn twice in epoch 1.*`number_getter`"):
        dataset[4]


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_seed_alone_numbers_samples_as_they_come() -> None:
    model, sample = make_model(), make_sample()
    transform, state = LearnedWarp(model, seed=5, strength=1.0), torch.get_rng_state()
    drawn = [transform.draw(sample) for _ in range(3)]
    flat = model.flattened(0.5)
    expected = flat.draw(1, np.arange(3), seed=derive_seed(5, 0))
    np.testing.assert_array_equal(drawn, expected)
    assert torch.equal(torch.get_rng_state(), state)
    transform.set_epoch(1)
    np.testing.assert_array_equal(
        transform.draw(sample), flat.draw(1, [0], seed=derive_seed(5, 1))[0]
    )
    transform.set_epoch(0)
    loader = DataLoader(Numbered(transform), batch_size=11)
    first, second = next(iter(loader)), next(iter(loader))
    assert not torch.equal(first, second)  # no epoch was set, and nothing repeats
    workers = {"num_workers": 1, "multiprocessing_context": "fork"}
    with pytest.raises(RuntimeError, match=r"count the same numbers. Give `number_getter`.*`seed`"):
        next(iter(DataLoader(Numbered(transform), **workers)))


def test_samples_of_the_fit_get_warps_of_their_own() -> None:
    model = make_template_model()
    flat = model.flattened(0.5)
    options: dict[str, Any] = {"number_getter": number_of, "strength": 1.0}
    transform = LearnedWarp(model, template_getter=number_of, **options)
    for number in (2, 5):
        drawn = transform.draw({"image": Image(picture(3)), "label": 0, "index": number})
        expected = flat.draw([0], [number], seed=derive_seed(0, 0), templates=[number])
        np.testing.assert_array_equal(drawn, expected[0])
    untold = LearnedWarp(model, **options)
    drawn = untold.draw({"image": Image(picture(3)), "label": 0, "index": 2})
    np.testing.assert_array_equal(drawn, flat.draw([0], [2], seed=derive_seed(0, 0))[0])


@pytest.mark.parametrize("name", ["number_getter", "template_getter"])
def test_getters_must_return_whole_numbers(name: str) -> None:
    getters: dict[str, Any] = {name: lambda sample: "third"}
    with pytest.raises(TypeError, match=f"`{name}` must return an integer.*got 'third'"):
        LearnedWarp(make_model(), **getters)((picture(3), 0))


def test_wrong_input_is_refused(fixed: FixedWarp) -> None:
    model = make_model()
    with pytest.raises(ValueError, match=r"a callable or None, got 'labels'"):
        LearnedWarp(model, labels_getter="labels")
    with pytest.raises(ValueError, match="need a space with 2 axes"):
        LearnedWarp(make_model(cells=(5,)))
    with pytest.raises(ValueError, match=r"`theta` must have shape \(\d+,\).*LearnedWarp"):
        FixedWarp(SPACE, np.stack([THETA, THETA]))
    with pytest.raises(ValueError, match=r"shape \(\.\.\., height, width\), got \(3,\)"):
        fixed(torch.zeros(3))
    with pytest.raises(TypeError, match="`model` must be a WarpModel"):
        LearnedWarp("digits.dwm")  # type: ignore[arg-type]
