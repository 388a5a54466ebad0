"""Fetching of data sets: from sources in turn, verified by SHA-256, cached, written atomically."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, cast

from dreamwarp.core.files import write_beside
from dreamwarp.core.progress import Meter
from dreamwarp.data.guards import CHUNK
from dreamwarp.data.idx import GZIP_MAGIC

CACHE_VARIABLE = "DREAMWARP_DATA"


class SourceError(Exception):
    """A source lacks a file, or can't be reached. The next source is tried."""


@dataclass(frozen=True)
class KnownFile:
    """Name, size and SHA-256 of a file, unpacked."""

    name: str
    n_bytes: int
    sha256: str


class Source(Protocol):
    """A source of files."""

    @property
    def title(self) -> str:
        """What it is, for people."""

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Put files into a folder, through ``place``, or raise SourceError."""


def cache_folder() -> Path:
    """Where fetched data is kept: ``$DREAMWARP_DATA``, or the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("dreamwarp"))


def fetch(title: str, files: Sequence[KnownFile], sources: Sequence[Source], folder: Path) -> None:
    """Fetch the files that a folder lacks, each from the first source that has it.

    What is there already is verified and kept. Several processes may do this at once: each file
    appears whole, by a rename.

    Raises
    ------
    ConnectionError
        If no source has them: it says what was tried, and what to put where by hand.
    """
    missing = [file for file in files if not is_sound(folder / file.name, file)]
    if missing:
        _check_writable(folder)
    tried = []
    for source in sources:
        if not missing:
            break
        try:
            source.fetch(missing, folder)
        except SourceError as error:
            tried.append(f"{source.title}: {error}")
        missing = [file for file in missing if not is_sound(folder / file.name, file)]
    if missing:
        names = ", ".join(file.name for file in missing)
        raise ConnectionError(
            f"{title} could not be fetched. Tried:\n"
            + "".join(f"  - {attempt};\n" for attempt in tried)
            + f"To do it by hand, put {names} (each plain, or with .gz) into the folder {folder} "
            "and try again. Another folder or address that has them can be given as the source."
        )


def is_sound(path: Path, file: KnownFile) -> bool:
    """Whether a file exists and has the right size and SHA-256."""
    import pooch

    if not path.is_file() or path.stat().st_size != file.n_bytes:
        return False
    return pooch.file_hash(str(path), alg="sha256") == file.sha256


def place(stream: IO[bytes], file: KnownFile, folder: Path) -> None:
    """Unpack a stream if it is packed, verify it, and put it into a folder under its name.

    At most one byte more than the file's size is unpacked.
    """
    with write_beside(folder / file.name) as temporary:
        with temporary.open("wb") as target:
            try:
                n_bytes, sha256 = _copy(_unpacked(stream), target, file)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise SourceError(f"{file.name} is damaged gzip ({error})") from error
        if n_bytes != file.n_bytes:
            amount = "more" if n_bytes > file.n_bytes else f"{n_bytes:,}"
            raise SourceError(f"{file.name} has {amount} bytes, not {file.n_bytes:,}")
        if sha256 != file.sha256:
            raise SourceError(f"{file.name} has SHA-256 {sha256}, not {file.sha256}")


def _unpacked(stream: Any) -> IO[bytes]:
    """The stream, which is buffered, or what is packed in it."""
    is_packed = stream.peek(2)[:2] == GZIP_MAGIC
    return cast(IO[bytes], gzip.GzipFile(fileobj=stream) if is_packed else stream)


def _copy(stream: IO[bytes], target: IO[bytes], file: KnownFile) -> tuple[int, str]:
    """Copy at most one byte more than a file should have; bytes copied and their SHA-256."""
    digest, n_bytes = hashlib.sha256(), 0
    with Meter(f"checking {file.name}", file.n_bytes, in_bytes=True) as meter:
        while n_bytes <= file.n_bytes:
            chunk = stream.read(min(CHUNK, file.n_bytes + 1 - n_bytes))
            if not chunk:
                break
            digest.update(chunk)
            target.write(chunk)
            n_bytes += len(chunk)
            meter.advance(len(chunk))
    return n_bytes, digest.hexdigest()


def explain(error: BaseException) -> str:
    """The cause at the bottom of an error, in a line."""
    while isinstance(error.__context__, Exception):
        error = error.__context__
    return " ".join(str(error).split())[:200] or type(error).__name__


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError as error:
        raise OSError(f"{_UNWRITABLE.format(folder)} ({error.strerror})") from error
    if not writable:
        raise OSError(_UNWRITABLE.format(folder))


_UNWRITABLE = (
    "`{}` can't be written to, and is where data is kept. Choose another folder, or set "
    f"{CACHE_VARIABLE} to one"
)
