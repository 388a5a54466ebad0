"""Parquet tables: a column of samples, as numbers or as encoded pictures, and one of labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dreamwarp.data.dataset import DataSet, Part, join_parts
from dreamwarp.data.guards import BOMB_BYTES, BOMB_RATIO, check_file
from dreamwarp.data.images import decode_all
from dreamwarp.progress import Meter

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

# Names that samples and labels go by.
SAMPLE_NAMES = ("X", "x", "image", "images", "img", "sample", "samples", "data")
LABEL_NAMES = ("y", "label", "labels", "class", "target")


def read_parquet(
    path: str | os.PathLike[str],
    *,
    fields: tuple[str, str] | None = None,
    resize: tuple[int, int] | None = None,
) -> DataSet:
    """Samples and labels of a Parquet file, or of all Parquet files of a folder in order.

    Parameters
    ----------
    path : path
    fields : (str, str)
        Names of the columns of samples and labels. Without it, the usual names are tried.
    resize : (rows, columns)
        Bring pictures to this size, for a column of encoded pictures.

    Returns
    -------
    DataSet
        Columns of numbers: tensors of fixed shape, or lists that are as long in each row; lists
        of lists are images. Columns of pictures: bytes of PNG or JPEG, or records with a field
        ``bytes`` that holds them.
    """
    given = Path(path)
    files = sorted(given.glob("*.parquet")) if given.is_dir() else [check_file(given)]
    if not files:
        raise FileNotFoundError(f"`{given}` must hold Parquet files, and holds none.")
    with Meter("reading tables", len(files)) as meter:
        parts = []
        for file in files:
            parts.append(_read_file(file, fields, resize))
            meter.advance(1)
    return DataSet(str(given), *join_parts(str(given), parts))


def _read_file(file: Path, fields: tuple[str, str] | None, resize: tuple[int, int] | None) -> Part:
    with _open_table(file) as table:
        names = table.schema_arrow.names
        X_name, y_name = fields or (
            _choose(file, names, SAMPLE_NAMES, "samples"),
            _choose(file, names, LABEL_NAMES, "labels"),
        )
        for name in (X_name, y_name):
            if name not in names:
                raise ValueError(f"`{file}` has no column {name!r}. It has: {', '.join(names)}.")
        _check_table_size(file, table)
        columns = table.read(columns=[X_name, y_name])
        X = _as_samples(f"{file}[{X_name}]", columns[X_name].combine_chunks(), resize)
        y = _refuse_nulls(f"{file}[{y_name}]", columns[y_name]).to_numpy()
    return Part(X, y.astype(str) if y.dtype == object else y)


@contextmanager
def _open_table(file: Path) -> Iterator[ParquetFile]:
    """A table; whatever is wrong with the file is a ValueError that names it."""
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ImportError(
            "Parquet files are read with pyarrow, which is not installed. Use `pip install "
            "pyarrow`."
        ) from None
    try:
        with ParquetFile(file) as table:
            yield table
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's fault, not the table's
        raise ValueError(
            f"`{file}` is not a sound Parquet file: {error}. Make or fetch it again."
        ) from error


def _choose(file: Path, names: list[str], usual: tuple[str, ...], what: str) -> str:
    found = [name for name in usual if name in names]
    if not found:
        raise ValueError(
            f"`{file}` has no column of {what} under a known name ({', '.join(usual)}). It has: "
            f"{', '.join(names)}. Name the columns of samples and labels with `fields`."
        )
    return found[0]


def _check_table_size(file: Path, table: ParquetFile) -> None:
    """Refuse tables that would grow like a bomb; runs of one value may well pack a lot."""
    metadata = table.metadata
    groups = (metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups))
    unpacked, packed = sum(groups), file.stat().st_size
    if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * packed:
        raise ValueError(
            f"`{file}` would grow from {packed:,} to {unpacked:,} bytes, as a decompression bomb "
            "does. If it is meant so, write it again without compression."
        )


def _refuse_nulls(what: str, column: Any) -> Any:
    if column.null_count:
        raise ValueError(f"`{what}` has {column.null_count} empty entries. Fill or remove them.")
    return column


def _as_samples(what: str, column: Any, resize: tuple[int, int] | None) -> NDArray[Any]:
    import pyarrow as pa

    kind = _refuse_nulls(what, column).type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        column = _refuse_nulls(what, column.field("bytes"))
        kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        names = [f"{what}, row {k}" for k in range(len(column))]
        return decode_all(column.to_pylist(), names, resize=resize)
    if resize is not None:
        raise ValueError(f"`resize` is for encoded pictures, and `{what}` holds {kind}.")
    if isinstance(column, pa.FixedShapeTensorArray):
        return column.to_numpy_ndarray()
    return _unnest(what, column)


def _unnest(what: str, column: Any) -> NDArray[Any]:
    """Lists, or lists of lists, as an array, if they are equally long throughout."""
    import pyarrow as pa
    import pyarrow.compute as compute

    shape, values = [len(column)], column
    while isinstance(values, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        lengths = compute.min_max(compute.list_value_length(values)).as_py()
        if lengths["min"] != lengths["max"]:
            raise ValueError(
                f"`{what}` must have lists of one length in all rows, got {lengths['min']} to "
                f"{lengths['max']} values."
            )
        shape.append(lengths["min"])
        values = _refuse_nulls(what, values.flatten())
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if len(shape) == 1 or not is_number:
        raise ValueError(
            f"`{what}` must hold tensors, lists of numbers or encoded pictures, got {column.type}."
        )
    return values.to_numpy().reshape(shape)
