"""Trials: one classifier each, on few labels and the samples that a rival makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from experiments.rivals import Candidate, Grids, Make, Samples, Task, list_rivals, load_task

Judges = Literal["validation", "test"]


class Trial(NamedTuple):
    """What is tried, and who judges it.

    Attributes
    ----------
    n_labels : int
        Per class.
    draw : int
        Whose labels; also the seed of whatever is random.
    rival, candidate : str
        Who makes more samples.
    judges : {"validation", "test"}
    """

    n_labels: int
    draw: int
    rival: str
    candidate: str
    judges: Judges

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
        if trial.judges == "test":
            return task, candidate.prepare(task), self.n_final, task.test
        return task, candidate.prepare(task), self.n_tried, task.validation


# Carries out trials, and tells the error of each as it ends.
Run = Callable[[Plan, Sequence[Trial]], Iterator[tuple[Trial, float]]]
