"""Meshes: .obj, .ply and .stl files by way of trimesh, in folders with a folder per class."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.files import write_beside
from dreamwarp.core.progress import Meter
from dreamwarp.core.validation import as_finite_array
from dreamwarp.data.class_folders import has_suffix, list_classes
from dreamwarp.data.dataset import DataSet
from dreamwarp.data.guards import check_file
from dreamwarp.data.shapes import MARGIN, Normalize, ShapeSet

Array = NDArray[np.float64]

SUFFIXES = (".obj", ".ply", ".stl")
# More than a mesh to learn warps from ever has, and what a laptop's memory holds as text.
MAX_BYTES = 2**30


def read_mesh(path: str | os.PathLike[str]) -> Any:
    """A mesh, or a cloud of points if the file has no faces, as an object of trimesh.

    Vertices keep their order. Attributes that the file itself holds (colours, normals, texture
    coordinates, further properties of .ply) are kept; other files that it names are not opened.
    Corners of .stl files, which repeat every vertex, are merged.
    """
    trimesh = _import_trimesh()
    file = check_file(path)
    if not has_suffix(file, SUFFIXES):
        raise ValueError(f"`{file}` must end in {', '.join(SUFFIXES)} to be read as a mesh.")
    if file.stat().st_size > MAX_BYTES:
        raise ValueError(
            f"`{file}` has {file.stat().st_size:,} bytes, and must have at most {MAX_BYTES:,}. "
            "Simplify the mesh first."
        )
    kind = file.suffix.lower()[1:]
    try:
        with file.open("rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mesh = trimesh.load(
                stream, file_type=kind, process=False, maintain_order=True, skip_materials=True
            )
            if isinstance(mesh, trimesh.Scene):
                mesh = mesh.to_mesh() if len(mesh.geometry) else trimesh.Trimesh()
    except MemoryError:
        raise
    except Exception as error:  # parsers of text raise whatever they stumble over
        raise ValueError(
            f"`{file}` can't be read as a mesh: {type(error).__name__}: {error}. Replace or remove "
            "it."
        ) from error
    if kind == "stl":
        mesh.merge_vertices()
    return _check_mesh(file, mesh)


def write_mesh(path: str | os.PathLike[str], mesh: Any) -> None:
    """Write a mesh of trimesh as .obj, .ply or .stl; beside, then renamed."""
    file = Path(path)
    if not has_suffix(file, SUFFIXES):
        raise ValueError(f"`path` must end in {', '.join(SUFFIXES)}, got {file.name!r}.")
    options: dict[str, Any] = {}
    if file.suffix.lower() != ".stl" and _has_own_normals(mesh):
        options = {"vertex_normal" if file.suffix.lower() == ".ply" else "include_normals": True}
    with write_beside(file) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content = mesh.export(file_type=file.suffix.lower()[1:], **options)
        temporary.write_bytes(content if isinstance(content, bytes) else content.encode())


def with_vertices(mesh: Any, vertices: ArrayLike, normals: ArrayLike | None = None) -> Any:
    """A copy of a mesh with other vertices (m, 3): faces and attributes as they were.

    ``normals`` (m, 3) replace those that the mesh came with; without them they are dropped.
    """
    moved = as_finite_array("vertices", vertices)
    if moved.shape != np.shape(mesh.vertices):
        raise ValueError(
            f"`vertices` must have shape {np.shape(mesh.vertices)}, as those of the mesh, got "
            f"{moved.shape}."
        )
    copy = mesh.copy()
    copy.vertices = moved
    if normals is not None:
        copy.vertex_normals = as_finite_array("normals", normals)
    return copy


def file_normals(mesh: Any) -> Array | None:
    """Normals of the vertices (m, 3) that came with a file, None if there were none."""
    return np.array(mesh.vertex_normals, np.float64) if _has_own_normals(mesh) else None


def load_shapes(
    path: str | os.PathLike[str], *, normalize: Normalize = "set", margin: float = MARGIN
) -> ShapeSet:
    """Meshes of a folder that has a folder per class; of ``train`` and ``test`` the first.

    Parameters
    ----------
    path : path
        Class names are the names of the folders in it.
    normalize, margin
        How meshes are put into the unit cube: see :meth:`ShapeSet.of`.
    """
    root = Path(path)
    listed = list_classes(root, SUFFIXES, "meshes")[0]
    meshes = []
    with Meter("reading meshes", len(listed)) as meter:
        for file, _ in listed:
            meshes.append(read_mesh(file))
            meter.advance(1)
    return ShapeSet.of(
        [np.asarray(mesh.vertices, np.float64) for mesh in meshes],
        np.array([file.label for file in listed]),
        name=str(root), normalize=normalize, margin=margin, meshes=meshes,
    )  # fmt: skip


def refuse_as_arrays(path: str | os.PathLike[str]) -> DataSet:
    """For ``load``, which gives arrays: meshes are none."""
    raise ValueError(
        f"`{path}` holds meshes, which are no arrays of samples. Read them with "
        "`dreamwarp.data.load_shapes`; `dreamwarp fit` and `dreamwarp sample` take them as they "
        "are."
    )


def _import_trimesh() -> Any:
    try:
        import trimesh
    except ImportError as error:
        raise ImportError("Meshes need trimesh: `pip install 'dreamwarp[meshes]'`.") from error
    return trimesh


def _has_own_normals(mesh: Any) -> bool:
    return "vertex_normals" in getattr(mesh, "_cache", ())


def _check_mesh(file: Path, mesh: Any) -> Any:
    vertices = np.asarray(mesh.vertices)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or not len(vertices):
        raise ValueError(f"`{file}` has no vertices in space. Replace or remove it.")
    if not np.isfinite(vertices).all():
        raise ValueError(f"`{file}` has vertices that are not finite. Mend or remove it.")
    faces = np.asarray(getattr(mesh, "faces", np.empty((0, 3), int)))
    if len(faces) and not 0 <= faces.min() <= faces.max() < len(vertices):
        raise ValueError(
            f"`{file}` has faces of vertices that it does not have: {int(faces.max())} of "
            f"{len(vertices)}. Mend or remove it."
        )
    return mesh
