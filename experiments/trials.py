"""Trials: one classifier each, on few labels and the samples that a rival makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from experiments.rivals import Candidate, Grids, Make, Samples, Task, list_rivals, load_task

Judges = Literal["validation", "test"]

# For the test, samples are made from this number on: none of those that a candidate was chosen by.
FIRST_FOR_TEST = 2**32


class Trial(NamedTuple):
    """What is tried, and who judges it.

    Attributes
    ----------
    n_labels : int
        Per class.
    draw : int
        Whose labels.
    rival, candidate : str
        Who makes more samples.
    judges : {"validation", "test"}
    """

    n_labels: int
    draw: int
    rival: str
    candidate: str
    judges: Judges

    @property
    def seed(self) -> int:
        """Of whatever is random in the classifier: another for the test than for a choice."""
        return 2 * self.draw + (self.judges == "test")

    def __str__(self) -> str:
        names = ", ".join(filter(None, (self.rival, self.candidate)))
        return f"{self.n_labels} per class, draw {self.draw}, {names}, {self.judges}"


@dataclass(frozen=True)
class Plan:
    """How one kind of classifier is tried; results of different plans are never mixed.

    Attributes
    ----------
    n_labels : tuple of int
        Per class.
    draws : tuple of int
        Candidates are chosen in the first.
    grids : Grids
    n_validation : int
        Training images without a label that choose among candidates.
    n_tried, n_final : int
        Samples, or steps, for that and for the test.
    """

    n_labels: tuple[int, ...]
    draws: tuple[int, ...]
    grids: Grids
    n_validation: int
    n_tried: int
    n_final: int

    @property
    def rivals(self) -> dict[str, list[Candidate]]:
        """Candidates of all rivals by name."""
        return list_rivals(self.grids)

    def prepare(self, trial: Trial) -> tuple[Task, Make, int, Samples]:
        """The labels of a trial, its supply of samples, how many to use, and who judges."""
        task = load_task(trial.n_labels, trial.draw, self.n_validation)
        (candidate,) = (c for c in self.rivals[trial.rival] if c.name == trial.candidate)
        make = candidate.prepare(task)
        if trial.judges == "test":
            return task, partial(_make_later, make), self.n_final, task.test
        return task, make, self.n_tried, task.validation


def _make_later(make: Make, first: int, n: int) -> Samples:
    return make(FIRST_FOR_TEST + first, n)


# Carries out trials, and tells the error of each as it ends.
Run = Callable[[Plan, Sequence[Trial]], Iterator[tuple[Trial, float]]]
