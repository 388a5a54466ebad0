"""Download of data sets: sources are tried in turn, files verified by SHA-256 and cached."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol, cast

from dreamwarp.core.files import check_writable, copy_chunks, write_beside
from dreamwarp.data.guards import CHUNK
from dreamwarp.data.idx import GZIP_ERRORS, GZIP_MAGIC

CACHE_VARIABLE = "DREAMWARP_DATA"
# A mirror that does not answer within this time is skipped.
ANSWER_SECONDS = 5.0
# Timeouts for connecting and for reading.
TIMEOUT_SECONDS = (5.0, 15.0)
# Attempts per file before the next source is tried.
ATTEMPTS = 3
# Gzip makes incompressible data at most this much larger.
SLACK_BYTES = 2**16


class SourceError(Exception):
    """A source lacks a file, or can't be reached. The next source is tried."""


@dataclass(frozen=True)
class KnownFile:
    """Name, size and SHA-256 of a file, uncompressed."""

    name: str
    n_bytes: int
    sha256: str


class FileSource(Protocol):
    """A source of files. Its ``str`` is its name in messages."""

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Put files into a folder by calling ``store_verified``, or raise SourceError."""


def cache_folder() -> Path:
    """Where fetched data is kept: ``$DREAMWARP_DATA``, or the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("dreamwarp"))


def fetch(
    title: str, files: Sequence[KnownFile], sources: Sequence[FileSource], folder: Path
) -> None:
    """Fetch the files that a folder lacks, each from the first source that has it.

    Files already in the folder are verified and kept. Several processes may fetch at once: files
    are renamed into place when complete. ConnectionError if no source has the files.
    """
    missing = [file for file in files if not is_sound(folder / file.name, file)]
    if missing:
        try:
            check_writable(folder / missing[0].name)
        except OSError as error:
            raise OSError(f"{error} Or set {CACHE_VARIABLE} to one.") from error
    tried = []
    for source in sources:
        if not missing:
            break
        try:
            source.fetch(missing, folder)
        except SourceError as error:
            tried.append(f"{source}: {error}")
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

    has_size = path.is_file() and path.stat().st_size == file.n_bytes
    return has_size and pooch.file_hash(str(path), alg="sha256") == file.sha256


def store_verified(stream: Any, file: KnownFile, folder: Path) -> None:
    """Decompress a buffered stream if necessary, verify it, and store it in a folder.

    Not much more than the expected size is decompressed.
    """
    is_packed = stream.peek(2)[:2] == GZIP_MAGIC
    content = cast(IO[bytes], gzip.GzipFile(fileobj=stream) if is_packed else stream)
    chunks = iter(lambda: content.read(CHUNK), b"")
    with write_beside(folder / file.name) as temporary:
        with temporary.open("wb") as target:
            try:
                n_bytes = copy_chunks(
                    chunks, target, f"checking {file.name}", file.n_bytes, at_most=file.n_bytes,
                    too_large=SourceError(f"{file.name} has more than {file.n_bytes:,} bytes"),
                )  # fmt: skip
            except GZIP_ERRORS as error:
                raise SourceError(f"{file.name} is damaged gzip ({error})") from error
        if n_bytes != file.n_bytes:
            raise SourceError(f"{file.name} has {n_bytes:,} bytes, not {file.n_bytes:,}")
        if not is_sound(temporary, file):
            raise SourceError(f"{file.name} does not have the SHA-256 {file.sha256}")


def explain(error: BaseException) -> str:
    """The original cause of an error, in one line."""
    while isinstance(error.__context__, Exception):
        error = error.__context__
    return " ".join(str(error).split())[:200] or type(error).__name__


# -- folders and mirrors


@dataclass(frozen=True)
class Folder:
    """A local folder of files, plain or gzip."""

    path: Path

    def __str__(self) -> str:
        return f"folder {self.path}"

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Copy and verify the files; SourceError lists those that are missing or damaged."""
        failures = []
        for file in files:
            # The gzip file first: the plain one may be the damaged copy to replace.
            named = [self.path / name for name in (f"{file.name}.gz", file.name)]
            found = [path for path in named if path.is_file()]
            if not found:
                failures.append(f"no {file.name}")
                continue
            try:
                with found[0].open("rb") as stream:
                    store_verified(stream, file, folder)
            except SourceError as error:
                failures.append(str(error))
        if failures:
            raise SourceError(", ".join(failures))


@dataclass(frozen=True)
class Mirror:
    """Gzip files below a URL."""

    address: str

    def __str__(self) -> str:
        return self.address

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Download files."""
        addresses = [f"{self.address.rstrip('/')}/{file.name}.gz" for file in files]
        _check_reachable(addresses[0])
        for file, address in zip(files, addresses, strict=True):
            with TemporaryFile() as packed:
                _download(address, packed, file.n_bytes + SLACK_BYTES)
                store_verified(packed, file, folder)


def _check_reachable(address: str) -> None:
    """Raise SourceError within seconds if there is no internet.

    Name look-ups have no time limit, and the limit on connecting applies to each IP address of a
    host. So the request runs in a thread that is not waited for.
    """
    failure = [f"no answer within {ANSWER_SECONDS:g} s"]

    def ask() -> None:
        import requests

        try:
            requests.head(address, timeout=TIMEOUT_SECONDS).close()
            failure.clear()  # any answer will do
        except requests.RequestException as error:
            failure[:] = [explain(error)]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if failure:
        raise SourceError(failure[0])


def _download(address: str, packed: IO[bytes], max_bytes: int) -> None:
    """Download to an empty file; retry if the connection breaks."""
    import requests

    # No compression in transit: the file is compressed already.
    name = address.rpartition("/")[2]
    options: Any = {"timeout": TIMEOUT_SECONDS, "headers": {"Accept-Encoding": "identity"}}
    for attempt in range(1, ATTEMPTS + 1):
        packed.seek(0)
        packed.truncate()
        try:
            with requests.get(address, stream=True, **options) as answer:
                answer.raise_for_status()
                length = answer.headers.get("Content-Length", "")
                copy_chunks(
                    answer.iter_content(2**16), packed, f"fetching {name}",
                    int(length) if length.isdigit() else None, at_most=max_bytes,
                    too_large=SourceError(f"{name} has more than {max_bytes:,} bytes"),
                )  # fmt: skip
            break
        except requests.RequestException as error:
            if attempt == ATTEMPTS or isinstance(error, requests.HTTPError):
                raise SourceError(explain(error)) from error
    packed.seek(0)
