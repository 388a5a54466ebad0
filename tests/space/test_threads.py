"""Results do not depend on threads, processes or batches, and no way of calling breaks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from dreamwarp.core import compiled
from tests.space.cases import (
    make_space,
    over_all_spaces,
    over_spaces,
    random_points,
    random_theta,
)

over_some_spaces = over_spaces([((5,), "periodic"), ((4, 4), "zero"), ((2, 2, 2), "free")])


def inputs(space, n=5, m=600):
    """Enough points for several blocks; one θ is too stiff for the fast method."""
    theta = random_theta(space, n, displacement=0.1)
    theta[n // 2] *= 12.0
    cotangent = np.random.default_rng(1).normal(size=(n, m, space.ndim))
    return theta, random_points(space, m, margin=0.1), cotangent


def everything(space, theta, points, cotangent, **options):
    """What every kernel says, as arrays with one row per θ."""
    return [
        space.flow(theta, points, **options),
        space.flow(theta, points, method="exact", **options),
        space.flow_jacobian(theta, points, **options),
        space.flow_gradient(theta, points[..., :7, :], **options),
        *space.flow_vjp(theta, points, cotangent, **options),
        *space.flow_vjp(theta, points, cotangent, method="exact", **options),
    ]


def as_bytes(results):
    return [np.ascontiguousarray(result).tobytes() for result in results]


# -- threads


@over_some_spaces
def test_results_do_not_depend_on_the_number_of_threads(space):
    given = inputs(space)
    expected = as_bytes(everything(space, *given, n_threads=1))
    for n_threads in (2, 3, 16, np.int64(2), None):
        assert as_bytes(everything(space, *given, n_threads=n_threads)) == expected


def test_a_large_set_of_points_is_shared_among_threads():
    space = make_space((4, 4), "zero")
    theta = random_theta(space, 1, displacement=0.2)
    points = random_points(space, 20_000)
    for method in ("fast", "exact"):
        alone = space.flow(theta, points, method=method, n_threads=1)
        assert space.flow(theta, points, method=method, n_threads=3).tobytes() == alone.tobytes()


def test_calls_from_several_threads_at_once():
    spaces = [make_space((5,), "periodic"), make_space((4, 4), "zero"), make_space((4, 4), "slip")]
    given = [inputs(space, m=200) for space in spaces]
    expected = [as_bytes(everything(s, *g)) for s, g in zip(spaces, given, strict=True)]
    jobs = [i % len(spaces) for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: as_bytes(everything(spaces[i], *given[i])), jobs))
    assert found == [expected[i] for i in jobs]


def test_a_space_first_used_by_several_threads_at_once():
    from dreamwarp import WarpSpace

    theta = random_theta(make_space((6, 5), "slip"), 1, displacement=0.1)
    points = random_points(make_space((6, 5), "slip"), 50)
    expected = make_space((6, 5), "slip").flow(theta, points)
    fresh = WarpSpace((6, 5), "slip")
    with ThreadPoolExecutor(4) as pool:
        for moved in pool.map(lambda _: fresh.flow(theta, points), range(8)):
            np.testing.assert_array_equal(moved, expected)


def test_numbas_own_setting_is_respected():
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        assert compiled.thread_count() == 1
    finally:
        numba.set_num_threads(before)
    assert compiled.thread_count() == before
    assert compiled.thread_count(3) == 3


@pytest.mark.parametrize("n_threads", [0, -1, 2.0, "2", True])
def test_bad_thread_counts_are_refused(n_threads):
    space = make_space((2, 2), "zero")
    theta, points = np.zeros((1, space.dim)), np.zeros((1, 2))
    wanted = r"`n_threads` must be a positive integer, got .*NUMBA_NUM_THREADS"
    for call in (space.flow, space.flow_jacobian, space.flow_gradient):
        with pytest.raises(ValueError, match=wanted):
            call(theta, points, n_threads=n_threads)
    with pytest.raises(ValueError, match=wanted):
        space.flow_vjp(theta, points, np.zeros((1, 1, 2)), n_threads=n_threads)


def test_blocks_cover_every_task_once():
    for n_tasks in (0, 1, 2, 7, 16, 17, 1000):
        for n_threads in (1, 2, 3, 8):
            seen = []
            compiled.spread(
                lambda first, last, seen: seen.extend(range(first, last)), n_tasks, seen,
                n_threads=n_threads,
            )  # fmt: skip
            assert sorted(seen) == list(range(n_tasks))


def test_errors_of_a_kernel_are_not_lost():
    def broken(first, last):
        raise ZeroDivisionError("from a thread")

    with pytest.raises(ZeroDivisionError, match="from a thread"):
        compiled.spread(broken, 100, n_threads=2)


# -- batches


@over_all_spaces
def test_results_of_a_theta_do_not_depend_on_its_batch(space):
    theta, points, cotangent = inputs(space, n=5, m=70)
    whole = everything(space, theta, points, cotangent)
    for i in range(len(theta)):
        alone = everything(space, theta[i : i + 1], points, cotangent[i : i + 1])
        assert as_bytes(result[0] for result in alone) == as_bytes(part[i] for part in whole)


# -- processes

SAVE_RESULTS = """
import sys, numpy, numba, dreamwarp
from concurrent.futures import ProcessPoolExecutor
import multiprocessing

space = dreamwarp.WarpSpace((4, 4), "slip")
generator = numpy.random.default_rng(0)
theta, points = 0.3 * generator.normal(size=(9, space.dim)), generator.uniform(0, 1, (600, 2))

def work(_):
    cotangent = numpy.ones((9, 600, 2))
    results = []
    for method in ("fast", "exact"):
        results.append(space.flow(theta, points, method=method))
        results.extend(space.flow_vjp(theta, points, cotangent, method=method))
    return results

results = work(None)
if "fork" in sys.argv:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        for others in pool.map(work, range(4)):
            assert [r.tobytes() for r in others] == [r.tobytes() for r in results]
print(numba.get_num_threads())
numpy.savez(sys.argv[1], *results)
"""


def results_of_another_process(run_python, path, *arguments, **environment):
    # Newer Pythons warn of any fork in a process that has threads, which is the point here.
    ignore = ("-W", "ignore:.*multi-threaded.*:DeprecationWarning")
    finished = run_python(*ignore, "-c", SAVE_RESULTS, str(path), *arguments, **environment)
    assert finished.returncode == 0, finished.stderr
    with np.load(path) as saved:
        return finished.stdout.strip(), as_bytes(saved[name] for name in saved.files)


def test_other_processes_find_the_same(run_python, tmp_path):
    _, expected = results_of_another_process(run_python, tmp_path / "plain.npz")
    n_threads, found = results_of_another_process(
        run_python, tmp_path / "single.npz", NUMBA_NUM_THREADS="1"
    )
    assert n_threads == "1"
    assert found == expected
    n_threads, found = results_of_another_process(
        run_python, tmp_path / "more.npz", NUMBA_NUM_THREADS="3"
    )
    assert n_threads == "3"
    assert found == expected


def test_a_forked_process_goes_on_working(run_python, tmp_path):
    """As the workers of data loaders do; the threads of the parent are not there in the child."""
    results_of_another_process(run_python, tmp_path / "forked.npz", "fork", NUMBA_NUM_THREADS="2")


# -- compiled code


def test_kernels_work_where_no_cache_can_be_written(monkeypatch):
    def refuse(function):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(compiled, "_KernelCache", refuse)

    @compiled.kernel
    def double(values):
        for i in range(len(values)):
            values[i] *= 2.0

    values = np.arange(3.0)
    double(values)
    np.testing.assert_array_equal(values, [0.0, 2.0, 4.0])
