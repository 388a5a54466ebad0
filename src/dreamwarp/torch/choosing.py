"""Choose the strength of warps for a network, by cross-validation of trained networks.

For each fold and strength, a network is trained on the other folds, with a new warp each time a
sample is used, and predicts the unwarped held-out samples. All strengths share initial weights,
batches, dropout and the draws of warps, which are scaled, so that only the strength differs.
Predictions use a running mean of the weights, which has the effect of learning-rate decay after any
number of steps.

The error is 1 - p, where p is the predicted probability of the true class, at the temperature of
highest likelihood on the held-out samples of the fold. Unlike the 0-1 error it is smooth, unlike
the negative log-likelihood it is bounded, and warps that only make a network less confident do not
lower it.

All strengths are trained for a quarter of the steps. Errors fall roughly as a power of the number
of steps, and keep falling longer for stronger warps, so the final error of a strength is
extrapolated from its last two errors. Strengths expected to end two standard errors of paired
differences above the best are stopped, and so are the worst if too many remain. If the best is the
weakest or strongest, further strengths join. ``dreamwarp.augment.verdict`` chooses the strength and
gives the verdict; strengths that were stopped may be chosen.

Samples get the warps of their class, as in ``LearnedWarp``. The model is given, so it has been
fitted to the held-out samples too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import Tensor, nn

from dreamwarp.augment.class_distances import standardize
from dreamwarp.augment.folds import first_alike, make_folds
from dreamwarp.augment.race import Array, Errors, Race, are_as_good, check_strengths
from dreamwarp.augment.source import SampleSource
from dreamwarp.augment.verdict import Judgement, Setup, conclude
from dreamwarp.core.draws import Seed, as_key, derive_seed
from dreamwarp.core.progress import ProgressOption, check_progress, track
from dreamwarp.core.samples import add_channels
from dreamwarp.core.validation import check_factor, check_integer
from dreamwarp.model import WarpModel
from dreamwarp.torch.drawing import RandomWarps
from dreamwarp.torch.networks import make_network

Codes = NDArray[np.int64]
NetworkFn = Callable[[], nn.Module]

# Default strengths; more are added by the same factor, within limits.
STRENGTHS = (0.0, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
FACTOR, WEAKEST, STRONGEST = math.sqrt(2.0), 0.1, 12.0
# Fractions of the steps after which errors are measured, and how many strengths above 0 may then
# continue. None: all may. After the first fraction, errors still fall too fast to extrapolate.
ROUNDS = ((1 / 8, None), (1 / 4, 4), (1 / 2, 3), (1.0, None))
# A strength is stopped if it is worse by this many standard errors; more for strength 0, whose
# error the verdict needs.
HOPELESS, HOPELESS_NONE = 2.0, 4.0
# Errors are clipped to at least this before they divide.
TINY = 1e-12
# Batches warped at a time.
CHUNK = 8
# The running mean gives step t a weight in proportion to t^AVERAGE_POWER: it holds about the last
# ninth of the steps.
AVERAGE_POWER = 8
# Bounds of the temperature.
COLDEST, HOTTEST = 0.05, 20.0
# Samples predicted at a time.
N_PREDICTED = 1000


def choose_strength(
    model: WarpModel,
    X: Any,
    y: Any,
    *,
    network: NetworkFn | None = None,
    strengths: Sequence[float] | None = None,
    n_steps: int = 1000,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    seed: Seed = 0,
    progress: ProgressOption = None,
    device: Any = "cpu",
) -> Judgement:
    """Choose the best strength of warps for a network, and judge whether warps help it.

    Takes minutes: about 14,000 training steps in total for 1,000 images, 16,000 of a few
    milliseconds each for a small set of series. The model is not changed:
    pass the strength to :class:`LearnedWarp`.

    Parameters
    ----------
    model : WarpModel
    X : (n, *spatial) or (n, channels, *spatial)
        Training samples, an array or a tensor. Networks get them as float32, with mean 0 and
        standard deviation 1.
    y : (n,)
        Labels, as in the model.
    network : callable, optional
        Builds a module that maps (n, channels, *spatial) to logits (n, n_classes), with classes in
        sorted order. Called once per strength and fold. Default: a small ConvNet.
    strengths : sequence of float, optional
        Strengths to compare with 0. Default: 0.5 to 2.8, extended while the best is at the edge.
    n_steps : int
        Training steps per network, of ``batch_size`` warped samples each. Too few steps favour weak
        warps.
    batch_size : int
    learning_rate : float
        Learning rate of Adam.
    seed : int, numpy.random.Generator or None
        Determines the choice, as far as torch's operations are deterministic.
    progress : bool or callable, optional
        False: none. A callable gets (steps done, largest number of steps). Default: a bar in
        terminals and notebooks, occasional lines in logs.
    device : torch.device or str

    Returns
    -------
    Judgement
        ``.strength``; ``.errors`` by strength and their ``.spreads``; ``.verdict``, which prints
        as text.

    Examples
    --------
    >>> choice = choose_strength(augmenter.model_, X, y)
    >>> print(choice.verdict)
    >>> warp = LearnedWarp(augmenter.model_, strength=choice.strength)
    """
    check_progress(progress)
    tried = STRENGTHS if strengths is None else tuple(check_strengths(strengths))
    n_steps = check_integer("n_steps", n_steps, 8)
    task = _Task.read(
        model, X, y, as_key(seed), device, network=network,
        batch_size=check_integer("batch_size", batch_size, 1),
        learning_rate=check_factor("learning_rate", learning_rate),
    )  # fmt: skip
    devices: list[Any] | None = [] if task.images.device.type == "cpu" else None
    with torch.random.fork_rng(devices), _suitable_threads(task):
        trainer = _Trainer(task, n_steps, grows=strengths is None)
        trainer.run(tried, progress)
    return trainer.conclude()


@contextmanager
def _suitable_threads(task: _Task) -> Iterator[None]:
    """Use one thread for the default network of series.

    Its operations take microseconds, and threads that wait for each other take most of the time:
    where other processes run too, a step took ten times as long with two threads as with one.
    """
    n = torch.get_num_threads()
    if task.network is None and task.images.ndim == 3:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n)


# -- data


class _Fold(NamedTuple):
    number: int
    kept: Codes
    held_out: Codes


@dataclass(frozen=True)
class _Task:
    """Samples (n, channels, *spatial) as networks get them, their warps, and how to train."""

    images: Tensor
    codes: Codes
    labels: NDArray[Any]
    warps: RandomWarps
    expected: float  # the default strength
    key: int
    network: NetworkFn | None = None
    batch_size: int = 64
    learning_rate: float = 1e-3

    @classmethod
    def read(
        cls, model: WarpModel, X: Any, y: Any, key: int, device: Any = "cpu", **training: Any
    ) -> _Task:
        """Check and standardize samples."""
        X, y = (values.cpu().numpy() if isinstance(values, Tensor) else values for values in (X, y))
        source = SampleSource(model, (X, y), seed=key, strength=1.0)  # checks samples and labels
        values = add_channels(standardize(source.data.X.astype(np.float32)), model.space.ndim)
        labels, warps = source.form.classes, RandomWarps(model, strength=1.0, seed=key)
        if len(labels) < 2:
            raise ValueError(f"`y` must have at least two classes, got only {labels[0].item()!r}.")
        images = torch.from_numpy(np.ascontiguousarray(values)).to(torch.device(device))
        expected = model.network_strength or 1.0
        return cls(images, source.codes, labels, warps, expected, key, **training)

    @cached_property
    def folds(self) -> list[_Fold]:
        """Samples kept and held out."""
        masks = make_folds(self.codes, first_alike(self.images.cpu().numpy()), self.key)
        if not masks:
            raise ValueError(
                "`X` must have two different samples of some class, so that one can be held out, "
                f"got {len(self.codes)} samples of {len(self.labels)} classes."
            )
        return [
            _Fold(number, np.flatnonzero(~mask), np.flatnonzero(mask))
            for number, mask in enumerate(masks)
        ]

    def take(self, places: Codes) -> Tensor:
        """Samples by index."""
        return self.images[torch.from_numpy(places).to(self.images.device)]

    def draw_batches(self, fold: _Fold, first: int, n: int) -> tuple[Codes, Array]:
        """Draw samples ``first`` to ``first + n - 1`` of a fold's stream, reshuffled every epoch.

        Returns indices of training samples (n,), in order of use, and their θ (n, d).
        """
        numbers, n_kept = np.arange(first, first + n), len(fold.kept)
        places = np.empty(n, np.int64)
        for epoch in range(first // n_kept, (first + n - 1) // n_kept + 1):
            order = np.random.default_rng([self.key, fold.number, epoch]).permutation(n_kept)
            mine = numbers // n_kept == epoch
            places[mine] = fold.kept[order[numbers[mine] % n_kept]]
        key = derive_seed(self.key, fold.number)
        return places, self.warps.draw(self.labels[self.codes[places]], numbers, key=key)

    # -- networks

    @property
    def network_name(self) -> str:
        """Name of the network in the verdict."""
        if self.network is None:
            return "a small ConvNet"
        name = getattr(self.network, "__name__", type(self.network).__name__)
        return "the network" if name == "<lambda>" else f"the network of `{name}`"

    def make_network(self, fold: _Fold) -> nn.Module:
        """Make a network with the initial weights of a fold."""
        torch.manual_seed(derive_seed(self.key, fold.number) % 2**63)
        (n_channels, *spatial), n_classes = self.images.shape[1:], len(self.labels)
        if self.network is None:
            return make_network(n_channels, spatial, n_classes).to(self.images.device)
        network = self.network()
        if not isinstance(network, nn.Module):
            raise TypeError(
                "`network` must be a callable that returns a torch.nn.Module, got "
                f"{type(network).__name__}."
            )
        network = network.to(self.images.device)
        logits = _predict(network.eval(), self.images[:2])
        if not isinstance(logits, Tensor) or tuple(logits.shape) != (2, n_classes):
            found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(
                f"`network` must return logits of shape (n, {n_classes}), one column per class, "
                f"got {found} for n = 2 samples of shape {tuple(self.images.shape[1:])}."
            )
        return network


@torch.no_grad()
def _predict(network: nn.Module, images: Tensor) -> Any:
    parts = [network(part) for part in images.split(N_PREDICTED)]
    return torch.cat(parts) if isinstance(parts[0], Tensor) else parts[0]


class _Run:
    """A network in training, and the running mean of its weights."""

    def __init__(self, task: _Task, fold: _Fold, strength: float) -> None:
        self.task, self.fold, self.strength, self._step = task, fold, strength, 0
        self._network = task.make_network(fold)
        self._mean = copy.deepcopy(self._network)
        self._optimizer = torch.optim.Adam(self._network.parameters(), task.learning_rate)

    def train(self, places: Codes, theta: Array) -> None:
        """Train on some batches; random numbers depend on the fold and the step."""
        task, images, size = self.task, self.task.take(places), self.task.batch_size
        if self.strength > 0.0:
            images = task.warps.apply(self.strength * theta, images)
        codes = torch.from_numpy(task.codes[places]).to(images.device)
        torch.manual_seed(derive_seed(task.key, self.fold.number, self._step) % 2**63)
        self._network.train()
        for some, truth in zip(images.split(size), codes.split(size), strict=True):
            loss = nn.functional.cross_entropy(self._network(some), truth)
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            self._step += 1
            self._average((AVERAGE_POWER + 1) / (self._step + AVERAGE_POWER))

    @torch.no_grad()
    def _average(self, weight: float) -> None:
        new = self._network.state_dict().values()
        for mean, value in zip(self._mean.state_dict().values(), new, strict=True):
            if mean.is_floating_point():
                mean.lerp_(value, weight)
            else:  # counts
                mean.copy_(value)

    def logits(self) -> Array:
        """Predict the held-out samples with the mean weights: (m, n_classes)."""
        held_out = self.task.take(self.fold.held_out)
        return _predict(self._mean.eval(), held_out).double().cpu().numpy()


def soft_errors(logits: Array, truth: Codes) -> Errors:
    """1 - p of every sample (m,) at the best temperature, and its 0-1 error."""
    rows = np.arange(len(truth))

    def loss(log_temperature: float) -> float:
        scaled = log_softmax(logits / math.exp(log_temperature), axis=1)
        return -float(scaled[rows, truth].mean())

    bounds = math.log(COLDEST), math.log(HOTTEST)
    temperature = math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)
    p = np.exp(log_softmax(logits / temperature, axis=1)[rows, truth])
    return Errors(1.0 - p, (logits.argmax(axis=1) != truth).astype(np.float64))


# -- the race


class _Trainer:
    """Trains networks at all strengths in rounds, and stops those that can't win."""

    def __init__(self, task: _Task, n_steps: int, *, grows: bool) -> None:
        self.task, self.folds, self.n_steps, self.grows = task, task.folds, n_steps, grows
        self.race = Race()
        self.runs: dict[float, list[_Run]] = {}
        # Steps after which a network returned NaN, by strength.
        self.broken: dict[float, int] = {}
        # Steps at the end of each round so far.
        self.steps: list[int] = []

    def run(self, strengths: Sequence[float], progress: ProgressOption) -> None:
        """Run all rounds."""
        self._start(strengths)
        total = len(self.folds) * self.n_steps * len(strengths)
        with track(total, "choosing the strength", progress) as advance:
            done = 0
            for share, n_most in ROUNDS:
                wanted = max(done + 1, round(share * self.n_steps))
                self.steps.append(wanted)
                self._train(list(self.runs), done, wanted, advance)
                while (more := self._beyond_edge()) is not None:
                    self._join(more)
                if n_most is not None:
                    stopped = self._stop(n_most)
                    advance(len(self.folds) * stopped * (self.n_steps - wanted))
                done = wanted

    def _join(self, strength: float) -> None:
        """Add a strength, and train it up to the current step."""
        self._start([strength])
        for done, wanted in pairwise((0, *self.steps)):
            if strength in self.runs:
                self._train([strength], done, wanted, lambda amount: None)

    def _start(self, strengths: Sequence[float]) -> None:
        for strength in strengths:
            self.runs[strength] = [_Run(self.task, fold, strength) for fold in self.folds]

    def _train(
        self, strengths: Sequence[float], done: int, wanted: int, advance: Callable[[int], None]
    ) -> None:
        """Train these strengths from step ``done`` to ``wanted``, and measure their errors."""
        size = self.task.batch_size
        for fold in self.folds:
            for first in range(done, wanted, CHUNK):
                n = min(CHUNK, wanted - first)
                batches = self.task.draw_batches(fold, first * size, n * size)
                for strength in strengths:
                    self.runs[strength][fold.number].train(*batches)
                    advance(n)
        for strength in strengths:
            self._take_errors(strength, wanted)

    def _take_errors(self, strength: float, step: int) -> None:
        """Record errors; drop the strength if its network returns NaN."""
        all_logits = [run.logits() for run in self.runs[strength]]
        if all(np.isfinite(logits).all() for logits in all_logits):
            errors = [
                soft_errors(logits, self.task.codes[fold.held_out])
                for logits, fold in zip(all_logits, self.folds, strict=True)
            ]
            self.race.found.setdefault(strength, []).append(Errors.concatenate(errors))
            return
        del self.runs[strength]
        self.broken[strength] = step
        if strength == 0.0 or not any(some > 0.0 for some in self.runs):
            raise ValueError(
                f"`network` must return finite numbers, got NaN or infinity after {step} steps at "
                f"strength {strength:g}. Try a smaller `learning_rate`, or fix the network."
            )

    def _left(self) -> list[float]:
        return sorted(strength for strength in self.runs if strength > 0.0)

    def _errors(self, strengths: Sequence[float], rounds_ago: int = 0) -> Array:
        """Smoothed errors after the last round, or an earlier one: (n_strengths, n_held_out)."""
        found = self.race.found
        return np.stack([found[strength][-1 - rounds_ago].smooth for strength in strengths])

    def _expect(self, strengths: Sequence[float]) -> Array:
        """Extrapolate mean errors to the last step, as powers of the steps."""
        last = self._errors(strengths).mean(axis=1)
        if len(self.steps) < 2 or self.steps[-1] == self.n_steps:
            return last
        first, second = self.steps[-2:]
        before = self._errors(strengths, rounds_ago=1).mean(axis=1)
        power = math.log(self.n_steps / second) / math.log(second / first)
        return last * np.minimum(last / np.maximum(before, TINY), 1.0) ** power

    def _beyond_edge(self) -> float | None:
        """Return the strength to add if the best is at the edge of all tried.

        Weaker ones are added only at the end: early, weak warps look better than they are.
        """
        if not self.grows or len(self.steps) < 2:
            return None
        left, tried = self._left(), {*self.race.found, *self.broken} - {0.0}
        best = left[int(self._expect(left).argmin())]
        if best == max(tried) and best * FACTOR <= STRONGEST:
            return float(f"{best * FACTOR:.2g}")
        is_over = self.steps[-1] == self.n_steps
        if is_over and best == min(tried) and best / FACTOR >= WEAKEST:
            return float(f"{best / FACTOR:.2g}")
        return None

    def _stop(self, n_most: int) -> int:
        """Stop strengths that can't win, and all but the ``n_most`` best; return their number."""
        left = self._left()
        errors, expected = self._errors(left), self._expect(left)
        best = int(expected.argmin())
        shares = expected / np.maximum(errors.mean(axis=1), TINY)
        going = are_as_good(errors * shares[:, None], best, HOPELESS)
        going[np.argsort(expected, kind="stable")[n_most:]] = False
        stopped = [strength for strength, goes in zip(left, going, strict=True) if not goes]
        if 0.0 in self.runs:
            both = np.concatenate([errors[[best]], self._errors([0.0])])
            if not are_as_good(both, 0, HOPELESS_NONE)[1]:
                stopped.append(0.0)
        for strength in stopped:
            del self.runs[strength]
        return len(stopped)

    def conclude(self) -> Judgement:
        """Choose the strength and make the verdict."""
        left, race = self._left(), self.race
        best = left[int(self._errors(left).mean(axis=1).argmin())]
        for strength in set(race.found) - {0.0, *left}:
            race.stop(strength, best)
        n_others = max(len(fold.kept) for fold in self.folds)
        setup = Setup(
            (), n_others, len(self.task.codes), judge=self.task.network_name,
            expected=self.task.expected,
        )  # fmt: skip
        judgement = conclude(race, setup)
        message = judgement.verdict.message
        stop = self.steps[len(race.found[0.0]) - 1]
        if stop < self.n_steps:
            message += (
                f" Training without warps was stopped after {stop} of {self.n_steps} steps, when "
                "it could no longer win."
            )
        for strength, step in self.broken.items():
            judgement.errors.setdefault(strength, math.nan)
            message += f" At strength {strength:g} the network returned NaN after {step} steps."
        return replace(judgement, verdict=replace(judgement.verdict, message=message))
