"""Trials: one classifier each, on few labels and the samples that a rival makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from experiments.rivals import Candidate, Grids, Make, Samples, Task, list_rivals, load_task

Judge = Literal["validation", "test"]
# Shares of images that each of the judges saw mistaken.
Errors = dict[Judge, float]

# What finals are made of begins here: none of the samples that a candidate was chosen by.
FIRST_OF_FINALS = 2**32


class Trial(NamedTuple):
    """What is tried, and what for.

    Attributes
    ----------
    n_labels : int
        Per class.
    draw : int
        Whose labels.
    rival, candidate : str
        Who makes more samples.
    final : int, optional
        Its number, if it is there to be told about; else it is there to choose a candidate by.
    """

    n_labels: int
    draw: int
    rival: str
    candidate: str
    final: int | None = None

    @property
    def seed(self) -> int:
        """Of whatever is random in the classifier: another for every final, and for a choice."""
        return 2 * self.draw + (0 if self.final is None else 1 + 1000 * self.final)

    @property
    def first(self) -> int:
        """Number of the first sample to use."""
        return 0 if self.final is None else FIRST_OF_FINALS * (1 + self.final)

    def __str__(self) -> str:
        names = ", ".join(filter(None, (self.rival, self.candidate)))
        purpose = "choice" if self.final is None else f"final {self.final}"
        return f"{self.n_labels} per class, draw {self.draw}, {names}, {purpose}"


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
        Samples, or steps, for that and for what is told.
    judges : tuple of {"validation", "test"}
        Of finals.
    n_finals : int
        In each draw: more than one where chance has a part in the classifier.
    """

    n_labels: tuple[int, ...]
    draws: tuple[int, ...]
    grids: Grids
    n_validation: int
    n_tried: int
    n_final: int
    judges: tuple[Judge, ...] = ("test",)
    n_finals: int = 1

    @property
    def rivals(self) -> dict[str, list[Candidate]]:
        """Candidates of all rivals by name."""
        return list_rivals(self.grids)

    def judges_of(self, trial: Trial) -> tuple[Judge, ...]:
        """Who says how often a classifier errs: to choose, never the test images."""
        return ("validation",) if trial.final is None else self.judges

    def prepare(self, trial: Trial) -> tuple[Task, Make, int, dict[Judge, Samples]]:
        """The labels of a trial, its supply of samples, how many to use, and who judges."""
        (candidate,) = (c for c in self.rivals[trial.rival] if c.name == trial.candidate)
        task = load_task(trial.n_labels, trial.draw, self.n_validation, candidate.n_taught)
        images: dict[Judge, Samples] = {"validation": task.validation, "test": task.test}
        return (
            task,
            partial(_make_later, candidate.prepare(task), trial.first),
            self.n_tried if trial.final is None else self.n_final,
            {judge: images[judge] for judge in self.judges_of(trial)},
        )


def _make_later(make: Make, start: int, first: int, n: int) -> Samples:
    return make(start + first, n)


# Carries out trials, and tells the errors of each as it ends.
Run = Callable[[Plan, Sequence[Trial]], Iterator[tuple[Trial, Errors]]]
