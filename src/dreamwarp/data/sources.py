"""Sources of data sets: folders, and mirrors on the web by way of pooch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from dreamwarp.core.progress import Meter
from dreamwarp.data.fetch import KnownFile, SourceError, explain, place

# A mirror that has not answered at all by then is taken for out of reach.
ANSWER_SECONDS = 5.0
# For a connection, and between two pieces of an answer.
TIMEOUT_SECONDS = (5.0, 15.0)
# Times that a download is tried before the next source is.
ATTEMPTS = 3
# Packed data is at most this much bigger than plain, for what can't be compressed.
SLACK_BYTES = 2**16


@dataclass(frozen=True)
class Folder:
    """Files in a folder on disk, plain or gzip."""

    path: Path

    @property
    def title(self) -> str:
        """The folder's name."""
        return f"folder {self.path}"

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Copy those files that are there."""
        failures = []
        for file in files:
            try:
                self._fetch_file(file, folder)
            except SourceError as error:
                failures.append(str(error))
        if failures:
            raise SourceError(", ".join(failures))

    def _fetch_file(self, file: KnownFile, folder: Path) -> None:
        """The packed file counts where there is a plain one too, which may be the damaged one."""
        named = [self.path / name for name in (f"{file.name}.gz", file.name)]
        found = [path for path in named if path.is_file()]
        if not found:
            raise SourceError(f"no {file.name}")
        with found[0].open("rb") as stream:
            place(stream, file, folder)


@dataclass(frozen=True)
class Mirror:
    """Files under an address on the web, gzip."""

    address: str

    @property
    def title(self) -> str:
        """The address."""
        return self.address

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Download files."""
        addresses = [f"{self.address.rstrip('/')}/{file.name}.gz" for file in files]
        _check_reachable(addresses[0])
        for file, address in zip(files, addresses, strict=True):
            with TemporaryFile() as packed:
                _download(address, packed, file.n_bytes + SLACK_BYTES)
                place(packed, file, folder)


def _check_reachable(address: str) -> None:
    """Fail within seconds where there is no internet, whatever its names resolve to.

    A look-up has no time limit of its own, and the limit for a connection counts per address of a
    host. So the question is put in a thread that is not waited for.
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
    """Download to a file, from its beginning, in several attempts if the connection breaks."""
    import requests
    from pooch import HTTPDownloader

    with Meter(f"fetching {address.rpartition('/')[2]}", None, in_bytes=True) as meter:
        output = _Output(packed, meter, max_bytes)
        downloader = HTTPDownloader(
            timeout=TIMEOUT_SECONDS,
            headers={"Accept-Encoding": "identity"},  # what is packed is to stay so
            hooks={"response": output.start},
        )
        for attempt in range(1, ATTEMPTS + 1):
            try:
                downloader(address, output, None)
                break
            except requests.RequestException as error:
                if attempt == ATTEMPTS or isinstance(error, requests.HTTPError):
                    raise SourceError(explain(error)) from error
    packed.seek(0)


class _Output:
    """A file that an answer is written to, up to a size; counted by a meter."""

    def __init__(self, file: IO[bytes], meter: Meter, max_bytes: int) -> None:
        self.file, self.meter, self.max_bytes = file, meter, max_bytes

    def start(self, response: Any, **options: Any) -> None:
        """An answer begins."""
        self.file.seek(0)
        self.file.truncate()
        length = response.headers.get("Content-Length", "")
        self.meter.done, self.meter.total = 0, int(length) if length.isdigit() else None

    def write(self, chunk: bytes) -> None:
        """Append to the file."""
        if self.file.tell() + len(chunk) > self.max_bytes:
            raise SourceError(f"sent more than {self.max_bytes:,} bytes")
        self.file.write(chunk)
        self.meter.advance(len(chunk))

    def flush(self) -> None:
        """Do nothing: pooch asks for it after every chunk."""
