"""Parquet tables: a column of samples, as numbers or as encoded images, and one of labels."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dreamwarp.core.listing import import_extra
from dreamwarp.data.dataset import Labeled, as_words, choose_field, read_files
from dreamwarp.data.guards import BOMB_BYTES, reading_as, refuse_bomb
from dreamwarp.data.images import decode_all

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

# Names of columns of samples and labels that are tried.
SAMPLE_NAMES = ("X", "x", "image", "images", "img", "sample", "samples", "data")
LABEL_NAMES = ("y", "label", "labels", "class", "target")
# Bytes per value of the format's types of fixed size.
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Largest number of strings or encoded images read at a time.
MAX_ROWS = 2**12
REWRITE = "write it again without compression and dictionaries"


def _read_table(
    file: Path,
    *,
    fields: tuple[str, str] | None = None,
    resize: tuple[int, int] | None = None,
) -> Labeled:
    """Samples and labels of a table, from the columns in ``fields`` or those with usual names.

    Samples are tensors of fixed shape, lists of equal length (lists of lists are images), encoded
    images (PNG, JPEG, TIFF, WebP), or records whose field ``bytes`` holds an encoded image.
    """
    pa = import_extra("pyarrow", "parquet", "a Parquet file")
    from pyarrow.parquet import ParquetFile

    with (
        reading_as("a Parquet file", file, (pa.ArrowException, OSError)),
        ParquetFile(file) as table,
    ):
        names = table.schema_arrow.names
        X_name, y_name = fields or (
            choose_field(file, names, SAMPLE_NAMES, "samples"),
            choose_field(file, names, LABEL_NAMES, "labels"),
        )
        for name in (X_name, y_name):
            if name not in names:
                raise ValueError(f"`{file}` has no column {name!r}. It has: {', '.join(names)}.")
        samples = _read_column(file, table, X_name).combine_chunks()
        X = _as_samples(f"{file}[{X_name}]", samples, resize)
        y = _refuse_nulls(f"{file}[{y_name}]", _read_column(file, table, y_name)).to_numpy()
    if y.dtype == object:
        y = as_words(file, [v.decode() if isinstance(v, bytes) else str(v) for v in y])
    return Labeled(X, y)


# Reads a Parquet file, or all Parquet files of a folder in order, with options of `_read_table`.
read_parquet = partial(read_files, suffix=".parquet", read_fn=_read_table)


def _read_column(file: Path, table: ParquetFile, name: str) -> Any:
    """A column of a table; raise if it looks like a decompression bomb.

    The declared size counts encoded values, and a repeated value is stored once. So for numbers the
    size in memory is computed from their count. The sizes of strings and encoded images are known
    only after reading.
    """
    import pyarrow as pa

    groups = [table.metadata.row_group(k) for k in range(table.metadata.num_row_groups)]
    chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
    # Those of the column and of its nested columns.
    chunks = [c for c in chunks if f"{c.path_in_schema}.".startswith(f"{name}.")]
    packed = file.stat().st_size
    unpacked = sum(c.num_values * WIDTHS.get(c.physical_type, 0) for c in chunks)
    refuse_bomb(file, packed=packed, unpacked=unpacked, remedy=REWRITE)
    if all(chunk.physical_type in WIDTHS for chunk in chunks):
        return table.read(columns=[name])[name]
    # Every batch stays below BOMB_BYTES, even if all values had the longest length.
    longest = max(chunk.total_uncompressed_size for chunk in chunks)
    arrays, unpacked = [], 0
    n_rows = min(MAX_ROWS, max(1, BOMB_BYTES // max(1, longest)))
    for batch in table.iter_batches(n_rows, columns=[name]):
        unpacked += batch.nbytes
        refuse_bomb(file, packed=packed, unpacked=unpacked, remedy=REWRITE)
        arrays.append(batch.column(0))
    return pa.chunked_array(arrays, table.schema_arrow.field(name).type)


def _refuse_nulls(what: str, column: Any) -> Any:
    if column.null_count:
        raise ValueError(f"`{what}` has {column.null_count} empty entries. Fill or remove them.")
    return column


def _as_samples(what: str, column: Any, resize: tuple[int, int] | None) -> NDArray[Any]:
    """Encoded images, tensors, or lists or lists of lists of equal length, as an array."""
    import pyarrow as pa
    import pyarrow.compute as compute

    kind = _refuse_nulls(what, column).type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        column = _refuse_nulls(what, column.field("bytes"))
        kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        names = [f"{what}, row {k}" for k in range(len(column))]
        return decode_all(column.to_pylist(), names, resize=resize)
    if resize is not None:
        raise ValueError(f"`--resize` (`resize`) is for encoded images, got {kind} in `{what}`.")
    if isinstance(column, pa.FixedShapeTensorArray):
        return column.to_numpy_ndarray()
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
            f"`{what}` must hold tensors, lists of numbers or encoded images, got {column.type}."
        )
    return values.to_numpy().reshape(shape)
