"""Manifests: what they say, and what is wrong with those that come from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dreamwarp
from dreamwarp import WarpModel
from dreamwarp.augment import SampleSource
from dreamwarp.data.sample_sets import MANIFEST as NAME
from dreamwarp.data.sample_sets import MAX_BYTES, hash_content
from dreamwarp.generation import generate, verify
from dreamwarp.generation.manifest import read_manifest
from dreamwarp.generation.stores import LocalStore
from tests.data.test_fuzz import AMOUNTS, fuzz
from tests.generation.cases import make_data, make_model

TELLING = [b"null", b"-1", b"1e999", b"NaN", b"[" * 50, b"{}", b'"\\ud800"', b"9" * 50, b"\xff"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: Any) -> dict[str, Any]:
    """What the manifest of a small set holds."""
    folder = tmp_path_factory.mktemp("made")
    generate(make_model(), make_data(), folder, n=20, shard_size=6, progress=False)
    return json.loads((folder / NAME).read_text())


def write(folder: Path, contents: Any, *, seal: bool = True) -> LocalStore:
    """Write a manifest, with the hash of what it says as an attacker would."""
    if seal and isinstance(contents, dict):
        said = contents.get("settings"), contents.get("shards")
        contents = {**contents, "sha256": hash_content(*said)}
    text = contents if isinstance(contents, bytes) else json.dumps(contents).encode()
    (folder / NAME).write_bytes(text)
    return LocalStore(folder)


def test_every_setting_is_in_it(made: dict[str, Any]) -> None:
    source = SampleSource(make_model(), make_data())
    assert made["settings"] == {
        "n": 20, "first": 0, "shard_size": 6, "format": "idx", "seed": 0, "strength": 1.0,
        "balance": "classes", "interpolation": "linear", "shape": [9, 11], "dtype": "uint8",
        "classes": [0, 1, 2], "model": make_model().fingerprint, "data": source.data_fingerprint,
    }  # fmt: skip
    assert made["library_version"] == dreamwarp.__version__
    assert [sorted(shard) for shard in made["shards"]] == [
        [f"images-0000{k}-idx3-ubyte", f"labels-0000{k}-idx1-ubyte"] for k in range(4)
    ]


def test_it_is_read_as_it_was_written(tmp_path: Path, made: dict[str, Any]) -> None:
    manifest = read_manifest(write(tmp_path, made))
    assert manifest.settings == made["settings"] and manifest.shards == made["shards"]
    assert manifest.n_done == len(manifest.plan) == 4 and manifest.format.name == "idx"


def test_sets_made_before_there_was_a_choice_are_linear(
    tmp_path: Path, made: dict[str, Any]
) -> None:
    older = json.loads(json.dumps(made))
    del older["settings"]["interpolation"], older["sha256"]
    assert read_manifest(write(tmp_path, older, seal=False)).settings == made["settings"]


def changed(made: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    contents = json.loads(json.dumps(made))
    *parents, last = path.split(".")
    inner = contents
    for key in parents:
        inner = inner[int(key) if key.isdigit() else key]
    inner[int(last) if last.isdigit() else last] = value
    return contents


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("kind", "recipe", "it is of another kind"),
        ("settings", [], "its settings must be n, first, shard_size, format"),
        ("settings.more", 1, "its settings must be n, first, shard_size, format"),
        ("settings.n", 0, "its `n` can't be 0"),
        ("settings.n", 2**62, "its `n` can't be 4611686018427387904"),
        ("settings.n", 21.0, r"its `n` can't be 21\.0"),
        ("settings.first", -1, "its `first` can't be -1"),
        ("settings.first", 2**62 - 1, "sample numbers are too large"),
        ("settings.shard_size", "6", "its `shard_size` can't be '6'"),
        ("settings.seed", 2**64, "its `seed` can't be"),
        ("settings.strength", -1.0, r"its `strength` can't be -1\.0"),
        ("settings.strength", None, "its `strength` can't be None"),
        ("settings.balance", "", "its `balance` can't be ''"),
        ("settings.shape", [], r"its `shape` can't be \[\]"),
        ("settings.shape", [28] * 9, "its `shape` can't be"),
        ("settings.dtype", "uint16", "format 'idx' holds"),
        ("settings.classes", [True, False], "its `classes` can't be"),
        ("settings.classes", {"0": 1}, "its `classes` can't be"),
        ("settings.model", "12", "its `model` can't be '12'"),
        ("settings.data", "Z" * 64, "its `data` can't be"),
        ("settings.n", 10**6, "it has 166667 shards, more than 10000"),
        ("settings.n", 60, "it must list 10 shards"),
        ("shards", None, "it must list 4 shards"),
        ("shards.2", {}, "its shard 2 must list images-00002-idx3-ubyte, labels-00002"),
        ("shards.2", {"../../etc/passwd": "0" * 64}, "its shard 2 must list images-00002"),
        ("shards.2", [1], "its shard 2 must list images-00002"),
        ("shards.1.images-00001-idx3-ubyte", "x", "its shard 1 must list SHA-256"),
    ],
)
def test_what_cant_be_is_refused(
    tmp_path: Path, made: dict[str, Any], path: str, value: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=rf"/{NAME}` .*{message}"):
        read_manifest(write(tmp_path, changed(made, path, value)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"it is not JSON"),
        (b"\x80\x04pickle", r"it is not JSON"),
        (b"[" * 100_000, r"it is nested too deeply"),
        (b'{"kind": NaN}', r"it is not JSON \(NaN is not a number\)"),
        (b"9" * 10_000, r"it is not JSON"),
        (b"3", r"it is of another kind"),
    ],
)
def test_what_is_no_json_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=rf"is not the manifest of a set of samples: {message}"):
        read_manifest(write(tmp_path, content))


def test_what_is_too_long_is_refused(tmp_path: Path) -> None:
    with (tmp_path / NAME).open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(ValueError, match=r"it has more than 67108864 bytes"):
        read_manifest(LocalStore(tmp_path))


def test_what_is_no_set_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match=r"holds no manifest\.json, so it is not a"):
            verify(place)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match=r"must be the folder of a set .* got a file\."):
        verify(tmp_path / "file")


def test_listings_can_name_no_other_files(tmp_path: Path) -> None:
    out = tmp_path / "set"
    generate(make_model(), make_data(), out, n=9, format="folder", progress=False)
    listing = out / "listing-00000.txt"
    lines = listing.read_text().splitlines(keepends=True)
    for bad in (
        "0" * 64 + "  ../../secret\n",
        lines[0].replace("0/", "../"),
        lines[1],
        "",
        "\xff\n",
    ):
        listing.write_text(bad + "".join(lines[1:]))
        store, manifest = LocalStore(out), read_manifest(LocalStore(out))
        with pytest.raises(ValueError, match=r"sample 0 has an invalid line"):
            manifest.format.digests(store, manifest.plan[0])
        assert verify(out).damaged == [0]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("settings.n", 19), ("settings.n", 21), ("settings.seed", 1), ("settings.strength", 0.5),
        ("shards.0", None), ("shards.0.images-00000-idx3-ubyte", "0" * 64),
    ],
)  # fmt: skip
def test_a_manifest_that_was_changed_is_found_out(
    tmp_path: Path, made: dict[str, Any], path: str, value: Any
) -> None:
    store = write(tmp_path, changed(made, path, value), seal=False)
    with pytest.raises(ValueError, match="do not match its SHA-256"):
        read_manifest(store)


# -- mutants


def mutate(rng: np.random.Generator, content: bytes) -> bytes:
    """Change, remove, repeat or insert some bytes."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, len(data) + 1))
        length = int(rng.integers(1, 40))
        what = rng.integers(0, 5)
        if what == 0 and at < len(data):
            data[at] = int(rng.integers(0, 256))
        elif what == 1:
            del data[at : at + length]
        elif what == 2:
            data[at:at] = data[at : at + length]
        elif what == 3:
            data[at : at + length] = TELLING[rng.integers(0, len(TELLING))]
        else:
            data = data[: max(at, 1)]
    return bytes(data)


@pytest.mark.parametrize("n", AMOUNTS)
def test_mutated_manifests(tmp_path: Path, made: dict[str, Any], n: int) -> None:
    def read(path: Path) -> None:
        read_manifest(LocalStore(path.parent))

    older = {name: value for name, value in made.items() if name != "sha256"}
    seeds = [json.dumps(older, indent=1).encode()]
    assert 0 < fuzz(tmp_path / NAME, read, seeds, n, expands=False, mutate_fn=mutate) < n


@pytest.mark.parametrize("n", AMOUNTS)
def test_mutated_models(tmp_path: Path, n: int) -> None:
    path = tmp_path / "model.dwm"
    make_model().save(path)
    seeds = [path.read_bytes()]
    # None need be read: a fingerprint in the file gives away changes of what matters.
    assert fuzz(path, WarpModel.load, seeds, n, expands=False, mutate_fn=mutate) < n
