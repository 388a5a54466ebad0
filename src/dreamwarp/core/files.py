"""Atomic writing of files, and local copies of remote ones."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dreamwarp.core.progress import Meter

# An address as a path has it, with one slash left of two. The name of a drive is a single letter.
ADDRESS = re.compile(r"[A-Za-z][\w.+-]+:[/\\]")
# Bytes copied at a time.
CHUNK = 2**20


# Files and folders that go unless they are finished.
_unfinished: set[Path] = set()


# -- writing


@contextmanager
def write_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name beside ``path``, and rename that file to ``path`` after the block.

    If the block fails or is interrupted, the temporary file goes and whatever stood at ``path``
    stays. Missing folders are made. The temporary name keeps the suffix, which tells writers the
    format.
    """
    target = _prepare_target(path)
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
        _remove(path)
        _unfinished.discard(path)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that goes after the block, or when the process is stopped within it."""
    folder = Path(tempfile.mkdtemp(prefix="dreamwarp-"))
    with unfinished(folder):
        yield folder


def remove_unfinished() -> None:
    """Remove what is being written: for a process that is about to be stopped."""
    for path in list(_unfinished):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def refuse_existing(path: str | os.PathLike[str]) -> None:
    """Raise if a file exists, unless it may be replaced."""
    if Path(path).is_file():
        raise existing(path)


def existing(path: str | os.PathLike[str]) -> FileExistsError:
    """The error for a file that would be replaced."""
    return FileExistsError(
        f"`{path}` exists, and is not replaced. Give `--overwrite`, or choose another name."
    )


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise if a file can't be written; to be called before the work whose result it will hold."""
    _prepare_target(path)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless they exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(
            f"`{folder}` can't be a folder: a file stands in its way. Choose another."
        ) from None
    except OSError as error:
        raise OSError(
            f"`{folder}` can't be made: {error.strerror}. Choose a folder that you can write to."
        ) from error


def refuse_address(path: str | os.PathLike[str]) -> None:
    """Raise if a path is an address: it would be written to a folder called ``s3:``."""
    if ADDRESS.match(os.fspath(path)):
        raise ValueError(
            f"`{path}` is an address, and must be a path on this machine. Write to a folder here, "
            "and copy what is in it."
        )


def as_path(path: str | os.PathLike[str]) -> Path:
    """A path, if it can be one."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise TypeError(
            f"`path` must be a str or a pathlib.Path, got {path!r} ({type(path).__name__})."
        )
    try:
        is_name = text != "" and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise ValueError(
            f"`path` must be a path that the system can have, got {text!r}. Use another name."
        )
    return Path(text)


def _prepare_target(path: str | os.PathLike[str]) -> Path:
    """A path that a file may be written to; its folder is there."""
    target = as_path(path)
    refuse_address(path)
    if os.fspath(path).endswith(("/", os.sep)):
        raise IsADirectoryError(f"`{path}` is the name of a folder. Give the name of a file.")
    try:
        if target.is_dir():
            raise IsADirectoryError(f"`{target}` is a folder. Give the name of a file.")
        if target.exists() and not target.is_file():
            raise FileExistsError(
                f"`{target}` is a device, pipe or socket, which a file must not take the place of. "
                "Give another name."
            )
        make_folder(target.parent)
        # Try it: permissions do not bind every user and file system.
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        if error.errno is None:  # one of ours, which says why
            raise
        raise type(error)(
            f"`{target}` can't be written: {error.strerror}. Choose a folder that you can write to."
        ) from error
    return target


# -- reading from elsewhere


def is_address(source: str | os.PathLike[str]) -> bool:
    """Whether this is an address for fsspec, such as ``s3://bucket/file``, rather than a path."""
    return isinstance(source, str) and "://" in source


@contextmanager
def local_copy(source: str | os.PathLike[str]) -> Iterator[Path]:
    """A file on this machine: ``source`` itself, or a copy that goes after the block.

    Parameters
    ----------
    source : path or address
        An address is anything fsspec knows. Errors in the block name it rather than its copy.
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
    """The file system of fsspec that an address belongs to, and a path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ImportError(
            f"`{address}` is reached through fsspec, which is not installed. Use "
            "`pip install dreamwarp[cluster]`."
        ) from None
    try:
        system, path = url_to_fs(address)
    except ImportError as error:  # what fsspec needs for a kind of address
        raise ImportError(f"`{address}` can't be reached: {error}.") from error
    return system, path


def _copy(address: str, system: Any, path: str, copy: Path) -> None:
    """Copy a file here, as long as there is room for it."""
    try:
        stream = system.open(path, "rb")
    except FileNotFoundError:
        raise FileNotFoundError(f"`{address}` does not exist.") from None
    with (
        stream,
        copy.open("wb") as target,
        Meter(f"fetching {copy.name}", getattr(stream, "size", None), in_bytes=True) as meter,
    ):
        n_free = shutil.disk_usage(copy.parent).free
        # Do not trust the size that a server reports.
        while chunk := stream.read(CHUNK):
            if max(meter.done + len(chunk), meter.total or 0) > n_free:
                raise OSError(
                    f"`{address}` must fit into {copy.parent.parent}, and there is room for "
                    f"{n_free:,} bytes. Set TMPDIR to a larger disk."
                )
            target.write(chunk)
            meter.advance(len(chunk))
