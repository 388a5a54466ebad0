"""Sets of samples: made, stopped, resumed, checked."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp.augment.source import SampleSource
from dreamwarp.data import load
from dreamwarp.generation import generate, stream, verify
from dreamwarp.generation import generating as module
from dreamwarp.generation.formats import make_format
from dreamwarp.generation.manifest import Manifest, read_manifest
from dreamwarp.generation.shards import Plan
from dreamwarp.generation.stores import LocalStore, open_store
from tests.conftest import SOURCE
from tests.generation.cases import IMAGE_FORMATS, files_of, make_data, make_model

N, SHARD = 50, 8


def make(out: Any, **options: Any) -> Any:
    settings: dict[str, Any] = {"n": N, "shard_size": SHARD, "seed": 3, "progress": False}
    return generate(make_model(), make_data(), out, **{**settings, **options})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> Any:
    """Files of an undisturbed run, by format."""
    made: dict[str, dict[str, bytes]] = {}

    def files(format: str = "idx") -> dict[str, bytes]:
        if format not in made:
            folder = tmp_path_factory.mktemp(format)
            make(folder, format=format)
            made[format] = files_of(folder)
        return made[format]

    return files


# -- the same bytes


def test_what_is_made(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    done = make(tmp_path / "new" / "set", progress=lambda n, total: told.append((n, total)))
    assert (done.n, done.n_shards, done.n_made, done.n_samples_made) == (N, 7, 7, N)
    assert done.seconds > 0 and done.out == str(tmp_path / "new" / "set")
    assert told[-1] == (N, N) and told == sorted(told)


@pytest.mark.parametrize("format", IMAGE_FORMATS)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_threads_leave_no_trace(tmp_path: Path, whole: Any, format: str, n_threads: int) -> None:
    make(tmp_path, format=format, n_threads=n_threads)
    assert files_of(tmp_path) == whole(format)


@pytest.mark.parametrize("format", IMAGE_FORMATS)
def test_order_and_blocks_leave_no_trace_in_samples(
    tmp_path: Path, monkeypatch: Any, whole: Any, format: str
) -> None:
    store, source = LocalStore(tmp_path), SampleSource(make_model(), make_data(), seed=3)
    file_format, plan = make_format(format, source.form), Plan(0, N, SHARD)
    if format != "parquet":  # whose row groups are blocks
        monkeypatch.setattr("dreamwarp.generation.shards.MAX_BLOCK", 3)
    shards = [plan[k] for k in (4, 0, 6, 2, 1, 5, 3)]
    made = list(module.make_shards(source, file_format, store, shards, lambda n: None, n_threads=2))
    assert [shard for shard, _ in made] == shards
    expected = {name: data for name, data in whole(format).items() if name != "manifest.json"}
    assert files_of(tmp_path) == expected


def test_streams_and_later_sets_have_the_same_samples(tmp_path: Path) -> None:
    make(tmp_path / "all")
    make(tmp_path / "part", n=20, first=30, shard_size=7)
    whole, part = load(tmp_path / "all"), load(tmp_path / "part")
    np.testing.assert_array_equal(part.X, whole.X[30:])
    np.testing.assert_array_equal(part.y, whole.y[30:])
    batches = list(stream(make_model(), make_data(), seed=3, n=N, batch_size=12))
    np.testing.assert_array_equal(np.concatenate([X for X, _ in batches]), whole.X)
    np.testing.assert_array_equal(np.concatenate([y for _, y in batches]), whole.y)


def test_samples_per_class(tmp_path: Path) -> None:
    make(tmp_path, n=None, per_class=5, first=7)
    assert np.bincount(load(tmp_path).y).tolist() == [5, 5, 5]
    make(tmp_path, n=None, per_class=np.int64(5), first=7, resume=True)


def test_addresses_of_fsspec(tmp_path: Path, whole: Any) -> None:
    fsspec = pytest.importorskip("fsspec")
    make(f"file://{tmp_path}/set")
    assert files_of(tmp_path / "set") == whole()
    memory = fsspec.filesystem("memory")
    for format in IMAGE_FORMATS:
        address = f"memory://sets/{format}"
        make(address, format=format)
        paths = memory.find(f"/sets/{format}")
        found = {path.removeprefix(f"/sets/{format}/"): memory.cat(path) for path in paths}
        assert found == whole(format)
        assert verify(address).is_sound
        shards = [path for path in paths if not path.endswith("manifest.json")]
        memory.pipe_file(shards[0], b"damaged")
        memory.rm(shards[-1])
        assert not verify(address).is_sound
        make(address, format=format, resume=True)
        assert verify(address).is_sound
    with pytest.raises(FileExistsError, match=r"`memory://sets/idx` holds a set of samples"):
        make("memory://sets/idx")


# -- interruptions


@pytest.mark.parametrize("format", IMAGE_FORMATS)
def test_resuming_makes_what_is_missing_and_checks_the_rest(
    tmp_path: Path, whole: Any, format: str
) -> None:
    make(tmp_path, format=format)
    names = [name for name in whole(format) if name != "manifest.json"]
    (tmp_path / names[0]).unlink()
    changed = bytearray(whole(format)[names[-1]])
    changed[-1] ^= 1
    (tmp_path / names[-1]).write_bytes(changed)
    found = verify(tmp_path, progress=False)
    assert not found.is_sound and len(found.missing) == len(found.damaged) == 1
    done = make(tmp_path, format=format, resume=True)
    assert done.n_made == 2 and files_of(tmp_path) == whole(format)
    assert make(tmp_path, format=format, resume=True).n_made == 0


@pytest.mark.parametrize("format", IMAGE_FORMATS)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_what_breaks_off_leaves_whole_shards(
    tmp_path: Path, monkeypatch: Any, whole: Any, format: str, error: BaseException
) -> None:
    """The fourth shard fails after its first block."""
    n_written = 0

    def count(n: int) -> None:
        nonlocal n_written
        n_written += n
        if n_written > 3 * SHARD:
            raise error

    original = module.make_shards

    def failing(*arguments: Any, n_threads: int) -> Any:
        return original(*arguments[:-1], count, n_threads=n_threads)

    with monkeypatch.context() as patch:
        patch.setattr(module, "make_shards", failing)
        with pytest.raises(type(error)) as caught:
            make(tmp_path, format=format)
    if isinstance(error, OSError):
        message = str(caught.value)
        assert message.startswith(f"`{tmp_path}` could not be completed: No space left. 3 of 7 ")
        assert "`--resume` (`resume=True`)" in message
    left = files_of(tmp_path)
    assert left.pop("manifest.json") and left.items() <= whole(format).items()
    assert read_manifest(LocalStore(tmp_path)).n_done == 3
    assert make(tmp_path, format=format, resume=True).n_made == 4
    assert files_of(tmp_path) == whole(format)


def test_leftovers_of_killed_runs_go_and_no_other_files_do(tmp_path: Path, whole: Any) -> None:
    make(tmp_path)
    left = [
        ".images-00003-idx3-ubyte-0123abcd",
        ".manifest-0123abcd.json",
        ".shard-00001-89abcdef.tar",
    ]
    for name in left:
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / ".pictures-01234567").mkdir()
    (tmp_path / ".pictures-01234567" / "0").write_bytes(b"half")
    (tmp_path / ".mine-0123abcd.json").write_bytes(b"precious")
    make(tmp_path, resume=True)
    assert files_of(tmp_path) == {**whole(), ".mine-0123abcd.json": b"precious"}


def test_leftovers_alone_are_not_something_else(tmp_path: Path, whole: Any) -> None:
    (tmp_path / ".manifest-0123abcd.json").write_bytes(b"half")
    make(tmp_path, resume=True)
    assert files_of(tmp_path) == whole()


KILLED = """
import sys
from dreamwarp.generation import generate
from tests.generation.cases import make_data, make_model
generate(make_model(), make_data(), sys.argv[1], n=30_000, shard_size=1500, seed=3,
         resume=True, progress=False, format=sys.argv[2])
"""


def run_and_kill(out: Path, format: str, seconds: float | None) -> int:
    """Exit code of a run that is killed some time after it has begun to write."""
    path = os.pathsep.join([str(SOURCE), str(SOURCE.parent)])
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(out), format], env={**os.environ, "PYTHONPATH": path}
    )
    if seconds is not None:
        before = read_manifest(LocalStore(out)).n_done if (out / "manifest.json").exists() else -1
        while process.poll() is None and n_done(out) <= before:
            time.sleep(0.01)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
    return process.wait(timeout=300)


def n_done(out: Path) -> int:
    there = (out / "manifest.json").exists()
    return read_manifest(LocalStore(out)).n_done if there else -1


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize(
    ("format", "n_kills"),
    [("idx", 1), *(pytest.param(f, 10, marks=pytest.mark.slow) for f in ("idx", "folder"))],
)
def test_killed_runs_resume_to_the_same_bytes(tmp_path: Path, format: str, n_kills: int) -> None:
    rng = random.Random(0)
    codes = []
    for _ in range(n_kills):
        codes.append(run_and_kill(tmp_path / "killed", format, rng.uniform(0.0, 0.1)))
    assert -signal.SIGKILL in codes
    assert run_and_kill(tmp_path / "killed", format, None) == 0
    options: Any = {"n": 30_000, "shard_size": 1500, "format": format}
    make(tmp_path / "whole", **options)
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "whole")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(["mount", *options], capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    ("format", "size"), [("idx", 1000), ("parquet", 1000), ("webdataset", 100)]
)
def test_a_full_disk(
    small_disk: Path, tmp_path: Path, monkeypatch: Any, format: str, size: int
) -> None:
    options: Any = {"n": 16 * size, "shard_size": size, "format": format}
    with monkeypatch.context() as patch:
        patch.setattr(module, "check_room", lambda *arguments: None)
        with pytest.raises(OSError, match=r"No space left on device\. \d+ of 16 shards are done"):
            make(small_disk / "set", **options)
    kept = verify(small_disk / "set")
    assert 0 < len(kept.missing) < 16 and not kept.damaged
    enlarge = ["mount", "-o", "remount,size=64m", str(small_disk)]
    subprocess.run(enlarge, check=True)
    assert make(small_disk / "set", resume=True, **options).n_made == len(kept.missing)
    make(tmp_path / "whole", **options)
    assert files_of(small_disk / "set") == files_of(tmp_path / "whole")


def test_too_little_room_is_seen_beforehand(tmp_path: Path, monkeypatch: Any, whole: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "count_free", lambda store: 4000)
        with pytest.raises(
            OSError, match=r"set` must have room for 50 samples, 5\.0 kB, got 4\.0 kB\. Ask"
        ):
            make(tmp_path / "set")
        assert not (tmp_path / "set").exists()
    make(tmp_path / "set")
    (tmp_path / "set" / "images-00002-idx3-ubyte").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "count_free", lambda store: 799)
        with pytest.raises(OSError, match=r"room for 8 samples, 800 bytes, got 799 bytes"):
            make(tmp_path / "set", resume=True)
        patch.setattr(LocalStore, "count_free", lambda store: 800)
        make(tmp_path / "set", resume=True)
    assert files_of(tmp_path / "set") == whole()


# -- what is refused


def test_places_that_cant_be_made_are_explained(tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(OSError, match=r"set` can't be made: Read-only file system\. Choose a"):
            make(tmp_path / "set")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(OSError, match=r"set` can't be opened: Read-only file system\. Choose"):
            make(tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_causes_end_in_one_full_stop(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match=r"completed: it is broken\. 0 of 1 shards are done\. Fix"),
        module._explained(LocalStore(tmp_path), Manifest({}, [None])),
    ):
        raise OSError("it is broken.")


def test_places_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    for resume in (False, True):
        with pytest.raises(
            FileExistsError, match=r"must be a new or empty folder, but holds thesis"
        ):
            make(tmp_path, resume=resume)
    (tmp_path / "a").write_text("more")
    with pytest.raises(FileExistsError, match=r"holds a and more, not a set of samples\. Cho"):
        make(tmp_path)
    with pytest.raises(NotADirectoryError, match=r"a file of that name exists"):
        make(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "precious" and len(
        list(tmp_path.iterdir())
    ) == 2


def test_a_set_is_only_touched_to_resume_it(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(FileExistsError, match=r"holds a set of samples, 7 of 7 shards.*--resume"):
        make(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 4}, r"`seed` is 3 there and 4 here\. Use the same settings, or choose"),
        ({"n": 51}, r"`n` is 50 there and 51 here"),
        ({"first": 1}, r"`first` is 0 there and 1 here"),
        ({"strength": 0.5}, r"`strength` is 1\.0 there and 0\.5 here"),
        ({"shard_size": 9}, r"`shard_size` is 8 there and 9 here"),
        ({"balance": "data"}, r"`balance` is 'classes' there and 'data' here"),
        ({"format": "npz", "seed": 1}, r"`format` is 'idx' there and 'npz' here; `seed` is 3"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, options: Any, message: str) -> None:
    make(tmp_path)
    before = files_of(tmp_path)
    with pytest.raises(ValueError, match=message):
        make(tmp_path, resume=True, **options)
    assert files_of(tmp_path) == before


def test_other_models_and_data_are_refused(tmp_path: Path) -> None:
    make(tmp_path)
    options: Any = {"n": N, "shard_size": SHARD, "seed": 3, "resume": True, "progress": False}
    with pytest.raises(ValueError, match=r"`model` is '[0-9a-f]{64}' there and '[0-9a-f]{64}' he"):
        generate(make_model().with_strength(0.5), make_data(), tmp_path, **options)
    X, y = make_data().X, make_data().y
    with pytest.raises(ValueError, match=r"`data` is '.*' there and '.*' here"):
        generate(make_model(), (X + 1, y), tmp_path, **options)


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with (
        store.claim(),
        pytest.raises(BlockingIOError, match=r"is being written by another process\. Wait"),
    ):
        make(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, r"`n` must be an integer of at least 1, got 0"),
        ({"n": -1}, r"`n` must be an integer of at least 1, got -1"),
        ({"n": 2**63}, r"samples are numbered below 2\^62"),
        (
            {"n": 10**17, "shard_size": None},
            r"`shard_size` must be .* 10000 shards for .* samples\) to 4294967295, got "
            r"10000000000000\. Or ask for fewer samples",
        ),
        ({"n": None}, r"give either `n`, samples in all, or `per_class`"),
        ({"per_class": 3}, r"give either `n`, samples in all, or `per_class`"),
        ({"n": None, "per_class": 2.0}, r"`per_class` must be an integer .* got 2\.0"),
        ({"n": None, "per_class": 0}, r"`per_class` must be an integer of at least 1, got 0"),
        ({"n": None, "per_class": 1, "balance": "data"}, r"`per_class` needs classes that take tu"),
        ({"format": "gif"}, r"`format` must be one of 'idx'.* got 'gif'"),
        ({"n_threads": 0}, r"`n_threads` must be a positive integer, got 0"),
    ],
)
def test_absurd_wishes_are_refused(
    tmp_path: Path, monkeypatch: Any, options: Any, message: str
) -> None:
    monkeypatch.setattr(LocalStore, "count_free", lambda store: None)
    with pytest.raises(ValueError, match=message):
        make(tmp_path / "set", **options)
    assert not (tmp_path / "set").exists()


# -- parts


def test_an_empty_manifest_has_nothing_done() -> None:
    assert Manifest({}, [None, {}]).n_done == 1


def test_addresses_that_nobody_knows_are_refused() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(ValueError, match=r"[Pp]rotocol"):
        open_store("nosuch://bucket/set")


def test_missing_fsspec_is_explained(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ImportError, match=r"needs fsspec, which is not installed\. Use"):
        open_store("s3://bucket/set")
