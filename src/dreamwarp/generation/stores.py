"""Storage of sets: a local folder, or any URL that fsspec supports.

Files appear only when complete. Local files are renamed into place; object stores show an object
when its upload is complete.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from dreamwarp.core.files import (
    find_system,
    is_address,
    make_folder,
    remove,
    unfinished,
    write_beside,
)
from dreamwarp.core.progress import describe_bytes

Put = Callable[[str, bytes], None]

# Temporary files and folders that killed runs may have left.
LEFTOVER = re.compile(
    r"\.(manifest|(images|labels|shard|listing)-\d{5}[\w-]*|pictures|train-(images|labels)-idx\d-ubyte)"
    r"-[0-9a-f]{8}(\.\w+)?"
)
# Bytes read at a time: to hash a file, and to keep its content.
CHUNK, PIECE = 2**20, 2**16


class LocalStore:
    """A local folder of files."""

    def __init__(self, folder: Path) -> None:
        # Workers of a cluster may have another working directory.
        self.folder = folder.absolute()
        self.title = str(folder)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """A stream to write a file to; the file appears if the block succeeds."""
        with write_beside(self.folder / name) as temporary, temporary.open("wb") as stream:
            yield stream

    @contextmanager
    def create_many(self) -> Iterator[Put]:
        """A function ``(name, content)`` for small files, which appear if the block succeeds."""
        beside = self.folder / f".pictures-{secrets.token_hex(4)}"
        names: list[str] = []  # Path objects would take several times the memory

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
        """A stream to read a file from; FileNotFoundError if it does not exist."""
        return (self.folder / name).open("rb")

    def names(self) -> list[str]:
        """Names at the first level, without leftovers of killed runs."""
        return [name for name in sorted(os.listdir(self.folder)) if not LEFTOVER.fullmatch(name)]

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Create the folder, and lock it against other processes if possible.

        Afterwards, remove it if it is new and empty.
        """
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
        except ImportError:  # on Windows
            yield
            return
        try:
            handle = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            raise OSError(
                f"`{self.title}` can't be opened: {error.strerror}. Choose a folder that you can "
                "read and write."
            ) from error
        with ExitStack() as stack:
            stack.callback(os.close, handle)
            try:
                # The operating system releases the lock when this process ends, in whatever way.
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError(
                    f"`{self.title}` is being written by another process. Wait for it to end."
                ) from None
            except OSError:
                pass  # a file system without locks
            yield

    def sweep(self) -> None:
        """Remove leftovers of killed runs."""
        for name in os.listdir(self.folder):
            if LEFTOVER.fullmatch(name):
                remove(self.folder / name)

    def count_free(self) -> int | None:
        """Free space in bytes, or None if unknown."""
        return shutil.disk_usage(self.folder).free


class RemoteStore:
    """A folder of a file system of fsspec, with the methods of :class:`LocalStore`."""

    def __init__(self, address: str, system: Any, root: str) -> None:
        self.title = address
        self.system, self.root = system, root

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """See :class:`LocalStore`."""
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
        """See :class:`LocalStore`. Each file appears at once: object stores rename by copying."""
        yield lambda name, content: self.system.pipe_file(f"{self.root}/{name}", content)

    def open(self, name: str) -> BinaryIO:
        """See :class:`LocalStore`."""
        return cast(BinaryIO, self.system.open(f"{self.root}/{name}", "rb"))

    def names(self) -> list[str]:
        """See :class:`LocalStore`."""
        self.system.invalidate_cache()
        try:
            paths = self.system.ls(self.root, detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def claim(self) -> AbstractContextManager[None]:
        """Does nothing: object stores have no folders and no locks."""
        return nullcontext()

    def sweep(self) -> None:
        """Does nothing: unfinished uploads leave nothing visible."""

    def count_free(self) -> int | None:
        """None: unknown."""
        return None


Store: TypeAlias = LocalStore | RemoteStore


def open_store(address: str | os.PathLike[str]) -> Store:
    """The store at a path, or at a URL such as ``s3://bucket/folder``."""
    if not is_address(address):
        return LocalStore(Path(address))
    system, path = find_system(str(address))
    from fsspec.implementations.local import LocalFileSystem

    if isinstance(system, LocalFileSystem):
        return LocalStore(Path(path))
    return RemoteStore(str(address), system, path.rstrip("/"))


def check_room(store: Store, n_needed: int | None, what: str) -> None:
    """Raise if a store has less free space than ``what`` needs; None: unknown."""
    n_free = store.count_free()
    if n_needed is not None and n_free is not None and n_needed > n_free:
        raise OSError(
            f"`{store.title}` must have room for {what}, {describe_bytes(n_needed)}, got "
            f"{describe_bytes(n_free)}. Ask for fewer, or choose another disk."
        )


# -- hashes


class HashingStream(io.RawIOBase):
    """Passes data on to a stream, and hashes it (SHA-256)."""

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__()
        self.digest = hashlib.sha256()  # of the bytes written
        self._raw = raw

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """Write and hash all of the data."""
        self.digest.update(data)
        self._raw.write(data)
        return memoryview(data).nbytes


@contextmanager
def create_hashed(store: Store, name: str, digests: dict[str, str]) -> Iterator[HashingStream]:
    """A stream to write a file to; afterwards its SHA-256 is in ``digests``."""
    with store.create(name) as raw:
        stream = HashingStream(raw)
        yield stream
        digests[name] = stream.digest.hexdigest()


def read_bounded(store: Store, name: str, limit: int) -> bytes:
    """The content of a file, cut off after ``limit`` + 1 bytes."""
    content = bytearray()
    with store.open(name) as stream:
        # In pieces: read(n) allocates n bytes even if the file is shorter.
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
