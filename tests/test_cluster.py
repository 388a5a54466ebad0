"""Work on a cluster: a real scheduler, and workers in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster

import dreamwarp as dw
from dreamwarp import WarpSpace, cli
from dreamwarp.align.evidence import EvidenceFinder
from dreamwarp.core.cluster import connect, run_on
from dreamwarp.generation import generate, generating, verify
from dreamwarp.generation.stores import LocalStore
from tests.generation.cases import files_of, make_data, make_model


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers, each a process with one thread."""
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    with cluster, Client(cluster) as client:
        yield client


def make(out: Any, **options: Any) -> Any:
    settings: dict[str, Any] = {"n": 400, "shard_size": 30, "seed": 3, "progress": False}
    return generate(make_model(), make_data(), out, **{**settings, **options})


# -- tasks in general


def add(shared: int, task: int) -> int:
    return shared + task


def fail(shared: int, task: int) -> int:
    raise ValueError(f"task {task} can't be done")


def kill_worker_once(marker: str, task: int) -> int:
    """Take the worker down with it, the first time."""
    if task == 3 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return task


def test_results_come_with_their_places(client: Client) -> None:
    results = dict(run_on(client, add, 100, [(k,) for k in range(20)]))
    assert results == {k: 100 + k for k in range(20)}
    assert list(run_on(client, add, 100, [])) == []


def test_what_fails_by_itself_is_not_tried_again(client: Client) -> None:
    with pytest.raises(ValueError, match=r"task \d can't be done"):
        list(run_on(client, fail, 100, [(k,) for k in range(3)]))


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_tasks_of_lost_workers_are_done_by_others(client: Client, tmp_path: Path) -> None:
    marker = str(tmp_path / "killed")
    results = dict(run_on(client, kill_worker_once, marker, [(k,) for k in range(12)]))
    assert results == {k: k for k in range(12)} and Path(marker).exists()


def test_workers_that_are_lost_for_good_are_an_error(client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("dreamwarp.core.cluster._is_lost", lambda future: True)
    with pytest.raises(OSError, match=r"2 of 2 tasks are not done\. See"):
        list(run_on(client, add, 100, [(1,), (2,)]))


def test_a_scheduler_without_workers_is_explained(monkeypatch: Any) -> None:
    monkeypatch.setattr("dreamwarp.core.cluster.WORKER_SECONDS", 0.2)
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        address = re.escape(cluster.scheduler_address)
        message = (
            rf"scheduler at {address} has no workers\. Start some with `dask worker {address}`"
        )
        with pytest.raises(OSError, match=message):
            list(run_on(client, add, 100, [(1,)]))


def test_a_scheduler_that_does_not_answer_is_explained(monkeypatch: Any) -> None:
    monkeypatch.setattr("dreamwarp.core.cluster.ANSWER_SECONDS", 0.2)
    with pytest.raises(
        OSError, match=r"no scheduler answers at 'tcp://127\.0\.0\.1:1' .*Start one"
    ):
        connect("tcp://127.0.0.1:1")


def test_missing_distributed_is_explained(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"distributed, which is not installed\. Use"):
        connect("tcp://127.0.0.1:1")


# -- generation


@pytest.mark.parametrize("format", ["idx", "folder"])
def test_a_cluster_makes_the_same_files(client: Client, tmp_path: Path, format: str) -> None:
    told: list[tuple[int, int]] = []
    done = make(
        tmp_path / "cluster", format=format, client=client,
        progress=lambda n, total: told.append((n, total)),
    )  # fmt: skip
    assert done.n_made == 14 and told[-1] == (400, 400)
    make(tmp_path / "here", format=format)
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "here")
    assert verify(tmp_path / "cluster").is_sound


def test_a_cluster_resumes(client: Client, tmp_path: Path) -> None:
    make(tmp_path / "here")
    (tmp_path / "here" / "images-00002-idx3-ubyte").unlink()
    assert make(f"file://{tmp_path}/here", client=client, resume=True).n_made == 1
    assert verify(tmp_path / "here").is_sound


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_worker_killed_half_way_changes_nothing(client: Client, tmp_path: Path) -> None:
    client.wait_for_workers(2, timeout=60)
    workers = iter(client.run(os.getpid).values())
    killed: list[int] = []

    def kill_once(done: int, total: int) -> None:
        if not killed and done > 0:
            killed.append(next(workers))
            os.kill(killed[0], signal.SIGKILL)

    options: Any = {"n": 40_000, "shard_size": 2000}
    make(tmp_path / "cluster", client=client, progress=kill_once, **options)
    assert killed
    make(tmp_path / "here", **options)
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "here")


def test_files_that_only_workers_can_see_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"written images, which can.t be seen from here"):
        generating._check_visible(LocalStore(tmp_path), {"images": "0" * 64})


def test_the_command_takes_a_scheduler(client: Client, tmp_path: Path, capsys: Any) -> None:
    model, data, out = tmp_path / "m.dwm", tmp_path / "d.npz", tmp_path / "out"
    make_model().save(model)
    np.savez(data, X=make_data().X, y=make_data().y)
    arguments = ["sample", str(model), str(data), "-n", "400", "--shard-size", "30", "--seed", "3"]
    address = client.scheduler.address
    with pytest.raises(SystemExit) as exit_:
        cli.main([*arguments, "-o", str(out), "--scheduler", address])
    assert not exit_.value.code, capsys.readouterr().err
    make(tmp_path / "here")
    assert files_of(out) == files_of(tmp_path / "here")


# -- alignment


@pytest.mark.filterwarnings("ignore:.*have not converged:RuntimeWarning")
def test_a_cluster_aligns_alike(client: Client) -> None:
    space = WarpSpace((2, 2))
    rng = np.random.default_rng(0)
    sources = rng.random((150, 1, 12, 12)).astype(np.float32)
    targets = np.roll(sources, 1, axis=-1)
    options: Any = {"sigma": 0.1, "max_steps": 5}
    told: list[tuple[int, int]] = []
    here = dw.align_pairs(space, sources, targets, progress=False, **options)
    there = dw.align_pairs(
        space, sources, targets, client=client, progress=lambda *done: told.append(done), **options
    )
    assert told[-1] == (150, 150)
    np.testing.assert_array_equal(here.theta, there.theta)
    np.testing.assert_array_equal(here.loss_after, there.loss_after)


def test_evidence_of_a_cluster_is_that_of_threads(client: Any) -> None:
    images = np.random.default_rng(0).random((60, 1, 12, 12)).astype(np.float32)
    edges = np.stack([np.arange(59), np.arange(1, 60)], axis=1)
    prior = dw.SmoothPrior(dw.WarpSpace((2, 2)))
    finder = EvidenceFinder.for_images(
        prior, images, edges, similarity="ssd", sigma=0.3, max_steps=5, progress=False
    )
    covariance = np.eye(finder.frame.rank)
    here = finder.find(edges, covariance, n_threads=2)
    there = finder.find(edges, covariance, client=client)
    np.testing.assert_array_equal(here.theta, there.theta)
    np.testing.assert_array_equal(here.curvatures, there.curvatures)
