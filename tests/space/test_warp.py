"""Warps that apply themselves: identity, landmarks, boxes, shapes, dtypes, borders."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dreamwarp.core.samples import pixel_centers
from dreamwarp.space import WarpSpace
from dreamwarp.space import warp as warp_module
from dreamwarp.space.fields import Fields
from dreamwarp.space.resample import resample
from dreamwarp.space.warp import Warp

CELLS = {1: (5,), 2: (3, 4), 3: (2, 2, 2)}
SHAPES = {1: (40,), 2: (24, 31), 3: (12, 10, 14)}
DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


def make_space(ndim, boundary="zero"):
    return WarpSpace(CELLS[ndim], boundary)


def random_theta(space, n, strength=0.08, seed=0):
    """θ whose warps move points by up to ``strength`` or so."""
    theta = np.random.default_rng(seed).normal(size=(n, space.dim))
    speed = np.abs(space.vertex_velocities(theta)).max(axis=(1, 2))
    return theta * (strength / speed)[:, None]


def centers(shape):
    axes = np.meshgrid(*[(np.arange(n) + 0.5) / n for n in shape], indexing="ij")
    return np.stack(axes, axis=-1)


def random_sample(shape, dtype, seed=0):
    values = np.random.default_rng(seed).integers(0, 2 if dtype == "?" else 100, size=shape)
    return values.astype(dtype)


# -- what is pulled back


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_image_is_the_sample_at_the_moved_pixels(ndim, interpolation):
    space = make_space(ndim)
    theta = random_theta(space, 2)
    x = np.random.default_rng(1).normal(size=(2, 3, *SHAPES[ndim]))
    positions = space.flow(theta, centers(SHAPES[ndim]).reshape(-1, ndim))
    expected = resample(x, positions, interpolation=interpolation).reshape(x.shape)
    found = Warp(space, theta).image(x, interpolation=interpolation)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_identity_returns_the_sample_exactly(dtype, interpolation):
    space = make_space(2)
    x = random_sample((2, 9, 7), dtype)
    found = Warp(space, np.zeros(space.dim)).image(
        x, interpolation=interpolation, fill="constant", fill_value=1
    )
    assert found.dtype == x.dtype
    assert not np.shares_memory(found, x)
    np.testing.assert_array_equal(found, x)


def test_exact_method():
    for ndim in (1, 2, 3):
        space = make_space(ndim)
        warp = Warp(space, random_theta(space, 2))
        x = np.random.default_rng(1).normal(size=SHAPES[ndim])
        positions = space.flow(warp.theta, centers(SHAPES[ndim]).reshape(-1, ndim), method="exact")
        expected = resample(x[None, None], positions).reshape(2, *SHAPES[ndim])
        found = warp.image(x, method="exact")
        np.testing.assert_array_equal(found, expected)


def test_identity_among_others_passes_nan_and_infinity_through():
    space = make_space(1)
    theta = random_theta(space, 3)
    theta[1] = 0
    x = np.random.default_rng(2).normal(size=(3, 40))
    x[:, 7], x[:, 20] = np.nan, np.inf
    found = Warp(space, theta).image(x)
    np.testing.assert_array_equal(found[1], x[1])
    assert np.isnan(found[0]).any()
    assert np.isfinite(found[0]).any()


@pytest.mark.parametrize("boundary", ["zero", "slip", "free", "periodic"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_inverse_undoes(ndim, boundary):
    space = make_space(ndim, boundary)
    warp = Warp(space, random_theta(space, 2, strength=0.05))
    x = np.cos(2 * np.pi * centers(SHAPES[ndim]).sum(axis=-1))
    back = warp.inverse().image(warp.image(x, interpolation="cubic"), interpolation="cubic")
    inner = (slice(None), *[slice(n // 4, -(n // 4)) for n in SHAPES[ndim]])
    # A tenth of the amplitude: these grids are coarse, and a wrong inverse is off by most of it.
    np.testing.assert_allclose(back[inner], np.stack([x, x])[inner], atol=0.1)


def test_images_are_sampled_at_the_flow_of_pixel_centers():
    space = make_space(2)
    theta = random_theta(space, 3)
    flow = space.flow(theta, pixel_centers((24, 31))).reshape(3, 24, 31, 2)
    rows = Warp(space, theta).image(np.broadcast_to(centers((24, 31))[..., 0], (3, 24, 31)))
    inner = np.s_[:, 2:-2]
    np.testing.assert_allclose(rows[inner], flow[..., 0][inner], atol=1e-6)


def test_tolerance_follows_the_pixels(monkeypatch):
    space = make_space(1)
    asked = []
    flow = Fields.flow
    monkeypatch.setattr(Fields, "flow", lambda *a: asked.append(a[3]) or flow(*a))
    warp = Warp(space, random_theta(space, 1))
    warp.image(np.zeros(40))
    warp.image(np.zeros(5000))
    warp.image(np.zeros(40), tolerance=1e-3)
    assert asked == [1e-4, 1e-5, 1e-3]


@pytest.mark.parametrize("boundary", ["zero", "periodic"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_large_samples_are_warped_alike(ndim, boundary, monkeypatch):
    """Pixels of small samples stay located; those of large ones are located block by block."""
    space = make_space(ndim, boundary)
    x = np.random.default_rng(0).random((3, *(13, 12, 14)[:ndim]))
    warp = Warp(space, random_theta(space, 3, seed=ndim))
    expected = warp.image(x)
    monkeypatch.setattr("dreamwarp.space.warp.KEPT_POINTS", 0)
    monkeypatch.setattr("dreamwarp.space.warp.BLOCK_POINTS", 100)
    np.testing.assert_array_equal(warp.image(x), expected)


# -- points and boxes stay in step


@pytest.mark.parametrize("boundary", ["zero", "slip", "free", "periodic"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_landmark_ends_where_points_says(ndim, boundary):
    space = make_space(ndim, boundary)
    shape = {1: (90,), 2: (96, 80), 3: (40, 36, 44)}[ndim]
    warp = Warp(space, random_theta(space, 6, seed=ndim))
    rng = np.random.default_rng(3)
    for one in warp:
        landmark = rng.uniform(0.3, 0.7, size=ndim)
        offsets = (centers(shape) - landmark) * shape
        blob = np.exp(-0.5 * (offsets**2).sum(axis=-1) / 1.2**2)
        warped = one.image(blob)
        found = (centers(shape) * warped[..., None]).sum(axis=tuple(range(ndim))) / warped.sum()
        said = one.points(landmark[None])[0]
        assert np.linalg.norm((found - said) * shape) <= 0.5


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_drawn_coordinate_is_read_where_points_says(ndim):
    """An image of coordinates, warped, has p at ``points(p)``."""
    space = make_space(ndim)
    shape = (64,) * ndim
    theta = random_theta(space, 4, seed=7)
    warp = Warp(space, theta)
    p = np.random.default_rng(4).uniform(0.2, 0.8, size=(50, ndim))
    coordinates = np.moveaxis(centers(shape), -1, 0)[None]
    warped = warp.image(coordinates, interpolation="cubic")
    read = resample(warped, warp.points(p), interpolation="cubic")
    np.testing.assert_allclose(np.moveaxis(read, 1, 2), np.stack([p] * 4), atol=0.2 / 64)


def test_points_move_by_the_exact_inverse():
    space = make_space(2)
    theta = random_theta(space, 3)
    p = np.random.default_rng(5).uniform(size=(20, 2))
    warp = Warp(space, theta)
    found = warp.points(p)
    assert found.dtype == np.float64
    assert found.shape == (3, 20, 2)
    np.testing.assert_allclose(
        space.flow(theta, found, method="exact"), np.stack([p] * 3), atol=1e-9
    )
    np.testing.assert_allclose(warp.inverse().points(found), np.stack([p] * 3), atol=1e-9)
    assert warp[0].points(p).shape == (20, 2)
    assert warp.points(np.zeros((0, 2))).shape == (3, 0, 2)


def shift(space, distance):
    """θ of the field that carries everything by ``distance``."""
    vertices = space.tessellation.vertices
    return space.theta_from_vertices(np.broadcast_to(distance, vertices.shape))


def test_points_of_a_periodic_space_stay_in_the_domain():
    space = make_space(2, "periodic")
    warp = Warp(space, shift(space, [-0.25, 0.5]))
    np.testing.assert_allclose(warp.points([[0.9, 0.2]]), [[0.15, 0.7]], atol=1e-12)


@pytest.mark.parametrize("boundary", ["zero", "slip", "free"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_boxes_enclose_the_warped_mask_tightly(ndim, boundary):
    space = make_space(ndim, boundary)
    shape = {1: (200,), 2: (90, 110), 3: (40, 36, 44)}[ndim]
    warp = Warp(space, random_theta(space, 4, seed=11))
    rng = np.random.default_rng(6)
    low, high = rng.uniform(0.1, 0.4, size=(3, ndim)), rng.uniform(0.6, 0.9, size=(3, ndim))
    boxes = warp.boxes(np.concatenate([low, high], axis=1))
    assert boxes.shape == (4, 3, 2 * ndim)
    p = centers(shape)
    masks = np.stack([((p >= a) & (p <= b)).all(axis=-1) for a, b in zip(low, high, strict=True)])
    warped = warp.mask(np.stack([masks] * 4))
    for found, mask in zip(boxes.reshape(-1, 2, ndim), warped.reshape(-1, *shape), strict=True):
        inside = p[mask]
        assert (inside >= found[0] - 1.5 / np.array(shape)).all()
        assert (inside <= found[1] + 1.5 / np.array(shape)).all()
        assert (np.abs(inside.min(axis=0) - found[0]) <= 2.5 / np.array(shape)).all()
        assert (np.abs(inside.max(axis=0) - found[1]) <= 2.5 / np.array(shape)).all()


def dense_outline(ndim, low, high, n_steps):
    faces = []
    for axis in range(ndim):
        for value in (low, high):
            steps = [np.linspace(low, high, n_steps + 1)] * ndim
            steps[axis] = [value]
            faces.append(np.stack(np.meshgrid(*steps), axis=-1).reshape(-1, ndim))
    return np.concatenate(faces)


@pytest.mark.parametrize(("ndim", "n_theta", "n_steps"), [(1, 12, 1), (2, 12, 3000), (3, 3, 130)])
def test_boxes_are_as_accurate_as_they_say(ndim, n_theta, n_steps):
    space = make_space(ndim)
    theta = random_theta(space, n_theta, strength=0.1, seed=12)
    boxes = Warp(space, theta).boxes([[0.1] * ndim + [0.85] * ndim])[:, 0]
    moved = space.flow(-theta, dense_outline(ndim, 0.1, 0.85, n_steps), method="exact")
    low, high = boxes[:, :ndim], boxes[:, ndim:]
    assert (moved >= low[:, None] - 1e-4).all()
    assert (moved <= high[:, None] + 1e-4).all()
    # The outline may itself miss a bulge, in 3-D where it can't be as dense.
    slack = 1e-3 if ndim == 3 else 1e-5
    assert (moved.min(axis=1) <= low + slack).all()
    assert (moved.max(axis=1) >= high - slack).all()


def test_boxes_across_the_seam_and_of_no_size():
    space = make_space(2, "periodic")
    warp = Warp(space, shift(space, [-0.25, 0.0]))
    found = warp.boxes([[0.5, 0.1, 0.9, 0.3], [0.2, 0.2, 0.2, 0.2]])
    expected = [[0.75, 0.1, 1.15, 0.3], [0.45, 0.2, 0.45, 0.2]]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_boxes_one_set_for_each_theta():
    space = make_space(2)
    warp = Warp(space, random_theta(space, 3))
    low = np.random.default_rng(8).uniform(0.1, 0.3, size=(3, 2, 2))
    boxes = np.concatenate([low, low + 0.5], axis=2)
    each = warp.boxes(boxes)
    for i in range(3):
        np.testing.assert_allclose(each[i], warp[i].boxes(boxes[i]), atol=1e-12)
    assert warp[0].boxes(boxes).shape == (3, 2, 4)
    assert warp.boxes(np.zeros((0, 4))).shape == (3, 0, 4)
    assert warp[:0].boxes(boxes[0]).shape == (0, 2, 4)


# -- borders


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("fill", ["edge", "constant", "reflect"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_periodic_spaces_wrap_round(ndim, fill, interpolation):
    space = make_space(ndim, "periodic")
    shape = (16, 8, 32)[:ndim]
    steps = (5, 3, -9)[:ndim]
    x = random_sample((2, *shape), "u1")
    warp = Warp(space, shift(space, np.array(steps) / shape))
    found = warp.image(x, interpolation=interpolation, fill=fill, fill_value=255)
    axes = tuple(range(1, ndim + 1))
    np.testing.assert_array_equal(found, np.roll(x, [-s for s in steps], axes))


def test_fill_rules_of_a_free_space():
    space = make_space(1, "free")
    warp = Warp(space, shift(space, [4 / 16]))
    x = np.arange(1.0, 17.0)
    np.testing.assert_allclose(warp.image(x)[-5:], [16] * 5, atol=1e-4)
    filled = warp.image(x, fill="constant", fill_value=-3.0)
    np.testing.assert_allclose(filled[-5:], [16, -3, -3, -3, -3], atol=1e-4)
    np.testing.assert_allclose(warp.image(x, fill="reflect")[-5:], [16, 16, 15, 14, 13], atol=1e-4)


# -- masks


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d[0] != "f"])
def test_masks_invent_no_label(dtype):
    space = make_space(2, "free")
    labels = [0, 1] if dtype == "?" else [3, 50, 101]
    x = np.random.default_rng(9).choice(labels, size=(20, 30)).astype(dtype)
    warp = Warp(space, random_theta(space, 5, strength=0.2))
    found = warp.mask(x)
    assert found.dtype == x.dtype
    assert found.shape == (5, 20, 30)
    assert set(np.unique(found)) <= set(labels)
    filled = warp.mask(x, fill="constant", fill_value=1)
    assert set(np.unique(filled)) <= {*labels, 1}
    assert (filled == 1).sum() > (found == 1).sum()


@pytest.mark.parametrize("boundary", ["zero", "slip", "periodic"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_masks_are_not_filled_where_nothing_comes_from_outside(ndim, boundary):
    space = make_space(ndim, boundary)
    warp = Warp(space, random_theta(space, 20, strength=1.5, seed=13))
    found = warp.mask(np.ones(SHAPES[ndim], bool), fill="constant", fill_value=False)
    assert found.all()


# -- shapes


def test_shapes_of_batches():
    space = make_space(2)
    many, one = Warp(space, random_theta(space, 4)), Warp(space, random_theta(space, 1))
    single = one[0]
    x = random_sample((4, 3, 9, 7), "u1")
    assert single.image(x[0, 0]).shape == (9, 7)
    assert single.image(x[0]).shape == (3, 9, 7)
    assert single.image(x).shape == (4, 3, 9, 7)
    assert one.image(x[0, 0]).shape == (1, 9, 7)
    assert one.image(x).shape == (4, 3, 9, 7)
    assert many.image(x[0, 0]).shape == (4, 9, 7)
    assert many.image(x[:, 0]).shape == (4, 9, 7)
    assert many.image(x[:1, 0]).shape == (4, 9, 7)
    assert many.image(x).shape == (4, 3, 9, 7)
    assert many.image(x[:1]).shape == (4, 3, 9, 7)


def test_batches_do_one_by_one_what_each_does_alone():
    space = make_space(2)
    warp = Warp(space, random_theta(space, 4))
    x = random_sample((4, 3, 9, 7), "f4")
    each = warp.image(x)
    of_one = warp.image(x[:1])
    by_one = warp[2].image(x)
    for i in range(4):
        np.testing.assert_array_equal(each[i], warp[i].image(x[i]))
        np.testing.assert_array_equal(of_one[i], warp[i].image(x[0]))
        np.testing.assert_array_equal(by_one[i], warp[2].image(x[i]))
    for c in range(3):
        np.testing.assert_array_equal(each[:, c], warp.image(x[:, c]))


@pytest.mark.parametrize("dtype", ["u1", "u2", "f8"])
def test_blocks_change_nothing(monkeypatch, dtype):
    space = make_space(2)
    theta = random_theta(space, 5)
    theta[3] = 0
    x = random_sample((5, 2, 9, 7), dtype)
    box = [[0.2, 0.1, 0.6, 0.9]]
    images = Warp(space, theta).image(x), Warp(space, theta[0]).image(x)
    boxes = Warp(space, theta).boxes(box)
    monkeypatch.setattr(warp_module, "BLOCK_BYTES", 700)
    monkeypatch.setattr(warp_module, "BLOCK_POINTS", 20)
    np.testing.assert_array_equal(Warp(space, theta).image(x), images[0])
    np.testing.assert_array_equal(Warp(space, theta[0]).image(x), images[1])
    np.testing.assert_array_equal(Warp(space, theta).boxes(box), boxes)


def test_empty_batches_give_empty_results():
    space = make_space(2)
    none, one = Warp(space, np.zeros((0, space.dim))), Warp(space, random_theta(space, 1))
    assert len(none) == 0
    assert none.image(np.zeros((9, 7))).shape == (0, 9, 7)
    assert none.image(np.zeros((0, 3, 9, 7))).shape == (0, 3, 9, 7)
    assert none.mask(np.zeros((1, 9, 7), np.uint8)).shape == (0, 9, 7)
    assert none.points(np.zeros((5, 2))).shape == (0, 5, 2)
    assert one.image(np.zeros((0, 9, 7))).shape == (0, 9, 7)
    assert one[0].image(np.zeros((0, 3, 9, 7))).shape == (0, 3, 9, 7)
    assert one.image(np.zeros((2, 0, 9, 7))).shape == (2, 0, 9, 7)


def test_non_contiguous_read_only_and_foreign_byte_order():
    space = make_space(2)
    warp = Warp(space, random_theta(space, 4))
    x = random_sample((4, 9, 14), "f4")
    expected = warp.image(x[:, :, ::2])
    frozen = np.ascontiguousarray(x[:, :, ::2])
    frozen.flags.writeable = False
    np.testing.assert_array_equal(warp.image(frozen), expected)
    np.testing.assert_array_equal(warp.image(np.asfortranarray(frozen)), expected)
    foreign = warp.image(frozen.astype(">f4"))
    assert foreign.dtype == np.dtype(">f4")
    np.testing.assert_array_equal(foreign, expected)


def test_results_do_not_depend_on_threads():
    space = make_space(2)
    warp = Warp(space, random_theta(space, 7))
    x = random_sample((7, 50, 90), "f4")  # two tasks per sample
    np.testing.assert_array_equal(warp.image(x, n_threads=1), warp.image(x, n_threads=3))
    box = [[0.2, 0.1, 0.6, 0.9]]
    np.testing.assert_array_equal(warp.boxes(box, n_threads=1), warp.boxes(box, n_threads=3))


# -- the object


def test_a_warp_is_a_sequence_of_warps():
    space = make_space(2)
    theta = random_theta(space, 4)
    warp = Warp(space, theta)
    assert len(warp) == 4
    assert len(warp[0]) == 1
    assert repr(warp) == "Warp(WarpSpace((3, 4), boundary='zero'), 4 θ)"
    assert repr(warp[0]) == "Warp(WarpSpace((3, 4), boundary='zero'), one θ)"
    np.testing.assert_array_equal(warp[1].theta, theta[1])
    np.testing.assert_array_equal(warp[1:3].theta, theta[1:3])
    np.testing.assert_array_equal([one.theta for one in warp], theta)
    np.testing.assert_array_equal(warp.inverse().theta, -theta)
    with pytest.raises(IndexError):
        warp[4]


def test_theta_is_kept_safe():
    space = make_space(2)
    theta = random_theta(space, 2)
    warp = Warp(space, theta)
    theta[:] = 0
    assert warp.theta.any()
    with pytest.raises(ValueError, match="read-only"):
        warp.theta[:] = 0


def test_pickle():
    space = make_space(2)
    warp = Warp(space, random_theta(space, 2))
    copy = pickle.loads(pickle.dumps(warp))
    assert copy.space == space
    np.testing.assert_array_equal(copy.theta, warp.theta)


# -- bad input


PLANE = WarpSpace((3, 4))
WARP = Warp(PLANE, np.zeros((3, PLANE.dim)))


@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        (TypeError, "`space` must be a WarpSpace, got tuple", lambda: Warp((4, 4), [0.0])),
        (ValueError, r"`theta` must have shape \(n, 36\).*got \(2, 5\)",
         lambda: Warp(PLANE, np.zeros((2, 5)))),
        (ValueError, "`theta` must be finite", lambda: Warp(PLANE, np.full(PLANE.dim, np.nan))),
        (TypeError, "`x` must be an array of booleans.*got dtype object",
         lambda: WARP.image(np.zeros((9, 7), object))),
        (ValueError, r"`x` must have shape .* with 2 spatial axes, as many as .* got \(9,\)",
         lambda: WARP.image(np.zeros(9))),
        (ValueError, r"`x` must have shape .*got \(1, 2, 3, 9, 7\)",
         lambda: WARP.image(np.zeros((1, 2, 3, 9, 7)))),
        (ValueError, r"pixels per channel, got spatial shape \(0, 7\)",
         lambda: WARP.image(np.zeros((0, 7)))),
        (ValueError, r"channels before .* got shape \(28, 28, 3\).* Use `np.moveaxis\(x, -1, -3\)`",
         lambda: WARP.image(np.zeros((28, 28, 3)))),
        (ValueError, r"as many as there are θ, 3, got 2 in shape \(2, 9, 7\).* as `x\[None\]`",
         lambda: WARP.image(np.zeros((2, 9, 7)))),
        (ValueError, "`interpolation` must be one of 'linear', 'nearest', 'cubic', got 'area'",
         lambda: WARP.image(np.zeros((9, 7)), interpolation="area")),
        (ValueError, "`fill` must be one of 'edge', 'constant', 'reflect', got 'wrap'",
         lambda: WARP.image(np.zeros((9, 7)), fill="wrap")),
        (ValueError, "`fill_value` must be an integer between 0 and 255",
         lambda: WARP.mask(np.zeros((9, 7), np.uint8), fill="constant", fill_value=-1)),
        (ValueError, "`method` must be one of", lambda: WARP.image(np.zeros((9, 7)), method="rk4")),
        (ValueError, "`tolerance` must be a positive number",
         lambda: WARP.image(np.zeros((9, 7)), tolerance=0.0)),
        (ValueError, "`n_threads` must be a positive integer",
         lambda: WARP.image(np.zeros((9, 7)), n_threads=0)),
        (ValueError, r"pixels per channel, got spatial shape \(28, 0\)",
         lambda: WARP.image(np.zeros((28, 0)))),
        (ValueError, r"`points` must have shape \(m, 2\)", lambda: WARP.points(np.zeros((5, 3)))),
        (ValueError, r"`b` must have shape \(k, 4\) or \(n, k, 4\).*got \(4,\)",
         lambda: WARP.boxes(np.zeros(4))),
        (ValueError, "`b` must list lower corners before upper ones",
         lambda: WARP.boxes([[0.5, 0.5, 0.4, 0.9]])),
        (ValueError, "`b` must hold one set of boxes or as many as there are θ, 3, got 2",
         lambda: WARP.boxes(np.zeros((2, 5, 4)))),
    ],
)  # fmt: skip
def test_bad_input(error, match, call):
    with pytest.raises(error, match=match):
        call()
