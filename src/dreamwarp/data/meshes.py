"""Meshes: .obj, .ply and .stl files, single or in folders with one folder per class (trimesh)."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.files import check_suffix, write_beside
from dreamwarp.core.listing import import_extra
from dreamwarp.core.progress import tracked
from dreamwarp.data.dataset import DataSet, list_classes
from dreamwarp.data.guards import check_file, reading_as
from dreamwarp.data.shapes import MARGIN, Normalize, ShapeSet

Array = NDArray[np.float64]

SUFFIXES = (".obj", ".ply", ".stl")
# Larger than any mesh to learn warps from, and small enough to parse in a laptop's memory.
MAX_BYTES = 2**30


def read_mesh(path: str | os.PathLike[str]) -> Any:
    """A trimesh mesh, or a point cloud if the file has no faces.

    Vertices keep their order. Attributes in the file (colours, normals, texture coordinates, other
    properties of .ply) are kept; files it refers to are not opened. The repeated vertices of .stl
    files are merged.
    """
    trimesh = import_extra("trimesh", "meshes", "a mesh")
    file = check_suffix(check_file(path), SUFFIXES, "meshes")
    if file.stat().st_size > MAX_BYTES:
        raise ValueError(
            f"`{file}` must have at most {MAX_BYTES:,} bytes, got {file.stat().st_size:,}. "
            "Simplify the mesh first."
        )
    kind = file.suffix.lower()[1:]
    with (
        reading_as("a mesh", file, (Exception,)),  # trimesh's parsers raise errors of any kind
        file.open("rb") as stream,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        mesh = trimesh.load(
            stream, file_type=kind, process=False, maintain_order=True, skip_materials=True
        )
        if isinstance(mesh, trimesh.Scene):
            mesh = mesh.to_mesh() if len(mesh.geometry) else trimesh.Trimesh()
    if kind == "stl":
        mesh.merge_vertices()
    return _check_mesh(file, mesh)


def write_mesh(path: str | os.PathLike[str], mesh: Any) -> None:
    """Write a trimesh mesh as .obj, .ply or .stl, atomically."""
    file = check_suffix(path, SUFFIXES, "meshes")
    kind = file.suffix.lower()[1:]
    if kind == "stl" and not len(getattr(mesh, "faces", ())):
        raise ValueError(
            f"`{file.name}` must have faces, which .stl needs, and has only points. Use .ply."
        )
    option = {"obj": "include_normals", "ply": "vertex_normal"}.get(kind)
    options = {option: True} if option and _has_own_normals(mesh) else {}
    with write_beside(file) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content = mesh.export(file_type=kind, **options)
        temporary.write_bytes(content if isinstance(content, bytes) else content.encode())


def with_vertices(mesh: Any, vertices: Array, normals: Array | None = None) -> Any:
    """A copy of a mesh with new vertices (m, 3) and the same faces and attributes.

    ``normals`` (m, 3) replace those of the mesh; without them, normals are dropped.
    """
    copy = mesh.copy()
    copy.vertices = vertices
    if normals is not None:
        copy.vertex_normals = normals
    return copy


def file_normals(mesh: Any) -> Array | None:
    """Vertex normals (m, 3) read from the file; None if it has none."""
    return np.array(mesh.vertex_normals, np.float64) if _has_own_normals(mesh) else None


def load_shapes(
    path: str | os.PathLike[str], *, normalize: Normalize = "set", margin: float = MARGIN
) -> ShapeSet:
    """Meshes of a folder that holds one folder per class. A ``test`` part is not read.

    ``normalize`` and ``margin`` set how meshes are scaled to the unit cube; see
    :meth:`ShapeSet.of`.
    """
    files, labels, n_train = list_classes(Path(path), SUFFIXES, "meshes")
    meshes = [read_mesh(file) for file in tracked(files[:n_train], n_train, "reading meshes")]
    return ShapeSet.of(
        [np.asarray(mesh.vertices, np.float64) for mesh in meshes], labels[:n_train],
        name=str(Path(path)), normalize=normalize, margin=margin, meshes=meshes,
    )  # fmt: skip


def refuse_as_arrays(path: str | os.PathLike[str]) -> DataSet:
    """Raise the error of ``load`` for meshes."""
    raise ValueError(
        f"`{path}` holds meshes, but `load` reads arrays. Read them with "
        "`dreamwarp.data.load_shapes`, or pass the folder to `dreamwarp fit`, `sample`, `report` "
        "or `figure`."
    )


def _has_own_normals(mesh: Any) -> bool:
    return "vertex_normals" in getattr(mesh, "_cache", ())


def _check_mesh(file: Path, mesh: Any) -> Any:
    vertices = np.asarray(mesh.vertices)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or not len(vertices):
        raise ValueError(f"`{file}` has no vertices (m, 3). Replace or remove it.")
    if not np.isfinite(vertices).all():
        raise ValueError(f"`{file}` has vertices that are not finite. Repair or remove it.")
    faces = np.asarray(getattr(mesh, "faces", np.empty((0, 3), int)))
    if len(faces) and not 0 <= faces.min() <= faces.max() < len(vertices):
        raise ValueError(
            f"`{file}` must have vertices 0 to {len(vertices) - 1} in its faces, got "
            f"{int(faces.min())} to {int(faces.max())}. Repair or remove it."
        )
    return mesh
