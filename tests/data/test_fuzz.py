"""Mutated files: no crash, no hang, no memory past what was declared and checked."""

from __future__ import annotations

import gc
import gzip
import io
import struct
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp.data import read_idx
from dreamwarp.data.guards import MOST_EXPANSION
from dreamwarp.data.numpy_files import read_npy, read_npz
from dreamwarp.data.webdataset import read_webdataset
from tests.data.cases import write_idx

N_QUICK, N_SLOW = 300, 50_000
# Streams, headers and messages, whatever the file.
SLACK_BYTES = 2**20
# Longest that one file may take, of a processor's time: others may be using the machine.
MAX_SECONDS = 1.0
TELLING = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"PK\1\2", b"\1\0"]

X = np.random.default_rng(0).integers(0, 256, (40, 6, 7), np.uint8)


def mutate(random: np.random.Generator, content: bytes) -> bytes:
    """A few bytes changed, cut out, put in or doubled, mostly where headers are."""
    mutant = bytearray(content)
    for _ in range(random.integers(1, 5)):
        if not mutant:
            break
        near = min(len(mutant), 128)
        at = int(random.choice((random.integers(near), random.integers(len(mutant)))))
        at = int(len(mutant) - 1 - at) if random.random() < 0.3 else at  # zip's directory is last
        match random.integers(5):
            case 0:
                mutant[at] ^= 1 << int(random.integers(8))
            case 1:
                telling = TELLING[random.integers(len(TELLING))]
                mutant[at : at + len(telling)] = telling
            case 2:
                del mutant[at : at + int(random.integers(1, 64))]
            case 3:
                mutant[at:at] = random.bytes(random.integers(1, 16))
            case 4:
                struct.pack_into("B", mutant, at, int(random.integers(256)))
    return bytes(mutant)


def seeds_of_idx(folder: Path) -> Iterator[bytes]:
    for name, array in (("a", X), ("b.gz", X), ("c", X[:3].astype(np.float64)), ("d.gz", X[0, 0])):
        yield write_idx(folder / name, array).read_bytes()
    yield gzip.compress(write_idx(folder / "e", X[:0]).read_bytes()) * 2


def seeds_of_npz(folder: Path) -> Iterator[bytes]:
    labels = np.arange(40) % 3
    for save in (np.savez, np.savez_compressed):
        for samples, classes in ((X, labels), (np.asfortranarray(X, float), labels.astype("U3"))):
            target = io.BytesIO()
            save(target, X=samples, y=classes)
            yield target.getvalue()
    # Mutations inside compressed arrays seldom reach the header: one stored by hand does.
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, array in (("X.npy", X[:2]), ("y.npy", labels[:2])):
            member = io.BytesIO()
            np.save(member, array)
            archive.writestr(name, member.getvalue())
    yield target.getvalue()


def seeds_of_npy(folder: Path) -> Iterator[bytes]:
    for array in (X, X.astype(float).T, np.array(["a", "bcd"])):
        target = io.BytesIO()
        np.save(target, array)
        yield target.getvalue()


def seeds_of_tar(folder: Path, endings: tuple[str, str]) -> Iterator[bytes]:
    samples = []
    for sample in X[:6]:
        target = io.BytesIO()
        np.save(target, sample) if endings[0] == "npy" else Image.fromarray(sample).save(
            target, "PNG"
        )
        samples.append(target.getvalue())
    for make in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = folder / f"{make}.seed"
        with tarfile.open(path, "w", format=make) as archive:
            for k, sample in enumerate(samples):
                for ending, content in zip(endings, (sample, b"%d" % k), strict=True):
                    info = tarfile.TarInfo(f"{'long' * 40 * (make > 0)}/{k}.{ending}")
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
        yield path.read_bytes()


def sign(random: np.random.Generator, content: bytes) -> bytes:
    """A mutant whose headers have the sums that they should have, so that they are read."""
    mutant = bytearray(mutate(random, content))
    for start in range(0, len(mutant) - 511, 512):
        header = mutant[start : start + 512]
        if header[257:262] == b"ustar":
            total = sum(header) - sum(header[148:156]) + 8 * 32
            mutant[start + 148 : start + 156] = b"%06o\0 " % total
    return bytes(mutant)


def fuzz(
    path: Path,
    read_fn: Callable[[Path], object],
    seeds: list[bytes],
    n: int,
    *,
    expands: bool,
    mutate_fn: Callable[[np.random.Generator, bytes], bytes] = mutate,
) -> int:
    """Read ``n`` mutants; returns how many were taken for files."""
    n_read = 0
    gc.freeze()  # what other tests left behind is not searched at the expense of a mutant
    tracemalloc.start()
    try:
        for k in range(n):
            content = mutate_fn(np.random.default_rng((17, k)), seeds[k % len(seeds)])
            path.write_bytes(content)
            tracemalloc.reset_peak()
            before, start = tracemalloc.get_traced_memory()[0], time.process_time()
            try:
                read_fn(path)
                n_read += 1
            except (ValueError, OSError):
                pass
            seconds = time.process_time() - start
            taken = tracemalloc.get_traced_memory()[1] - before
            most = len(content) * (MOST_EXPANSION if expands else 4) + SLACK_BYTES
            assert seconds < MAX_SECONDS, f"mutant {k} took {seconds:.2f} s"
            assert taken < most, f"mutant {k} took {taken:,} bytes, more than {most:,}"
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    return n_read


AMOUNTS = [N_QUICK, pytest.param(N_SLOW, marks=pytest.mark.slow)]


@pytest.mark.parametrize("n", AMOUNTS)
def test_mutated_idx_files(tmp_path: Path, n: int) -> None:
    assert (
        0 < fuzz(tmp_path / "mutant", read_idx, list(seeds_of_idx(tmp_path)), n, expands=True) < n
    )


@pytest.mark.parametrize("n", AMOUNTS)
def test_mutated_npz_files(tmp_path: Path, n: int) -> None:
    assert (
        0
        < fuzz(tmp_path / "mutant.npz", read_npz, list(seeds_of_npz(tmp_path)), n, expands=True)
        < n
    )


@pytest.mark.parametrize("n", AMOUNTS)
def test_mutated_npy_files(tmp_path: Path, n: int) -> None:
    assert (
        0
        < fuzz(tmp_path / "mutant.npy", read_npy, list(seeds_of_npy(tmp_path)), n, expands=False)
        < n
    )


@pytest.mark.parametrize("endings", [("npy", "cls"), ("png", "txt")])
@pytest.mark.parametrize("mutate_fn", [mutate, sign])
@pytest.mark.parametrize("n", AMOUNTS)
def test_mutated_webdataset_files(
    tmp_path: Path, n: int, mutate_fn: Any, endings: tuple[str, str]
) -> None:
    seeds = list(seeds_of_tar(tmp_path, endings))
    expands = endings[0] == "png"
    path = tmp_path / "mutant.tar"
    assert 0 < fuzz(path, read_webdataset, seeds, n, expands=expands, mutate_fn=mutate_fn) < n
