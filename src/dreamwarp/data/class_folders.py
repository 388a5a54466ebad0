"""Folders that hold one folder of files per class, possibly in a train and a test part."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

TEST_NAMES = ("test", "val", "validation")


class ClassFile(NamedTuple):
    """A file and its class, the name of its folder."""

    path: Path
    label: str


def list_classes(
    root: Path,
    suffixes: tuple[str, ...],
    what: str,
    *,
    refused: tuple[str, ...] = (),
    numbered: bool = False,
) -> list[list[ClassFile]]:
    """Files of the training part and of the test part, if there is one; sorted by name.

    If ``root`` holds ``train`` and ``test`` (or ``val``), each with a folder per class, the second
    is the test part. Suffixes in ``refused`` raise an error; others than ``suffixes`` are ignored.
    If ``numbered``, files are sorted by number over all classes, and every folder is a class, even
    ``train`` and ``test``.
    """

    def list_files(folder: Path) -> list[Path]:
        files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
        for file in files:
            if refused and has_suffix(file, refused):
                raise ValueError(
                    f"`{file}` is not supported: {what} must end in "
                    f"{' or '.join(suffixes)}. Convert or remove it."
                )
        return [file for file in files if has_suffix(file, suffixes)]

    def list_part(part: Path) -> list[ClassFile]:
        folders = sorted(p for p in part.iterdir() if p.is_dir() and not p.name.startswith("."))
        listed = [ClassFile(file, folder.name) for folder in folders for file in list_files(folder)]
        if not listed:
            raise ValueError(
                f"`{part}` must hold a folder of {what} ({', '.join(suffixes)}) per class, got "
                "none."
            )
        return listed

    if numbered:
        # Numbers are padded with zeros; longer ones are larger.
        return [sorted(list_part(root), key=lambda file: (len(file.path.name), file.path.name))]
    if (root / "train").is_dir() and not list_files(root / "train"):
        tests = [root / name for name in TEST_NAMES if (root / name).is_dir()]
        return [list_part(root / "train"), *map(list_part, tests[:1])]
    return [list_part(root)]


def has_class_folders(root: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether any folder in ``root``, or any folder in those, holds such files."""
    return any(
        has_suffix(file, suffixes) for pattern in ("*/*", "*/*/*") for file in root.glob(pattern)
    )


def has_suffix(file: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether a name ends in one of ``suffixes``, in any case."""
    return file.name.lower().endswith(suffixes)
