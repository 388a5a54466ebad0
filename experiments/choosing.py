"""Question: is the strength for networks right, by default and as `choose_strength` finds it.

For each data set both come from the labelled samples alone. Then networks of the same kind are
trained at every strength of a fine grid, on all labelled samples and with several seeds, and judged
by thousands of samples that chose nothing. Networks are noisy, so errors are smoothed over
strengths by a parabola in the logarithm of the strength; the loss is the excess of the parabola
over its lowest point.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.readme import README, fill
from experiments import classifiers, lab
from experiments.rivals import RIVALS, learn
from experiments.tasks import load_task

ARCHIVE = lab.Archive(lab.RESULTS / "choosing", protocol=1)
SETS = ("mnist-100", "fashion-100", "digits-10")
# In the order in which they are tried: a coarse grid first.
STRENGTHS = (1.0, 0.7, 1.4, 0.5, 2.0, 0.35, 2.8, 0.85, 1.2, 0.6, 1.7)
SEEDS, N_STEPS = (0, 1, 2), 4000


class Choice(NamedTuple):
    """A call of `choose_strength` with all defaults."""

    task: str

    def __str__(self) -> str:
        return f"{self.task}, choice"


class Trial(NamedTuple):
    """One network at one strength."""

    task: str
    strength: float
    seed: int

    def __str__(self) -> str:
        return f"{self.task}, strength {self.strength:g}, seed {self.seed}"


def choose(choice: Choice) -> dict[str, Any]:
    """The strength for a data set, on all cores."""
    from dreamwarp.torch import choose_strength

    task = load_task(choice.task, 0)
    model = learn(task.name, task.draw, task, judged=True).model_
    begin = time.perf_counter()
    found = choose_strength(model, task.X, task.y, progress=False)
    return {
        "default": model.network_strength, "strength": found.strength,
        "took": round(time.perf_counter() - begin, 1),
        "errors": {f"{s:g}": e for s, e in found.errors.items()}, "verdict": str(found.verdict),
    }  # fmt: skip


def run(trial: Trial, n_steps: int = N_STEPS) -> dict[str, float]:
    """Error of the default network of `choose_strength`, on samples that chose nothing."""
    task = load_task(trial.task, 0)
    deform = RIVALS["learned per class"].prepare(task, trial.strength, True)
    judges = {"test": task.judges["test"]}
    if "others" in task.judges:
        judges["others"] = task.judges["others"]
    found = classifiers.train("small ConvNet", task, deform, judges, trial.seed, n_steps)
    sizes = {name: len(y) for name, (_, y) in judges.items()}
    total = sum(found[name] * sizes[name] for name in judges) / sum(sizes.values())
    return {"error": total}


def smooth(strengths: Any, errors: Any) -> Any:
    """A parabola in log strength, through the points within half again the least error."""
    near = errors <= 1.5 * errors.min()
    return np.poly1d(np.polyfit(np.log(strengths[near]), errors[near], 2))


def format_table(archive: lab.Archive) -> str:
    """The best strength, the default and the choice, as Markdown."""
    lines = ["| data | best of the grid | default | loss | chosen | loss | seconds |"]
    lines.append("| --- |" + " --: |" * 6)
    for name in SETS:
        choice = archive.find(Choice(name))
        runs = {
            s: [one["error"] for k in SEEDS if (one := archive.find(Trial(name, s, k)))]
            for s in STRENGTHS
        }
        known = np.array([s for s, found in runs.items() if found])
        if choice is None or len(known) < 4:
            continue
        errors = np.array([100 * np.mean(runs[s]) for s in known])
        curve, grid = smooth(known, errors), np.geomspace(known.min(), known.max(), 200)
        least = float(curve(np.log(grid)).min())
        default, chosen = (
            f"{s:.3g} | {float(curve(np.log(s))) / least - 1:+.1%}"
            for s in (choice["default"], choice["strength"])
        )
        best = f"{known[errors.argmin()]:g} ({errors.min():.2f} %)"
        lines.append(f"| {name} | {best} | {default} | {chosen} | {choice['took']:.0f} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run missing trials unless only the table is asked for; print the results."""
    parser = argparse.ArgumentParser(prog="python -m experiments.choosing", description=__doc__)
    parser.add_argument("--table", action="store_true", help="run nothing, print stored results")
    parser.add_argument("--grid", action="store_true", help="run the grid alone, not the choices")
    parser.add_argument("--only", nargs="+", choices=SETS, default=SETS, metavar="SET")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="networks per strength")
    parser.add_argument("--processes", type=int, default=2, help="one core each")
    options = parser.parse_args(arguments)
    n_failed = 0
    if not options.table:
        commit = lab.current_commit()
        for name in () if options.grid else options.only:
            if ARCHIVE.find(Choice(name)) is None:
                found = choose(Choice(name))
                ARCHIVE.keep(Choice(name), found, found["took"], commit)
                print(f"{name}: {found['verdict']}", flush=True)
        seeds = SEEDS[: options.seeds]
        trials = [Trial(name, s, k) for k in seeds for s in STRENGTHS for name in options.only]
        runs = lab.run_missing(ARCHIVE, lambda: trials, run, n_processes=options.processes)
        n_failed = lab.tell(runs)
    print(format_table(ARCHIVE))
    if not options.table:
        fill(README, "choosing", format_table(ARCHIVE))
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
