"""Ctrl-C ends every command within a second, and leaves nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp import cli
from dreamwarp.data.idx import read_idx
from tests.data.servers import Site, serve
from tests.generation.cases import make_model

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of its own")

# From the signal to the end of the process; machines that test are busy.
MAX_SECONDS = 1.0


def slow(*values: Any) -> Any:
    """Parameters for ``make slow``."""
    return pytest.param(*values, marks=pytest.mark.slow)


def hear_signals() -> None:
    """Restore Ctrl-C, which shells disable in background processes, as tests may be."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt(folder: Path, words: str, *arguments: str, after: float = 0.0, **more: str) -> str:
    """Start a command, send it a signal some time after it has said something; what it said."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "dreamwarp", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder,
        env={**os.environ, **more}, preexec_fn=hear_signals,
    )  # fmt: skip
    said = ""
    try:
        for line in process.stdout or ():
            said += line
            if words in line:
                break
        else:
            pytest.fail(f"ended too soon: {said}")
        time.sleep(after)
        assert process.poll() is None, said
        start = time.perf_counter()
        process.send_signal(signal.SIGINT)
        said += process.communicate(timeout=60)[0]
        seconds = time.perf_counter() - start
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == cli.INTERRUPTED, said
    assert "Traceback" not in said, said
    assert seconds < MAX_SECONDS, said
    return said


@pytest.fixture
def data(tmp_path: Path) -> Path:
    X = np.cumsum(np.random.default_rng(0).normal(size=(4000, 28, 28)), axis=2)
    np.savez(tmp_path / "data.npz", X=X, y=np.arange(4000) % 2)
    return tmp_path


@pytest.mark.parametrize("share", [0.3, slow(0.5), slow(0.7), 0.9])
def test_any_command_while_it_loads(tmp_path: Path, share: float) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "dreamwarp", "--version"]
    loading = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    modules = [line.rpartition("|")[2].strip() for line in loading.splitlines()]
    first = modules.index("dreamwarp")  # before which there is only Python itself
    module = modules[first + int(share * (len(modules) - first))]
    command = [sys.executable, "-c", INTERRUPT_AT.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=hear_signals)
    assert (done.returncode, done.stdout) == (cli.INTERRUPTED, "")
    assert done.stderr == "dreamwarp: interrupted\n"


# Runs the command, and interrupts it when it begins to load a module.
INTERRUPT_AT = """
import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, *more):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["fit", "nothing.npz", "-o", "m.dwm"]
runpy.run_module("dreamwarp", run_name="__main__")
"""


def test_interruptions_that_callbacks_swallow_are_not_shown() -> None:
    code = """
import ctypes, os, signal, time
from dreamwarp.commands.interruption import ending_soon
def call():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(9):
        pass
with ending_soon():
    ctypes.CFUNCTYPE(None)(call)()
    time.sleep(60)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30,
        preexec_fn=hear_signals,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (cli.INTERRUPTED, "dreamwarp: interrupted\n")


@pytest.mark.parametrize("after", [0.5, slow(0.0), slow(2.0)])
def test_fit_from_its_first_moments_on(data: Path, after: float) -> None:
    said = interrupt(data, "4,000 samples", "fit", "data.npz", "-o", "m.dwm", after=after)
    assert said.endswith("dreamwarp: interrupted\n")
    assert [path.name for path in data.iterdir()] == ["data.npz"]


def test_fit_while_it_aligns(data: Path) -> None:
    options = ["--similarity", "ncc", "--cells", "8x8"]  # slow enough that aligning is told of
    interrupt(data, "aligning", "fit", "data.npz", "-o", "m.dwm", *options)
    assert [path.name for path in data.iterdir()] == ["data.npz"]


@pytest.mark.slow
def test_fit_while_it_judges(data: Path) -> None:
    # Enough samples that judging takes long enough to be told of.
    X = np.cumsum(np.random.default_rng(0).normal(size=(5000, 28, 28)), axis=2)
    np.savez(data / "data.npz", X=X, y=np.arange(5000) % 3)
    options = ["--neighbors", "1", "--cells", "2x2"]
    interrupt(data, "judging", "fit", "data.npz", "-o", "m.dwm", *options)
    assert [path.name for path in data.iterdir()] == ["data.npz"]


@pytest.mark.parametrize("after", [1.5, slow(0.0)])
def test_fit_while_it_compiles(data: Path, tmp_path_factory: Any, after: float) -> None:
    cache = str(tmp_path_factory.mktemp("cache"))
    arguments = ["fit", "data.npz", "-o", "m.dwm"]
    interrupt(data, "compiling", *arguments, after=after, NUMBA_CACHE_DIR=cache)
    assert [path.name for path in data.iterdir()] == ["data.npz"]


@pytest.mark.parametrize(
    ("method", "cells", "words"),
    [slow("map", "20x20", "estimating noise"), ("hmc", "12x12", "aligning")],
)
def test_align_while_it_aligns(tmp_path: Path, method: str, cells: str, words: str) -> None:
    samples = np.cumsum(np.random.default_rng(0).normal(size=(2, 256, 256)), axis=2)
    for name, sample in zip("ab", samples, strict=True):
        np.save(tmp_path / f"{name}.npy", sample)
    options = ["--cells", cells, "--method", method, "--theta", "theta.json"]
    said = interrupt(tmp_path, words, "align", "a.npy", "b.npy", *options)
    assert said.endswith("dreamwarp: interrupted\n")
    assert {path.name for path in tmp_path.iterdir()} == {"a.npy", "b.npy"}


def test_compile(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    said = interrupt(tmp_path, "compiling", "compile", after=1.0, NUMBA_CACHE_DIR=cache)
    assert said.endswith("dreamwarp: interrupted\n")


@pytest.mark.parametrize("format", ["idx", slow("npz"), slow("folder")])
def test_sample_while_it_writes_can_be_resumed(data: Path, format: str) -> None:
    make_model().save(data / "m.dwm")
    X = np.random.default_rng(0).integers(0, 255, (60, 28, 28)).astype(np.uint8)
    np.savez(data / "data.npz", X=X, y=np.arange(60) % 3)
    arguments = ["sample", "m.dwm", "data.npz", "-n", "9000000", "-o", "out", "--format", format]
    said = interrupt(data, "samples 0", *arguments, after=1.5)
    assert "with `--resume`" in said
    # A fast machine has finished shards by then. Each file is whole, or it would not be read.
    left = [path for path in (data / "out").iterdir() if path.name != "manifest.json"]
    assert format == "idx" or not left
    assert all(len(read_idx(path)) for path in left)


@pytest.fixture
def slow_site() -> Iterator[Site]:
    """A server that sends the beginning of a file, and then nothing for long."""
    site = Site({"train-images-idx3-ubyte.gz": bytes(2**20)}, pause_seconds=20.0)
    with serve(site):
        yield site
        site.pause_seconds = 0.0


def test_data_while_it_downloads(tmp_path: Path, slow_site: Site) -> None:
    arguments = ["data", "mnist", "-o", "new", "--source", slow_site.address]
    interrupt(tmp_path, "fetching", *arguments)
    assert list((tmp_path / "new").iterdir()) == []
