"""The gate for samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dreamwarp as dw
from dreamwarp.core import samples
from dreamwarp.core.samples import (
    are_channels_last,
    as_array,
    check_finite,
    check_layout,
    choose_balanced,
)


@pytest.mark.parametrize(
    ("shape", "ndim", "is_so"),
    [
        ((28, 28, 3), 2, True), ((28, 28, 1), 2, True), ((3, 28, 28), 2, False),
        ((28, 28), 2, False), ((8, 8, 3), 2, True), ((7, 7, 3), 2, False), ((20, 28, 5), 2, False),
        ((100, 2), 1, True), ((2, 100), 1, False), ((16, 16, 16, 4), 3, True),
    ],
)  # fmt: skip
def test_channels_last_are_recognised(shape: tuple[int, ...], ndim: int, is_so: bool) -> None:
    assert are_channels_last(shape, ndim) is is_so


def test_every_entrance_refuses_channels_last() -> None:
    X, y = np.random.default_rng(0).random((6, 28, 28, 3)), [0, 0, 0, 1, 1, 1]
    space = dw.WarpSpace((4, 4))
    model = dw.WarpModel.fit(space, {k: 0.1 * np.eye(50)[:20] for k in (0, 1)})
    entrances: list[Any] = [
        lambda: dw.Augmenter().fit(X, y),
        lambda: dw.Warp(space, np.zeros(50)).image(X),
        lambda: dw.align_pairs(space, X[:3], X[3:]),
        lambda: dw.stream(model, (X, y)),
    ]
    for entrance in entrances:
        with pytest.raises(ValueError, match=r"channels before its spatial axes.*moveaxis"):
            entrance()


def test_torch_refuses_channels_last() -> None:
    torch = pytest.importorskip("torch")
    from dreamwarp.torch import LearnedWarp

    model = dw.WarpModel.fit(dw.WarpSpace((4, 4)), {k: 0.1 * np.eye(50)[:20] for k in (0, 1)})
    with pytest.raises(ValueError, match=r"channels before its spatial axes.*movedim"):
        LearnedWarp(model)(torch.zeros(2, 28, 28, 3), torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((28,), r"\(n, \*spatial\) or \(n, channels, \*spatial\) with 2 spatial axes"),
        ((1, 2, 3, 28, 28), r"got \(1, 2, 3, 28, 28\)"),
        ((2, 0, 28), "at least one pixel"),
    ],
)
def test_layouts_are_checked(shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_layout("X", shape, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part_bytes", [1, 2**20])
def test_values_that_are_not_finite_are_named(
    monkeypatch: pytest.MonkeyPatch, value: float, part_bytes: int
) -> None:
    monkeypatch.setattr(samples, "CHUNK_BYTES", part_bytes)
    X = np.zeros((5, 3, 4), np.float32)
    check_finite("X", X)
    X[3, 1, 2] = value
    with pytest.raises(ValueError, match=r"`X` must be finite, got .* at index \(3, 1, 2\)"):
        check_finite("X", X)


def test_values_may_be_bounded() -> None:
    X = np.array([[1.0, -1e101]])
    check_finite("X", X)
    with pytest.raises(
        ValueError, match=r"at most 1e\+100 in size, got -1e\+101 at index \(0, 1\)"
    ):
        check_finite("X", X, at_most=1e100)
    check_finite("X", np.full((2, 2), 6e4, np.float16), at_most=1e100)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[1.0, 2.0], [3.0]], r"samples of one shape, got \(1,\), \(2,\)"),
        (["a"], "booleans, integers or floating-point"),
        (np.zeros(2, complex), "got dtype complex128"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(values: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        as_array("X", values)


def test_items_are_spread_evenly() -> None:
    groups = np.repeat([0, 1, 2], [100, 5, 50])
    chosen = choose_balanced(groups, 35)
    assert np.bincount(groups[chosen]).tolist() == [15, 5, 15]
    assert (np.diff(chosen) > 0).all()
    np.testing.assert_array_equal(choose_balanced(groups, 200), np.arange(155))
