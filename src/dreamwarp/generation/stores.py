"""Storage of sets: a folder on disk, or any address that fsspec knows.

Files appear whole or not at all. On disk they are written beside and renamed; object stores show
an object when its upload is complete.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from dreamwarp.core.files import find_system, is_address, make_folder, unfinished, write_beside

Put = Callable[[str, bytes], None]

# What runs that were killed may have left: temporary names of this package's files and folders.
LEFTOVER = re.compile(
    r"\.(manifest|(images|labels|shard|listing)-\d{5}[\w-]*|pictures)-[0-9a-f]{8}(\.\w+)?"
)
# Bytes read at a time: of files that are hashed, and of those that are kept.
CHUNK, PIECE = 2**20, 2**16


class Store(Protocol):
    """A place for files, by their names in it."""

    title: str

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A stream to write a file to; the file appears if the block succeeds."""

    def create_many(self) -> AbstractContextManager[Put]:
        """A function ``(name, content)`` for small files, which appear if the block succeeds."""

    def open(self, name: str) -> BinaryIO:
        """A stream to read a file from; FileNotFoundError if it is not there."""

    def holds(self, name: str) -> bool:
        """Whether a file is there."""

    def names(self) -> list[str]:
        """Names at the first level, without leftovers of killed runs."""

    def claim(self) -> AbstractContextManager[None]:
        """Lock the store against other processes, where possible; make its folder."""

    def sweep(self) -> None:
        """Remove leftovers of killed runs."""

    def count_free(self) -> int | None:
        """Free space in bytes, or None if unknown."""


def open_store(address: str | os.PathLike[str]) -> Store:
    """The store at a path, or at an address such as ``s3://bucket/folder``."""
    if not is_address(address):
        return LocalStore(Path(address))
    system, path = find_system(str(address))
    from fsspec.implementations.local import LocalFileSystem

    if isinstance(system, LocalFileSystem):
        return LocalStore(Path(path))
    return RemoteStore(str(address), system, path.rstrip("/"))


class LocalStore:
    """A folder on disk."""

    def __init__(self, folder: Path) -> None:
        # Workers of a cluster may run elsewhere in the tree of folders.
        self.folder = folder.absolute()
        self.title = str(folder)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """See :class:`Store`."""
        with write_beside(self.folder / name) as temporary, temporary.open("wb") as stream:
            yield stream

    @contextmanager
    def create_many(self) -> Iterator[Put]:
        """See :class:`Store`."""
        beside = self.folder / f".pictures-{secrets.token_hex(4)}"
        names: list[str] = []  # paths would take several times the memory

        def put(name: str, content: bytes) -> None:
            with open(f"{beside}/{len(names)}", "wb") as stream:
                stream.write(content)
            names.append(name)

        with unfinished(beside):
            make_folder(beside)
            yield put
            for folder in {os.path.dirname(name) for name in names}:
                make_folder(self.folder / folder)
            for number, name in enumerate(names):
                os.replace(f"{beside}/{number}", f"{self.folder}/{name}")

    def open(self, name: str) -> BinaryIO:
        """See :class:`Store`."""
        return (self.folder / name).open("rb")

    def holds(self, name: str) -> bool:
        """See :class:`Store`."""
        return (self.folder / name).exists()

    def names(self) -> list[str]:
        """See :class:`Store`."""
        if not self.folder.exists():
            return []
        if not self.folder.is_dir():
            raise NotADirectoryError(f"`{self.title}` must be a folder, and is a file.")
        return [name for name in sorted(os.listdir(self.folder)) if not LEFTOVER.fullmatch(name)]

    @contextmanager
    def claim(self) -> Iterator[None]:
        """See :class:`Store`. Removes the folder afterwards if it made it and it is empty."""
        is_new = not os.path.exists(self.folder)
        make_folder(self.folder)
        try:
            with self._lock():
                yield
        finally:
            if is_new:
                with suppress(OSError):  # it is not empty
                    self.folder.rmdir()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            import fcntl
        except ImportError:  # Windows has no such locks
            yield
            return
        try:
            handle = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            raise OSError(
                f"`{self.title}` can't be opened: {error.strerror}. Choose a folder that you can "
                "read and write."
            ) from error
        try:
            # Let go of by the operating system, however this process ends.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise BlockingIOError(
                f"`{self.title}` is being written by another process. Wait for it to end."
            ) from None
        except OSError:
            pass  # a file system without locks
        try:
            yield
        finally:
            os.close(handle)

    def sweep(self) -> None:
        """See :class:`Store`."""
        for name in os.listdir(self.folder):
            if LEFTOVER.fullmatch(name):
                left = self.folder / name
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)

    def count_free(self) -> int | None:
        """See :class:`Store`."""
        return shutil.disk_usage(self.folder).free


class RemoteStore:
    """A folder of a file system that fsspec knows."""

    def __init__(self, address: str, system: Any, root: str) -> None:
        self.title = address
        self.system, self.root = system, root

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """See :class:`Store`."""
        stream = self.system.open(f"{self.root}/{name}", "wb", autocommit=False)
        try:
            yield stream
            stream.close()
            stream.commit()
        except BaseException:
            stream.discard()
            raise

    @contextmanager
    def create_many(self) -> Iterator[Put]:
        """See :class:`Store`. Each appears as it comes: object stores rename by copying."""
        yield lambda name, content: self.system.pipe_file(f"{self.root}/{name}", content)

    def open(self, name: str) -> BinaryIO:
        """See :class:`Store`."""
        return cast(BinaryIO, self.system.open(f"{self.root}/{name}", "rb"))

    def holds(self, name: str) -> bool:
        """See :class:`Store`."""
        return bool(self.system.exists(f"{self.root}/{name}"))

    def names(self) -> list[str]:
        """See :class:`Store`."""
        self.system.invalidate_cache()
        try:
            paths = self.system.ls(self.root, detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    @contextmanager
    def claim(self) -> Iterator[None]:
        """See :class:`Store`. Object stores have no locks and need no folder."""
        yield

    def sweep(self) -> None:
        """See :class:`Store`. Interrupted uploads leave nothing visible."""

    def count_free(self) -> int | None:
        """See :class:`Store`."""
        return None


# -- hashes


class HashingStream(io.RawIOBase):
    """Passes on what is written to it, and hashes it (SHA-256)."""

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__()
        self._raw, self._digest, self._position = raw, hashlib.sha256(), 0

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Pass data on, all of it."""
        self._digest.update(data)
        self._raw.write(data)
        n_bytes = memoryview(data).nbytes
        self._position += n_bytes
        return n_bytes

    def tell(self) -> int:
        """Bytes written."""
        return self._position

    def hexdigest(self) -> str:
        """SHA-256 of all that was written."""
        return self._digest.hexdigest()


@contextmanager
def create_hashed(store: Store, name: str, digests: dict[str, str]) -> Iterator[HashingStream]:
    """A stream to write a file to; its SHA-256 is in ``digests`` afterwards."""
    with store.create(name) as raw:
        stream = HashingStream(raw)
        yield stream
        digests[name] = stream.hexdigest()


def read_bounded(store: Store, name: str, limit: int) -> bytes:
    """Content of a file, or the first bytes of it if it has more than ``limit``, one more."""
    content = bytearray()
    with store.open(name) as stream:
        # In pieces: a stream takes memory for all that it is asked for, whatever there is.
        while len(content) <= limit and (chunk := stream.read(PIECE)):
            content += chunk
    return bytes(content[: limit + 1])


def hash_file(store: Store, name: str) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with store.open(name) as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
