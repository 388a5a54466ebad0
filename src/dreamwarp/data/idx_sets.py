"""Data sets as pairs of IDX files: images, and labels under the same name."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dreamwarp.data.dataset import DataSet, Part
from dreamwarp.data.guards import check_file
from dreamwarp.data.idx import WORDS, is_idx, read_idx, read_idx_files

# A test part's files have one of these as a word of their name.
TEST_WORDS = re.compile(r"(^|[-_.])(t10k|test)([-_.]|$)", re.IGNORECASE)
# The type of a file's values, at the end of its name.
TYPE_WORD = re.compile(rf"(?<=[-_.])({'|'.join(WORDS.values())})$")


def read_idx_set(path: str | os.PathLike[str], *, memory_map: bool = False) -> DataSet:
    """Images and labels from IDX files, plain or gzip.

    Parameters
    ----------
    path : path
        A file of images, with the word ``images`` in its name, whose labels are beside it under
        the same name with ``labels`` and ``idx1``, and the word for their own type, such as
        ``ubyte``; or a folder of such pairs. In a folder, pairs named ``t10k`` or ``test`` are the
        test part, and pairs that are numbered go together.
    memory_map : bool
        Leave the images on disk, and read what is touched.
    """
    given = Path(path)
    if not given.is_dir():
        return DataSet(str(given), *_read_pairs(given, [check_file(given)], memory_map))
    files = list_images(given)
    tests = [file for file in files if TEST_WORDS.search(file.name)]
    parts = [
        _read_pairs(given, part, memory_map)
        for part in ([file for file in files if file not in tests], tests)
        if part
    ]
    return DataSet(str(given), *parts[0], *parts[1:])


def list_images(folder: Path) -> list[Path]:
    """IDX files of images in a folder, each once, plain rather than gzip."""
    named = sorted(file for file in folder.glob("*images*") if not file.name.startswith("."))
    return [
        file
        for file in named
        if file.is_file()
        and is_idx(file)
        and not (file.suffix == ".gz" and file.with_suffix("") in named)
    ]


def _read_pairs(given: Path, files: list[Path], memory_map: bool) -> Part:
    patterns = {re.sub(r"\d+", "#", file.name.removesuffix(".gz")) for file in files}
    if len(patterns) > 1:
        raise ValueError(
            f"`{given}` must hold one data set, and has {', '.join(f.name for f in files)}. Give "
            "one of these files."
        )
    if memory_map and len(files) > 1:
        raise ValueError(
            f"`{given}` holds {len(files)} files of images, and `memory_map` takes one. Give one "
            "of these files, or leave `memory_map` out."
        )
    images = read_idx(files[0], memory_map=True) if memory_map else read_idx_files(given, files)
    labels = [_find_labels(file) for file in files]
    return Part(images, read_idx_files(f"{given} (labels)", labels))


def _find_labels(images: Path) -> Path:
    plain = images.name.removesuffix(".gz")
    if "images" not in plain:
        raise ValueError(
            f"`{images}` must have the word 'images' in its name, so that its labels can be found "
            "beside it under the same name with 'labels'."
        )
    name = re.sub(r"idx\d", "idx1", plain.replace("images", "labels"))
    # Labels are mostly bytes, whatever the images are.
    stem = TYPE_WORD.sub("", name)
    names = [name] if stem == name else [name, *(stem + word for word in WORDS.values())]
    for candidate in names:
        for file in (images.with_name(candidate), images.with_name(f"{candidate}.gz")):
            if file.is_file():
                return file
    other = "" if stem == name else f", or with another of the words {', '.join(WORDS.values())}"
    raise FileNotFoundError(
        f"`{images}` needs its labels beside it, as `{name}` or `{name}.gz`{other}."
    )
