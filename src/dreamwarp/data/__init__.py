"""Data in: readers of many kinds of files, and data sets by name."""

from dreamwarp.core.listing import public_names
from dreamwarp.data.dataset import DataSet, PaperSplit, Part, paper_split
from dreamwarp.data.idx import read_idx, write_idx
from dreamwarp.data.images import read_image
from dreamwarp.data.named import digits, fashion_mnist, mnist
from dreamwarp.data.readers import load
from dreamwarp.data.shipped import mnist_small

__all__ = [
    "DataSet",
    "PaperSplit",
    "Part",
    "digits",
    "fashion_mnist",
    "load",
    "mnist",
    "mnist_small",
    "paper_split",
    "read_idx",
    "read_image",
    "write_idx",
]


def __dir__() -> list[str]:
    return public_names(globals())
