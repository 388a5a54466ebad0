"""Time series as the UCR and UEA archives have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dreamwarp.data import load
from dreamwarp.data.series import read_series

HEAD = (
    "# a comment\n@problemName Waves\n@timeStamps false\n@univariate true\n@classLabel true a b\n"
)


def ts(folder: Path, body: str, *, head: str = HEAD, name: str = "Waves.ts") -> Path:
    path = folder / name
    path.write_text(f"{head}@data\n{body}")
    return path


def tsv(folder: Path, body: str, *, name: str = "Waves.tsv") -> Path:
    path = folder / name
    path.write_text(body)
    return path


def test_a_series_of_one_channel(tmp_path: Path) -> None:
    data = read_series(ts(tmp_path, "1,2.5,-3e1:a\n\n4,5,6:b\n"))
    np.testing.assert_array_equal(data.X, [[1, 2.5, -30], [4, 5, 6]])
    assert data.X.dtype == np.float64 and data.y.tolist() == ["a", "b"]


def test_a_series_of_several_channels(tmp_path: Path) -> None:
    data = read_series(ts(tmp_path, "1,2:3,4:5,6:up down\n7,8:9,10:11,12:b\n"))
    assert data.X.shape == (2, 3, 2)
    np.testing.assert_array_equal(data.X[1], [[7, 8], [9, 10], [11, 12]])
    assert data.y.tolist() == ["up down", "b"]


def test_columns_apart_by_tabs(tmp_path: Path) -> None:
    data = read_series(tsv(tmp_path, "1\t0.5\t1.5\n-1\t2\t3\r\n\n"))
    np.testing.assert_array_equal(data.X, [[0.5, 1.5], [2, 3]])
    assert data.y.tolist() == [1, -1]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [("1 2", [1, 2]), ("0 -7", [0, -7]), ("01 2", ["01", "2"]), ("1.5 2", ["1.5", "2"])],
)
def test_labels_are_integers_if_all_are(tmp_path: Path, labels: str, expected: list) -> None:
    first, second = labels.split()
    assert read_series(ts(tmp_path, f"1,2:{first}\n3,4:{second}")).y.tolist() == expected


def test_a_folder_has_a_train_and_a_test_file(tmp_path: Path) -> None:
    ts(tmp_path, "1,2:a\n3,4:b\n", name="Waves_TRAIN.ts")
    assert read_series(tmp_path).test is None
    ts(tmp_path, "5,6:b\n", name="Waves_TEST.ts")
    data = read_series(tmp_path)
    np.testing.assert_array_equal(data.X_test, [[5, 6]])
    assert data.y_test.tolist() == ["b"]


def test_the_file_named_as_its_folder_counts(tmp_path: Path) -> None:
    folder = tmp_path / "Waves"
    folder.mkdir()
    ts(folder, "1,2:a\n", name="Waves_TRAIN.ts")
    ts(folder, "1,2,3:a\n", name="Waves_eq_TRAIN.ts")
    assert read_series(folder).X.shape == (1, 2)


UNEVEN = "1,2,3:a\n4,5:b\n"


@pytest.mark.parametrize(("pad", "last"), [("edge", 5.0), ("zero", 0.0)])
def test_padding_on_request(tmp_path: Path, pad: str, last: float) -> None:
    for path in (ts(tmp_path, UNEVEN), tsv(tmp_path, "0\t1\t2\t3\n1\t4\t5\tNaN\n")):
        data = read_series(path, pad=pad)
        np.testing.assert_array_equal(data.X, [[1, 2, 3], [4, 5, last]])


def test_series_of_other_lengths_are_refused_by_name(tmp_path: Path) -> None:
    message = r"Waves\.ts`, line 8 has 2 values, but the first series has 3\. Use `--pad edge`"
    with pytest.raises(ValueError, match=message):
        read_series(ts(tmp_path, UNEVEN))
    with pytest.raises(ValueError, match=r"`pad` must be .*'zero', 'stretch', got 'wrap'"):
        read_series(ts(tmp_path, UNEVEN), pad="wrap")
    with pytest.raises(ValueError, match=r"line 8 has 2 channels, but the first series has 1"):
        read_series(ts(tmp_path, "1,2:a\n1,2:3,4:b"), pad="zero")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1,?,3:a", r"line 7 has no finite value at position 2\. Fill missing values in"),
        ("1,NaN,3:a", r"line 7 has no finite value at position 2"),
        ("1,2,inf:a", r"line 7 has no finite value at position 3"),
        ("1,two,3:a", r"line 7 must hold numbers: .* 'two'"),
        ("1,,3:a", r"line 7 must hold numbers: .* ''"),
        ("1,2,3", r"line 7 must hold channels and a label, split by colons, got '1,2,3'"),
        ("1,2,3: ", r"line 7 must hold channels and a label"),
        ("", r"`.*Waves\.ts` must hold series, got none"),
    ],
)
def test_lines_that_cant_be_read_are_refused(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_series(ts(tmp_path, body))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("@timeStamps true\n", r"line 1 declares time stamps, which are not supported"),
        ("@targetLabel true\n", r"line 1 declares no classes"),
        ("@classLabel false\n", r"line 1 declares no classes"),
        ("words\n", r"line 1 must begin with @ before @data, got 'words'"),
    ],
)
def test_files_of_other_sorts_are_refused(tmp_path: Path, head: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_series(ts(tmp_path, "1,2:a", head=head))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1\t2\tNaN\t3", r"line 1 has no finite value at position 2"),
        ("1\tNaN\tNaN", r"line 1 must hold a label and values, split by tabs, got '1"),
        ("1 2 3", r"line 1 must hold a label and values"),
        ("", r"must hold series, got none"),
    ],
)
def test_tabs_that_cant_be_read_are_refused(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_series(tsv(tmp_path, body))


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "Waves.ts"
    path.write_bytes(b"@problemName \xff\xfe\n")
    with pytest.raises(ValueError, match=r"Waves\.ts` is not text: 'utf-8' codec"):
        read_series(path)
    path.write_text("@problemName Waves\n")
    with pytest.raises(ValueError, match=r"has no @data line: it is truncated, or not a \.ts file"):
        read_series(path)


def test_folders_of_none_or_several_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must hold a file NAME_TRAIN\.ts, NAME_TRAIN\.tsv or"):
        read_series(tmp_path)
    for name in ("A_TRAIN.ts", "B_TRAIN.ts"):
        ts(tmp_path, "1,2:a", name=name)
    with pytest.raises(ValueError, match=r"must hold one data set, got A_TRAIN\.ts, B_TRAIN"):
        read_series(tmp_path)


def test_series_are_stretched_to_one_length(tmp_path: Path) -> None:
    X = read_series(ts(tmp_path, "0,1,2,3,4:a\n0,2,4:b\n"), pad="stretch").X
    np.testing.assert_allclose(X[1], [0, 1, 2, 3, 4])


def test_missing_values_are_filled_in_on_request(tmp_path: Path) -> None:
    path = ts(tmp_path, "1,?,3,NaN:a\n?,2,2,5:b\n")
    np.testing.assert_array_equal(
        read_series(path, missing="interpolate").X, [[1, 2, 3, 3], [2, 2, 2, 5]]
    )
    with pytest.raises(ValueError, match=r"line 7 has no finite value at position 2.*--missing"):
        read_series(path)
    with pytest.raises(ValueError, match=r"`missing` must be one of 'interpolate'"):
        read_series(path, missing="drop")
    for body in ("?,?,?:a\n", "1,inf,2:a\n"):
        with pytest.raises(ValueError, match="Leave the series out"):
            read_series(ts(tmp_path, body), missing="interpolate")


def test_columns_apart_by_blanks(tmp_path: Path) -> None:
    (tmp_path / "Waves_TRAIN.txt").write_text("  1.0000e+00  5.0e-01 2\n  2.0000e+00  3 4\n")
    data = read_series(tmp_path)
    np.testing.assert_array_equal(data.X, [[0.5, 2], [3, 4]])
    assert data.y.tolist() == [1, 2] and data.n_axes == 1
    np.testing.assert_array_equal(load(tmp_path / "Waves_TRAIN.txt").X, data.X)


def test_series_of_one_value_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="series of at least 2 values, got 1"):
        read_series(ts(tmp_path, "1:a\n2:b\n"))
