"""Question: over many data sets, is one way to augment better than the others.

Each data set and classifier of ``experiments.few_labels`` is a case; ways are ranked by their mean
error over draws, 1 for the lowest. Each pair of ways is compared over cases by Wilcoxon's
signed-rank test, with Holm's correction for the number of pairs. In the figure, a bar joins ways
that do not differ significantly at 5 %. Cases in which a way was not run are left out, and their
number is told.
"""

from __future__ import annotations

import argparse
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, wilcoxon

from benchmarks.readme import README, fill
from experiments import few_labels, lab
from experiments.rivals import BY_DEFAULT, ELASTIC_AND_AFFINE

Array = NDArray[np.float64]
WAYS = (
    "nothing", "elastic", "affine", ELASTIC_AND_AFFINE, "prior", "learned per class",
    "learned per template", BY_DEFAULT,
)  # fmt: skip
LEVEL = 0.05
FIGURE = Path(__file__).parents[1] / "docs" / "ranks.svg"


def collect(archive: lab.Archive, ways: tuple[str, ...] = WAYS) -> tuple[list[str], Array]:
    """Cases in which every way was run in every draw, and mean errors in percent (cases, ways)."""
    names, rows = [], []
    for study in few_labels.PLAN:
        judge = few_labels.judges_of(study)[0]
        row = [few_labels.final_errors(archive, study, way, judge).mean() for way in ways]
        if np.isfinite(row).all():
            names.append(study)
            rows.append(row)
    return names, np.array(rows).reshape(-1, len(ways))


def mean_ranks(errors: Array) -> Array:
    """Mean rank (ways,) over cases; ties share their ranks."""
    return rankdata(errors, axis=1).mean(axis=0)


def compare(errors: Array) -> dict[tuple[int, int], float]:
    """Holm-adjusted p values of Wilcoxon's signed-rank test, by pair of ways."""
    pairs = list(combinations(range(errors.shape[1]), 2))
    raw = np.array([_wilcoxon(errors[:, a] - errors[:, b]) for a, b in pairs])
    return dict(zip(pairs, holm(raw).tolist(), strict=True))


def holm(p_values: Array) -> Array:
    """Holm's step-down adjustment of p values (n,)."""
    order = np.argsort(p_values)
    steps = np.arange(len(p_values), 0, -1) * p_values[order]
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def _wilcoxon(differences: Array) -> float:
    return float(wilcoxon(differences).pvalue) if differences.any() else 1.0


def count_wins(errors: Array, ways: tuple[str, ...]) -> str:
    """Wins, ties and losses of the default against each other way, as Markdown."""
    own = errors[:, ways.index(BY_DEFAULT)]
    p_values, ranks = compare(errors), mean_ranks(errors)
    lines = ["| way | mean rank | default wins | ties | loses | p (Holm) |"]
    lines.append("| --- |" + " --: |" * 5)
    for k in np.argsort(ranks):
        cells = [""] * 4
        if ways[k] != BY_DEFAULT:
            gaps = np.round(own - errors[:, k], 6)
            pair = (min(k, ways.index(BY_DEFAULT)), max(k, ways.index(BY_DEFAULT)))
            counts = [(gaps < 0).sum(), (gaps == 0).sum(), (gaps > 0).sum()]
            cells = [*map(str, counts), f"{p_values[pair]:.3f}"]
        lines.append(f"| {ways[k]} | {ranks[k]:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def find_cliques(errors: Array) -> list[tuple[int, ...]]:
    """Largest runs of ways, in the order of their ranks, in which no pair differs significantly."""
    order = np.argsort(mean_ranks(errors))
    p_values = compare(errors)
    runs: list[tuple[int, ...]] = []
    for first in range(len(order)):
        last = first
        while last + 1 < len(order) and all(
            p_values[min(order[k], order[last + 1]), max(order[k], order[last + 1])] >= LEVEL
            for k in range(first, last + 1)
        ):
            last += 1
        run = tuple(order[first : last + 1])
        if len(run) > 1 and not any(set(run) <= set(other) for other in runs):
            runs.append(run)
    return runs


def draw(errors: Array, ways: tuple[str, ...]) -> Any:
    """The critical-difference figure: ways on an axis of mean ranks, bars over equals."""
    from matplotlib.figure import Figure

    ranks = mean_ranks(errors)
    cliques = find_cliques(errors)
    figure = Figure(figsize=(7.0, 0.5 + 0.28 * len(ways) + 0.18 * len(cliques)))
    axes = figure.subplots()
    top = len(cliques) + 1
    for level, clique in enumerate(cliques):
        ends = [ranks[list(clique)].min() - 0.03, ranks[list(clique)].max() + 0.03]
        axes.plot(ends, [level + 0.5] * 2, color="0.35", lw=3, solid_capstyle="round")
    for place, k in enumerate(np.argsort(ranks)):
        low, bold = top + place, ways[k] == BY_DEFAULT
        axes.plot([ranks[k]] * 2, [0.0, low], color="tab:blue" if bold else "0.7", lw=1)
        axes.plot(ranks[k], low, "o", color="tab:blue" if bold else "0.4", ms=4)
        axes.annotate(
            f"{ways[k]} ({ranks[k]:.2f})", (ranks[k], low), xytext=(6, 0), va="center",
            textcoords="offset points", fontsize=8, weight="bold" if bold else "normal",
        )  # fmt: skip
    axes.set_ylim(top + len(ways) - 0.4, -0.2)
    axes.set_xlim(ranks.min() - 0.4, ranks.max() + 1.6)
    axes.xaxis.tick_top()
    axes.set_xlabel(f"mean rank over {len(errors)} cases, lower is better", fontsize=8)
    axes.xaxis.set_label_position("top")
    axes.set_yticks([])
    for side in ("left", "right", "bottom"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    return figure


def main(arguments: list[str] | None = None) -> int:
    """Print the table, fill docs/experiments.md and draw the figure."""
    parser = argparse.ArgumentParser(prog="python -m experiments.ranks", description=__doc__)
    parser.add_argument("--table", action="store_true", help="print only, write nothing")
    options = parser.parse_args(arguments)
    names, errors = collect(few_labels.ARCHIVE)
    if len(names) < 5:
        print(f"{len(names)} complete cases, too few to compare ways. Run experiments.few_labels.")
        return 0
    table = count_wins(errors, WAYS)
    print(f"{len(names)} cases: {', '.join(names)}\n{table}")
    if not options.table:
        fill(README, "ranks", f"{len(names)} cases: {', '.join(names)}.\n\n{table}")
        draw(errors, WAYS).savefig(FIGURE, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
