"""The slice of MNIST that comes with the package."""

from __future__ import annotations

import numpy as np
import pytest

import dreamwarp as dw
from dreamwarp.data import shipped
from dreamwarp.data.fetch import cache_folder
from dreamwarp.data.named import MNIST, read_recipe


def test_its_form() -> None:
    data = dw.data.mnist_small()
    assert data.describe() == "mnist-small: 1,000 + 2,000 test samples of 28 x 28 uint8, 10 classes"
    assert np.bincount(data.y).tolist() == [100] * 10
    assert dw.data.load("mnist-small").X.tobytes() == data.X.tobytes()


def test_it_is_small_and_has_its_source_and_licence_beside_it() -> None:
    assert shipped.FILE.stat().st_size < 1e6
    words = shipped.FILE.with_suffix(".txt").read_text()
    assert "LeCun" in words and "ShareAlike 3.0" in words


def test_it_is_a_part_of_mnist_to_the_bit() -> None:
    folder = cache_folder() / "mnist"
    if not all((folder / file.name).is_file() for file in MNIST.files):
        pytest.skip("MNIST has not been fetched")
    mnist, data = read_recipe(MNIST, folder), dw.data.mnist_small()
    places = {image.tobytes(): place for place, image in enumerate(mnist.X)}
    found = np.array([places[image.tobytes()] for image in data.X])
    assert (np.diff(found) > 0).all()  # in order, none twice
    np.testing.assert_array_equal(mnist.y[found], data.y)
    np.testing.assert_array_equal(mnist.X_test[::5], data.X_test)
    np.testing.assert_array_equal(mnist.y_test[::5], data.y_test)
    again = shipped.cut_mnist(mnist)
    np.testing.assert_array_equal(again.X, data.X)
