"""A slice of MNIST that comes with the package, and how it was cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dreamwarp.data.dataset import DataSet, Part

# Source and licence are beside it, in mnist_small.txt.
FILE = Path(__file__).parent / "files" / "mnist_small.npz"
# Images of each class to learn from, and every how many-th test image is kept.
N_PER_CLASS, TEST_STEP = 100, 5


def mnist_small() -> DataSet:
    """A slice of MNIST in the package: 1,000 digits, 100 per class, and 2,000 for testing, 28 x 28.

    Values are uint8 and labels 0 to 9, as in MNIST. Nothing is fetched.
    """
    with np.load(FILE, allow_pickle=False) as arrays:
        X, y, X_test, y_test = (arrays[name] for name in ("X", "y", "X_test", "y_test"))
    return DataSet("mnist-small", X, y, Part(X_test, y_test))


def cut_mnist(mnist: DataSet) -> DataSet:
    """The slice: images at even steps through each class, and every fifth test image.

    Even steps, because the files are not shuffled: the first half of the test images is easier.
    """
    chosen = []
    for label in mnist.classes:
        members = np.flatnonzero(mnist.y == label)
        chosen.append(members[np.arange(N_PER_CLASS) * len(members) // N_PER_CLASS])
    kept = np.sort(np.concatenate(chosen))
    test = Part(mnist.X_test[::TEST_STEP], mnist.y_test[::TEST_STEP])
    return DataSet("mnist-small", mnist.X[kept], mnist.y[kept], test)


def write_slice(data: DataSet) -> Path:
    """Replace the file of the package by a slice."""
    np.savez_compressed(FILE, X=data.X, y=data.y, X_test=data.X_test, y_test=data.y_test)
    return FILE
