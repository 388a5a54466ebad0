"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def write_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name beside ``path``, and rename that file to ``path`` after the block.

    If the block fails or is interrupted, the temporary file goes and whatever stood at ``path``
    stays. Missing folders are made. The temporary name keeps the suffix, which tells writers the
    format.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"`{target}` is a folder. Give the name of a file.")
    make_folder(target.parent)
    temporary = target.with_name(f".{target.stem}-{secrets.token_hex(4)}{target.suffix}")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder, and those it is in; no complaint if it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(
            f"`{folder}` can't be a folder: a file stands in its way. Choose another."
        ) from None
