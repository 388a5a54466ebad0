"""Output formats, by name."""

from __future__ import annotations

from dreamwarp.augment.formats.base import ShardFormat, Writing
from dreamwarp.augment.formats.folder import FolderFormat
from dreamwarp.augment.formats.idx import IdxFormat
from dreamwarp.augment.formats.npz import NpzFormat
from dreamwarp.augment.formats.parquet import ParquetFormat
from dreamwarp.augment.formats.webdataset import WebDatasetFormat
from dreamwarp.augment.source import Form
from dreamwarp.validation import check_choice

FORMATS: dict[str, type[ShardFormat]] = {
    kind.name: kind
    for kind in (IdxFormat, NpzFormat, ParquetFormat, WebDatasetFormat, FolderFormat)
}

__all__ = ["FORMATS", "ShardFormat", "Writing", "make_format"]


def make_format(name: str, form: Form) -> ShardFormat:
    """The format of a name, for samples of a form.

    ValueError if it can't hold such samples, with formats that can.
    """
    kind = FORMATS[check_choice("format", name, tuple(FORMATS))]
    fault = kind.find_fault(form)
    if fault is not None:
        *most, last = (repr(other.name) for other in FORMATS.values() if not other.find_fault(form))
        others = f"{', '.join(most)} or {last}" if most else last
        raise ValueError(f"format {name!r} {fault}. Use format {others}.")
    return kind(form)
