"""Load and save model files at paths, or at URLs that fsspec supports."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dreamwarp.commands import options
from dreamwarp.core.files import (
    check_writable,
    is_address,
    local_copy,
    refuse_existing,
    temporary_folder,
)

if TYPE_CHECKING:
    from dreamwarp.data import DataSet
    from dreamwarp.data.shapes import ShapeSet
    from dreamwarp.generation.stores import Store
    from dreamwarp.model import WarpModel


def read_model(source: str) -> WarpModel:
    """Load the model at a path or a URL."""
    from dreamwarp.model import WarpModel

    with local_copy(source) as file:
        return WarpModel.load(file)


def read_samples(
    data: str, reading: options.Reading, *, only_for_arrays: Sequence[str] = (), **scale: Any
) -> DataSet | ShapeSet:
    """Load samples with options of ``load``, or meshes with options of ``load_shapes``.

    Raise if options of the former, or those in ``only_for_arrays``, were given for meshes.
    """
    from dreamwarp.data import load, load_shapes
    from dreamwarp.data.readers import are_meshes

    if not are_meshes(data):
        return load(data, **reading.options)
    reading.refuse_for_meshes(*only_for_arrays)
    return load_shapes(data, **scale)


def load_with_data(
    model: str, data: str, reading: options.Reading, *, only_for_arrays: Sequence[str] = ()
) -> tuple[WarpModel, DataSet | ShapeSet]:
    """Load a model and the samples or meshes that it was fitted to; see ``read_samples``."""
    fitted = read_model(model)
    # Scaled as those that the model was fitted to; former versions called the setting "shapes".
    scale = fitted.settings.get("normalize", fitted.settings.get("shapes", "set"))
    return fitted, read_samples(data, reading, only_for_arrays=only_for_arrays, normalize=scale)


def check_target(output: str, *, overwrite: bool) -> None:
    """Raise if the output exists or can't be written. Call it before long work."""
    if is_address(output):
        _split_address(output)
    if not overwrite:
        refuse_existing(output)
    if not is_address(output):
        check_writable(output)


def write_model(model: WarpModel, output: str) -> None:
    """Write a model to a path or a URL, atomically."""
    if not is_address(output):
        model.save(output)
        return
    store, name = _split_address(output)
    with temporary_folder() as folder:
        file = folder / name
        model.save(file)
        with file.open("rb") as content, store.create(name) as target:
            shutil.copyfileobj(content, target)


def _split_address(output: str) -> tuple[Store, str]:
    """Split a URL into its store and a file name in it."""
    from dreamwarp.generation.stores import open_store

    folder, _, name = output.rpartition("/")
    if not name or not is_address(folder):
        raise ValueError(f"`{output}` must be the URL of a file, such as s3://bucket/digits.dwm.")
    return open_store(folder), name
