"""Tar archives, read where they are: nothing in them is unpacked to disk.

Python's own reader takes a damaged header for the end of an archive, so that what follows is left
out in silence, and takes memory for what a header declares before it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

BLOCK = 512
# Where a header has its fields.
NAME, SIZE, CHECKSUM = slice(0, 100), slice(124, 136), slice(148, 156)
TYPE, MAGIC, PREFIX = slice(156, 157), slice(257, 263), slice(345, 500)
# Types of members: plain files; folders, links and devices, which have no content; and what holds
# more of the next header than fits into it, as POSIX and as GNU write that.
FILES, WITHOUT_CONTENT = (b"0", b"\0", b"7"), (b"1", b"2", b"3", b"4", b"5", b"6")
RECORDS, LONG_NAME, IGNORED = b"x", b"L", (b"g", b"K")
# Longest of those: names are far shorter.
MAX_RECORDS = 2**16


class Member(NamedTuple):
    """A file in an archive: its name, and where its content is."""

    name: str
    offset: int
    size: int


def list_members(file: Path, stream: BinaryIO) -> Iterator[Member]:
    """The plain files of an archive, one after the other.

    ValueError if a header is damaged, or the archive ends before it should. Between two members
    the stream may be read elsewhere.
    """
    n_bytes = os.fstat(stream.fileno()).st_size
    position, extra = 0, _Extra(None, None)
    while True:
        stream.seek(position)
        header = stream.read(BLOCK)
        if len(header) < BLOCK:
            raise _truncated(file, "it ends without the mark of its end")
        if not any(header):
            return
        kind = _check_header(file, header, position)[TYPE]
        size = _read_size(file, header) if extra.size is None else extra.size
        size, position = 0 if kind in WITHOUT_CONTENT else size, position + BLOCK
        if size > n_bytes - position:
            raise _truncated(
                file, f"`{_read_name(header)}` in it declares {size:,} bytes, and "
                f"{n_bytes - position:,} are there"
            )  # fmt: skip
        if kind in (RECORDS, LONG_NAME):
            if size > MAX_RECORDS:
                raise ValueError(f"`{file}` has a name of {size:,} bytes: it is damaged.")
            content = stream.read(size)
            extra = _parse(file, content) if kind == RECORDS else extra._replace(name=content)
        elif kind not in IGNORED:
            if kind in FILES:
                name = _read_name(header) if extra.name is None else _decode(extra.name)
                yield Member(name, position, size)
            elif kind not in WITHOUT_CONTENT:
                raise ValueError(
                    f"`{file}` holds more than plain files: `{_read_name(header)}` is of type "
                    f"{kind!r}. Pack it again without sparse files."
                )
            extra = _Extra(None, None)
        position += size + -size % BLOCK


class _Extra(NamedTuple):
    """What members before a file say of it."""

    name: bytes | None
    size: int | None


def _check_header(file: Path, header: bytes, position: int) -> bytes:
    """A header, if it has the sum that it declares: of all bytes, with blanks in place of it."""
    found = sum(header) - sum(header[CHECKSUM]) + sum(b" " * 8)
    if _read_octal(header[CHECKSUM]) != found:
        raise ValueError(
            f"`{file}` is not a sound tar archive: no header where one belongs, at byte "
            f"{position:,}. {_advise(header, position)}"
        )
    return header


def _advise(header: bytes, position: int) -> str:
    if position == 0 and header.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
        return "It is compressed: unpack it first."
    return "Make or fetch it again."


def _read_size(file: Path, header: bytes) -> int:
    field = header[SIZE]
    # Large ones are in base 256, which a first bit says.
    size = int.from_bytes(field[4:], "big") if field[0] == 0x80 else _read_octal(field)
    if size is None:
        raise ValueError(f"`{file}` is not a sound tar archive: {field!r} is no size of a file.")
    return size


def _read_octal(field: bytes) -> int | None:
    digits = field.partition(b"\0")[0].strip(b" ")
    return int(digits or b"0", 8) if not digits.strip(b"01234567") else None


def _read_name(header: bytes) -> str:
    name, prefix = (header[part].partition(b"\0")[0] for part in (NAME, PREFIX))
    is_posix = header[MAGIC] == b"ustar\0"
    return _decode(prefix + b"/" + name if prefix and is_posix else name)


def _decode(name: bytes) -> str:
    return name.rstrip(b"\0").decode("utf-8", "replace")


def _parse(file: Path, content: bytes) -> _Extra:
    """Name and size from records of ``length key=value`` and the end of a line."""
    found: dict[bytes, bytes] = {}
    position = 0
    while position < len(content):
        blank = content.find(b" ", position, position + 8)
        digits = content[position:blank] if blank > 0 else b""
        end = position + int(digits) if digits.isdigit() else 0
        if not blank < end <= len(content) or content[end - 1 : end] != b"\n":
            raise ValueError(f"`{file}` is not a sound tar archive: it has damaged records.")
        key, _, value = content[blank + 1 : end - 1].partition(b"=")
        found[key] = value
        position = end
    if any(key.startswith(b"GNU.sparse") for key in found):
        raise ValueError(f"`{file}` holds sparse files. Pack it again without.")
    size = found.get(b"size")
    if size is not None and not (size.isdigit() and len(size) < 20):
        raise ValueError(f"`{file}` is not a sound tar archive: {size!r} is no size of a file.")
    return _Extra(found.get(b"path"), None if size is None else int(size))


def _truncated(file: Path, reason: str) -> ValueError:
    return ValueError(f"`{file}` is a truncated tar archive: {reason}. Make or fetch it again.")
