"""WarpedDataset and WarpCollate: batches are the same whatever the workers."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from dreamwarp.torch import LearnedWarp, WarpCollate, WarpedDataset, WithIndex
from dreamwarp.torch.epochs import N_REMEMBERED
from dreamwarp.torch.loading import Indexed
from tests.torch.cases import (
    Mappings,
    Pictures,
    make_images,
    make_model,
    make_template_model,
)

# On machines of few cores torch advises against the number of workers; newer versions of Python,
# against forking a process that has threads.
quietly = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning",
    "ignore:.*use of fork:DeprecationWarning",
)


def slow(*values: Any) -> Any:
    """Parameters for ``make slow``: to spawn a worker takes seconds, for it imports everything."""
    return pytest.param(*values, marks=pytest.mark.slow)


STARTS = [
    ("fork", 1), ("fork", 2), slow("fork", 4), slow("spawn", 1), ("spawn", 2), slow("spawn", 4),
]  # fmt: skip


def load(dataset: Any, **options: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return list(DataLoader(dataset, batch_size=5, shuffle=True, generator=generator, **options))


def same(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])
        for a, b in zip(first, second, strict=True)
    )


# -- workers


@quietly
@pytest.mark.parametrize(("start", "n_workers"), STARTS)
def test_batches_do_not_depend_on_workers(start: str, n_workers: int) -> None:
    dataset = WarpedDataset(Pictures(), make_model(), seed=7, epoch=2, p=0.8)
    expected = load(dataset)
    assert not same(expected, load(Pictures()))
    dataset.set_epoch(2)
    found = load(dataset, num_workers=n_workers, multiprocessing_context=start)
    assert same(found, expected)


@quietly
@pytest.mark.parametrize("start", ["fork", slow("spawn")])
def test_collated_batches_are_those_of_the_dataset(start: str) -> None:
    options = {"seed": 7, "epoch": 2, "p": 0.8}
    expected = load(WarpedDataset(Pictures(), make_model(), **options))
    collate = WarpCollate(make_model(), **options)
    assert same(load(WithIndex(Pictures()), collate_fn=collate), expected)
    collate.set_epoch(2)
    workers = {"num_workers": 1, "multiprocessing_context": start}
    assert same(load(WithIndex(Pictures()), collate_fn=collate, **workers), expected)


@quietly
@pytest.mark.parametrize("start", ["fork", slow("spawn")])
def test_workers_that_stay_hear_of_the_epoch(start: str) -> None:
    dataset = WarpedDataset(Pictures(6), make_model())
    loader = DataLoader(
        dataset, batch_size=3, num_workers=1, persistent_workers=True,
        multiprocessing_context=start,
    )  # fmt: skip
    epochs = []
    for epoch in (0, 1, 0):
        dataset.set_epoch(epoch)
        epochs.append(list(loader))
    assert same(epochs[0], epochs[2]) and not same(epochs[0], epochs[1])
    assert same(epochs[1], list(DataLoader(WarpedDataset(Pictures(6), make_model(), epoch=1), 3)))


@quietly
def test_counting_in_a_worker_is_refused() -> None:
    warp = LearnedWarp(make_model())

    def collate(samples: list[Any]) -> Any:
        return warp(torch.stack([s[0] for s in samples]), [s[1] for s in samples])

    loader = DataLoader(
        Pictures(4), 2, num_workers=1, collate_fn=collate, multiprocessing_context="fork"
    )
    with pytest.raises(RuntimeError, match=r"every worker would count the same numbers"):
        list(loader)


# -- epochs


def test_a_forgotten_epoch_is_noticed() -> None:
    dataset = WarpedDataset(Pictures(), make_model())
    first = load(dataset)
    with pytest.warns(UserWarning, match=r"sample \d+ was drawn twice in epoch 0.*set_epoch\("):
        assert same(load(dataset), first)
    load(dataset)  # said once
    collate = WarpCollate(make_model())
    assert same(load(WithIndex(Pictures()), collate_fn=collate), first)
    with pytest.warns(UserWarning, match=r"sample \d+ was drawn twice in epoch 0"):
        load(WithIndex(Pictures()), collate_fn=collate)


@pytest.mark.parametrize("shuffle", [slow(False), True])
def test_it_is_noticed_in_data_sets_of_any_size(shuffle: bool) -> None:
    images = torch.zeros(3 * N_REMEMBERED, 2, 2)
    dataset = WarpedDataset(TensorDataset(images), make_model(), keys=(0, None), unknown="pool")
    loader = DataLoader(dataset, batch_size=500, shuffle=shuffle)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        assert len(list(loader)) == 25
    with pytest.warns(UserWarning, match="was drawn twice in epoch 1"):
        list(loader)


@quietly
@pytest.mark.parametrize(
    ("start", "stay"), [("fork", False), ("fork", True), slow("spawn", False), ("spawn", True)]
)
def test_workers_notice_a_forgotten_epoch(start: str, stay: bool, capfd: Any) -> None:
    dataset = WarpedDataset(Pictures(), make_model())
    loader = DataLoader(
        dataset, batch_size=5, num_workers=2 if start == "fork" else 1, persistent_workers=stay,
        multiprocessing_context=start,
    )  # fmt: skip
    first = list(loader)
    words = "was drawn twice in epoch 0"
    if start == "fork":  # such workers have the filters of this process: warnings are errors
        with pytest.raises(UserWarning, match=words):
            list(loader)
    else:
        assert same(list(loader), first)
        assert capfd.readouterr().err.count(words) == 1
    dataset.set_epoch(0)
    assert same(list(loader), first)


def test_samplers_that_repeat_an_index_are_noticed() -> None:
    dataset = WarpedDataset(Pictures(), make_model())
    sampler = WeightedRandomSampler([1.0] * 23, 40)
    with pytest.warns(UserWarning, match=r"with replacement, use .*LearnedWarp on batches"):
        list(DataLoader(dataset, batch_size=40, sampler=sampler))
    dataset.set_epoch(1)
    list(DataLoader(dataset, batch_size=40, sampler=sampler))  # said once


# -- the data set


def test_dataset_agrees_with_the_module_in_any_batch_and_order() -> None:
    dataset = WarpedDataset(Pictures(), make_model(), seed=3, epoch=1, interpolation="cubic")
    images, labels, names = zip(*(Pictures()[i] for i in range(23)), strict=True)
    warp = LearnedWarp(make_model(), seed=3, interpolation="cubic")
    warp.set_epoch(1)
    expected, _ = warp(torch.stack(images), labels)
    single = [dataset[i] for i in range(23)]
    dataset.set_epoch(1)
    assert torch.equal(torch.stack([image for image, _, _ in single]), expected)
    assert [sample[1:] for sample in single] == list(zip(labels, names, strict=True))
    some = dataset.__getitems__([4, 20, np.int64(3), torch.tensor(1)])
    assert all(torch.equal(s[0], expected[i]) for s, i in zip(some, [4, 20, 3, 1], strict=True))
    assert torch.equal(dataset[-1][0], expected[22]) and len(dataset) == 23
    assert torch.equal(Subset(dataset, [5, 9])[1][0], expected[9])


def test_images_of_different_sizes_are_warped_one_by_one() -> None:
    dataset = WarpedDataset(Pictures(sizes=(12, 8)), make_model())
    several = dataset.__getitems__([0, 1, 2])
    dataset.set_epoch(0)
    assert [tuple(sample[0].shape) for sample in several] == [(1, n, n) for n in (12, 8, 12)]
    assert all(torch.equal(sample[0], dataset[i][0]) for i, sample in enumerate(several))
    assert dataset.__getitems__([]) == []


def test_samples_keep_their_type() -> None:
    image, sample = make_images(1, 8, 8)[0], namedtuple("Sample", "name image label")
    by_place = {"keys": (1, 2)}
    for kept in (sample("a", image, 0), ["a", image, 0], ("a", image, 0)):
        warped = WarpedDataset([kept], make_model(), **by_place)[0]
        assert type(warped) is type(kept) and warped[0] == "a" and warped[2] == 0
        assert warped[1].shape == image.shape and not torch.equal(warped[1], image)
    mapped = WarpedDataset(Mappings(), make_model(), keys=("pixels", "class"))
    assert torch.equal(mapped[4]["pixels"], WarpedDataset(Pictures(), make_model())[4][0])
    mapped.set_epoch(0)
    collated = next(iter(DataLoader(
        WithIndex(Mappings()), 5, collate_fn=WarpCollate(make_model(), keys=("pixels", "class"))
    )))  # fmt: skip
    assert torch.equal(collated["pixels"][4], mapped[4]["pixels"])


def test_samples_without_labels_get_warps_of_all_classes() -> None:
    dataset = TensorDataset(make_images(4, 1, 8, 8))
    with pytest.raises(TypeError, match=r"a label at 1, got a tuple of Tensor. Set `keys`"):
        WarpedDataset(dataset, make_model())[0]
    warped = WarpedDataset(dataset, make_model(), keys=(0, None), unknown="pool")
    expected, _ = LearnedWarp(make_model(), unknown="pool")(dataset.tensors[0])
    assert torch.equal(warped[3][0], expected[3])


def test_names_and_tensors_as_labels() -> None:
    images, names = make_images(2, 8, 8), ("a", "b")
    expected, _ = LearnedWarp(make_model(names))(images, list(names))
    by_name = WarpedDataset(list(zip(images, names, strict=True)), make_model(names))
    assert torch.equal(by_name[1][0], expected[1])
    numbered = TensorDataset(images, torch.tensor([0, 1]))
    by_place = WarpedDataset(numbered, make_model(names), classes=names)
    assert torch.equal(by_place[1][0], expected[1])


def test_templates_follow_the_index() -> None:
    model, images = make_template_model(), make_images(24, 8, 8)
    dataset = TensorDataset(images, torch.arange(24) // 12)
    warped = load(WarpedDataset(dataset, model, templates=range(24)))
    collate = WarpCollate(model, templates=np.arange(24))
    assert same(warped, load(WithIndex(dataset), collate_fn=collate))
    assert not same(warped, load(WarpedDataset(dataset, model)))
    short = WarpCollate(model, templates=[0, 1])
    with pytest.raises(ValueError, match=r"one entry for each sample .* got 2 .* index 4"):
        short([Indexed(number, dataset[number]) for number in (1, 4)])
    with pytest.raises(ValueError, match=r"each of 24 samples, got 3"):
        WarpedDataset(dataset, model, templates=[1, 2, 3])


def test_epochs() -> None:
    dataset = WarpedDataset(Pictures(), make_model())
    first = dataset[3][0]
    dataset.set_epoch(5)
    assert dataset.epoch == 5 and not torch.equal(dataset[3][0], first)
    with pytest.raises(ValueError, match=r"`epoch` must be an integer of at least 0, got -1"):
        dataset.set_epoch(-1)
    with pytest.raises(ValueError, match=r"got 0.5"):
        WarpCollate(make_model(), epoch=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
def test_copies_have_an_epoch_of_their_own(duplicate: Any) -> None:
    dataset = WarpedDataset(Pictures(), make_model(), epoch=3)
    other = duplicate(dataset)
    assert torch.equal(other[1][0], dataset[1][0])
    other.set_epoch(4)
    assert dataset.epoch == 3 and other.epoch == 4
    assert other._warps.epoch._value.is_shared()


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(make_images(3, 8, 8))


def test_wrong_input_is_refused() -> None:
    model = make_model()
    with pytest.raises(TypeError, match=r"have __getitem__ and __len__, got Stream.*LearnedWarp"):
        WithIndex(Stream())
    with pytest.raises(TypeError, match=r"have __getitem__ and __len__, got generator"):
        WarpedDataset((i for i in range(3)), model)
    with pytest.raises(ValueError, match=r"`keys` must be two.*got 'image'"):
        WarpedDataset(Pictures(), model, keys="image")
    with pytest.raises(IndexError, match=r"index must be below 23, the number of samples, got 23"):
        WarpedDataset(Pictures(), model)[23]
    with pytest.raises(TypeError, match=r"images must be tensors, got list"):
        WarpedDataset([([[1.0, 2.0]], 0)], model)[0]
    with pytest.raises(TypeError, match=r"mapping with 'pixels', 'class'. Set `keys`"):
        WarpedDataset(Mappings(), model)[0]
    with pytest.raises(TypeError, match=r"an image at 0.*got a int"):
        WarpedDataset([3], model)[0]
    with pytest.raises(TypeError, match=r"index.*got a tuple of Tensor, int, str.*WithIndex"):
        WarpCollate(model)([Pictures()[0]])
