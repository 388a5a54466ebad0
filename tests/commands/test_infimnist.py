"""``dreamwarp infimnist``: its files, words and exit codes."""

from __future__ import annotations

import re
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from dreamwarp import cli, data
from dreamwarp.augment.rivals.infimnist import InfiMNIST
from dreamwarp.commands import infimnist as command
from dreamwarp.generation.stores import open_store

N_TRAIN, N_TEST = 60, 10


@pytest.fixture(autouse=True)
def small_mnist(monkeypatch: Any) -> data.DataSet:
    generator = np.random.default_rng(0)

    def part(n: int) -> data.Labeled:
        images = generator.integers(0, 256, (n, 28, 28)).astype(np.uint8)
        return data.Labeled(images, generator.integers(0, 10, n).astype(np.uint8))

    small = data.DataSet("mnist", *part(N_TRAIN), part(N_TEST))
    monkeypatch.setattr(data, "mnist", lambda: small)
    return small


def run(*arguments: str) -> Any:
    app = typer.Typer(rich_markup_mode="rich")
    app.command()(command.infimnist)
    return app(args=arguments, prog_name="dreamwarp infimnist", standalone_mode=False)


def expected(small: data.DataSet, first: int, n: int, **options: Any) -> tuple[Any, Any]:
    generator = InfiMNIST(small.X, small.y, test=small.test, **options)
    indices = np.arange(first, first + n)
    return generator.image(indices), generator.label(indices)


def test_files_are_read_back_by_torchvision(
    capsys: Any, tmp_path: Path, small_mnist: data.DataSet
) -> None:
    mnist = pytest.importorskip("torchvision.datasets.mnist")
    folder = tmp_path / "new" / "set"
    run("-n", "100", "-o", str(folder))
    images, labels = expected(small_mnist, 70_000, 100)
    np.testing.assert_array_equal(mnist.read_image_file(str(folder / command.IMAGES)), images)
    np.testing.assert_array_equal(mnist.read_label_file(str(folder / command.LABELS)), labels)
    assert {path.name for path in folder.iterdir()} == {command.IMAGES, command.LABELS}
    words = capsys.readouterr()
    assert re.search(r"images 70,000 to 70,099: fields of width .* pixels, seed 0", words.out)
    assert re.search(r"100 images and labels in .*: [\d,]+ images per second", words.out)
    assert words.err == ""


def test_options_reach_the_generator_and_blocks_leave_no_trace(
    monkeypatch: Any, tmp_path: Path, small_mnist: data.DataSet
) -> None:
    monkeypatch.setattr(command, "BLOCK", 7)
    options = ["--first", "5", "--width", "6", "--amplitude", "0.5", "--seed", "3"]
    run("-n", "100", "-o", str(tmp_path), *options)
    images, labels = expected(small_mnist, 5, 100, width=6.0, amplitude=0.5, seed=3)
    read = data.load(tmp_path)
    np.testing.assert_array_equal(read.X, images)
    np.testing.assert_array_equal(read.y, labels)


def test_interruption_leaves_nothing(monkeypatch: Any, tmp_path: Path) -> None:
    def interrupted(self: InfiMNIST, indices: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(InfiMNIST, "label", interrupted)
    assert run("-n", "100", "-o", str(tmp_path)) == cli.INTERRUPTED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [command.IMAGES, command.LABELS])
def test_files_that_exist_are_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(FileExistsError, match=rf"{name}` exists already\. Use `--o"):
        run("-n", "100", "-o", str(tmp_path))
    assert (tmp_path / name).read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 1
    run("-n", "100", "-o", str(tmp_path), "--overwrite")
    assert data.load(tmp_path).X.shape == (100, 28, 28)


def test_a_disk_without_room_is_refused_at_once(monkeypatch: Any, tmp_path: Path) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(
        "dreamwarp.generation.stores.shutil.disk_usage", lambda path: usage(10, 10, 78_000)
    )
    with pytest.raises(OSError, match=r"must have room for 100 images, 78\.5 kB, got 78\.0 kB"):
        run("-n", "100", "-o", str(tmp_path / "new"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0"], r"Invalid value for '--number' / '-n'"),
        (["-n", "-3"], r"Invalid value for '--number' / '-n'"),
        (["-n", "5000000000"], r"Invalid value for '--number' / '-n'"),
        (["-n", "many"], r"Invalid value for '--number' / '-n'"),
        (["-n", "5", "--first", "-1"], r"Invalid value for '--first'"),
        (["-n", "5", "--seed", "-1"], r"Invalid value for '--seed'"),
        ([], r"Missing option"),
    ],
)
def test_wrong_use_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(typer.TyperException) as error:
        run(*arguments, "-o", str(tmp_path))
    assert re.search(message, error.value.format_message())
    assert error.value.exit_code == 2


def test_a_bad_strength_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`width` must be above 0 and at most 28 pixels"):
        run("-n", "5", "-o", str(tmp_path), "--width", "-1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("s3://bucket/set", r"`s3://bucket/set` must be a path on this machine, got an address"),
        ("", r"it must not be empty"),
    ],
)
def test_what_is_no_folder_is_refused(
    monkeypatch: Any, tmp_path: Path, output: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, typer.BadParameter), match=message):
        run("-n", "5", "-o", output)
    assert list(tmp_path.iterdir()) == []


def test_what_killed_runs_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (command.IMAGES, command.LABELS):
        (tmp_path / f".{name}-9d18714b").touch()
    kept = {f".{command.IMAGES}-copy", "notes.txt"}
    for name in kept:
        (tmp_path / name).touch()
    run("-n", "5", "-o", str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == kept | {command.IMAGES, command.LABELS}


def test_two_runs_keep_out_of_each_others_way(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    (tmp_path / f".{command.IMAGES}-9d18714b").touch()
    with (
        open_store(tmp_path).claim(),
        pytest.raises(BlockingIOError, match=r"is being written by another process\. Wait"),
    ):
        run("-n", "5", "-o", str(tmp_path))
    assert (tmp_path / f".{command.IMAGES}-9d18714b").exists()
