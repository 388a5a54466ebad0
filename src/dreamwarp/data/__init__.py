"""Readers of many kinds of files, and data sets by name."""

from dreamwarp.core.listing import public_names
from dreamwarp.data.dataset import DataSet, Labeled
from dreamwarp.data.idx import read_idx
from dreamwarp.data.images import read_image
from dreamwarp.data.meshes import load_shapes, read_mesh, write_mesh
from dreamwarp.data.named import digits, fashion_mnist, mnist, mnist_small
from dreamwarp.data.readers import load
from dreamwarp.data.shapes import Box, ShapeSet
from dreamwarp.data.volumes import VoxelGrid, read_volume, write_volume

__all__ = [
    "Box",
    "DataSet",
    "Labeled",
    "ShapeSet",
    "VoxelGrid",
    "digits",
    "fashion_mnist",
    "load",
    "load_shapes",
    "mnist",
    "mnist_small",
    "read_idx",
    "read_image",
    "read_mesh",
    "read_volume",
    "write_mesh",
    "write_volume",
]


def __dir__() -> list[str]:
    return public_names(globals())
