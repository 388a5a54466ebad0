"""What `generate` writes, `load` reads back: every format, type of values and kind of labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp import cli
from dreamwarp.augment import SampleSource
from dreamwarp.augment.source import SampleForm
from dreamwarp.data import DataSet, load, read_volume, write_volume
from dreamwarp.data.sample_sets import MANIFEST
from dreamwarp.generation import generate
from dreamwarp.generation.formats import FORMATS, make_format
from tests.generation.cases import IMAGE_FORMATS, SHAPE, make_model

N, FIRST, SHARD = 25, 4, 10
WORDS, NUMBERS, DIGITS = ("cat", "a dog", "œil"), (-7, 0, 300), ("0", "01", "2")
DTYPES = ("uint8", "uint16", "float32", "float64", "bool")
# What each format holds, of pictures: types of values, and kinds of labels.
HELD: dict[str, tuple[set[str], set[str]]] = {
    "idx": ({"uint8", "float32", "float64"}, {"numbers"}),
    "npz": (set(DTYPES), {"words", "numbers", "digits"}),
    "parquet": (set(DTYPES) - {"bool"}, {"words", "numbers", "digits"}),
    "webdataset": (set(DTYPES), {"words", "numbers", "digits"}),
    "folder": ({"uint8", "uint16"}, {"words", "numbers", "digits"}),
    "nifti": (set(), set()),
}
LABELS = {"words": WORDS, "numbers": NUMBERS, "digits": DIGITS}


def make_data(
    dtype: str = "uint8", shape: tuple[int, ...] = SHAPE, classes: tuple[Any, ...] = NUMBERS
) -> DataSet:
    """Values over all of a type's range."""
    random, n = np.random.default_rng(1), 40
    values = random.random((n, *shape))
    kind = np.dtype(dtype).kind
    X = values < 0.5 if kind == "b" else values * np.iinfo(dtype).max if kind in "iu" else values
    return DataSet("small", X.astype(dtype), np.array(classes)[np.arange(n) % len(classes)])


def write(out: Path, name: Any, data: DataSet, cells: tuple[int, ...] = (2, 2)) -> Any:
    """Write a set of three shards; the samples and labels that should be in it."""
    model = make_model(tuple(data.classes.tolist()), cells)
    generate(model, data, out, n=N, first=FIRST, format=name, shard_size=SHARD, progress=False)
    return SampleSource(model, data).make(FIRST, N)


def assert_read(out: Path, X: Any, y: Any) -> None:
    """All of a set, in its order, values and labels as they were."""
    for source in (out, str(out)):
        data = load(source)
        assert data.X.dtype == X.dtype and data.X.shape == X.shape and data.test is None
        np.testing.assert_array_equal(data.X, X)
        assert data.y.tolist() == y.tolist()


def assert_refused(out: Path, write_fn: Callable[[], Any], data: DataSet) -> None:
    """Refused before anything is written, with a format that does hold the data."""
    with pytest.raises(ValueError, match=r"Use format '") as refusal:
        write_fn()
    assert not out.exists()
    form = SampleForm(data.X.shape[1:], data.X.dtype, data.classes)
    advised = {name for name in FORMATS if f"'{name}'" in str(refusal.value).split("Use ")[1]}
    assert advised and advised == {n for n, kind in FORMATS.items() if not kind.find_fault(form)}


@pytest.mark.parametrize("labels", list(LABELS))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(FORMATS))
def test_a_set_is_read_back_or_refused_before_anything_is_written(
    tmp_path: Path, name: str, dtype: str, labels: str
) -> None:
    out, data = tmp_path / "out", make_data(dtype, classes=LABELS[labels])
    dtypes, kinds = HELD[name]
    if dtype in dtypes and labels in kinds:
        assert_read(out, *write(out, name, data))
    else:
        assert_refused(out, lambda: write(out, name, data), data)


@pytest.mark.parametrize(
    ("cells", "shape", "dtype"),
    [
        ((4,), (30,), "float64"),
        ((4,), (30,), "uint8"),
        ((4,), (2, 30), "float32"),
        ((4,), (2, 30), "uint8"),
        ((2, 2), (1, *SHAPE), "uint8"),
        ((2, 2), (1, *SHAPE), "uint16"),
        ((2, 2), (3, *SHAPE), "uint8"),
        ((2, 2), (3, *SHAPE), "uint16"),
        ((2, 2), (2, *SHAPE), "float32"),
        ((2, 2, 2), (5, 6, 7), "int16"),
        ((2, 2, 2), (3, 6, 7), "uint8"),
        ((2, 2, 2), (17, 18, 4), "float32"),  # not 17 rows of 18 pixels in colour
        ((2, 2, 2), (2, 5, 6, 7), "uint8"),
        ((2, 2), SHAPE, "float16"),
        ((2, 2), SHAPE, "int64"),
        ((2, 2), (1, 1), "uint8"),
    ],
)
@pytest.mark.parametrize("name", list(FORMATS))
def test_samples_of_all_shapes_are_read_back_or_refused(
    tmp_path: Path, name: str, cells: tuple[int, ...], shape: tuple[int, ...], dtype: str
) -> None:
    out, data = tmp_path / "out", make_data(dtype, shape)
    try:
        expected = write(out, name, data, cells)
    except ValueError:
        assert_refused(out, lambda: write(out, name, data, cells), data)
        assert name in ("folder", "nifti") or dtype in ("float16", "int64", "uint16")
    else:
        assert_read(out, *expected)


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_without_its_manifest_a_set_is_plain_files(tmp_path: Path, name: str) -> None:
    X, y = write(tmp_path, name, make_data())
    (tmp_path / MANIFEST).unlink()
    data = load(tmp_path)
    order = np.lexsort([y.astype(str)]) if name == "folder" else np.arange(N)
    np.testing.assert_array_equal(data.X, X[order])
    assert data.y.astype(int).tolist() == y[order].tolist()


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_options_of_a_format_are_those_of_its_sets(tmp_path: Path, name: str) -> None:
    X, _ = write(tmp_path, name, make_data(shape=(1, *SHAPE)))
    if name in ("webdataset", "folder"):
        assert load(tmp_path, resize=(4, 5)).X.shape == (N, 1, 4, 5)
    if name in ("npz", "parquet", "webdataset"):
        np.testing.assert_array_equal(load(tmp_path, shape=(11, 9)).X, X.reshape(N, 11, 9))
    if name == "npz":
        np.testing.assert_array_equal(load(tmp_path, fields=("X", "y")).X, X)
    with pytest.raises(ValueError, match=r"`--pad` \(`pad`\) is for time series; .* is read as"):
        load(tmp_path, pad="edge")


# -- what is refused


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_a_set_that_lacks_files_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, make_data())
    lost = {"idx": "*-00001-*", "folder": "*/000000000011.png"}.get(name, "shard-00001.*")
    for file in tmp_path.glob(lost):
        file.unlink()
    with pytest.raises(ValueError, match=r"must hold 25 samples of uint8, .*`dreamwarp verify`"):
        load(tmp_path)


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_a_set_that_is_not_complete_is_refused(tmp_path: Path, name: Any) -> None:
    def stop(done: int, total: int) -> None:
        if done >= SHARD:
            raise KeyboardInterrupt

    model, data = make_model(NUMBERS), make_data()
    with pytest.raises(KeyboardInterrupt):
        generate(model, data, tmp_path, n=N, format=name, shard_size=5, progress=stop, n_threads=1)
    with pytest.raises(ValueError, match=r"is not complete: 1 of 5 shards .*sample --resume`"):
        load(tmp_path)
    generate(model, data, tmp_path, n=N, format=name, shard_size=5, progress=False, resume=True)
    assert_read(tmp_path, *SampleSource(model, data).make(0, N))


def test_labels_that_are_no_text_are_refused_where_files_hold_text(tmp_path: Path) -> None:
    data = make_data("float32", classes=("fine", "half \ud83d"))
    for name in ("parquet", "webdataset"):
        out = tmp_path / name
        assert_refused(out, lambda name=name, out=out: write(out, name, data), data)  # type: ignore[misc]
    assert_read(tmp_path / "npz", *write(tmp_path / "npz", "npz", data))


def test_pictures_that_are_too_large_to_be_read_are_not_written() -> None:
    form = SampleForm((2**13, 2**13 + 1), np.dtype("uint8"), np.array([0, 1]))
    with pytest.raises(ValueError, match=r"holds PNG images, .*Use format 'idx', 'npz', 'parq"):
        make_format("folder", form)
    assert make_format("webdataset", form)._suffixes == ("npy", "cls")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [((17, 18, 3), "uint8", r"channels before its spatial axes"), (SHAPE, "longdouble", "64 bits")],
)
def test_samples_that_cant_be_warped_are_refused_before_anything_is_written(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        write(tmp_path / "out", "npz", make_data(dtype, shape))
    assert not (tmp_path / "out").exists()


# -- through the command line


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    return exit_.value.code or 0


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_commands_read_what_commands_write(tmp_path: Path, capsys: Any, name: str) -> None:
    dtype = "uint8" if name == "folder" else "float32"
    data, out = make_data(dtype), str(tmp_path / "out")
    np.savez(tmp_path / "small.npz", X=data.X, y=data.y)
    make_model(NUMBERS).save(tmp_path / "a.dwm")
    given = (str(tmp_path / "a.dwm"), str(tmp_path / "small.npz"))
    assert run("sample", *given, "-n", "9", "--shard-size", "4", "--format", name, "-o", out) == 0
    capsys.readouterr()
    assert run("data", out) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{out}: 9 samples of 9 x 11 {dtype}, 3 classes",
        "class   samples",
        "   -7         3",
        "    0         3",
        "  300         3",
    ]


def test_volumes_come_back_as_nifti_with_their_affine(tmp_path: Path, capsys: Any) -> None:
    affine = np.diag([1.0, 1.5, 3.0, 1.0])
    affine[:3, 3] = -10.0, 4.0, 2.0
    rng = np.random.default_rng(0)
    for k in range(6):
        write_volume(
            tmp_path / "in" / "ab"[k % 2] / f"{k}.nii.gz", rng.random((5, 6, 7), np.float32), affine
        )
    make_model(("a", "b"), (2, 2, 2)).save(tmp_path / "m.dwm")
    out = tmp_path / "out"
    source, model = str(tmp_path / "in"), str(tmp_path / "m.dwm")
    assert run("sample", model, source, "-n", "5", "-o", str(out)) == 0
    assert "as nifti" in capsys.readouterr().out
    volume, grid = read_volume(out / "b" / f"{1:012d}.nii.gz")
    assert volume.shape == (5, 6, 7) and volume.dtype == np.float32
    np.testing.assert_allclose(grid.affine, affine)
    assert load(out).y.tolist() == ["a", "b", "a", "b", "a"]
    assert run("verify", str(out)) == 0
