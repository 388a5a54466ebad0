"""Atomic writing of files, and local copies of remote ones."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dreamwarp.core.listing import import_extra
from dreamwarp.core.progress import Meter

# A URL, possibly with its double slash reduced to one by pathlib. Drive names have one letter.
ADDRESS = re.compile(r"[A-Za-z][\w.+-]+:[/\\]")
# Bytes copied at a time.
CHUNK = 2**20

# Temporary files and folders, removed if the process is stopped.
_unfinished: set[Path] = set()


# -- writing


@contextmanager
def write_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name beside ``path``, and rename that file to ``path`` after the block.

    If the block fails or is interrupted, the temporary file is removed and ``path`` is unchanged.
    Missing folders are created. The temporary name keeps the suffix, because writers choose the
    format by it.
    """
    target = check_writable(path)
    temporary = target.with_name(f".{target.stem}-{secrets.token_hex(4)}{target.suffix}")
    with unfinished(temporary):
        yield temporary
        temporary.replace(target)


@contextmanager
def unfinished(path: Path) -> Iterator[None]:
    """Remove a file or folder after the block, or when the process is stopped within it."""
    _unfinished.add(path)
    try:
        yield
    finally:
        remove(path)
        _unfinished.discard(path)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed after the block, or when the process is stopped within it."""
    folder = Path(tempfile.mkdtemp(prefix="dreamwarp-"))
    with unfinished(folder):
        yield folder


def remove_unfinished() -> None:
    """Remove all temporary files; called before the process is stopped."""
    for path in list(_unfinished):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file or a folder with its contents, if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def check_suffix(path: str | os.PathLike[str], suffixes: Sequence[str], what: str) -> Path:
    """Return ``path``; raise unless it ends in one of ``suffixes``, the formats of ``what``."""
    target = Path(path)
    if target.suffix.lower() not in suffixes:
        raise ValueError(
            f"`{target}` must end in one of {', '.join(suffixes)}, the formats of {what}."
        )
    return target


def refuse_existing(path: str | os.PathLike[str]) -> None:
    """Raise if a file exists at a path or URL."""
    if is_address(path):
        system, place = find_system(os.fspath(path))
        exists = system.exists(place)
    else:
        exists = Path(path).is_file()
    if exists:
        raise FileExistsError(
            f"`{path}` exists already. Use `--overwrite` to replace it, or choose another name."
        )


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, unless they exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(
            f"`{folder}` can't be made: a file of that name exists. Choose another folder."
        ) from None
    except OSError as error:
        raise OSError(
            f"`{folder}` can't be made: {error.strerror}. Choose a folder that you can write to."
        ) from error


def refuse_address(path: str | os.PathLike[str]) -> None:
    """Raise if a path is a URL, which would make a local folder such as ``s3:``."""
    if ADDRESS.match(os.fspath(path)):
        raise ValueError(
            f"`{path}` must be a path on this machine, got an address. Write to a local folder, "
            "then copy it."
        )


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` as a Path; raise if it is not a valid path."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise TypeError(
            f"`path` must be a str or a pathlib.Path, got {path!r} ({type(path).__name__})."
        )
    try:
        is_valid = text != "" and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_valid = False
    if not is_valid:
        raise ValueError(
            f"`path` must be a valid path on this system, got {text!r}. Use another name."
        )
    return Path(text)


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file and create its folder; raise if the file can't be written.

    Call it before computing what the file will hold.
    """
    target = as_path(path)
    refuse_address(path)
    if os.fspath(path).endswith(("/", os.sep)):
        raise IsADirectoryError(f"`{path}` is the name of a folder. Give the name of a file.")
    try:
        if target.is_dir():
            raise IsADirectoryError(f"`{target}` is a folder. Give the name of a file.")
        if target.exists() and not target.is_file():
            raise FileExistsError(
                f"`{target}` is a device, pipe or socket, which is not replaced. Give another name."
            )
        make_folder(target.parent)
        # Try to write: permission bits do not apply to every user and file system.
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        if error.errno is None:  # raised above
            raise
        raise type(error)(
            f"`{target}` can't be written: {error.strerror}. Choose a folder that you can write to."
        ) from error
    return target


# -- remote files


def is_address(source: str | os.PathLike[str]) -> bool:
    """Whether this is a URL for fsspec, such as ``s3://bucket/file``, rather than a path."""
    return isinstance(source, str) and "://" in source


@contextmanager
def local_copy(source: str | os.PathLike[str]) -> Iterator[Path]:
    """A local file: the path itself, or a copy of a URL that is removed after the block.

    Errors in the block name the URL, not the copy.
    """
    if not is_address(source):
        yield Path(source)
        return
    address = os.fspath(source)
    system, path = find_system(address)
    with temporary_folder() as folder:
        copy = folder / path.rstrip("/").rpartition("/")[2]
        _copy(address, system, path, copy)
        try:
            yield copy
        except ValueError as error:
            raise ValueError(str(error).replace(str(copy), address)) from error


def find_system(address: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it."""
    core = import_extra("fsspec.core", "cluster", f"`{address}`")
    try:
        return core.url_to_fs(address)
    except ImportError as error:  # the package for this kind of URL is missing
        raise ImportError(f"`{address}` can't be reached: {error}.") from error


def _copy(address: str, system: Any, path: str, copy: Path) -> None:
    """Copy a remote file; raise if the disk is too small."""
    try:
        stream = system.open(path, "rb")
    except FileNotFoundError:
        raise FileNotFoundError(f"`{address}` does not exist.") from None
    n_free = shutil.disk_usage(copy.parent).free
    too_large = OSError(
        f"`{address}` must fit into {copy.parent.parent}, which has {n_free:,} free bytes. Set "
        "TMPDIR to a larger disk."
    )
    title, total = f"fetching {copy.name}", getattr(stream, "size", None)
    with stream, copy.open("wb") as target:
        chunks = iter(lambda: stream.read(CHUNK), b"")
        copy_chunks(chunks, target, title, total, at_most=n_free, too_large=too_large)


def copy_chunks(
    chunks: Iterable[bytes],
    target: IO[bytes],
    title: str,
    total: int | None,
    *,
    at_most: int,
    too_large: Exception,
) -> int:
    """Write chunks to a file, with a meter; return the number of bytes.

    ``too_large`` is raised before more than ``at_most`` bytes are written, whatever ``total`` a
    server declares.
    """
    with Meter(title, total, in_bytes=True) as meter:
        for chunk in chunks:
            if max(meter.done + len(chunk), total or 0) > at_most:
                raise too_large
            target.write(chunk)
            meter.advance(len(chunk))
        return meter.done
