"""Folders with a folder of files per class, and perhaps a train and a test part."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

TEST_NAMES = ("test", "val", "validation")


class ClassFile(NamedTuple):
    """A file, and the class whose folder it is in."""

    path: Path
    label: str


def list_classes(root: Path, suffixes: tuple[str, ...], what: str) -> list[list[ClassFile]]:
    """Files of the part to learn from and, if there is one, of the test part, in order of names.

    If the folders are called ``train`` and ``test`` (or ``val``), with a folder per class in each,
    the second is the test part.
    """
    folders = [root]
    if (root / "train").is_dir() and not _files(root / "train", suffixes):
        tests = [root / name for name in TEST_NAMES if (root / name).is_dir()]
        folders = [root / "train", *tests[:1]]
    return [_list_part(folder, suffixes, what) for folder in folders]


def has_class_folders(root: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether any folder inside holds such files, at one or two levels."""
    return any(
        has_suffix(file, suffixes) for pattern in ("*/*", "*/*/*") for file in root.glob(pattern)
    )


def has_suffix(file: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether a name ends as one of ``suffixes``, in any case."""
    return file.name.lower().endswith(suffixes)


def _list_part(root: Path, suffixes: tuple[str, ...], what: str) -> list[ClassFile]:
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    listed = [
        ClassFile(file, folder.name) for folder in folders for file in _files(folder, suffixes)
    ]
    if not listed:
        raise ValueError(
            f"`{root}` must hold a folder of {what} ({', '.join(suffixes)}) per class, and holds "
            "none."
        )
    return listed


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(
        file
        for file in folder.iterdir()
        if file.is_file() and not file.name.startswith(".") and has_suffix(file, suffixes)
    )
