"""Output formats, by name."""

from __future__ import annotations

from dreamwarp.augment.source import SampleForm
from dreamwarp.core.validation import check_choice
from dreamwarp.generation.formats.base import ShardFormat
from dreamwarp.generation.formats.folder import FolderFormat, NiftiFormat
from dreamwarp.generation.formats.idx import IdxFormat
from dreamwarp.generation.formats.npz import NpzFormat
from dreamwarp.generation.formats.parquet import ParquetFormat
from dreamwarp.generation.formats.webdataset import WebDatasetFormat

CLASSES = (IdxFormat, NpzFormat, ParquetFormat, WebDatasetFormat, FolderFormat, NiftiFormat)
FORMATS: dict[str, type[ShardFormat]] = {each.name: each for each in CLASSES}

__all__ = ["FORMATS", "ShardFormat", "make_format"]


def make_format(name: str, form: SampleForm) -> ShardFormat:
    """The format with a name; ValueError, naming alternatives, if it can't hold the samples."""
    chosen = FORMATS[check_choice("format", name, tuple(FORMATS))]
    fault = chosen.find_fault(form)
    if fault is not None:
        *most, last = (repr(other.name) for other in FORMATS.values() if not other.find_fault(form))
        others = f"{', '.join(most)} or {last}" if most else last
        raise ValueError(f"format {name!r} {fault}. Use format {others}.")
    return chosen(form)
