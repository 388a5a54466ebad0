"""dreamwarp.torch.LearnedWarp: whose warps, which images, and that they can be had again."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dreamwarp.torch as dwt
from dreamwarp import Augmenter
from dreamwarp.core.draws import derive_seed
from dreamwarp.model.strength import NETWORK_STRENGTH
from dreamwarp.torch import LearnedWarp, functional, tensor_engine
from dreamwarp.torch.drawing import RandomWarps
from tests.torch.cases import make_images, make_model, make_template_model

LABELS = torch.tensor([0, 1, 2, 1, 0, 2, 2, 1])


def draws(warp: LearnedWarp, labels: Any = LABELS, **options: Any) -> Tensor:
    images = make_images(len(labels), 6, 6)
    return warp(images, labels, return_theta=True, **options)[2]


# -- what it does to images


@pytest.mark.parametrize("shape", [(1, 12, 12), (3, 9, 14), (12, 12)], ids=str)
def test_images_are_warped_by_draws_of_their_class(shape: tuple[int, ...]) -> None:
    model, images = make_model(), make_images(8, *shape)
    warped, labels, theta = LearnedWarp(model, seed=5, strength=1.0, spectrum_power=1.0)(
        images, LABELS, return_theta=True
    )
    assert labels is LABELS and warped.shape == images.shape and warped.dtype == images.dtype
    expected = model.draw(LABELS, np.arange(8), seed=derive_seed(5, 0))
    np.testing.assert_array_equal(theta, expected.astype(np.float32))
    batch = images if len(shape) == 3 else images[:, None]
    sharp = dwt.warp(model.space, theta, batch, interpolation="cubic").reshape(images.shape)
    axes = tuple(range(1, images.ndim))
    low, high = images.amin(axes, keepdim=True), images.amax(axes, keepdim=True)
    assert torch.equal(warped, sharp.clamp(low, high))
    assert not torch.equal(warped, sharp) and not torch.equal(warped, images)


@pytest.mark.parametrize("options", [{}, {"spectrum_power": 0.5}, {"spectrum_power": 0.2}], ids=str)
def test_spectra_are_flattened(options: dict[str, float]) -> None:
    model = make_model()
    theta = draws(LearnedWarp(model, seed=5, strength=2.0, **options))
    flat = model.flattened(options.get("spectrum_power", 0.5))
    expected = 2.0 * flat.draw(LABELS, np.arange(8), seed=derive_seed(5, 0))
    np.testing.assert_array_equal(theta, expected.astype(np.float32))


@pytest.mark.parametrize(("cells", "expected"), [((5,), "cubic"), ((2, 2, 2), "linear")])
def test_volumes_are_interpolated_linearly(cells: tuple[int, ...], expected: Any) -> None:
    model = make_model(cells=cells)
    images = make_images(8, 1, *(8 for _ in cells))
    warped, _, theta = LearnedWarp(model)(images, LABELS, return_theta=True)
    given, _ = LearnedWarp(model, interpolation=expected)(images, LABELS, theta=theta)
    assert torch.equal(warped, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_sharp_samples_stay_within_their_range(dtype: torch.dtype) -> None:
    """Cubic interpolation of a step overshoots; fill values may lie outside the range."""
    step = torch.zeros(8, 12, 12, dtype=dtype)
    step[:, :, 6:] = 100
    warp = LearnedWarp(make_model(), strength=3.0)
    warped, _ = warp(step, LABELS)
    assert warped.min() == 0 and warped.max() == 100 and not torch.equal(warped, step)
    filled = LearnedWarp(make_model(), strength=3.0, fill="constant", fill_value=200)
    assert filled(step, LABELS)[0].max() <= 200
    assert filled(step, LABELS)[0].max() > 100


def test_a_nan_spreads_to_its_neighbours_only() -> None:
    images = make_images(8, 12, 12)
    images[0, 3, 3] = torch.nan
    warped, _ = LearnedWarp(make_model())(images, LABELS)
    assert 0 < warped[0].isnan().sum() < 40 and not warped[1:].isnan().any()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float64, torch.bool])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    images = make_images(8, 1, 12, 12, dtype=dtype)
    warped, _ = LearnedWarp(make_model())(images, LABELS)
    assert warped.dtype == dtype and not torch.equal(warped, images)


def test_signals_and_volumes() -> None:
    for cells, shape in (((5,), (2, 30)), ((2, 2, 2), (6, 7, 8))):
        images = make_images(8, *shape)
        warped, _ = LearnedWarp(make_model(cells=cells))(images, LABELS)
        assert warped.shape == images.shape and not torch.equal(warped, images)


def test_other_devices_than_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.empty(8, 1, 6, 6, device="meta")
    rows = RandomWarps(make_model()).check_theta(torch.zeros(8, make_model().space.dim), images)
    assert rows.device == images.device
    expected, _ = LearnedWarp(make_model(), p=0.7)(make_images(8, 1, 12, 12), LABELS)
    monkeypatch.setattr(functional, "choose_engine", lambda device: tensor_engine)
    warped, _ = LearnedWarp(make_model(), p=0.7)(make_images(8, 1, 12, 12), LABELS)
    torch.testing.assert_close(warped, expected, rtol=0, atol=1e-3)


def test_empty_batch_passes() -> None:
    images, labels = torch.empty(0, 1, 8, 8), torch.empty(0, dtype=torch.int64)
    assert LearnedWarp(make_model())(images, labels)[0].shape == images.shape
    assert LearnedWarp(make_model())(images, [])[0].shape == images.shape


def test_derivative_by_images_and_by_theta() -> None:
    warp = LearnedWarp(make_model(), p=0.5)
    images = make_images(8, 1, 12, 12).requires_grad_()
    warped, _, theta = warp(images, LABELS, return_theta=True)
    warped.square().sum().backward()
    assert (images.grad != 0).flatten(1).any(dim=1).all()
    # Zero rows too: whoever looks for a warp starts at the identity.
    theta.requires_grad_()
    warp(images.detach(), LABELS, theta=theta)[0].square().sum().backward()
    assert (theta.grad != 0).any(dim=1).all() and not theta.any(dim=1).all()


def test_a_network_is_trained_with_it() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(144, 3))
    warp, images = LearnedWarp(make_model()), make_images(8, 1, 12, 12)
    network[1].weight.grad = None
    warped, labels = warp(images, LABELS)
    nn.functional.cross_entropy(network(warped), labels).backward()
    assert network[1].weight.grad.isfinite().all()


# -- probability, strength, modes


def test_each_image_is_warped_with_probability_p() -> None:
    warp, images = LearnedWarp(make_model(), p=0.3), make_images(3000, 4, 4)
    labels = torch.arange(3000) % 3
    warped, _, theta = warp(images, labels, return_theta=True)
    moves = theta.any(dim=1)
    assert abs(moves.double().mean() - 0.3) < 5 * (0.3 * 0.7 / 3000) ** 0.5
    assert torch.equal(warped[~moves], images[~moves])
    always = LearnedWarp(make_model())(images, labels, return_theta=True)[2]
    assert torch.equal(theta[moves], always[moves])
    never, _ = LearnedWarp(make_model(), p=0.0)(images, labels)
    assert torch.equal(never, images)


def test_strength_scales_warps() -> None:
    half, full = draws(LearnedWarp(make_model(), strength=0.5)), draws(LearnedWarp(make_model()))
    torch.testing.assert_close(half, 0.5 / NETWORK_STRENGTH * full)
    for recommended in (0.0, 3.0):
        warp = LearnedWarp(make_model().with_strength(recommended), strength=0.5)
        assert warp.strength == 0.5 and "strength=0.5, p=1" in repr(warp)
        assert torch.equal(draws(warp), half)
    # Networks have a strength of their own, not what is recommended for a nearest neighbour.
    assert torch.equal(draws(LearnedWarp(make_model().with_strength(0.5))), full)
    assert LearnedWarp(make_model().with_settings(network_strength=0.8)).strength == 0.8


def test_a_model_that_recommends_no_warps_says_so() -> None:
    with pytest.warns(RuntimeWarning, match=r"recommends strength 0.*choose_strength"):
        warp = LearnedWarp(make_model().with_strength(0.0))
    assert f"strength={NETWORK_STRENGTH:g}, p=1" in repr(warp) and draws(warp).any()


def test_evaluation_mode_leaves_images_alone_unless_told() -> None:
    images = make_images(8, 1, 12, 12)
    warp = LearnedWarp(make_model()).eval()
    same, labels, theta = warp(images, LABELS, return_theta=True)
    assert torch.equal(same, images) and labels is LABELS and not theta.any()
    assert theta.shape == (8, warp.model.space.dim)
    warped, _ = LearnedWarp(make_model(), in_eval=True).eval()(images, LABELS)
    assert not torch.equal(warped, images)
    given = torch.full((8, warp.model.space.dim), 0.05)
    assert not torch.equal(warp(images, LABELS, theta=given)[0], images)


# -- randomness


def test_recorded_theta_gives_the_same_images() -> None:
    images = make_images(8, 3, 12, 12)
    warp = LearnedWarp(make_model(), p=0.6)
    warped, _, theta = warp(images, LABELS, return_theta=True)
    for recorded in (theta, theta.double(), torch.tensor(theta.tolist())):
        assert torch.equal(warp(images, LABELS, theta=recorded)[0], warped)
    one, _ = warp(images, LABELS, theta=theta[0])
    assert torch.equal(one[0], warped[0])


def test_numbers_and_not_batches_decide() -> None:
    labels = torch.arange(40) % 3
    numbers, images = torch.randperm(40), make_images(40, 10, 10)
    warp = LearnedWarp(make_model(), p=0.8)
    whole, _ = warp(images, labels, numbers=numbers)
    warp.set_epoch(0)
    parts = [
        warp(images[some], labels[some], numbers=numbers[some].tolist())[0]
        for some in torch.arange(40).split(7)
    ]
    assert torch.equal(torch.cat(parts), whole)
    order = numbers.argsort()
    sorted_first, _ = LearnedWarp(make_model(), p=0.8)(images[order], labels[order])
    assert torch.equal(sorted_first, whole[order])


def test_images_are_counted_and_epochs_differ() -> None:
    warp = LearnedWarp(make_model(), seed=3)
    first, second = draws(warp), draws(warp)
    assert not torch.equal(first, second)
    both = draws(LearnedWarp(make_model(), seed=3), torch.cat([LABELS, LABELS]))
    assert torch.equal(torch.cat([first, second]), both)
    warp.set_epoch(1)
    assert not torch.equal(draws(warp), first)
    warp.set_epoch(0)
    assert torch.equal(draws(warp), first)
    assert not torch.equal(draws(LearnedWarp(make_model(), seed=4)), first)


def test_numbers_that_come_again_in_an_epoch_are_noticed() -> None:
    warp = LearnedWarp(make_model())
    for epoch in (0, 1, 1):
        warp.set_epoch(epoch)
        first = draws(warp, numbers=range(8))
    draws(warp), draws(warp, generator=torch.Generator(), numbers=range(8))
    with pytest.warns(UserWarning, match=r"sample 5 .* twice in epoch 1.*set_epoch.*`numbers`"):
        assert torch.equal(draws(warp, LABELS[5:], numbers=range(5, 8)), first[5:])
    draws(warp, numbers=range(8))  # said once


def test_generator_decides() -> None:
    warp = LearnedWarp(make_model())
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(1)
    first, second = draws(warp, generator=generator), draws(warp, generator=generator)
    again = draws(LearnedWarp(make_model(), seed=9), generator=torch.Generator().manual_seed(1))
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_seed_of_none_and_of_a_generator_are_read_once() -> None:
    warp = LearnedWarp(make_model(), seed=None)
    numbered = draws(warp, numbers=range(8))
    warp.set_epoch(0)
    assert torch.equal(numbered, draws(warp, numbers=np.arange(8)))
    assert not torch.equal(numbered, draws(LearnedWarp(make_model(), seed=None)))


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda warp: pickle.loads(pickle.dumps(warp))]
)
def test_copies_draw_the_same_and_have_no_state(duplicate: Callable[[Any], Any]) -> None:
    warp = LearnedWarp(make_model(("a", "b")), p=0.5)
    labels = ["a", "b", "b", "a"]
    assert torch.equal(draws(duplicate(warp), labels), draws(warp, labels))
    assert not warp.state_dict() and not list(warp.parameters())
    assert "2 classes" in repr(warp) and "p=0.5" in repr(warp)


def test_templates_are_told_apart() -> None:
    warp = LearnedWarp(make_template_model())
    labels, numbers = torch.zeros(6, dtype=torch.int64), np.zeros(6, int)
    with pytest.warns(UserWarning, match="sample 0 was drawn twice in epoch 0"):
        theta = draws(warp, labels, numbers=numbers, templates=torch.arange(6))
    assert len(theta.unique(dim=0)) == 6
    # Without: the warps of the class.
    with pytest.warns(UserWarning, match="sample 0 was drawn twice in epoch 0"):
        assert len(draws(LearnedWarp(warp.model), labels, numbers=numbers).unique(dim=0)) == 1


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_layout_in_memory_is_kept(p: float) -> None:
    images = make_images(8, 3, 12, 12)
    last = images.contiguous(memory_format=torch.channels_last)
    warped, _ = LearnedWarp(make_model(), p=p)(last, LABELS)
    assert warped.is_contiguous(memory_format=torch.channels_last)
    plain, _ = LearnedWarp(make_model(), p=p)(images, LABELS)
    assert plain.is_contiguous() and torch.equal(warped, plain)


# -- labels


def test_labels_may_be_lists_arrays_or_positions_of_names() -> None:
    names = ("cat", "dog", "eel")
    model = make_model(names)
    words = [names[place] for place in LABELS]
    expected = draws(LearnedWarp(model), words)
    assert torch.equal(draws(LearnedWarp(model), np.array(words)), expected)
    assert torch.equal(draws(LearnedWarp(model, classes=names), LABELS), expected)
    assert torch.equal(draws(LearnedWarp(model, classes=names), LABELS.tolist()), expected)
    assert torch.equal(draws(LearnedWarp(make_model()), LABELS.to(torch.uint8)),
                       draws(LearnedWarp(make_model()), list(LABELS)))  # fmt: skip


def test_unknown_labels_are_refused_or_pooled() -> None:
    labels = torch.tensor([0, 7])
    with pytest.raises(ValueError, match=r'label 7 is not one of the .* classes.*"pool"'):
        draws(LearnedWarp(make_model(), p=0.0), labels)
    theta = draws(LearnedWarp(make_model(), unknown="pool", strength=1.0), labels)
    expected = make_model().flattened(0.5).draw(None, [1], seed=derive_seed(0, 0))
    np.testing.assert_array_equal(theta[1:], expected.astype(np.float32))
    pooled, none = LearnedWarp(make_model(), unknown="pool")(make_images(4, 8, 8))
    assert none is None and pooled.shape == (4, 8, 8)
    with pytest.raises(ValueError, match=r'labels must be given.*unknown="pool"'):
        LearnedWarp(make_model())(make_images(4, 8, 8))


def test_classes_unknown_to_the_model_may_be_pooled() -> None:
    warp = LearnedWarp(make_model(("a", "b")), classes=("a", "x"), unknown="pool", strength=1)
    theta = draws(warp, torch.tensor([0, 1]))
    seed = derive_seed(0, 0)
    expected = (
        make_model(("a", "b")).flattened(0.5).draw(["a", "x"], [0, 1], seed=seed, unknown="pool")
    )
    np.testing.assert_array_equal(theta, expected.astype(np.float32))


@pytest.mark.parametrize(
    ("labels", "options", "error", "message"),
    [
        (LABELS[:3], {}, ValueError, "one for each image, got 3 labels for 8 images"),
        (0, {}, ValueError, r"got one label for 8 images.*its label as `\[label\]`"),
        (torch.tensor(0), {}, ValueError, "got one label for 8 images"),
        (torch.rand(8), {}, ValueError, r"got float32 of shape \(8,\).*labels.long\(\)"),
        (torch.rand(8, 3), {}, ValueError, r"shape \(8, 3\).*labels.argmax\(dim=1\)"),
        (["a"] * 8, {}, TypeError, "labels must be integers.*such as 0, got 'a'"),
        (LABELS, {"classes": (0, 1)}, ValueError, "indices into `classes`, from 0 to 1, got 2"),
        (["a"] * 8, {"classes": (0, 1)}, TypeError, "indices into `classes`, got 'a'. Leave out"),
    ],
)
def test_wrong_labels_are_refused(labels: Any, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        LearnedWarp(make_model(), **options)(make_images(8, 1, 6, 6), labels)


@pytest.mark.parametrize("unknown", ["error", "pool"])
def test_numbers_for_a_model_of_names_are_not_pooled_in_silence(unknown: Any) -> None:
    with pytest.raises(TypeError, match=r"must be strings.*such as 'a', got 0. Use `classes`"):
        draws(LearnedWarp(make_model(("a", "b", "c")), unknown=unknown))


# -- other bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"p": 1.5}, ValueError, "`p` must be a number from 0 to 1, got 1.5"),
        ({"p": "often"}, ValueError, "`p` must be a number from 0 to 1"),
        ({"strength": -1.0}, ValueError, "`strength` must be a finite, non-negative number"),
        ({"unknown": "skip"}, ValueError, "`unknown` must be one of 'error', 'pool'"),
        ({"interpolation": "best"}, ValueError, "`interpolation` must be one of"),
        ({"fill": "white"}, ValueError, "`fill` must be one of"),
        ({"classes": ("a", "b")}, ValueError, "labels that the model has, such as 0, got 'a'"),
        ({"classes": ()}, ValueError, "such as 0, got none"),
        ({"seed": -1}, ValueError, "`seed` must be at least 0"),
        ({"color": 1}, TypeError, "color"),
    ],
)
def test_wrong_options_are_refused(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        LearnedWarp(make_model(), **options)


def test_wrong_calls_are_refused() -> None:
    warp, images = LearnedWarp(make_model()), make_images(8, 1, 6, 6)
    with pytest.raises(TypeError, match=r"`model` must be a WarpModel, got str.*WarpModel.load"):
        LearnedWarp("digits.dwm")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got Augmenter.*or pass `augmenter\.model_`"):
        LearnedWarp(Augmenter())  # type: ignore[arg-type]
    for epoch in (-1, 1.5):
        with pytest.raises(ValueError, match=r"`epoch` must be an integer of at least 0, got"):
            warp.set_epoch(epoch)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"channels before its spatial axes.*movedim"):
        warp(make_images(8, 28, 28, 3), LABELS)
    with pytest.raises(TypeError, match=r"images must be tensors, got ndarray"):
        warp(images.numpy(), LABELS)
    with pytest.raises(ValueError, match=r"2 spatial axes.*got \(6, 6\).*\[None\]`"):
        warp(images[0, 0], LABELS)
    with pytest.raises(ValueError, match=r"one entry for each of 8 images, got 3"):
        warp(images, LABELS, numbers=[1, 2, 3])
    with pytest.raises(ValueError, match=r"one row for each of 8 images, or a single row, got 3"):
        warp(images, LABELS, theta=torch.zeros(3, warp.model.space.dim))
    with pytest.raises(ValueError, match=r"`theta` must have shape"):
        warp(images, LABELS, theta=torch.zeros(8, 3))
    with pytest.raises(TypeError, match=r"`theta` must be a torch.Tensor, got ndarray"):
        warp(images, LABELS, theta=np.zeros(8))
