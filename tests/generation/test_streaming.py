"""Streams of samples: see also ``test_generation``, which holds them against files."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dreamwarp.augment import SampleSource
from dreamwarp.generation import stream
from tests.generation.cases import make_data, make_model


def test_a_stream_goes_on() -> None:
    batches = stream(make_model(), make_data(), seed=5, first=100, batch_size=7)
    X, y = SampleSource(make_model(), make_data(), seed=5).make(100, 70)
    for k, (X_batch, y_batch) in enumerate(itertools.islice(batches, 10)):
        np.testing.assert_array_equal(X_batch, X[7 * k :][:7])
        np.testing.assert_array_equal(y_batch, y[7 * k :][:7])


def test_a_stream_with_an_end() -> None:
    sizes = [len(y) for _, y in stream(make_model(), make_data(), n=20, batch_size=8)]
    assert sizes == [8, 8, 4]


def test_sharp_samples() -> None:
    linear, cubic = (
        next(stream(make_model(), make_data(), batch_size=20, interpolation=name))[0]
        for name in ("linear", "cubic")
    )
    sharp = SampleSource(make_model(), make_data(), interpolation="cubic").make(0, 20)[0]
    np.testing.assert_array_equal(cubic, sharp)
    assert (linear != cubic).any()


def test_bad_options_are_refused_at_once() -> None:
    for options, message in (
        ({"interpolation": "spline"}, r"`interpolation` must be .*cubic.*, got 'spline'"),
        ({"batch_size": 0}, r"`batch_size` must be an integer of at least 1, got 0"),
        ({"batch_size": 2.5}, r"`batch_size` must be an integer of at least 1, got 2\.5"),
        ({"first": -1}, r"`first` must be an integer of at least 0, got -1"),
        ({"n": 0}, r"`n` must be an integer of at least 1, got 0"),
        ({"first": "a"}, r"`first` must be an integer of at least 0, got 'a'"),
        ({"first": 2**62}, r"`first` must be below 2\^62, as all numbers of samples, got 46116860"),
        ({"first": 2**62 - 1, "n": 2}, r"samples are numbered below 2\^62, got .* Ask for fewer"),
    ):
        with pytest.raises(ValueError, match=message):
            stream(make_model(), make_data(), **options)  # type: ignore[arg-type]
