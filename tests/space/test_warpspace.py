"""WarpSpace as an object, and what it says to input of every kind."""

from __future__ import annotations

import copy
import pickle
import re
import time

import numpy as np
import pytest

from dreamwarp import WarpSpace
from tests.space.cases import (
    BOUNDARIES,
    distances,
    make_space,
    over_spaces,
    random_points,
    random_theta,
)

over_some_spaces = over_spaces([((5,), "free"), ((4, 4), "zero"), ((2, 1, 1), "periodic")])


@pytest.fixture
def space():
    return make_space((4, 4), "zero")


def calls(space, theta, points):
    """Every method that takes θ and points."""
    shape = (len(theta), len(points), space.ndim)
    return {
        "velocity": lambda: space.velocity(theta, points),
        "flow": lambda: space.flow(theta, points),
        "exact flow": lambda: space.flow(theta, points, method="exact"),
        "flow_jacobian": lambda: space.flow_jacobian(theta, points),
        "flow_gradient": lambda: space.flow_gradient(theta, points),
        "flow_vjp": lambda: space.flow_vjp(theta, points, np.ones(shape)),
        "exact flow_vjp": lambda: space.flow_vjp(theta, points, np.ones(shape), method="exact"),
    }


def assert_same(found, expected):
    """Equal arrays, or equal pairs of arrays."""
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


METHODS = list(calls(make_space((2,), "zero"), [], []))
over_methods = pytest.mark.parametrize("method", METHODS)


# -- the object


def test_attributes(space):
    assert space.cells == (4, 4)
    assert space.boundary == "zero"
    assert (space.ndim, space.dim, space.n_cells) == (2, 50, 64)


def test_the_boundary_is_zero_by_default():
    assert WarpSpace((4, 4)) == WarpSpace((4, 4), "zero")


@pytest.mark.parametrize("cells", [4, (4,), [4], np.array([4]), np.int64(4), range(4, 5)])
def test_cells_may_be_any_sequence_or_a_number(cells):
    assert WarpSpace(cells).cells == (4,)
    assert all(type(n) is int for n in WarpSpace(cells).cells)


def test_repr_makes_the_space_again():
    for space in (
        make_space((4, 4), "zero"),
        make_space((5,), "periodic"),
        make_space((3, 2), "slip"),
    ):
        assert eval(repr(space)) == space
    assert repr(make_space((5,), "free")) == "WarpSpace((5,), boundary='free')"


def test_equality_and_hash():
    spaces = [
        WarpSpace((4, 4)),
        WarpSpace((4, 5)),
        WarpSpace((4, 4), "slip"),
        WarpSpace((4,)),
    ]
    for i, one in enumerate(spaces):
        for j, other in enumerate(spaces):
            assert (one == other) is (i == j)
    assert len(set(spaces)) == len(spaces)
    assert WarpSpace([4, 4]) == spaces[0]
    assert hash(WarpSpace([4, 4])) == hash(spaces[0])
    assert spaces[0] != "WarpSpace((4, 4))"


@pytest.mark.parametrize("copied", [
    lambda space: pickle.loads(pickle.dumps(space)), copy.copy, copy.deepcopy
], ids=["pickle", "copy", "deepcopy"])  # fmt: skip
def test_copies_are_the_same_space(copied):
    space = make_space((3, 2), "slip")
    again = copied(space)
    assert again == space
    assert again.basis.tobytes() == space.basis.tobytes()


def test_a_pickle_is_small():
    space = WarpSpace((8, 8))
    space.flow(np.zeros((1, space.dim)), np.zeros((1, 2)))
    assert len(pickle.dumps(space)) < 200


def test_the_docstrings_example(space):
    moved = WarpSpace((4, 4)).flow(np.zeros((1, 50)), [[0.25, 0.5]])
    assert moved.dtype == np.float32
    np.testing.assert_array_equal(moved, [[[0.25, 0.5]]])


# -- making one


@pytest.mark.parametrize(
    "cells",
    [(), (0,), (4, 0), (4, -1), (2, 2, 2, 2), 0, -3, 2.5, (2.0, 2), (True, 2), "44", None,
     (4, None), np.array([[2, 2]]), np.array([2.0, 2.0])],
    ids=repr,
)  # fmt: skip
def test_bad_cells(cells):
    with pytest.raises(ValueError, match="`cells` must be 1 to 3 positive integers") as error:
        WarpSpace(cells)
    assert repr(cells) in str(error.value)


@pytest.mark.parametrize("boundary", ["Zero", "", "torus", None, 0])
def test_unknown_boundary(boundary):
    wanted = "`boundary` must be one of 'zero', 'slip', 'free', 'periodic', got "
    with pytest.raises(ValueError, match=wanted + re.escape(repr(boundary))):
        WarpSpace((4, 4), boundary)


@pytest.mark.parametrize("boundary", ["zero", "slip"])
def test_spaces_without_warps(boundary):
    with pytest.raises(ValueError, match="has no warp but the identity"):
        WarpSpace((1,), boundary)


def test_options_are_keyword_only(space):
    with pytest.raises(TypeError, match="positional"):
        space.flow(np.zeros(50), np.zeros((1, 2)), "exact")


# -- bad values


@over_methods
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_must_be_finite(space, method, value):
    theta, points = np.zeros((3, 50)), np.zeros((4, 2))
    theta[1, 7] = value
    with pytest.raises(ValueError, match=rf"`theta` must be finite, got {value} at index \(1, 7\)"):
        calls(space, theta, points)[method]()
    theta[1, 7], points[2, 1] = 0.0, value
    with pytest.raises(
        ValueError, match=rf"`points` must be finite, got {value} at index \(2, 1\)"
    ):
        calls(space, theta, points)[method]()


@over_methods
@pytest.mark.parametrize("dtype", [object, complex, str, "S3", "M8[s]", "m8[s]"])
def test_numbers_must_be_real(space, method, dtype):
    good, wanted = np.zeros((3, 50)), "must be an array of real numbers, got dtype"
    with pytest.raises(TypeError, match=f"`theta` {wanted}"):
        calls(space, np.zeros((3, 50), int).astype(dtype), np.zeros((4, 2)))[method]()
    with pytest.raises(TypeError, match=f"`points` {wanted}"):
        calls(space, good, np.zeros((4, 2), int).astype(dtype))[method]()


@over_methods
def test_object_arrays_of_numbers_are_refused_too(space, method):
    theta = np.array([[0.0] * 50, [None] * 50], dtype=object)[:1]
    with pytest.raises(
        TypeError, match="`theta` must be an array of real numbers, got dtype object"
    ):
        calls(space, theta, np.zeros((4, 2)))[method]()


def test_numbers_past_float64_are_not_finite(space):
    theta = np.zeros((1, 50), np.longdouble)
    theta[0, 3] = np.longdouble("1e400") if np.finfo(np.longdouble).max > 1e308 else np.inf
    with pytest.raises(ValueError, match=r"`theta` must be finite, got inf at index \(0, 3\)"):
        space.flow(theta, np.zeros((1, 2)))


# -- bad shapes


@over_methods
@pytest.mark.parametrize("shape", [(8, 62), (62,), (0,), (2, 3, 50), (50, 2)], ids=str)
def test_shape_of_theta(space, method, shape):
    wanted = re.escape(
        f"`theta` must have shape (n, 50) for a (4, 4) space with zero boundary, got {shape}. "
        "Use the space the parameters were made for."
    )
    with pytest.raises(ValueError, match=wanted):
        calls(space, np.zeros(shape), np.zeros((4, 2)))[method]()


def test_shape_of_theta_in_conversions(space):
    for convert in (space.vertex_velocities, space.affine_maps):
        with pytest.raises(
            ValueError, match=r"`theta` must have shape \(n, 50\) for a .* got \(51,\)"
        ):
            convert(np.zeros(51))


@pytest.mark.parametrize("number", [0.3, np.float64(0.3), np.array(0.3)], ids=repr)
def test_a_number_is_no_theta(number):
    with pytest.raises(ValueError, match=r"`theta` must have shape \(n, 1\) for .* got \(\)"):
        make_space((2,), "zero").flow(number, [[0.5]])


@over_methods
@pytest.mark.parametrize("shape", [(4, 3), (4, 1), (2,), (2, 3, 3), (1, 1, 4, 2), (0,)], ids=str)
def test_shape_of_points(space, method, shape):
    wanted = re.escape(
        "`points` must have shape (m, 2) or (n, m, 2) for a (4, 4) space with zero boundary, "
        f"got {shape}."
    )
    with pytest.raises(ValueError, match=wanted):
        calls(space, np.zeros((2, 50)), np.zeros(shape))[method]()


@over_methods
def test_batches_must_agree(space, method):
    wanted = re.escape(
        "`theta` and `points` must agree in their first axis: got 3 θ and 2 sets of points."
    )
    with pytest.raises(ValueError, match=wanted):
        calls(space, np.zeros((3, 50)), np.zeros((2, 5, 2)))[method]()


@pytest.mark.parametrize("method", ["fast", "exact"])
@pytest.mark.parametrize("name", ["cotangent", "moved"])
def test_shape_of_cotangent_and_moved(space, method, name):
    theta, points = np.zeros((3, 50)), np.zeros((4, 2))
    for shape in [(3, 5, 2), (4, 2), (3, 4), (1, 4, 2)]:
        given = {"cotangent": np.zeros((3, 4, 2)), "moved": np.zeros((3, 4, 2))}
        given[name] = np.zeros(shape)
        wanted = f"`{name}` must have the shape of the moved points, (3, 4, 2), got {shape}."
        with pytest.raises(ValueError, match=re.escape(wanted)):
            space.flow_vjp(theta, points, **given, method=method)
    given = {"cotangent": np.zeros((3, 4, 2)), "moved": np.zeros((3, 4, 2))}
    given[name][1, 2, 0] = np.nan
    with pytest.raises(ValueError, match=rf"`{name}` must be finite, got nan at index \(1, 2, 0\)"):
        space.flow_vjp(theta, points, **given, method=method)


def test_shape_of_vertex_velocities(space):
    for shape in [(41,), (40, 2), (41, 3), (1, 1, 41, 2)]:
        wanted = (
            "`velocities` must have shape (n, 41, 2), one velocity per vertex of a (4, 4) space "
            f"with zero boundary, got {shape}."
        )
        with pytest.raises(ValueError, match=re.escape(wanted)):
            space.theta_from_vertices(np.zeros(shape))
    with pytest.raises(ValueError, match="`velocities` must be finite"):
        space.theta_from_vertices(np.full((41, 2), np.nan))


def test_shape_of_affine_maps(space):
    for shape in [(64, 6), (63, 2, 3), (64, 3, 2), (1, 1, 64, 2, 3)]:
        wanted = (
            "`maps` must have shape (n, 64, 2, 3), one affine map per cell of a (4, 4) space with "
            f"zero boundary, got {shape}."
        )
        with pytest.raises(ValueError, match=re.escape(wanted)):
            space.theta_from_affine(np.zeros(shape))
    with pytest.raises(ValueError, match="`maps` must be finite"):
        space.theta_from_affine(np.full((64, 2, 3), np.inf))


def test_shape_of_seen_velocities(space):
    for points, velocities in [((4, 2), (5, 2)), ((4, 2), (4, 1)), ((1, 4, 2), (1, 4, 2))]:
        wanted = (
            f"`velocities` must have the shape of `points`, (m, 2), got {velocities} and {points}."
        )
        with pytest.raises(ValueError, match=re.escape(wanted)):
            space.fit_velocity(np.zeros(points), np.zeros(velocities))
    with pytest.raises(ValueError, match=r"`points` must have shape \(m, 2\)"):
        space.fit_velocity(np.zeros((4, 3)), np.zeros((4, 3)))
    with pytest.raises(ValueError, match="`velocities` must be finite"):
        space.fit_velocity(np.zeros((4, 2)), np.full((4, 2), np.nan))


# -- bad options


@pytest.mark.parametrize("tolerance", [0, -1e-4, np.nan, np.inf, "1e-4", None])
@pytest.mark.parametrize("method", ["fast", "exact"])
def test_tolerance_must_be_positive(space, method, tolerance):
    theta, points = np.zeros((1, 50)), np.zeros((1, 2))
    wanted = f"`tolerance` must be a positive number, got {re.escape(repr(tolerance))}"
    with pytest.raises(ValueError, match=wanted):
        space.flow(theta, points, method=method, tolerance=tolerance)
    with pytest.raises(ValueError, match=wanted):
        space.flow_vjp(theta, points, np.zeros((1, 1, 2)), method=method, tolerance=tolerance)


def test_a_tolerance_that_float32_cannot_keep_is_refused(space):
    theta, points = np.zeros((1, 50)), np.zeros((1, 2))
    with pytest.raises(ValueError, match="`tolerance` must be at least 2e-07"):
        space.flow(theta, points, tolerance=1e-8)
    space.flow(theta, points, method="exact", tolerance=1e-8)


@pytest.mark.parametrize("method", ["closed", "", None, "Fast"])
def test_unknown_method(space, method):
    theta, points = np.zeros((1, 50)), np.zeros((1, 2))
    wanted = f"`method` must be one of 'fast', 'exact', got {method!r}"
    with pytest.raises(ValueError, match=wanted):
        space.flow(theta, points, method=method)
    with pytest.raises(ValueError, match=wanted):
        space.flow_vjp(theta, points, np.zeros((1, 1, 2)), method=method)


# -- strong warps


@pytest.mark.parametrize("method", [name for name in METHODS if name != "velocity"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_huge_theta_is_refused_at_once(boundary, method):
    space = make_space((4, 4), boundary)
    theta = np.random.default_rng(0).normal(size=(3, space.dim))
    theta[1] *= 1e6
    started = time.perf_counter()
    with pytest.raises(ValueError, match=r"`theta` must have velocities .* below 500"):
        calls(space, theta, np.full((4, 2), 0.4))[method]()
    assert time.perf_counter() - started < 5.0


@over_methods
@pytest.mark.parametrize("size", [1e200, 1e307, 1e308])
def test_theta_at_the_end_of_float64_is_refused(space, method, size):
    with pytest.raises(ValueError, match=r"`theta` must (have velocities|have absolute)"):
        calls(space, np.full((1, 50), size), np.full((4, 2), 0.4))[method]()


@pytest.mark.parametrize("cells", [(5,), (4, 4), (2, 2, 2)], ids=str)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_large_theta_is_warned_about_but_done(cells, boundary):
    space = make_space(cells, boundary)
    theta = np.random.default_rng(0).normal(size=space.dim)
    gradient = space.affine_maps(theta)[..., :-1]
    theta *= 400.0 / np.linalg.norm(gradient, axis=(1, 2)).max()
    theta *= min(1.0, 400.0 / np.linalg.norm(space.vertex_velocities(theta), axis=1).max())
    points = random_points(space, 20, margin=0.2)
    started = time.perf_counter()
    for method in ("fast", "exact"):
        with pytest.warns(RuntimeWarning, match="`theta` is so large"):
            moved = space.flow(theta, points, method=method)
        assert np.isfinite(moved).all()
        with pytest.warns(RuntimeWarning, match="Above e.27, float64 rounding"):
            space.flow_vjp(theta, points, np.ones_like(points), method=method)
    assert time.perf_counter() - started < 120.0  # compiling included


def test_the_warning_points_at_the_caller(space):
    theta, points = 40.0 * random_theta(space, 1, displacement=0.1), np.full((1, 2), 0.4)
    for name, call in calls(space, theta, points).items():
        if name != "velocity":
            with pytest.warns(RuntimeWarning, match="distances between points may grow") as record:
                call()
            assert {warning.filename for warning in record} == {__file__}


# -- empty input


@over_some_spaces
@pytest.mark.parametrize(("n", "m"), [(0, 5), (3, 0), (0, 0)])
@pytest.mark.parametrize("own_points", [False, True], ids=["one set of points", "a set each"])
def test_empty_batches_give_empty_results(space, n, m, own_points):
    theta, points = np.zeros((n, space.dim)), np.zeros((m, space.ndim))
    points = np.zeros((n, m, space.ndim)) if own_points else points
    shape = (n, m, space.ndim)
    assert space.velocity(theta, points).shape == shape
    for method in ("fast", "exact"):
        assert space.flow(theta, points, method=method).shape == shape
        by_theta, by_points = space.flow_vjp(theta, points, np.zeros(shape), method=method)
        assert (by_theta.shape, by_points.shape) == ((n, space.dim), shape)
        assert not by_theta.any()
    assert space.flow_jacobian(theta, points).shape == (*shape, space.ndim)
    assert space.flow_gradient(theta, points).shape == (*shape, space.dim)


@over_some_spaces
def test_conversions_of_nothing_are_nothing(space):
    theta = np.zeros((0, space.dim))
    vertices, maps = space.vertex_velocities(theta), space.affine_maps(theta)
    assert vertices.shape == (0, *space.tessellation.vertices.shape)
    assert maps.shape == (0, space.n_cells, space.ndim, space.ndim + 1)
    assert space.theta_from_vertices(vertices).shape == (0, space.dim)
    assert space.theta_from_affine(maps).shape == (0, space.dim)


def test_one_theta_and_no_sets_of_points(space):
    assert space.flow(np.zeros(50), np.zeros((0, 4, 2))).shape == (0, 4, 2)
    assert space.flow(np.zeros((1, 50)), np.zeros((0, 4, 2))).shape == (0, 4, 2)


# -- unusual but good input


def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


def spaced(array):
    """The same numbers, every second place of a larger array."""
    larger = np.zeros([2 * n for n in array.shape], array.dtype)
    larger[tuple(slice(None, None, 2) for _ in array.shape)] = array
    return larger[tuple(slice(None, None, 2) for _ in array.shape)]


FORMS = {
    "read-only": read_only,
    "non-contiguous": spaced,
    "reversed": lambda array: array[..., ::-1].copy()[..., ::-1],
    "Fortran-ordered": np.asfortranarray,
    "big-endian": lambda array: array.astype(">f8"),
    "long double": lambda array: array.astype(np.longdouble),
    "list": lambda array: array.tolist(),
    "tuple": lambda array: tuple(map(tuple, array.tolist())),
    "masked": np.ma.asarray,
}


@over_methods
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_numbers_in_any_form(space, form, method):
    theta, points = random_theta(space, 3, displacement=0.1), random_points(space, 4)
    expected = calls(space, theta, points)[method]()
    found = calls(space, form(theta), form(points))[method]()
    assert_same(found, expected)


@over_methods
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint64, bool])
def test_other_types_of_numbers(space, method, dtype):
    generator = np.random.default_rng(0)
    theta = generator.integers(0, 2, (3, 50)).astype(dtype)
    points = generator.integers(0, 2, (4, 2)).astype(dtype)
    expected = calls(space, theta.astype(np.float64), points.astype(np.float64))[method]()
    found = calls(space, theta, points)[method]()
    assert_same(found, expected)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_conversions_take_numbers_in_any_form(space, form):
    theta = random_theta(space, 3, displacement=0.1)
    vertices, maps = space.vertex_velocities(form(theta)), space.affine_maps(form(theta))
    np.testing.assert_array_equal(vertices, space.vertex_velocities(theta))
    np.testing.assert_array_equal(maps, space.affine_maps(theta))
    if form is not FORMS["tuple"]:
        np.testing.assert_allclose(space.theta_from_vertices(form(vertices)), theta, atol=1e-12)
        np.testing.assert_allclose(space.theta_from_affine(form(maps)), theta, atol=1e-12)
    points = random_points(space, 5)
    fitted = space.fit_velocity(form(points), form(points))
    np.testing.assert_array_equal(fitted, space.fit_velocity(points, points))


@over_methods
def test_input_is_left_as_it_was(space, method):
    theta, points = random_theta(space, 3, displacement=0.1), random_points(space, 4)
    kept = theta.copy(), points.copy()
    calls(space, theta, points)[method]()
    np.testing.assert_array_equal(theta, kept[0])
    np.testing.assert_array_equal(points, kept[1])


@pytest.mark.parametrize("method", ["fast", "exact"])
def test_cotangent_and_moved_are_left_as_they_were(space, method):
    theta, points = random_theta(space, 3, displacement=0.1), random_points(space, 4)
    theta[1] *= 15.0
    cotangent, moved = np.ones((3, 4, 2)), space.flow(theta, points, method=method)
    before = moved.copy()
    by_theta, by_points = space.flow_vjp(theta, points, cotangent, moved=moved, method=method)
    np.testing.assert_array_equal(cotangent, 1.0)
    np.testing.assert_array_equal(moved, before)
    assert by_theta.dtype == by_points.dtype == np.float64
    handed = read_only(cotangent), read_only(moved)
    again, _ = space.flow_vjp(theta, points, handed[0], moved=handed[1], method=method)
    np.testing.assert_array_equal(again, by_theta)


def test_results_are_new_arrays(space):
    theta, points = np.zeros(50), random_points(space, 4)
    for method in ("fast", "exact"):
        moved = space.flow(theta, points, method=method)
        moved += 1.0
        assert distances(space.flow(theta, points, method=method), points).max() < 1e-6


@over_methods
def test_a_single_theta_drops_the_batch_axis(space, method):
    theta, points = random_theta(space, 2, displacement=0.1), random_points(space, 4)
    if "vjp" in method:
        kind = "exact" if "exact" in method else "fast"
        single = space.flow_vjp(theta[1], points, np.ones((4, 2)), method=kind)
        with_axis = space.flow_vjp(theta[1], points, np.ones((1, 4, 2)), method=kind)
        many = calls(space, theta, points)[method]()
        for one, same, all_of_them in zip(single, with_axis, many, strict=True):
            np.testing.assert_array_equal(one, all_of_them[1])
            np.testing.assert_array_equal(same, all_of_them[1])
        return
    options = {"method": "exact"} if method == "exact flow" else {}
    function = getattr(space, method.split()[-1])
    single, many = function(theta[1], points, **options), function(theta, points, **options)
    assert single.shape == many.shape[1:]
    np.testing.assert_array_equal(single, many[1])
