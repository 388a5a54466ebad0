"""align_pairs: what comes out for good input and bad, whatever the threads and the company."""

from __future__ import annotations

import signal
import threading
import time
import tracemalloc

import numpy as np
import pytest

from dreamwarp import Warp, WarpSpace, align_pairs
from dreamwarp.align import GMRFPrior, SmoothPrior
from dreamwarp.align.similarity import MutualInformation, SquaredError
from tests.align.problems import smooth_images, threes
from tests.space.cases import make_space

METHODS = ("map", "laplace", "metropolis", "hmc")
# Short chains, for tests that only look at the outside.
SHORT = {"n_burn_in": 16, "n_draws": 8, "max_draws": 8, "r_hat": 100.0}

over_methods = pytest.mark.parametrize("method", METHODS)


def align(sources, targets, *, cells=(2, 2), boundary="zero", **options):
    noise = "auto" if "similarity" in options else 0.2
    options = {"sigma": noise, "progress": False, **options}
    return align_pairs(make_space(cells, boundary), sources, targets, **options)


def some_digits(n, seed=0):
    """Sources and targets that show the same digit: (n, 24, 24) each."""
    chosen = np.random.default_rng(seed).permutation(len(threes()))[: 2 * n].reshape(2, n)
    return threes()[chosen[0]], threes()[chosen[1]]


# -- what comes out


@pytest.mark.parametrize("similarity", ["ssd", "ncc", "mi", MutualInformation(12)])
def test_no_pair_is_worse_than_it_began(similarity):
    found = align(*some_digits(24), similarity=similarity, cells=(3, 3), max_steps=200)
    assert (found.loss_after <= found.loss_before).all()
    assert found.usable.all()
    assert np.mean(found.loss_after < found.loss_before) > 0.9


def test_losses_are_sums_of_squared_differences():
    sources, targets = some_digits(5)
    found = align(sources, targets)
    np.testing.assert_allclose(
        found.loss_before, ((sources - targets) ** 2).sum(axis=(1, 2)), rtol=1e-5
    )
    seen = Warp(make_space((2, 2), "zero"), found.theta).image(sources, method="exact")
    after = ((seen - targets) ** 2).sum(axis=(1, 2))
    np.testing.assert_allclose(found.loss_after, after, rtol=2e-3)
    assert found.sigma == 0.2
    assert len(found) == 5
    assert found.chains == []


@pytest.mark.parametrize(("similarity", "sigma"), [("ssd", 0.1), ("ssd", "auto"), ("ncc", "auto")])
def test_identical_images_are_left_alone_at_once(similarity, sigma):
    images = some_digits(6)[0]
    found = align(images, images, sigma=sigma, similarity=similarity)
    assert not found.theta.any()
    assert (found.diagnostics["n_steps"] <= 1).all()
    assert found.converged.all()
    assert found.usable.all()


def test_no_pairs_are_no_trouble():
    for method in METHODS:
        found = align(np.empty((0, 9, 9)), np.empty((0, 9, 9)), method=method, sigma="auto")
        assert len(found) == 0
        assert found.theta.shape == (0, 10)
        assert found.usable.shape == found.converged.shape == (0,)


def test_integers_are_taken_as_shares_of_their_range():
    sources, targets = some_digits(3)
    small = [(255 * images).round().astype(np.uint8) for images in (sources, targets)]
    exact = [images.astype(np.float32) / np.float32(255) for images in small]
    np.testing.assert_array_equal(align(*small).theta, align(*exact).theta)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
def test_wide_integers_are_taken_as_shares_of_the_largest(dtype):
    sources, targets = some_digits(3)
    wide = [(1000 * images).round().astype(dtype) for images in (sources, targets)]
    largest = max(images.max() for images in wide)
    exact = [images.astype(np.float32) / np.float32(largest) for images in wide]
    np.testing.assert_array_equal(align(*wide).theta, align(*exact).theta)
    blank = np.zeros((2, 12, 12), dtype)
    with pytest.warns(RuntimeWarning, match="could not be aligned"):
        assert not align(blank, blank).usable.any()


def test_booleans_and_half_precision_are_taken():
    sources, targets = some_digits(3)
    assert align(sources > 0.5, targets > 0.5).usable.all()
    assert align(sources.astype(np.float16), targets.astype(np.float64)).usable.all()


def test_read_only_images_are_taken_and_nothing_is_changed():
    sources, targets = some_digits(3)
    expected = align(sources, targets).theta
    before = sources.copy()
    sources.setflags(write=False)
    np.testing.assert_array_equal(align(sources, targets).theta, expected)
    np.testing.assert_array_equal(sources, before)


@pytest.mark.parametrize(
    ("cells", "boundary", "shape", "channels"),
    [
        ((6,), "zero", (64,), 1),
        ((6,), "free", (50,), 3),
        ((3, 3), "zero", (20, 31), 3),
        ((2, 3), "slip", (17, 40), 1),
        ((3, 3), "periodic", (24, 24), 2),
        ((2, 2, 2), "zero", (12, 10, 14), 1),
        ((2, 1, 1), "slip", (10, 9, 8), 2),
    ],
)
def test_signals_images_and_volumes_go_through(cells, boundary, shape, channels):
    space = make_space(cells, boundary)
    sources = smooth_images(shape, 3, channels=channels).astype(np.float32)
    theta = SmoothPrior(space, displacement=0.03).sample(3, 0)
    targets = Warp(space, theta).image(sources)
    found = align(sources, targets, cells=cells, boundary=boundary, sigma=0.03)
    assert (found.loss_after < 0.2 * found.loss_before).all()
    assert found.theta.shape == (3, space.dim)


def test_one_channel_is_the_same_with_and_without_its_axis():
    sources, targets = some_digits(3)
    one = align(sources, targets).theta
    np.testing.assert_array_equal(align(sources[:, None], targets[:, None]).theta, one)


def test_own_functions_and_objects_do_as_the_built_in_ones():
    sources, targets = some_digits(3)

    def squared(values, targets):
        difference = targets - values
        axes = tuple(range(1, values.ndim))
        return -(difference**2).sum(axis=axes) / 0.08, difference / 0.04

    own = align(sources, targets, similarity=squared)
    same = align(sources, targets, similarity=SquaredError(0.2))
    expected = align(sources, targets, sigma=0.2)
    np.testing.assert_array_equal(same.theta, expected.theta)
    assert same.sigma == 0.2
    assert own.sigma is None
    # With another curvature it takes another way, to about the same place.
    gap = own.diagnostics["log_posterior"] - expected.diagnostics["log_posterior"]
    assert np.abs(gap).max() < 3.0


@pytest.mark.filterwarnings("ignore:.*not converged")  # chains are short
def test_improper_priors_are_fine_where_images_have_structure():
    space = make_space((2, 2), "free")
    for method in METHODS:
        found = align(
            *some_digits(3), boundary="free", prior=GMRFPrior(space), method=method,
            **(SHORT if method in ("metropolis", "hmc") else {}),
        )  # fmt: skip
        assert np.isfinite(found.theta).all()


# -- draws


@pytest.mark.parametrize("method", ["laplace", "metropolis", "hmc"])
@pytest.mark.filterwarnings("ignore:.*could not be aligned")
def test_draws_depend_on_the_seed_alone(method):
    sources, targets = some_digits(5)
    one = align(sources, targets, method=method, seed=1, **SHORT)
    again = align(sources, targets, method=method, seed=1, **SHORT)
    other = align(sources, targets, method=method, seed=2, **SHORT)
    np.testing.assert_array_equal(one.theta, again.theta)
    assert (one.theta != other.theta).any(axis=1).all()
    generators = [np.random.default_rng(3) for _ in range(2)]
    drawn = [align(sources, targets, method=method, seed=g, **SHORT).theta for g in generators]
    np.testing.assert_array_equal(*drawn)


@over_methods
@pytest.mark.filterwarnings("ignore:.*could not be aligned")
def test_results_depend_neither_on_threads_nor_on_company(method):
    sources, targets = some_digits(45)
    sources, targets = (np.concatenate([a, a[::-1]])[:, ::2, ::2] for a in (sources, targets))
    many = align(sources, targets, method=method, n_threads=2, **SHORT)
    one = align(sources, targets, method=method, n_threads=1, **SHORT)
    few = align(sources[:7], targets[:7], method=method, **SHORT)
    for name in ("theta", "loss_before", "loss_after", "converged", "usable"):
        np.testing.assert_array_equal(getattr(many, name), getattr(one, name))
        np.testing.assert_array_equal(getattr(many, name)[:7], getattr(few, name))
    for name, values in few.diagnostics.items():
        np.testing.assert_array_equal(many.diagnostics[name][:7], values)


@pytest.mark.parametrize("method", ["metropolis", "hmc"])
@pytest.mark.filterwarnings("ignore:.*could not be aligned")
def test_chains_are_kept_if_asked_for(method):
    sources, targets = some_digits(3)
    found = align(sources, targets, method=method, keep_chains=True, n_chains=3, **SHORT)
    assert [chain.shape for chain in found.chains] == 3 * [(3, 8, 10)]
    assert [trace.shape for trace in found.log_posteriors] == 3 * [(3, 8)]
    np.testing.assert_allclose(found.theta, [chain[0, -1] for chain in found.chains])
    assert set(found.diagnostics) == {
        "n_steps", "log_posterior", "r_hat", "ess", "acceptance", "n_sweeps",
    }  # fmt: skip
    assert (found.diagnostics["n_sweeps"] == 24).all()
    none = align(sources, targets, method=method, keep_chains=False, n_chains=3, **SHORT)
    assert none.chains == none.log_posteriors == []
    np.testing.assert_array_equal(none.theta, found.theta)


# -- what can't be aligned


@over_methods
def test_images_without_structure_are_reported(method):
    sources, targets = (images.copy() for images in some_digits(4))
    sources[1], targets[2] = 0.0, 0.7
    with pytest.warns(RuntimeWarning, match="of 4 pairs could not be aligned: see `usable`"):
        found = align(sources, targets, method=method, sigma="auto", **SHORT)
    assert not found.usable[[1, 2]].any()
    assert np.isfinite(found.theta).all()
    if method == "map":
        np.testing.assert_array_equal(found.usable, [True, False, False, True])
        assert not found.theta[1].any()


def test_draws_too_stiff_to_follow_are_reported_and_warp_nothing():
    prior = SmoothPrior(make_space((2, 2), "zero"), displacement=1.0)
    with pytest.warns(RuntimeWarning, match="of 4 pairs could not be aligned"):
        found = align(*some_digits(4), method="laplace", prior=prior, sigma=1e3)
    stiff = ~found.usable
    np.testing.assert_array_equal(found.loss_after[stiff], found.loss_before[stiff])


def test_nothing_but_constants_is_reported_too():
    with pytest.warns(RuntimeWarning, match="2 of 2 pairs could not be aligned"):
        found = align(np.zeros((2, 8, 8)), np.ones((2, 8, 8)), sigma="auto")
    assert not found.theta.any()
    assert not found.usable.any()


def test_searches_cut_short_are_reported():
    with pytest.warns(RuntimeWarning, match=r"\d of 6 alignments have not converged.*`max_steps`"):
        found = align(*some_digits(6), sigma=0.05, max_steps=1)
    assert not found.converged.all()


@pytest.mark.filterwarnings("ignore:.*could not be aligned")
def test_chains_cut_short_are_reported():
    options = {**SHORT, "r_hat": 1.0001}
    with pytest.warns(RuntimeWarning, match=r"\d of 3 alignments have not converged.*`max_draws`"):
        align(*some_digits(3), method="hmc", **options)


# -- bad input

IMAGES = np.random.default_rng(0).random((3, 9, 9))


@pytest.mark.parametrize(
    ("sources", "targets", "error", "message"),
    [
        (IMAGES, IMAGES[:, :8], ValueError, r"same shape, got \(3, 9, 9\) and \(3, 8, 9\)"),
        (IMAGES, IMAGES[:2], ValueError, r"same shape, got \(3, 9, 9\) and \(2, 9, 9\)"),
        (IMAGES[0], IMAGES[0], ValueError, r"got \(9, 9\).*`sources\[None\]`"),
        (IMAGES, IMAGES[0], ValueError, r"`targets` must have shape .* got \(9, 9\)"),
        (IMAGES[:, :0], IMAGES[:, :0], ValueError, r"at least one pixel, got shape \(3, 0, 9\)"),
        (IMAGES, IMAGES * 1j, TypeError, "`targets` must be an array of .*complex"),
        (IMAGES.astype(str), IMAGES, TypeError, "`sources` must be an array of"),
        (IMAGES, IMAGES * 1e300, ValueError, r"`targets` must be finite, got .*inf at index \(0, "),
    ],
)
def test_bad_images_are_refused(sources, targets, error, message):
    with pytest.raises(error, match=message):
        align(sources, targets)


@pytest.mark.parametrize("dtype", ["float64", "uint8", "int64"])
def test_pairs_may_be_given_as_edges(dtype):
    """The same alignments, from images of which there are fewer than pairs."""
    X = (255 * threes()[:5] / threes().max()).astype(dtype)
    edges = np.array([[0, 1], [0, 2], [3, 4], [4, 0], [2, 1], [1, 1]])
    plain = align(X[edges[:, 0]], X[edges[:, 1]], sigma="auto")
    for targets in (X, X.copy()):  # one array of images, or two
        found = align(X, targets, edges=edges, sigma="auto")
        np.testing.assert_array_equal(found.theta, plain.theta)
        np.testing.assert_array_equal(found.loss_after, plain.loss_after)
        assert found.sigma == plain.sigma


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 3]], r"targets, 0 to 2, got 0 to 3"),
        ([[-1, 0]], r"sources, 0 to 2"),
        ([[0.0, 1.0]], r"integers of shape \(n, 2\).*`neighbor_pairs`"),
        ([0, 1], r"got dtype int64 and shape \(2,\)"),
    ],
)
def test_bad_edges_are_refused(edges, message):
    with pytest.raises(ValueError, match=message):
        align(IMAGES, IMAGES, edges=edges)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_is_refused_and_the_sample_named(value):
    images = IMAGES.copy()
    images[2, 4, 4] = value
    with pytest.raises(ValueError, match=r"`targets` must be finite, got .* at index \(2, 4, 4\)"):
        align(IMAGES, images)


@pytest.mark.parametrize("sigma", [0, -1.0, np.nan, np.inf, "many", None, True])
def test_sigma_must_be_positive(sigma):
    with pytest.raises(ValueError, match="`sigma` must be a positive number or 'auto', got"):
        align(IMAGES, IMAGES, sigma=sigma)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "newton"}, ValueError, "`method` must be one of 'map', .* got 'newton'"),
        ({"similarity": "ssim"}, ValueError, "`similarity` must be one of 'ssd', 'ncc', 'mi'"),
        ({"similarity": 3}, TypeError, "`similarity` must be one of .* or a function, got 3"),
        ({"prior": np.eye(10)}, TypeError, "`prior` must be a SmoothPrior, .* got ndarray"),
        (
            {"prior": SmoothPrior(make_space((3, 3), "zero"))},
            ValueError,
            r"`prior` must be over the space .*\(2, 2\).* got one over .*\(3, 3\)",
        ),
        ({"tolerance": -0.1}, ValueError, "`tolerance` must be a finite, non-negative number"),
        ({"tolerance": "low"}, ValueError, "`tolerance` must be a finite.*got 'low'"),
        ({"max_steps": 0}, ValueError, "`max_steps` must be an integer of at least 1, got 0"),
        ({"n_chains": 0}, ValueError, "`n_chains` must be an integer of at least 1, got 0"),
        ({"n_chains": 5000}, ValueError, "`n_chains` must be at most 1024, got 5000"),
        ({"max_draws": 2**24}, ValueError, "`max_draws` must be at most 8388608, got 200 plus 167"),
        ({"n_burn_in": 2**24}, ValueError, "must be at most 8388608, got 16777216 plus"),
        ({"n_draws": 3}, ValueError, "`n_draws` must be an integer of at least 4, got 3"),
        ({"n_burn_in": -1}, ValueError, "`n_burn_in` must be an integer of at least 0"),
        ({"max_draws": 1.5}, ValueError, "`max_draws` must be an integer of at least 1"),
        ({"r_hat": 1.0}, ValueError, "`r_hat` must be a number above 1, such as 1.05, got 1.0"),
        ({"n_threads": 0}, ValueError, "`n_threads` must be a positive integer, got 0"),
        ({"similarity": "mi", "sigma": -1.0}, ValueError, "`sigma` must be a positive number"),
        (
            {"similarity": SquaredError(0.1), "sigma": 0.2},
            ValueError,
            r"left out, got 0.2 with similarity=SquaredError\(sigma=0.1\)",
        ),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        align(IMAGES, IMAGES, **options)


def test_a_sigma_that_is_ignored_is_told():
    with pytest.warns(UserWarning, match="`sigma` is for similarity='ssd': 0.2 is ignored"):
        found = align(IMAGES, IMAGES, similarity="mi", sigma=0.2)
    assert found.sigma == align(IMAGES, IMAGES, similarity="mi").sigma


def test_what_an_own_function_raises_comes_through():
    def broken(values, targets):
        raise ZeroDivisionError("my own mistake")

    with pytest.raises(ZeroDivisionError, match="my own mistake"):
        align(IMAGES, IMAGES, similarity=broken)


# -- on the way


def test_progress_is_told():
    told = []
    align(*some_digits(70), progress=lambda done, total: told.append((done, total)))
    assert [total for _, total in told] == len(told) * [70]
    assert sorted(done for done, _ in told) == [done for done, _ in told]
    assert told[-1] == (70, 70)
    assert len(told) > 1


def align_threads():
    return [each for each in threading.enumerate() if each.name.startswith("dreamwarp-align")]


@pytest.mark.parametrize("method", ["metropolis", "hmc"])
def test_an_interruption_stops_everything_promptly(method):
    sources, targets = some_digits(45)
    main = threading.main_thread().ident
    # Where tests run in the background, interruptions are ignored from the start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(1.0, signal.pthread_kill, [main, signal.SIGINT])
    timer.start()
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            align(sources, targets, method=method, n_draws=2000, max_draws=2000)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - start < 20.0
    assert not align_threads()


def test_an_interruption_of_a_search_leaves_no_thread():
    def interrupt(done, total):
        raise KeyboardInterrupt

    sources, targets = (np.repeat(images, 20, axis=0) for images in some_digits(45))
    with pytest.raises(KeyboardInterrupt):
        align(sources, targets, progress=interrupt)
    assert not align_threads()


# -- cost (acceptance 7)


@pytest.mark.slow
def test_cost_is_linear_in_the_number_of_pairs():
    sources, targets = some_digits(50)
    align(sources, targets, cells=(4, 4))
    seconds = {}  # of the processor: others may be using it too
    for n in (500, 5000):
        images = [np.tile(each, (n // 50, 1, 1)) for each in (sources, targets)]
        start = time.process_time()
        align(*images, cells=(4, 4))
        seconds[n] = (time.process_time() - start) / n
    assert seconds[5000] < 1.5 * seconds[500]


@pytest.mark.slow
def test_memory_is_that_of_the_images_and_little_more():
    sources, targets = some_digits(50)
    n, space = 5000, WarpSpace((4, 4))
    images = [
        np.tile((255 * each).astype(np.uint8), (n // 50, 1, 1)) for each in (sources, targets)
    ]
    tracemalloc.start()
    align_pairs(space, *images, sigma=0.2, progress=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    as_numbers = 4 * (images[0].size + images[1].size)
    # A result is 0.5 kB, blocks in work a constant: 100,000 pairs stay far below 2 GB.
    assert peak < 1.6 * as_numbers + 100 * 2**20
