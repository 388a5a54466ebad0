"""Output formats, by name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

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

__all__ = ["FORMATS", "ShardFormat", "Writing", "first_that_holds", "make_format"]


def make_format(name: str, form: Form) -> ShardFormat:
    """The format of a name, for samples of a form."""
    return FORMATS[check_choice("format", name, tuple(FORMATS))](form)


def first_that_holds(form: Form, names: Sequence[Any]) -> Any:
    """The first of some formats that can hold samples of a form; the last, if none can."""
    for name in names:
        with suppress(ValueError, TypeError):
            make_format(name, form)
            return name
    return names[-1]
