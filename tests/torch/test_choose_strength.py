"""The strength of warps that is best for a network."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dreamwarp as dw
from dreamwarp.torch import choose_strength, choosing
from dreamwarp.torch.choosing import soft_errors
from dreamwarp.torch.networks import make_network
from tests.augment.cases import heights, textures
from tests.torch.cases import make_model

# Short enough for a test, long enough to learn something.
QUICK: dict[str, Any] = {"n_steps": 32, "batch_size": 16, "progress": False}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Small networks: threads would wait for each other."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@cache
def task() -> tuple[dw.WarpModel, Any, Any]:
    X, y = textures(10, 0)
    augmenter = dw.Augmenter(cells=(3, 3), strength=1.0, progress=False).fit(X, y)
    return augmenter.model_, X.astype(np.float32), y


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 4))


# -- the default network


@pytest.mark.parametrize(
    ("n_channels", "spatial"),
    [
        (1, (8,)),
        (3, (150,)),
        (1, (8, 8)),
        (3, (28, 20)),
        (2, (200, 130)),
        (1, (8, 9, 10)),
        (1, (2, 9)),
    ],
)
def test_the_default_network_fits_the_shape(n_channels: int, spatial: tuple[int, ...]) -> None:
    network = make_network(n_channels, spatial, 7)
    assert network(torch.zeros(3, n_channels, *spatial)).shape == (3, 7)
    assert sum(values.numel() for values in network.parameters()) < 1_000_000


@pytest.mark.parametrize(("cells", "shape"), [((3,), (20,)), ((2, 2, 2), (2, 8, 8, 8))])
def test_signals_and_volumes_with_channels(cells: tuple[int, ...], shape: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).random((24, *shape))
    y = np.arange(24) % 3
    choice = choose_strength(make_model(cells=cells), X, y, strengths=[1.0], **QUICK)
    assert set(choice.errors) == {0.0, 1.0}


def test_networks_of_series_get_one_thread(monkeypatch: Any) -> None:
    seen, average = set(), choosing._Run._average

    def record(run: Any, weight: float) -> None:
        seen.add(torch.get_num_threads())
        average(run, weight)

    monkeypatch.setattr(choosing._Run, "_average", record)
    torch.set_num_threads(2)
    X, y = np.random.default_rng(0).random((24, 20)), np.arange(24) % 3
    choose_strength(make_model(cells=(3,)), X, y, strengths=[1.0], **QUICK)
    assert seen == {1} and torch.get_num_threads() == 2


# -- the choice


def test_warps_help_where_they_are_what_is_missing() -> None:
    options: dict[str, Any] = {"n_steps": 160, "batch_size": 32, "progress": False}
    choice = choose_strength(*task(), strengths=[1.0, 2.0], **options)
    assert choice.strength > 0.0 and choice.verdict.helps, choice
    assert choice.errors[choice.strength] < choice.errors[0.0]
    assert set(choice.errors) == set(choice.spreads) == {0.0, 1.0, 2.0}
    assert "error of a small ConvNet on" in str(choice.verdict)
    assert "a new warp of each of 32 others every time" in str(choice.verdict)


def test_warps_that_carry_the_class_are_left() -> None:
    X, y = heights(120, 0)
    model = dw.Augmenter(sigma=0.1, strength=1.0, progress=False).fit(X, y).model_
    choice = choose_strength(model, X, y, strengths=[3.0], n_steps=96, progress=False)
    assert choice.strength == 0.0 and not choice.verdict.helps, choice


def test_the_same_seed_makes_the_same_choice_and_leaves_torch_alone() -> None:
    model, X, y = task()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = choose_strength(model, X, y, strengths=[0.7, 1.4], seed=3, **QUICK)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    again = choose_strength(model, torch.from_numpy(X), torch.from_numpy(y), strengths=[1.4, 0.7],
                            seed=3, **QUICK)  # fmt: skip
    assert first.errors == again.errors and first.strength == again.strength
    other = choose_strength(model, X, y, strengths=[0.7, 1.4], seed=4, **QUICK)
    assert other.errors != first.errors


def test_strengths_share_weights_batches_and_dropout(monkeypatch: Any) -> None:
    seen: dict[float, list[Any]] = {}

    def record(self: Any, *batches: Any) -> None:
        torch.manual_seed(0)
        weights = [values.clone() for values in self._network.parameters()]
        seen.setdefault(self.strength, []).append((self.fold.number, batches, weights))

    monkeypatch.setattr(choosing._Run, "train", record)
    choose_strength(*task(), strengths=[1.0], **QUICK)
    assert len(seen[0.0]) == len(seen[1.0]) > 4
    for (fold, batches, weights), (other_fold, others, other_weights) in zip(
        seen[0.0], seen[1.0], strict=True
    ):
        assert fold == other_fold
        for drawn, other in zip(batches, others, strict=True):
            np.testing.assert_array_equal(drawn, other)
        assert all(map(torch.equal, weights, other_weights))


def test_every_sample_comes_once_in_an_epoch_and_none_that_is_held_out() -> None:
    model, X, y = task()
    data = choosing._Task.read(model, X, y, 0)
    for fold in data.folds:
        assert sorted([*fold.kept, *fold.held_out]) == list(range(len(y)))
        places, _ = data.draw_batches(fold, 7, 2 * len(fold.kept))
        whole, _ = data.draw_batches(fold, 0, 3 * len(fold.kept))
        np.testing.assert_array_equal(places, whole[7 : 7 + len(places)])
        for epoch in whole.reshape(3, -1):
            np.testing.assert_array_equal(np.sort(epoch), fold.kept)


# -- the race, with errors that are made up


def run_race(monkeypatch: Any, level_fn: Any, **options: Any) -> tuple[Any, dict[float, int]]:
    """The choice if errors are ``level_fn(strength, step)``, and the steps of each strength."""
    steps: dict[float, int] = {}
    noise = np.random.default_rng(0).normal(0.0, 0.002, 40)

    def train(self: Any, places: Any, theta: Any) -> None:
        self._step += len(places) // self.task.batch_size
        steps[self.strength] = max(steps.get(self.strength, 0), self._step)

    def logits(self: Any) -> Any:
        level = level_fn(self.strength, self._step)
        return np.full((len(self.fold.held_out), 1), level)

    def errors(values: Any, truth: Any) -> choosing.Errors:
        level = values[:, 0] + noise[: len(values)] * (1.0 + values[0, 0])
        return choosing.Errors(level, level)

    monkeypatch.setattr(choosing._Run, "train", train)
    monkeypatch.setattr(choosing._Run, "logits", logits)
    monkeypatch.setattr(choosing, "soft_errors", errors)
    return choose_strength(*task(), n_steps=64, progress=False, **options), steps


def parabola(best: float) -> Any:
    """Errors that fall with the steps and are lowest at one strength; 0.5 without warps."""

    def level(strength: float, step: int) -> float:
        distance = math.log(strength / best) if strength > 0.0 else 1.5
        return (0.1 + 0.2 * distance**2) * (1.0 + 8.0 / step)

    return level


def test_strengths_that_cannot_win_stop(monkeypatch: Any) -> None:
    choice, steps = run_race(monkeypatch, parabola(1.0))
    assert choice.strength == 1.0 and choice.verdict.helps
    assert steps[1.0] == 64 and steps[2.8] == 16 and steps[0.0] < 64
    assert list(choice.errors) == [0.0, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8]
    assert "Training without warps was stopped after" in str(choice.verdict)
    assert choice.errors[2.8] > choice.errors[2.0] > choice.errors[1.4] > choice.errors[1.0]


@pytest.mark.parametrize("best", [0.25, 5.6])
def test_the_grid_grows_where_its_edge_is_best(best: float, monkeypatch: Any) -> None:
    choice, _ = run_race(monkeypatch, parabola(best))
    assert choice.strength == pytest.approx(best, rel=0.03)
    assert min(choice.errors) == 0.0
    beyond = [some for some in choice.errors if some not in choosing.STRENGTHS]
    assert len(beyond) >= 3


def test_the_default_decides_between_strengths_that_do_equally_well(monkeypatch: Any) -> None:
    def level(strength: float, step: int) -> float:
        if strength == 0.0:
            return 0.5
        return 0.1 + 0.1 * max(0.0, abs(math.log(strength / 1.2)) - 0.6)

    choice, _ = run_race(monkeypatch, level)
    assert choice.strength == 1.4  # the default is 1.25


def test_strengths_that_are_given_are_all(monkeypatch: Any) -> None:
    choice, _ = run_race(monkeypatch, parabola(5.6), strengths=[1.0, 2.0])
    assert list(choice.errors) == [0.0, 1.0, 2.0] and choice.strength == 2.0
    assert "Strength 2, the largest compared, was the best" in str(choice.verdict)


def test_strong_warps_that_take_longer_are_not_stopped_early(monkeypatch: Any) -> None:
    def level(strength: float, step: int) -> float:
        if strength == 0.0:
            return 0.5
        return 0.1 * abs(math.log(strength / 2.0)) + 0.02 + 3.0 * strength / step**1.2

    choice, steps = run_race(monkeypatch, level)
    assert level(2.0, 8) > level(0.7, 8)
    assert steps[2.0] == 64


def test_a_network_that_gives_nan_is_stopped(monkeypatch: Any) -> None:
    def level(strength: float, step: int) -> float:
        return math.nan if strength == 1.4 and step > 8 else parabola(1.0)(strength, step)

    choice, steps = run_race(monkeypatch, level)
    assert choice.strength == 1.0 and steps[1.4] == 16
    assert "At strength 1.4 the network returned NaN after 16 steps." in str(choice.verdict)


def test_a_network_that_gives_nan_without_warps_is_refused() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()

        def forward(self, x: Any) -> Any:
            return self.layer(x) / (0.0 if self.training else 1.0)

    with pytest.raises(ValueError, match=r"finite numbers, got NaN .* at strength 0"):
        choose_strength(*task(), network=Broken, strengths=[1.0], **QUICK)


def test_soft_errors_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    logits, truth = rng.normal(size=(400, 5)), rng.integers(0, 5, 400)
    logits[np.arange(400), truth] += 2.0
    found, sharper = soft_errors(logits, truth), soft_errors(5.0 * logits, truth)
    np.testing.assert_allclose(sharper.smooth, found.smooth, atol=1e-3)
    np.testing.assert_array_equal(found.wrong, logits.argmax(axis=1) != truth)
    assert abs(found.smooth.mean() - found.wrong.mean()) < 0.15


# -- networks of one's own


class Twice(nn.Module):
    def forward(self, x: Any) -> Any:
        return x, x


def test_a_network_of_ones_own_is_used_and_named() -> None:
    model, X, y = task()
    choice = choose_strength(model, X, y, network=linear, strengths=[1.0], **QUICK)
    assert "error of the network of `linear` on" in str(choice.verdict)

    def normed() -> nn.Module:
        return nn.Sequential(
            nn.BatchNorm2d(1), nn.LazyConv2d(3, 3), nn.Flatten(), nn.LazyLinear(4)
        )  # fmt: skip

    choice = choose_strength(model, X, y, network=normed, strengths=[1.0], **QUICK)
    assert "error of the network of `normed` on" in str(choice.verdict)


def test_words_and_booleans_are_labels() -> None:
    X = np.random.default_rng(0).random((24, 12, 12))
    for labels in (("ash", "birch"), (False, True)):
        y = np.array(labels)[np.arange(24) % 2]
        choice = choose_strength(make_model(labels), X, y, network=None, strengths=[1.0], **QUICK)
        assert 0.0 in choice.errors


@pytest.mark.parametrize(
    ("network", "error", "words"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 3)), ValueError, r"\(n, 4\).*\(2, 3\)"),
        (lambda: nn.Identity(), ValueError, r"\(n, 4\).*\(2, 1, 12, 12\)"),
        (lambda: Twice(), ValueError, r"\(n, 4\).*tuple"),
        (lambda: 3, TypeError, "returns a torch.nn.Module, got int"),
    ],
)
def test_networks_are_checked(network: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        choose_strength(*task(), network=network, strengths=[1.0], **QUICK)


def test_what_cannot_be_judged_is_refused() -> None:
    model, X, y = task()
    with pytest.raises(ValueError, match="at least two classes"):
        choose_strength(model, X[y == 0], y[y == 0], **QUICK)
    with pytest.raises(ValueError, match="two different samples of some class"):
        choose_strength(model, X[:4], y[:4], **QUICK)
    with pytest.raises(ValueError, match="`strengths` must"):
        choose_strength(model, X, y, strengths=[0.0], **QUICK)
    with pytest.raises(ValueError, match="`n_steps`"):
        choose_strength(model, X, y, n_steps=2)
    with pytest.raises(ValueError, match="must be finite"):
        choose_strength(model, np.full_like(X, np.nan), y, **QUICK)
    with pytest.raises(ValueError, match="the model must have every class"):
        choose_strength(model, X, y + 1, **QUICK)


def test_progress_is_told_and_interrupting_leaves_nothing() -> None:
    model, X, y = task()
    told: list[tuple[int, int]] = []
    options = {**QUICK, "progress": lambda done, total: told.append((done, total))}
    choose_strength(model, X, y, strengths=[1.0], **options)
    assert told[-1][0] == told[-1][1] and [done for done, _ in told] == sorted(d for d, _ in told)
    state = torch.get_rng_state()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        choose_strength(model, X, y, strengths=[1.0], **{**QUICK, "progress": interrupt})
    assert torch.equal(torch.get_rng_state(), state)
