"""Folders that hold one folder of files per class, possibly in a train and a test part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEST_NAMES = ("test", "val", "validation")


def list_classes(
    root: Path,
    suffixes: tuple[str, ...],
    what: str,
    *,
    refused: tuple[str, ...] = (),
    numbered: bool = False,
) -> tuple[list[Path], NDArray[Any], int]:
    """Files sorted by name, their classes, and how many are training files; those are first.

    If ``root`` holds ``train`` and ``test`` (or ``val``), each with a folder per class, the second
    is the test part. Suffixes in ``refused`` raise an error; others than ``suffixes`` are ignored.
    If ``numbered``, files are sorted by number over all classes, and every folder is a class, even
    ``train`` and ``test``.
    """

    def list_files(folder: Path) -> list[Path]:
        files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
        for file in files:
            if has_suffix(file, refused):
                raise ValueError(
                    f"`{file}` is not supported: {what} must end in "
                    f"{' or '.join(suffixes)}. Convert or remove it."
                )
        return [file for file in files if has_suffix(file, suffixes)]

    def list_part(part: Path) -> list[Path]:
        folders = sorted(p for p in part.iterdir() if p.is_dir() and not p.name.startswith("."))
        listed = [file for folder in folders for file in list_files(folder)]
        if not listed:
            raise ValueError(
                f"`{part}` must hold a folder of {what} ({', '.join(suffixes)}) per class, got "
                "none."
            )
        return listed

    parts = [root]
    if not numbered and (root / "train").is_dir() and not list_files(root / "train"):
        tests = [root / name for name in TEST_NAMES if (root / name).is_dir()]
        parts = [root / "train", *tests[:1]]
    listed = [list_part(part) for part in parts]
    if numbered:
        # Numbers are padded with zeros; longer ones are larger.
        listed[0].sort(key=lambda file: (len(file.name), file.name))
    files = [file for part in listed for file in part]
    return files, np.array([file.parent.name for file in files]), len(listed[0])


def has_class_folders(root: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether any folder in ``root``, or any folder in those, holds such files."""
    return any(
        has_suffix(file, suffixes) for pattern in ("*/*", "*/*/*") for file in root.glob(pattern)
    )


def has_suffix(file: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether a name ends in one of ``suffixes``, in any case."""
    return file.name.lower().endswith(suffixes)
