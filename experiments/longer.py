"""Question: does longer training change the errors of networks.

Networks of the study with few labels are trained again, for 2, 4 and 8 times as many steps: with
elastic noise, with learned warps by default, and with learned warps at the strength that was
tuned on validation samples. Everything else is as in `few_labels`, tuned settings included.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import few_labels, lab
from experiments.classifiers import N_STEPS
from experiments.rivals import BY_DEFAULT

STEPS = tuple(k * N_STEPS for k in (1, 2, 4, 8))
RIVALS = ("elastic", BY_DEFAULT, "learned per class")
STUDIES = ("mnist-100/MLP", "mnist-100/ConvNet", "digits-10/MLP", "digits-10/ConvNet")
DRAWS = range(few_labels.N_DRAWS)


class Trial(NamedTuple):
    """A network of `few_labels`, trained for longer."""

    task: str
    classifier: str
    rival: str
    draw: int
    n_steps: int

    def __str__(self) -> str:
        return (
            f"{self.task}, {self.classifier}, {self.rival}, {self.n_steps} steps, draw {self.draw}"
        )

    @property
    def usual(self) -> few_labels.Trial:
        """The same with the usual number of steps."""
        _, setting = few_labels.settings_of(
            few_labels.ARCHIVE, self.task, self.classifier, self.rival
        )
        return few_labels.Trial(self.task, self.classifier, self.rival, setting, self.draw)


def list_trials(
    study: str, n_steps: int, draws: Sequence[int] = DRAWS, rivals: Sequence[str] = RIVALS
) -> list[Trial]:
    """Trials of a data set and network, draw by draw."""
    task, classifier = study.split("/")
    return [Trial(task, classifier, rival, draw, n_steps) for draw in draws for rival in rivals]


def run(trial: Trial) -> dict[str, Any]:
    """Errors by judge."""
    return few_labels.run(trial.usual, n_steps=trial.n_steps)


def find_errors(archive: lab.Archive, study: str, rival: str, n_steps: int) -> Any:
    """Errors in percent by draw, of the judge that decides; NaN where there is none yet."""
    judge = few_labels.judges_of(study)[0]
    found = [
        few_labels.ARCHIVE.find(trial.usual) if n_steps == N_STEPS else archive.find(trial)
        for trial in list_trials(study, n_steps, rivals=[rival])
    ]
    return np.array([np.nan if one is None else 100 * one[judge] for one in found])


def format_table(archive: lab.Archive) -> str:
    """Errors in percent by the number of steps, gaps to the default, and changes by doubling."""
    lines = [
        "| network | deformed by | steps | runs | error | default − this | this − half the steps |",
        "| --- | --- | --: | --: | --: | --: | --: |",
    ]
    for study in STUDIES:
        for rival in RIVALS:
            for n_steps in STEPS:
                errors = find_errors(archive, study, rival, n_steps)
                known = np.isfinite(errors)
                if not known.any():
                    continue
                each = ", ".join(f"{error:.2f}" for error in errors[known])
                default = find_errors(archive, study, BY_DEFAULT, n_steps)
                gaps = "" if rival == BY_DEFAULT else _format_gap(default - errors)
                change = ""
                if n_steps > N_STEPS:
                    change = _format_gap(errors - find_errors(archive, study, rival, n_steps // 2))
                lines.append(
                    f"| {study.replace('/', ', ')} | {rival} | {n_steps:,} | {known.sum()} | "
                    f"{errors[known].mean():.2f} ({each}) | {gaps} | {change} |"
                )
    return "\n".join(lines) if len(lines) > 2 else ""


def _format_gap(gaps: Any) -> str:
    return few_labels.format_gap(gaps[np.isfinite(gaps)])


SHORT, LONG, LONGEST = STEPS[1:]
MAIN = RIVALS[:2]
# The most decisive first.
TRIALS = dict.fromkeys(
    [
        *list_trials("mnist-100/MLP", SHORT, rivals=MAIN),
        *list_trials("mnist-100/MLP", LONG, rivals=MAIN),
        *list_trials("digits-10/MLP", SHORT, rivals=MAIN),
        *list_trials("digits-10/ConvNet", SHORT, rivals=MAIN),
        *list_trials("mnist-100/MLP", LONGEST, rivals=MAIN),
        *list_trials("mnist-100/ConvNet", SHORT, rivals=MAIN),
    ]
)
STUDY = lab.Study(
    "longer", __doc__ or "", trials=list(TRIALS),
    smoke=[Trial("digits-10", "MLP", "elastic", 0, n_steps=2)],
    run=run, format_table=format_table,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(STUDY.main())
