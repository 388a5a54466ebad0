"""A folder per class, a file per sample: PNG, NIfTI or a mesh."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.source import SampleForm
from dreamwarp.core.listing import import_extra
from dreamwarp.data.meshes import write_mesh
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.data.volumes import MAX_CHANNELS, encode_volume
from dreamwarp.generation.formats.base import Add, ShardFormat
from dreamwarp.generation.formats.png import encode_png, fits_png
from dreamwarp.generation.shards import Shard
from dreamwarp.generation.stores import Store, create_hashed, hash_file

# Valid folder names on every system, not hidden, without parent folders.
SAFE_NAME = re.compile(r"[\w+-]([\w +.,@=()-]*[\w+)-])?")
# Windows device names, and the names of a set's own files, in any case.
RESERVED = re.compile(
    r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?|manifest\.json|listing-\d{5}\.txt", re.IGNORECASE
)
MAX_NAME = 200
# Dtypes of NIfTI: it has no booleans and no half precision.
STORED = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float32", "float64")  # fmt: skip


def is_folder_name(name: str) -> bool:
    """Whether a class name is the valid name of a folder on every system, and not reserved."""
    is_safe = SAFE_NAME.fullmatch(name) and not RESERVED.fullmatch(name)
    return bool(is_safe) and len(name.encode()) <= MAX_NAME


class FolderFormat(ShardFormat):
    """``<class>/<number of the sample>.png``.

    A shard is a range of numbers. ``listing-00000.txt`` and so on list its files and hashes, in
    the format of ``sha256sum --check``; listings are written after the images.
    """

    name, stem, suffix = "folder", "listing", "txt"
    ending: ClassVar[str] = ".png"

    @classmethod
    def find_misfit(cls, form: SampleForm) -> str | None:
        """Why files can't hold samples of a form, or None."""
        if fits_png(form):
            return None
        return (
            "holds PNG images, grey of 8 or 16 bits or coloured of 8, of at most 2^26 pixels, "
            f"got {form.dtype} of shape {form.shape}"
        )

    @classmethod
    def find_fault(cls, form: SampleForm) -> str | None:
        """Why the format can't hold samples of a form, or None."""
        misfit = cls.find_misfit(form)
        if misfit is not None:
            return misfit
        folders: dict[str, Any] = {}
        for label in form.labels:
            name = str(label)
            if not is_folder_name(name):
                return (
                    "needs class names that are valid folder names on every operating system, and "
                    f"not those of its own files, got {name!r}"
                )
            other = folders.setdefault(name.casefold(), label)
            if other != label:
                return (
                    f"needs class names that differ by more than case, got {other!r} and {label!r}"
                )
        return None

    def encode_files(self, X: NDArray[Any]) -> Iterable[bytes]:
        """Contents of the files of samples."""
        return encode_png(X)

    def encode(self, first: int, X: NDArray[Any], y: NDArray[Any]) -> list[tuple[str, bytes]]:
        """Names and contents of the files of samples."""
        files = zip(self.encode_files(X), y.tolist(), strict=True)
        return [
            (f"{label}/{number:012d}{self.ending}", content)
            for number, (content, label) in enumerate(files, start=first)
        ]

    @contextmanager
    def create(self, store: Store, shard: Shard, digests: dict[str, str]) -> Iterator[Add]:
        """See :class:`ShardFormat`."""
        listing = bytearray()
        with store.create_many() as put:

            def add(encoded: list[tuple[str, bytes]]) -> None:
                for name, content in encoded:
                    put(name, content)
                    listing.extend(f"{hashlib.sha256(content).hexdigest()}  {name}\n".encode())

            yield add
        with create_hashed(store, self.names(shard)[0], digests) as stream:
            stream.write(listing)

    def digests(self, store: Store, shard: Shard) -> dict[str, str]:
        """SHA-256 of the listing; ValueError if a listed image has another hash."""
        (name,) = self.names(shard)
        found, folders = hash_file(store, name), {str(label) for label in self.form.labels}
        with store.open(name) as stream:
            for number in range(shard.first, shard.first + shard.n):
                line = stream.readline(MAX_NAME + 128)
                sha256, _, image = line.decode("utf-8", "replace").rstrip("\n").partition("  ")
                folder = image.partition("/")[0]
                # A malicious listing can't name other files.
                if folder not in folders or image != f"{folder}/{number:012d}{self.ending}":
                    raise ValueError(f"sample {number} has an invalid line in `{name}`: {line!r}.")
                if hash_file(store, image) != sha256:
                    raise ValueError(f"`{image}` differs from its hash in `{name}`.")
        return {name: found}


class NiftiFormat(FolderFormat):
    """``<class>/<number of the sample>.nii.gz`` with the data's affine; see ``FolderFormat``."""

    name = "nifti"
    ending = ".nii.gz"

    @classmethod
    def find_misfit(cls, form: SampleForm) -> str | None:
        """Why files can't hold samples of a form, or None."""
        is_volume = len(form.shape) == 3 or (len(form.shape) == 4 and form.shape[0] <= MAX_CHANNELS)
        if is_volume and form.dtype.name in STORED:
            return None
        return (
            f"holds volumes (x, y, z), or (channels, x, y, z) of at most {MAX_CHANNELS} channels, "
            "of integers or floats of 32 or 64 bits, got "
            f"{form.dtype} of shape {form.shape}"
        )

    def encode_files(self, X: NDArray[Any]) -> Iterable[bytes]:
        """Contents of the files of samples."""
        affine = np.eye(4) if self.form.affine is None else self.form.affine
        return (encode_volume(volume, affine) for volume in X)


def write_shapes(
    shapes: ShapeSet,
    out: str | os.PathLike[str],
    *,
    suffix: str = ".ply",
    first: int = 0,
) -> None:
    """Write shapes as ``<class>/<number>.ply``.

    Shapes without faces become point clouds; 2-D points get a third coordinate of 0. Each file is
    written atomically. After an interruption, the same call writes all files again.
    """
    root, labels = Path(out), [str(label) for label in shapes.y.tolist()]
    for label in set(labels):
        if not is_folder_name(label):
            raise ValueError(
                "class names must be valid folder names on every operating system, got "
                f"{label!r}. Rename the class."
            )
    meshes = shapes.meshes
    if not meshes:
        trimesh = import_extra("trimesh", "meshes", "a mesh")
        flat = ((0, 0), (0, 3 - shapes.ndim))
        meshes = tuple(trimesh.PointCloud(np.pad(points, flat)) for points in shapes.points)
    for k, (label, mesh) in enumerate(zip(labels, meshes, strict=True)):
        write_mesh(root / label / f"{first + k:012d}{suffix}", mesh)
