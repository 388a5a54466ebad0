"""Writing of shapes: a folder per class, a mesh file per shape."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dreamwarp.core.listing import import_extra
from dreamwarp.data.meshes import write_mesh
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.generation.formats.folder import is_folder_name


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
