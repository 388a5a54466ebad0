"""Sets that `generate` wrote, by their manifest; manifests may come from elsewhere too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp.core.defaults import FORMATS
from dreamwarp.data import load, write_volume
from dreamwarp.data.readers import SET_KINDS
from dreamwarp.data.sample_sets import MANIFEST, MAX_BYTES, find_set
from dreamwarp.generation import formats, generate
from tests.data.test_fuzz import AMOUNTS, fuzz
from tests.generation.cases import make_data, make_model

N = 12


@pytest.fixture
def made(tmp_path: Path) -> Path:
    generate(make_model(), make_data(), tmp_path, n=N, shard_size=5, format="npz", progress=False)
    return tmp_path


def change(folder: Path, path: str, value: Any) -> None:
    contents = json.loads((folder / MANIFEST).read_text())
    contents.pop("sha256", None)  # as if it were older, or written by an attacker
    *parents, last = path.split(".")
    inner = contents
    for key in parents:
        inner = inner[key]
    inner[last] = value
    (folder / MANIFEST).write_text(json.dumps(contents))


def test_formats_are_those_that_are_written_and_read() -> None:
    assert set(FORMATS) == set(formats.FORMATS) == set(SET_KINDS)


def test_a_set_of_volumes_can_be_resized(made: Path) -> None:
    pytest.importorskip("nibabel", reason="volumes need nibabel")
    change(made, "settings.format", "nifti")
    change(made, "settings.shape", [1, 4, 5, 6])
    for k in range(N):
        (made / str(k % 3)).mkdir(exist_ok=True)
        volume = np.full((4, 5, 6), k, np.uint8)
        write_volume(made / str(k % 3) / f"{k}.nii.gz", volume, np.eye(4))
    assert load(made).X.shape == (N, 1, 4, 5, 6) and load(made).X.dtype == np.uint8
    data = load(made, resize=(2, 3, 2))
    assert data.X.shape == (N, 1, 2, 3, 2)
    assert data.y.tolist() == [k % 3 for k in range(N)]


def test_what_a_manifest_says(made: Path) -> None:
    found = find_set(made)
    assert found is not None
    assert (found.format, found.n, found.shape) == ("npz", N, (9, 11))
    assert found.dtype == np.uint8 and found.classes == [0, 1, 2]


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[1]", b"null", b"words", b"\xff\xfe", b"[" * 10**6, b'{"kind": "other"}'],
)
def test_manifests_of_something_else_do_not_count(made: Path, content: bytes) -> None:
    (made / MANIFEST).write_bytes(content)
    assert find_set(made) is None
    assert load(made).X.shape == (N, 9, 11)


def test_a_manifest_is_no_set_of_a_name_or_of_this_folder(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    with pytest.raises(ValueError, match="got an empty one"):
        load("")
    assert load("digits").name == "digits"
    assert len(load(".").X) == N
    assert find_set(made / "shard-00000.npz") is None and find_set(made / "none") is None


def test_a_manifest_that_is_too_long_is_not_read(made: Path) -> None:
    with (made / MANIFEST).open("ab") as stream:
        stream.truncate(MAX_BYTES + 2)
    assert find_set(made) is None


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", 2, r"has version 2, but this library reads version 1\. Use the library"),
        ("version", "9" * 1000, r"has version '99.*\.\.\., but this library reads version 1"),
        ("settings", None, r"its settings must be n, first, shard_size, format"),
        ("settings", {"n": 1}, r"its settings must be n, first, shard_size, format"),
        ("settings.format", "exe", r"its `format` can't be 'exe'"),
        ("settings.format", ["npz"], r"its `format` can't be \['npz'\]"),
        ("settings.n", True, r"its `n` can't be True"),
        ("settings.n", 13, r"must hold 13 samples of uint8, .* got 12 of uint8"),
        ("settings.dtype", "float32", r"must hold 12 samples of float32, .* 12 of uint8"),
        ("settings.dtype", "object", r"its `dtype` can't be 'object'"),
        ("settings.shape", [9, 12], r"samples of shape \(9, 12\), .* got \(9, 11\)"),
        ("settings.shape", [2**40, 2**40], r"which no array can have"),
        ("settings.shape", [9, "11"], r"its `shape` can't be"),
        ("settings.classes", [0, 1], r"only labels of its manifest\.json, got '2'"),
        ("settings.classes", [0, 0], r"its `classes` can't be"),
        ("settings.classes", [0, "1", 2], r"its `classes` can't be"),
        ("settings.classes", ["0", "1", "2\0"], r"its `classes` can't be"),
        ("settings.classes", [[0], 1, 2], r"its `classes` can't be"),
        ("settings.classes", [], r"its `classes` can't be"),
        ("settings.classes", [*map(str, range(9999)), "9" * 9999], r"its `classes` can't be"),
        ("shards", None, r"it must list shards"),
    ],
)
def test_what_cant_be_is_refused(made: Path, path: str, value: Any, message: str) -> None:
    change(made, path, value)
    with pytest.raises(ValueError, match=message):
        load(made)


@pytest.mark.parametrize("n", AMOUNTS)
def test_mutated_manifests(made: Path, n: int) -> None:
    change(made, "settings.first", 0)
    seeds = [(made / MANIFEST).read_bytes()]

    def read(path: Path) -> None:
        load(path.parent)

    assert 0 < fuzz(made / MANIFEST, read, seeds, n, expands=False) < n
