"""What notebooks show: a picture, the figures that matter, and thin shortcuts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from dreamwarp import Augmenter, SmoothPrior, Warp, data
from tests.report import cases


def check_summary(shown: str, *words: str) -> None:
    assert shown.count("<div") == shown.count("</div>") == 1
    assert re.search(r'<img src="data:image/webp;base64,[^"]+" alt="[^"]+"', shown)
    for word in words:
        assert word in shown


def test_models() -> None:
    model = cases.model(2)
    check_summary(model._repr_html_(), "left, right", "80", "gaussian")
    assert isinstance(model.plot(), Figure) and isinstance(model.plot("similarity"), Figure)
    with pytest.raises(ValueError, match="`name` must be one of 'spectrum', 'similarity'"):
        model.plot("nothing")  # type: ignore[arg-type]


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_warps(ndim: int) -> None:
    space = cases.SPACES[ndim]
    warps = Warp(space, SmoothPrior(space).sample(3, 0))
    check_summary(warps._repr_html_(), "<td", ">3<", "of the domain")
    sample = cases.data(ndim)[0][0]
    assert isinstance(warps[0].plot(sample), Figure)
    assert isinstance(warps.plot(), Figure)


def test_warps_are_drawn_with_one_sample() -> None:
    space = cases.SPACES[2]
    with pytest.raises(ValueError, match="`x` must be one sample"):
        Warp(space, np.zeros(space.dim)).plot(np.zeros((2, 3, 4, 4)))


def test_alignments() -> None:
    result = cases.study(2).alignments
    check_summary(result._repr_html_(), "50%", "SquaredError", "0.1")
    (axes,) = result.plot().axes
    np.testing.assert_allclose(
        axes.collections[0].get_offsets()[:, 1], result.loss_after, rtol=1e-12
    )


def test_augmenters() -> None:
    found = data.digits()
    some = np.concatenate([np.flatnonzero(found.y == label)[:10] for label in (0, 3)])
    augmenter = Augmenter(
        strength=1.0, n_neighbors=2, method="map", model="gaussian", progress=False
    )
    assert "Augmenter" in augmenter._repr_html_()
    bundle: Any = augmenter._repr_mimebundle_()
    assert bundle["text/plain"] == repr(augmenter)
    augmenter.fit(found.X[some], found.y[some])
    check_summary(augmenter._repr_html_(), "0, 3", "not judged", "20")
    assert augmenter._repr_mimebundle_()["text/html"] == augmenter._repr_html_()
    for name in ("samples", "alignments", "components", "warp"):
        assert isinstance(augmenter.plot(name, label=3), Figure)
    with pytest.raises(TypeError, match="'colour'"):
        augmenter.plot(colour="red")
    with pytest.raises(ValueError, match="`name` must be one of"):
        augmenter.plot("nothing")
