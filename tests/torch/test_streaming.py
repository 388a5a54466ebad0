"""Streams of samples as a torch dataset."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from dreamwarp.augment import SampleSource  # noqa: E402
from dreamwarp.torch.streaming import SampleStream  # noqa: E402
from tests.generation.cases import make_data, make_model  # noqa: E402


def make(**options: Any) -> SampleStream:
    settings: dict[str, Any] = {"seed": 2, "first": 9, "n": 70, "batch_size": 8}
    return SampleStream(make_model(), make_data(), **{**settings, **options})


def check(batches: list[Any]) -> None:
    X, y = SampleSource(make_model(), make_data(), seed=2).make(9, 70)
    np.testing.assert_array_equal(torch.cat([X for X, _ in batches]), X)
    np.testing.assert_array_equal(torch.cat([y for _, y in batches]), y)
    assert batches[0][0].dtype == torch.uint8 and batches[0][1].dtype == torch.int64


@pytest.mark.parametrize("n_workers", [0, 1, 2])
def test_workers_leave_no_trace(n_workers: int) -> None:
    loader = DataLoader(
        make(), batch_size=None, num_workers=n_workers,
        multiprocessing_context="fork" if n_workers else None,
    )  # fmt: skip
    batches = list(loader)
    assert len(batches) == len(loader) == 9
    check(batches)


def test_ranks_take_turns() -> None:
    streams = [make(rank=rank, world_size=2) for rank in range(2)]
    assert [len(stream) for stream in streams] == [5, 4]
    parts = [list(stream) for stream in streams]
    check([parts[b % 2][b // 2] for b in range(9)])


def test_a_stream_without_end_has_no_length() -> None:
    stream = make(n=None)
    assert len(next(iter(stream))[1]) == 8
    with pytest.raises(TypeError, match=r"an endless stream has no length"):
        len(stream)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_epochs_follow_one_another(n_workers: int) -> None:
    stream = make()
    loader = DataLoader(
        stream, batch_size=None, num_workers=n_workers, persistent_workers=n_workers > 0,
        multiprocessing_context="fork" if n_workers else None,
    )  # fmt: skip
    expected, _ = SampleSource(make_model(), make_data(), seed=2).make(9, 210)
    for epoch in (0, 2, 1, 1):
        stream.set_epoch(epoch)
        found = torch.cat([X for X, _ in loader])
        np.testing.assert_array_equal(found, expected[70 * epoch : 70 * (epoch + 1)])


def test_samples_that_come_again_are_noticed() -> None:
    stream = make()
    first = list(stream)
    with pytest.warns(UserWarning, match=r"batch 0 was drawn twice in epoch 0.*set_epoch\("):
        again = list(stream)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    endless = make(n=None)
    next(iter(endless))
    with pytest.warns(UserWarning, match=r"batch 0 was drawn twice .* the same iterator"):
        next(iter(endless))


def test_bad_epochs_are_refused() -> None:
    with pytest.raises(TypeError, match=r"an endless stream has no epochs\. Give `n`"):
        make(n=None).set_epoch(1)
    with pytest.raises(ValueError, match=r"`epoch` must be an integer of at least 0, got -1"):
        make().set_epoch(-1)
    with pytest.raises(ValueError, match=r"below 2\^62, but epoch \d+ of 70 samp"):
        make().set_epoch(2**62 // 70)


def test_words_become_places_among_the_classes() -> None:
    names = ("cat", "dog", "ox")
    stream = SampleStream(make_model(names), make_data(names), n=6, batch_size=6)
    ((_, y),) = list(stream)
    assert stream.classes[y].tolist() == [*names, *names]


def test_it_survives_pickling() -> None:
    check(list(pickle.loads(pickle.dumps(make()))))


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 2), (0, 0)])
def test_bad_ranks_are_refused(rank: int, world_size: int) -> None:
    with pytest.raises(ValueError, match=rf"`rank` must be from 0 to `world_size` - 1, got {rank}"):
        make(rank=rank, world_size=world_size)
