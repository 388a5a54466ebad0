"""dreamwarp.torch: its engines agree with each other and with WarpSpace, and derivatives hold."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.utils.data import DataLoader, Dataset

import dreamwarp as dw
import dreamwarp.torch as dwt
from dreamwarp.space import exact
from dreamwarp.torch import compiled_engine as kernels
from dreamwarp.torch import functional, tensor_engine, walk
from dreamwarp.torch import tensor_interpolation as sampling

BOUNDARIES = ("zero", "slip", "free", "periodic")
SPACES = [
    dw.WarpSpace(cells, boundary) for cells in ((4,), (3, 2), (1, 2, 2)) for boundary in BOUNDARIES
]
# In the quick run every boundary in 2-D, and one in 1-D and 3-D.
IS_QUICK = {(1, "free"), (3, "zero"), *((2, boundary) for boundary in BOUNDARIES)}
EACH_SPACE = pytest.mark.parametrize(
    "space",
    [
        pytest.param(
            space, marks=() if (space.ndim, space.boundary) in IS_QUICK else pytest.mark.slow
        )
        for space in SPACES
    ],
    ids=repr,
)


@pytest.fixture(params=["kernels", "tensors"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Send all tensors to one engine, whatever their device."""
    use_engine(monkeypatch, request.param)
    return str(request.param)


def use_engine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    chosen = {"kernels": kernels, "tensors": tensor_engine}[name]
    monkeypatch.setattr(functional, "choose_engine", lambda device: chosen)


def draw(
    space: dw.WarpSpace, n: int, m: int, *, seed: int = 0, speed: float = 0.3
) -> tuple[Tensor, Tensor]:
    """θ (n, d) that move points at up to ``speed``; points (m, ndim) in and round the domain."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, space.dim))
    theta *= speed / np.abs(space.vertex_velocities(theta)).max()
    points = rng.uniform(-0.3, 1.3, size=(m, space.ndim))
    return torch.from_numpy(theta), torch.from_numpy(points)


def landmarks(space: dw.WarpSpace) -> Tensor:
    """Where lookups and crossings are ambiguous: vertices, middles of edges, whole turns away."""
    vertices = space.tessellation.vertices
    first, second = space.tessellation.simplices[:, 0], space.tessellation.simplices[:, 1]
    middles = 0.5 * (vertices[first] + vertices[second])
    return torch.from_numpy(np.concatenate([vertices, middles, vertices + 1.0, 3 * vertices - 1]))


# -- the package


def test_core_does_not_import_torch_and_the_module_finds_the_real_one() -> None:
    lines = [
        "import sys, dreamwarp",
        "assert 'torch' not in sys.modules",
        "import dreamwarp.torch, torch",
        "assert torch.__name__ == 'torch' and hasattr(torch, 'autograd')",
        "assert dreamwarp.torch.walk.torch is torch",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


# -- the flow: values


@EACH_SPACE
def test_flow_on_the_cpu_is_that_of_the_kernels(space: dw.WarpSpace) -> None:
    theta, points = draw(space, 3, 40)
    moved = dwt.flow(space, theta, points)
    np.testing.assert_array_equal(moved, space.flow(theta, points, method="exact"))
    moved = dwt.flow(space, theta.float(), points.float())
    np.testing.assert_array_equal(moved, space.flow(theta.float(), points.float(), method="fast"))
    assert moved.dtype == torch.float32


@EACH_SPACE
def test_tensor_path_follows_the_kernels(
    space: dw.WarpSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_engine(monkeypatch, "tensors")
    theta, points = draw(space, 4, 100, speed=0.5)
    points = torch.cat([points, landmarks(space)])
    expected = space.flow(theta, points, method="exact")
    np.testing.assert_allclose(dwt.flow(space, theta, points), expected, rtol=0, atol=1e-11)
    moved = dwt.flow(space, theta.float(), points.float())
    expected = space.flow(theta.float(), points.float(), method="exact")
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-5)


def test_violent_theta_keeps_the_tolerance(engine: str) -> None:
    space = dw.WarpSpace((4, 4), "slip")
    theta, points = draw(space, 4, 300, speed=1.5)
    theta[0] *= 0.05  # a gentle one among them, which float32 can follow
    theta, points = theta.float(), points.float()
    expected = space.flow(theta, points, method="exact")
    np.testing.assert_allclose(dwt.flow(space, theta, points), expected, rtol=0, atol=1e-4)
    moved = dwt.flow(space, theta, points, tolerance=1e-6)
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-6)


def test_method_may_differ_from_what_the_dtype_suggests(engine: str) -> None:
    space = dw.WarpSpace((3, 3))
    theta, points = draw(space, 2, 50)
    expected = space.flow(theta, points, method="exact")
    moved = dwt.flow(space, theta, points, method="fast")
    assert moved.dtype == torch.float64
    error = np.abs(moved.numpy() - expected).max()
    assert 1e-9 < error < 1e-4
    theta, points = theta.float(), points.float()
    moved = dwt.flow(space, theta, points, method="exact")
    assert moved.dtype == torch.float32
    expected = space.flow(theta, points, method="exact").astype(np.float32)
    np.testing.assert_allclose(moved, expected, rtol=0, atol=2e-7)


@pytest.mark.parametrize("at_once", [1, 7, 64])
def test_tensor_path_in_small_blocks(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_engine(monkeypatch, "tensors")
    space = dw.WarpSpace((3,), "free")
    theta, points = draw(space, 4, 10)
    theta.requires_grad_()
    whole = dwt.flow(space, theta, points)
    (by_theta,) = torch.autograd.grad(whole.square().sum(), theta)
    monkeypatch.setattr(tensor_engine, "PATHS_AT_ONCE", at_once)
    moved = dwt.flow(space, theta, points)
    torch.testing.assert_close(moved, whole, rtol=0, atol=0)
    torch.testing.assert_close(torch.autograd.grad(moved.square().sum(), theta)[0], by_theta)


def test_tensor_path_past_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that makes no progress is nudged on; here two crossings at once count as none."""
    use_engine(monkeypatch, "tensors")
    space = dw.WarpSpace((3, 3), "free")
    theta, points = draw(space, 2, 50)
    points = torch.cat([points, landmarks(space)])
    expected = dwt.flow(space, theta, points)
    monkeypatch.setattr(exact, "STALLED", 1)
    torch.testing.assert_close(dwt.flow(space, theta, points), expected, rtol=0, atol=1e-10)


def test_tensor_path_keeps_its_precision_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    use_engine(monkeypatch, "tensors")
    space = dw.WarpSpace((3, 3))
    theta, points = draw(space, 2, 20)
    theta = theta.float().requires_grad_()
    expected = dwt.flow(space, theta, points.float())
    (by_theta,) = torch.autograd.grad(expected.sum(), theta)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        moved = dwt.flow(space, theta, points.float())
        again = torch.autograd.grad(moved.sum(), theta)[0]
    torch.testing.assert_close(moved, expected, rtol=0, atol=0)
    torch.testing.assert_close(again, by_theta, rtol=0, atol=0)


def test_float64_is_left_to_the_cpu_where_a_device_has_none() -> None:
    cpu, apple = torch.device("cpu"), torch.device("mps")
    assert tensor_engine.home(apple, walk.DOUBLE) == cpu
    assert tensor_engine.home(apple, walk.SINGLE) == apple
    assert tensor_engine.home(torch.device("cuda", 0), walk.DOUBLE) == torch.device("cuda", 0)


# -- the flow: derivatives


@EACH_SPACE
def test_gradcheck(space: dw.WarpSpace, engine: str) -> None:
    theta, points = draw(space, 2, 3, speed=0.5)
    inputs = (theta.requires_grad_(), points.requires_grad_())
    assert gradcheck(lambda t, p: dwt.flow(space, t, p), inputs, fast_mode=True)


@pytest.mark.parametrize("cells", [(3,), (2, 2), (1, 1, 1)])
def test_gradcheck_of_every_entry(cells: tuple[int, ...]) -> None:
    space = dw.WarpSpace(cells, "slip")
    theta, points = draw(space, 2, 2, speed=0.5)
    inputs = (theta.requires_grad_(), points.requires_grad_())
    assert gradcheck(lambda t, p: dwt.flow(space, t, p), inputs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@EACH_SPACE
def test_engines_have_the_same_derivatives(
    space: dw.WarpSpace, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    theta, points = (t.to(dtype).requires_grad_() for t in draw(space, 3, 40))
    cotangent = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 40, space.ndim)))
    found = []
    for name in ("kernels", "tensors"):
        use_engine(monkeypatch, name)
        moved = dwt.flow(space, theta, points)
        found.append(torch.autograd.grad(moved, (theta, points), cotangent.to(dtype)))
    bound = 1e-9 if dtype == torch.float64 else 1e-3
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype == dtype
        torch.testing.assert_close(one, other, rtol=0, atol=bound * float(one.abs().max()))


def test_derivatives_only_where_asked(engine: str) -> None:
    space = dw.WarpSpace((3, 3))
    theta, points = draw(space, 2, 10)
    assert not dwt.flow(space, theta, points).requires_grad

    leaf_theta, leaf_points = theta.clone().requires_grad_(), points.clone().requires_grad_()
    with torch.no_grad():
        assert not dwt.flow(space, leaf_theta, leaf_points).requires_grad
    both = torch.autograd.grad(
        dwt.flow(space, leaf_theta, leaf_points).square().sum(), (leaf_theta, leaf_points)
    )
    dwt.flow(space, leaf_theta, points).square().sum().backward()
    dwt.flow(space, theta, leaf_points).square().sum().backward()
    torch.testing.assert_close((leaf_theta.grad, leaf_points.grad), both, rtol=0, atol=0)


def test_shared_tensors_gather_their_gradients(engine: str) -> None:
    space = dw.WarpSpace((3,), "free")
    theta, points = (t.requires_grad_() for t in draw(space, 3, 5))
    shared = dwt.flow(space, theta, points)
    spread = dwt.flow(space, theta, points.expand(3, -1, -1))
    torch.testing.assert_close(shared, spread)
    inputs = (theta, points)
    torch.testing.assert_close(
        torch.autograd.grad(shared.square().sum(), inputs),
        torch.autograd.grad(spread.square().sum(), inputs),
    )
    sets = torch.rand(4, 5, 1, dtype=torch.float64)
    one = dwt.flow(space, theta[0], sets)
    many = dwt.flow(space, theta[:1].expand(4, -1), sets)
    torch.testing.assert_close(one, many)
    torch.testing.assert_close(
        torch.autograd.grad(one.square().sum(), theta),
        torch.autograd.grad(many.square().sum(), theta),
    )


def test_second_derivatives_are_refused_not_dropped(engine: str) -> None:
    space = dw.WarpSpace((3,))
    theta, points = draw(space, 1, 4)
    theta.requires_grad_()
    moved = dwt.flow(space, theta, points)
    (gradient,) = torch.autograd.grad(moved.sum(), theta, create_graph=True)
    with pytest.raises(NotImplementedError, match="differentiated once, not twice"):
        (gradient.sum() + theta.sum()).backward()


def test_what_is_not_finite_travels_back(engine: str) -> None:
    """As loss scaling expects: no error, and no number that looks right."""
    space = dw.WarpSpace((3, 3))
    theta, points = draw(space, 2, 5)
    theta.requires_grad_()
    points = points.expand(2, -1, -1).clone().requires_grad_()
    cotangent = torch.ones(2, 5, 2, dtype=torch.float64)
    cotangent[0, 1, 0] = torch.inf
    by_theta, by_points = torch.autograd.grad(
        dwt.flow(space, theta, points), (theta, points), cotangent
    )
    assert by_theta[0].isnan().any()
    assert by_points[0, 1].isnan().any()
    assert by_theta[1].isfinite().all()
    assert by_points[1].isfinite().all()
    assert by_points[0, 2:].isfinite().all()


def test_training_after_inference_mode(engine: str) -> None:
    """Tables cached in inference mode serve training too."""
    space = dw.WarpSpace((2, 3), "free")
    walk.device_mesh.cache_clear()
    theta, points = draw(space, 2, 5)
    with torch.inference_mode():
        dwt.flow(space, theta, points)
    theta.requires_grad_()
    dwt.flow(space, theta, points).sum().backward()
    assert theta.grad is not None


# -- the flow: shapes, types, errors


def test_shapes(engine: str) -> None:
    space = dw.WarpSpace((3, 3))
    theta, points = draw(space, 4, 6)
    sets = points.expand(4, -1, -1)
    assert dwt.flow(space, theta[0], points).shape == (6, 2)
    assert dwt.flow(space, theta[:1], points).shape == (1, 6, 2)
    assert dwt.flow(space, theta[0], sets).shape == (4, 6, 2)
    assert dwt.flow(space, theta, sets[:1]).shape == (4, 6, 2)
    assert dwt.flow(space, theta, sets).shape == (4, 6, 2)


def test_empty_batches(engine: str) -> None:
    space = dw.WarpSpace((3, 3))
    theta, points = (t.requires_grad_() for t in draw(space, 4, 6))
    cases = [
        (theta[:0], points, (0, 6, 2)),
        (theta, points[:0], (4, 0, 2)),
        (theta[:0], points.expand(0, 6, 2), (0, 6, 2)),
        (theta[0], points.expand(0, 6, 2), (0, 6, 2)),
    ]
    for some_theta, some_points, shape in cases:
        moved = dwt.flow(space, some_theta, some_points)
        assert moved.shape == shape
        by_theta, by_points = torch.autograd.grad(moved.sum(), (theta, points))
        assert not by_theta.any()
        assert not by_points.any()


def test_strided_tensors(engine: str) -> None:
    space = dw.WarpSpace((3, 3))
    theta, points = draw(space, 4, 6)
    expected = dwt.flow(space, theta[::2], points)
    strided = torch.stack([points, points], dim=-1)[..., 0]
    assert not strided.is_contiguous()
    torch.testing.assert_close(dwt.flow(space, theta.T.contiguous().T[::2], strided), expected)


@pytest.mark.parametrize(
    ("one", "other", "result"),
    [
        (torch.float32, torch.float64, torch.float64),
        (torch.float64, torch.float32, torch.float64),
        (torch.float16, torch.bfloat16, torch.float32),
        (torch.float32, torch.int64, torch.float32),
    ],
)
def test_mixed_dtypes_are_promoted(
    one: torch.dtype, other: torch.dtype, result: torch.dtype, engine: str
) -> None:
    space = dw.WarpSpace((3, 3))
    theta, points = draw(space, 2, 6)
    theta, points = theta.to(one).requires_grad_(), points.to(other)
    moved = dwt.flow(space, theta, points)
    assert moved.dtype == result
    expected = dwt.flow(space, theta.to(result), points.to(result))
    torch.testing.assert_close(moved, expected, rtol=0, atol=0)
    moved.sum().backward()
    assert theta.grad is not None
    assert theta.grad.dtype == one


def bad_calls() -> list[Any]:
    space = dw.WarpSpace((4, 4))
    theta, points = torch.zeros(3, 50), torch.zeros(6, 2)
    return [
        (TypeError, "`theta` must be a torch.Tensor, got ndarray. Use torch.as_tensor",
         (space, theta.numpy(), points), {}),
        (TypeError, "`points` must be real, got dtype torch.complex64",
         (space, theta, points.to(torch.complex64)), {}),
        (ValueError, "must be on one device, got cpu and meta. Move one with",
         (space, theta, points.to("meta")), {}),
        (ValueError, r"`theta` must have shape \(n, 50\) for .*got \(3, 62\). Use the space",
         (space, torch.zeros(3, 62), points), {}),
        (ValueError, r"`points` must have shape \(m, 2\) or \(n, m, 2\) .* got \(6, 3\)",
         (space, theta, torch.zeros(6, 3)), {}),
        (ValueError, "the same length .* got 3 and 4",
         (space, theta, torch.zeros(4, 6, 2)), {}),
        (ValueError, "`method` must be one of 'fast', 'exact', got 'quick'",
         (space, theta, points), {"method": "quick"}),
        (ValueError, "`tolerance` must be a positive number, got 0",
         (space, theta, points), {"tolerance": 0}),
        (ValueError, r"`theta` must be finite, got nan at index \(0, 0\)",
         (space, theta / 0.0, points), {}),
        (ValueError, r"`points` must be finite, got inf at index",
         (space, theta, points + torch.inf), {}),
        (ValueError, "`theta` must have velocities",
         (space, theta + 1e5, points), {}),
    ]  # fmt: skip


@pytest.mark.parametrize(("error", "message", "arguments", "options"), bad_calls())
def test_bad_input(
    error: type[Exception],
    message: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    engine: str,
) -> None:
    with pytest.raises(error, match=message):
        dwt.flow(*arguments, **options)


# -- images

SHAPES = {1: (13,), 2: (7, 9), 3: (5, 4, 6)}
ONE_SPACE_PER_RANK = pytest.mark.parametrize(
    "space",
    [dw.WarpSpace((4,), "free"), dw.WarpSpace((2, 3), "periodic"), dw.WarpSpace((1, 2, 1), "slip")],
    ids=repr,
)


def draw_images(space: dw.WarpSpace, n: int, *, seed: int = 2) -> Tensor:
    shape = (n, 2, *SHAPES[space.ndim])
    return torch.from_numpy(np.random.default_rng(seed).uniform(0, 255, shape))


@pytest.mark.parametrize("interpolation", ["linear", "nearest", "cubic"])
@ONE_SPACE_PER_RANK
def test_warp_is_that_of_arrays(space: dw.WarpSpace, interpolation: Any, engine: str) -> None:
    theta, _ = draw(space, 3, 0)
    options: dict[str, Any] = {"interpolation": interpolation, "fill": "constant", "fill_value": 7}
    for dtype in (torch.float64, torch.float32, torch.uint8, torch.int64):
        images = draw_images(space, 3).to(dtype)
        number = dtype if dtype.is_floating_point else torch.float32
        warped = dwt.warp(space, theta.to(number), images, **options)
        method: Any = "exact" if dtype == torch.float64 else "fast"
        expected = dw.Warp(space, theta.to(number)).image(images, method=method, **options)
        assert warped.dtype == dtype
        bound = 1e-9 if dtype == torch.float64 else 0.02
        is_far = np.abs(warped.numpy().astype(float) - expected.astype(float)) > bound
        # What is rounded or picked may fall on the other side, here and there.
        assert is_far.mean() <= (0.01 if interpolation == "nearest" or number != dtype else 0)


@pytest.mark.parametrize("fill", ["edge", "constant", "reflect", "wrap"])
@pytest.mark.parametrize("interpolation", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_tensor_sampling_is_that_of_the_kernels(ndim: int, interpolation: Any, fill: Any) -> None:
    rng = np.random.default_rng(3)
    how = sampling.Sampling(interpolation, fill, 1)
    wide = torch.from_numpy(rng.uniform(-1.5, 2.5, (3, 40, ndim)))
    edges = torch.tensor([0.0, 1.0, -1e-6, 1 + 1e-6])[:, None].expand(3, -1, ndim)
    values = torch.from_numpy(rng.uniform(0, 200, (3, 2, *SHAPES[ndim])))
    for dtype in (torch.float64, torch.float32, torch.uint8, torch.int16, torch.int64, torch.bool):
        number = torch.float64 if dtype == torch.float64 else torch.float32
        positions = torch.cat([wide, edges], dim=1).to(number)
        typed = values > 100 if dtype == torch.bool else values.to(dtype)
        for some, where in ((typed, positions), (typed[:1], positions), (typed, positions[:1])):
            found = sampling.resample(some, where, how)
            expected = kernels.resample(some, where, how)
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("fill", ["edge", "constant", "reflect", "wrap"])
@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_sampling_derivatives_are_those_of_the_kernels(
    ndim: int, interpolation: Any, fill: Any
) -> None:
    rng = np.random.default_rng(4)
    how = sampling.Sampling(interpolation, fill, 7.0)
    values = torch.from_numpy(rng.normal(size=(3, 2, *SHAPES[ndim])))
    positions = torch.from_numpy(rng.uniform(-0.5, 1.5, (3, 20, ndim)))
    cotangent = torch.from_numpy(rng.normal(size=(3, 2, 20)))
    for some, where in ((values, positions), (values[:1], positions), (values, positions[:1])):
        inputs = (some, where, cotangent, how)
        expected = kernels.resample_vjp(*inputs, True, True)
        torch.testing.assert_close(sampling.resample_vjp(*inputs, True, True), expected)
        for engine in (sampling, kernels):
            by_values, nothing = engine.resample_vjp(*inputs, True, False)
            assert nothing is None
            torch.testing.assert_close(by_values, expected[0])
            nothing, by_positions = engine.resample_vjp(*inputs, False, True)
            assert nothing is None
            torch.testing.assert_close(by_positions, expected[1])


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
@ONE_SPACE_PER_RANK
def test_gradcheck_of_images(space: dw.WarpSpace, interpolation: Any, engine: str) -> None:
    theta, _ = draw(space, 2, 0)
    inputs = (theta.requires_grad_(), draw_images(space, 2).requires_grad_())
    options: dict[str, Any] = {"interpolation": interpolation, "fill": "reflect"}
    assert gradcheck(lambda t, x: dwt.warp(space, t, x, **options), inputs, fast_mode=True)


@ONE_SPACE_PER_RANK
def test_gradcheck_of_nearest_pixels(space: dw.WarpSpace, engine: str) -> None:
    theta, _ = draw(space, 2, 0)
    images = draw_images(space, 2).requires_grad_()
    options: dict[str, Any] = {"interpolation": "nearest", "fill": "constant", "fill_value": 7}
    assert gradcheck(lambda x: dwt.warp(space, theta, x, **options), images, fast_mode=True)


def test_one_theta_or_one_image(engine: str) -> None:
    space = dw.WarpSpace((2, 3))
    theta, _ = draw(space, 3, 0)
    images = draw_images(space, 3)
    theta.requires_grad_()
    images.requires_grad_()
    cases = [
        (theta[0], images, theta[:1].expand(3, -1), images),
        (theta[:1], images, theta[:1].expand(3, -1), images),
        (theta, images[:1], theta, images[:1].expand(3, -1, -1, -1)),
        (theta[0], images[:1], theta[:1], images[:1]),
    ]
    for some_theta, some_images, all_theta, all_images in cases:
        warped = dwt.warp(space, some_theta, some_images)
        expected = dwt.warp(space, all_theta, all_images)
        torch.testing.assert_close(warped, expected)
        torch.testing.assert_close(
            torch.autograd.grad(warped.square().sum(), (theta, images)),
            torch.autograd.grad(expected.square().sum(), (theta, images)),
        )


def test_image_derivatives_only_where_asked(engine: str) -> None:
    space = dw.WarpSpace((2, 3))
    (theta, _), images = draw(space, 2, 0), draw_images(space, 2)
    assert not dwt.warp(space, theta, images).requires_grad
    leaf_theta, leaf_images = theta.clone().requires_grad_(), images.clone().requires_grad_()
    both = torch.autograd.grad(
        dwt.warp(space, leaf_theta, leaf_images).square().sum(), (leaf_theta, leaf_images)
    )
    dwt.warp(space, leaf_theta, images).square().sum().backward()
    dwt.warp(space, theta, leaf_images).square().sum().backward()
    torch.testing.assert_close((leaf_theta.grad, leaf_images.grad), both)
    with torch.no_grad():
        assert not dwt.warp(space, leaf_theta, leaf_images).requires_grad
    # Labels and integers know no slope.
    assert not dwt.warp(space, leaf_theta, images, interpolation="nearest").requires_grad
    assert not dwt.warp(space, leaf_theta, images.to(torch.uint8)).requires_grad
    warped = dwt.warp(space, leaf_theta, leaf_images, interpolation="nearest")
    (by_images,) = torch.autograd.grad(warped.sum(), leaf_images)
    assert by_images.sum() == warped.numel()


def test_second_derivatives_of_images_are_refused(engine: str) -> None:
    space = dw.WarpSpace((3,), "free")
    (theta, _), images = draw(space, 1, 0), draw_images(space, 1)
    images.requires_grad_()
    (gradient,) = torch.autograd.grad(
        dwt.warp(space, theta, images).square().sum(), images, create_graph=True
    )
    with pytest.raises(NotImplementedError, match="differentiated once, not twice"):
        gradient.sum().backward()


def test_image_dtypes(engine: str) -> None:
    space = dw.WarpSpace((2, 3))
    (theta, _), images = draw(space, 2, 0), draw_images(space, 2)
    exact_result = dwt.warp(space, theta, images)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        typed = images.to(dtype).requires_grad_()
        for number in (torch.float64, torch.float32):
            warped = dwt.warp(space, theta.to(number), typed)
            assert warped.dtype == dtype
            bound = 512 * torch.finfo(dtype).eps + 0.02
            torch.testing.assert_close(warped.double(), exact_result, rtol=0, atol=bound)
            (by_images,) = torch.autograd.grad(warped.sum(), typed)
            assert by_images.dtype == dtype
    labels = dwt.warp(space, theta.float(), images > 128, interpolation="nearest")
    assert labels.dtype == torch.bool


def test_empty_batches_of_images(engine: str) -> None:
    space = dw.WarpSpace((2, 3))
    (theta, _), images = draw(space, 2, 0), draw_images(space, 2)
    assert dwt.warp(space, theta[:0], images[:0]).shape == (0, 2, 7, 9)
    assert dwt.warp(space, theta[0], images[:0]).shape == (0, 2, 7, 9)
    assert dwt.warp(space, theta[:0], images[:1]).shape == (0, 2, 7, 9)
    assert dwt.warp(space, theta, images[:, :0]).shape == (2, 0, 7, 9)


def test_strided_images(engine: str) -> None:
    space = dw.WarpSpace((2, 3))
    (theta, _), images = draw(space, 2, 0), draw_images(space, 2)
    expected = dwt.warp(space, theta, images)
    last = images.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(dwt.warp(space, theta, last), expected)
    turned = images.transpose(2, 3).contiguous().transpose(2, 3)
    torch.testing.assert_close(dwt.warp(space, theta, turned), expected)


def test_a_learned_warp_finds_its_way_back(engine: str) -> None:
    """What it is for: gradient descent through the warp aligns two images."""
    space = dw.WarpSpace((2, 2))
    theta, _ = draw(space, 1, 0, speed=0.1)
    rows, columns = torch.meshgrid(*[torch.linspace(0, 1, 16)] * 2, indexing="ij")
    source = (torch.sin(7 * rows + 2) * torch.cos(9 * columns) + rows * columns)[None, None]
    target = dwt.warp(space, theta.float(), source)
    guess = torch.zeros(1, space.dim, requires_grad=True)
    optimizer = torch.optim.LBFGS([guess], max_iter=15, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = (dwt.warp(space, guess, source, interpolation="cubic") - target).square().sum()
        value.backward()
        return value

    before = loss().item()
    optimizer.step(loss)
    assert loss().item() < 0.05 * before


def bad_image_calls() -> list[Any]:
    space = dw.WarpSpace((4, 4))
    theta, images = torch.zeros(3, 50), torch.zeros(3, 1, 8, 8)
    return [
        (TypeError, "`images` must be a torch.Tensor, got ndarray",
         (space, theta, images.numpy()), {}),
        (ValueError, "`theta` and `images` must be on one device, got cpu and meta",
         (space, theta, images.to("meta")), {}),
        (ValueError, r"`theta` must have shape \(n, 50\)", (space, theta[:, :2], images), {}),
        (ValueError, r"`images` must have shape .* got \(\)", (space, theta, images.sum()), {}),
        (ValueError, r"\(n, channels, \*spatial\) with 2 spatial axes .*images\[:, None\]`",
         (space, theta, images[:, 0]), {}),
        (ValueError, "the same length .* got 3 and 2",
         (space, theta, images[:2]), {}),
        (ValueError, "samples must have between 1 and", (space, theta, images[:, :, :0]), {}),
        (ValueError, "`interpolation` must be one of 'linear', 'nearest', 'cubic', got 'sinc'",
         (space, theta, images), {"interpolation": "sinc"}),
        (ValueError, "`fill` must be one of 'edge', 'constant', 'reflect', got 'wrap'",
         (space, theta, images), {"fill": "wrap"}),
        (ValueError, "`fill_value` must be an integer between 0 and 255",
         (space, theta, images.byte()), {"fill": "constant", "fill_value": 256}),
        (ValueError, "`method` must be one of", (space, theta, images), {"method": "quick"}),
    ]  # fmt: skip


@pytest.mark.parametrize(("error", "message", "arguments", "options"), bad_image_calls())
def test_bad_images(
    error: type[Exception],
    message: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    engine: str,
) -> None:
    with pytest.raises(error, match=message):
        dwt.warp(*arguments, **options)


# -- in company


class WarpedPoints(Dataset[tuple[Tensor, int]]):
    """Moves its points when asked for them, in whatever process that is."""

    def __init__(self, space: dw.WarpSpace, theta: Tensor, points: Tensor) -> None:
        self.space, self.theta, self.points = space, theta, points

    def __len__(self) -> int:
        return len(self.theta)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return dwt.flow(self.space, self.theta[index], self.points), kernels.n_threads()


def test_forked_data_loader_workers(engine: str) -> None:
    space = dw.WarpSpace((4, 4))
    theta, points = (t.float() for t in draw(space, 6, 30))
    expected = dwt.flow(space, theta, points)  # the parent's threads are at work before it forks
    with warnings.catch_warnings():
        # Newer Pythons warn of any fork of a process with threads, which torch itself has.
        warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
        loader = DataLoader(
            WarpedPoints(space, theta, points),
            batch_size=2, num_workers=2, multiprocessing_context="fork",
        )  # fmt: skip
        batches = list(loader)
    torch.testing.assert_close(torch.cat([moved for moved, _ in batches]), expected)
    assert all((n_threads == 1).all() for _, n_threads in batches)
