"""Question: does longer training change the errors of networks.

Networks of the study with few labels are trained again, for twice as many steps, with elastic noise
and with learned warps by default. "others" judge them.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from experiments import few_labels, lab
from experiments.classifiers import N_STEPS
from experiments.rivals import BY_DEFAULT

DRAWS, TIMES = (0, 1), 2
RIVALS = {"elastic": 1.4, BY_DEFAULT: None}


class Trial(NamedTuple):
    """A network of `few_labels`, trained for longer."""

    task: str
    classifier: str
    rival: str
    draw: int
    n_steps: int = TIMES * N_STEPS

    def __str__(self) -> str:
        return f"{self.task}, {self.classifier}, {self.rival}, draw {self.draw}"

    @property
    def usual(self) -> few_labels.Trial:
        """The same with the usual number of steps."""
        setting = RIVALS[self.rival]
        return few_labels.Trial(self.task, self.classifier, self.rival, setting, self.draw)


def run(trial: Trial) -> dict[str, Any]:
    """Errors by judge."""
    return few_labels.run(trial.usual, n_steps=trial.n_steps)


def format_table(archive: lab.Archive) -> str:
    """Errors in percent after the usual number of steps and after more, mean over draws."""
    lines = [f"| network | deformed by | runs | {N_STEPS:,} steps | {TIMES * N_STEPS:,} steps |"]
    lines.append("| --- | --- | --: | --: | --: |")
    for classifier, rival in product(("MLP", "ConvNet"), RIVALS):
        trials = [Trial("mnist-100", classifier, rival, draw) for draw in DRAWS]
        pairs = [(few_labels.ARCHIVE.find(t.usual), archive.find(t)) for t in trials]
        known = [(short, long) for short, long in pairs if short and long]
        if known:
            errors = 100 * np.mean([[one["others"] for one in pair] for pair in known], axis=0)
            cells = " | ".join(f"{error:.2f}" for error in errors)
            lines.append(f"| {classifier} | {rival} | {len(known)} | {cells} |")
    return "\n".join(lines) if len(lines) > 2 else ""


STUDY = lab.Study(
    "longer", __doc__ or "",
    trials=[Trial("mnist-100", *one) for one in product(("MLP", "ConvNet"), RIVALS, DRAWS)],
    smoke=[Trial("digits-10", "MLP", "elastic", 0, n_steps=2)],
    run=run, format_table=format_table,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(STUDY.main())
