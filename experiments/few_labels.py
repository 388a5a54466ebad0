"""Question: with few labels, do learned warps help a classifier more than their rivals do.

MNIST with 10, 100 and 500 labels per class, three draws of each from the first 50,000 training
images. Every rival makes 100,000 more samples, on which with the labelled ones a nearest neighbour
is judged by the test images; with 100 labels per class, the paper's ConvNet too, which is trained
on samples made as it goes.

What a rival leaves open (how strong its deformations are, for networks also whether they move the
border of an image) is chosen in the first draw: the candidate that errs least on thousands of other
training images, by their labels, for each number of labels and kind of classifier. Networks are
trained as long for that as for the test; nearest neighbours choose among fewer samples. "learned,
all defaults" is what `Augmenter` does without such images.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dreamwarp as dw
from benchmarks.readme import README, fill
from dreamwarp.core.files import write_beside
from experiments import neighbor, network
from experiments.rivals import Grids
from experiments.trials import Errors, Plan, Run, Trial

RESULTS = Path(__file__).parent / "results" / "few_labels.json"
EXAMPLES = """
Results are in results/few_labels.json, written after every trial: stop and go on at will.

examples:
  python -m experiments.few_labels          run what is missing; once all is known, fill the README
  python -m experiments.few_labels --only ConvNet
  python -m experiments.few_labels --table  only the table, of what there is
  python -m experiments.few_labels --smoke  try all parts on next to nothing, and keep nothing
"""

RUNS: dict[str, Run] = {"1-NN": neighbor.run_all, "ConvNet": network.run_all}
PLANS = {
    "1-NN": Plan(
        n_labels=(10, 100, 500), draws=(0, 1, 2), n_validation=10_000, n_tried=20_000,
        n_final=100_000,
        grids=Grids(
            elastic=(
                (3.0, 0.5), (3.0, 0.7), (4.0, 0.5), (4.0, 0.7), (5.0, 0.5), (5.0, 0.7), (5.0, 1.0),
                (5.0, 1.4), (5.0, 2.0), (7.0, 0.5), (7.0, 0.7), (7.0, 1.0), (7.0, 1.4), (7.0, 2.0),
            ),
            displacements={"zero": (0.01, 0.015, 0.02, 0.03, 0.04, 0.055, 0.075)},
            methods=("map",), strengths={"zero": (0.3, 0.45, 0.6, 0.8, 1.0, 1.25, 1.6)},
        ),
    ),
    "ConvNet": Plan(
        n_labels=(100,), draws=(0, 1, 2), n_validation=59_000, n_tried=2_400, n_final=2_400,
        grids=Grids(
            elastic=((4.0, 1.4), (5.0, 1.0), (5.0, 1.4), (5.0, 2.0), (7.0, 1.4), (7.0, 2.0)),
            displacements={"zero": (0.04, 0.055, 0.075), "free": (0.055, 0.075, 0.1, 0.13)},
            methods=("laplace",),
            strengths={"zero": (1.3, 1.6, 2.0), "free": (1.3, 1.6, 2.0, 2.5)},
            n_taught=500, taught={"free": (1.6, 2.0)}, with_defaults=False,
        ),
        judges=("validation", "test"), n_finals=2,
    ),
}  # fmt: skip


@dataclass
class Results:
    """Errors of the trials of a plan, by their names, and by which commit of the code they came."""

    plan: Plan
    errors: dict[str, Errors] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)

    def missing(self, trials: list[Trial]) -> list[Trial]:
        """Those that are not known yet."""
        return [
            trial
            for trial in trials
            if not set(self.plan.judges_of(trial)) <= self.errors.get(str(trial), {}).keys()
        ]

    def candidates(self, n_labels: int) -> list[Trial]:
        """Trials that choose, of rivals that leave anything open."""
        return [
            Trial(n_labels, self.plan.draws[0], name, candidate.name)
            for name, candidates in self.plan.rivals.items()
            if len(candidates) > 1
            for candidate in candidates
        ]

    def finals(self, n_labels: int) -> list[Trial]:
        """Trials in all draws of each rival's best candidate, once all of them have been tried."""
        best, tried = {}, self.candidates(n_labels)
        for name in self.plan.rivals:
            mine = [trial for trial in tried if trial.rival == name]
            if not self.missing(mine):
                chosen = min(
                    mine, key=lambda trial: self.errors[str(trial)]["validation"], default=None
                )
                best[name] = chosen.candidate if chosen else ""
        return [
            Trial(n_labels, draw, name, candidate, final)
            for final in range(self.plan.n_finals)
            for draw in self.plan.draws  # outside of rivals: what is learned from a draw is kept
            for name, candidate in best.items()
        ]

    @property
    def complete(self) -> bool:
        """Whether there are errors for every draw of every rival."""
        per_count = len(self.plan.rivals) * len(self.plan.draws) * self.plan.n_finals
        finals = [self.finals(n_labels) for n_labels in self.plan.n_labels]
        return all(len(f) == per_count and not self.missing(f) for f in finals)


def load(path: Path, plans: dict[str, Plan]) -> dict[str, Results]:
    """What is known on disk of these plans: nothing of plans that were different."""
    records = {_key(record): record for record in _read(path)}
    return {
        name: Results(plan, known["errors"], known["commits"])
        if (known := records.get((name, describe(plan))))
        else Results(plan)
        for name, plan in plans.items()
    }


def describe(plan: Plan) -> str:
    """What else errors depend on than what a trial's name says, and its commit."""
    counts = f"{plan.n_validation:,} to choose by, {plan.n_tried:,} and {plan.n_final:,} samples"
    return f"version {dw.__version__}, {counts}"


def store(path: Path, results: dict[str, Results]) -> None:
    """Put results on disk, never half of them, beside those of other plans."""
    mine = [
        {"classifier": name, "settings": describe(found.plan)}
        | {"commits": found.commits, "errors": found.errors}
        for name, found in results.items()
    ]
    others = [record for record in _read(path) if _key(record) not in map(_key, mine)]
    with write_beside(path) as part:
        part.write_text(json.dumps([*others, *mine], indent=1) + "\n")


def _read(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())) if path.exists() else []


def _key(record: dict[str, Any]) -> tuple[str, str]:
    return record["classifier"], record["settings"]


def current_commit() -> str:
    """Of the code that runs, with a mark if it differs from it."""
    git = partial(
        subprocess.run, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    commit = git(["git", "rev-parse", "--short", "HEAD"]).stdout.strip()
    differs = git(["git", "diff", "--quiet", "HEAD", "--", "src", "experiments/*.py"]).returncode
    return f"{commit}-dirty" if differs else str(commit)


def run_missing(results: dict[str, Results]) -> Iterator[str]:
    """Carry out the trials that are missing, and say what each has come to."""
    commit = current_commit()
    for name, mine in results.items():
        for n_labels in mine.plan.n_labels:
            for list_trials in (mine.candidates, mine.finals):
                for trial, errors in RUNS[name](mine.plan, mine.missing(list_trials(n_labels))):
                    mine.errors[str(trial)] = errors
                    mine.commits[str(trial)] = commit
                    told = ", ".join(f"{judge} {100 * e:.2f} %" for judge, e in errors.items())
                    yield f"{name}, {trial}: {told}"


def format_table(name: str, mine: Results) -> str:
    """Errors in percent as Markdown.

    Of finals, the mean over draws and that of every draw, as each of the judges saw them; of the
    candidates chosen, that by which they were.
    """
    plan = mine.plan
    judges = {"validation": f"{plan.n_validation:,} without a label", "test": "test images"}
    titles = [
        title
        for n in plan.n_labels
        for title in (
            *(f"{name}, {n} per class, {judges[judge]}" for judge in plan.judges),
            "chosen, and its error then",
        )
    ]
    lines = [f"| more samples by | {' | '.join(titles)} |", "|" + " --- |" * (len(titles) + 1)]
    for rival in plan.rivals:
        cells = []
        for n_labels in plan.n_labels:
            finals = [trial for trial in mine.finals(n_labels) if trial.rival == rival]
            known = [trial for trial in finals if not mine.missing([trial])]
            for judge in plan.judges:
                means = [
                    np.mean([mine.errors[str(t)][judge] for t in known if t.draw == draw])
                    for draw in sorted({trial.draw for trial in known})
                ]
                each = ", ".join(f"{100 * error:.2f}" for error in means)
                cells.append(f"{100 * np.mean(means):.2f} ({each})" if means else "")
            chosen = [
                f"{trial.candidate}: {100 * mine.errors[str(trial)]['validation']:.2f}"
                for trial in mine.candidates(n_labels)
                if finals and (trial.rival, trial.candidate) == (rival, finals[0].candidate)
            ]
            cells += chosen or [""]
        lines.append(f"| {rival} | {' | '.join(cells)} |")
    return "\n".join(lines)


def shrink(plan: Plan) -> Plan:
    """A plan that touches all parts of this one in a minute or two."""
    grids = replace(
        plan.grids, elastic=plan.grids.elastic[:2],
        displacements={key: few[:2] for key, few in plan.grids.displacements.items()},
        strengths={key: few[:2] for key, few in plan.grids.strengths.items()},
        n_taught=min(plan.grids.n_taught, 2 * plan.n_labels[0]),
    )  # fmt: skip
    return replace(
        plan, n_labels=plan.n_labels[:1], draws=plan.draws[:1], grids=grids, n_validation=100,
        n_tried=2, n_final=2, n_finals=1,
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing unless only asked for the table, and tell."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.few_labels", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", choices=PLANS, help="run one kind of classifier")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--table", action="store_true", help="run nothing, tell what is known")
    either.add_argument("--smoke", action="store_true", help="run next to nothing, keep nothing")
    options = parser.parse_args(arguments)
    if options.smoke:
        results = {name: Results(shrink(plan)) for name, plan in PLANS.items()}
    else:
        results = load(RESULTS, PLANS)
    chosen = {name: results[name] for name in ([options.only] if options.only else PLANS)}
    for line in () if options.table else run_missing(chosen):
        print(line, flush=True)
        if not options.smoke:
            store(RESULTS, chosen)
    for name, mine in results.items():
        table = format_table(name, mine)
        print(table)
        if mine.complete and not options.smoke:
            fill(README, f"few labels, {name}", table)
        elif not options.smoke:
            print("Not all is known, so the README stays as it is.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
