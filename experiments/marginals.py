"""Question: which distribution of warps explains pairs of samples that it has not seen.

Pairs are random pairs of a class, at the resolution at which `Augmenter` aligns them by default.
Samples are divided in two, each half held out once. Distributions are learned from the pairs within
the one half and judged by those within the other: by the marginal log-likelihood of a pair, its
warp integrated out (``dreamwarp.align.evidence``). All are judged by the same quadratic
approximations of the likelihoods, at the modes under the pool of empirical Bayes, with its noise.
The scale of the prior that empirical Bayes draws the pool toward is chosen within the half that is
learned from.

- "prior": the smooth prior, of displacement 0.08.
- "MAP", "Laplace": the covariance of posterior modes, or draws, as `WarpModel.fit` makes it.
- "EM, pooled" and "EM, per class": empirical Bayes; per class is what `Augmenter` learns.

Warps per template say nothing of samples that are held out: those get the warps of their class.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from benchmarks.readme import README, fill
from dreamwarp.align.evidence import Evidence, EvidenceFinder
from dreamwarp.align.images import simplify
from dreamwarp.align.pairs import random_pairs
from dreamwarp.core.files import write_beside
from dreamwarp.model import empirical_bayes as eb
from experiments.split import paper_split
from experiments.tasks import find_series

RESULTS = Path(__file__).parent / "results" / "marginals.json"
EXAMPLES = """
examples:
  python -m experiments.marginals          run what is missing, then the table; fill docs
  python -m experiments.marginals --table  only the table, of the stored results
  python -m experiments.marginals --smoke  one small set; nothing is written
"""
ROWS = ("prior", "MAP", "Laplace", "EM, pooled", "EM, per class")
# Pairs that are aligned, at most.
N_PAIRS = 3000
DISPLACEMENT = 0.08

Array = NDArray[Any]
Labelled = tuple[Array, Array]


def few_of(load: Callable[[], Any], n_labels: int) -> Labelled:
    """Samples of a draw of so many labels per class."""
    whole = load()
    few = paper_split(whole.y, n_labels, seed=0).few
    return whole.X[few], whole.y[few]


def series(name: str) -> Labelled:
    """The part to learn from of a UCR set that aeon brings."""
    found = dw.data.load(find_series(name))
    return found.X, found.y


SETS: dict[str, tuple[Callable[[], Labelled], tuple[int, ...]]] = {
    "MNIST, 10 per class": (lambda: few_of(dw.data.mnist, 10), (4, 4)),
    "MNIST, 100 per class": (lambda: few_of(dw.data.mnist, 100), (4, 4)),
    "MNIST, 500 per class": (lambda: few_of(dw.data.mnist, 500), (4, 4)),
    "Fashion-MNIST, 100 per class": (lambda: few_of(dw.data.fashion_mnist, 100), (4, 4)),
    "OSULeaf": (lambda: series("OSULeaf"), (10,)),
    "GunPoint": (lambda: series("GunPoint"), (10,)),
}


def compare(X: Array, y: Array, cells: tuple[int, ...]) -> dict[str, Any]:
    """Mean log-marginal per held-out pair, by row, relative to the prior, with standard errors."""
    space = dw.WarpSpace(cells, boundary="free")
    prior = dw.SmoothPrior(space, displacement=DISPLACEMENT)
    codes = np.unique(y, return_inverse=True)[1]
    edges = random_pairs(codes, N_PAIRS)
    X = simplify(space, X, alike=edges)
    pair_codes = codes[edges[:, 0]]
    finder = EvidenceFinder.for_images(
        prior, X, edges, similarity="ssd", sigma="auto", max_steps=50, progress=False
    )
    pool = eb.find_pool(finder, edges, pair_codes, displacements=eb.DISPLACEMENTS)
    finder = pool.finder
    evidence = finder.find(edges, pool.covariance, sigma=pool.sigma)
    gains: dict[str, list[Array]] = {row: [] for row in ROWS}
    for train, test in eb.split_by_sample(edges, 2):
        found = judge_fold(prior, finder, X, evidence, edges, pair_codes, train, test)
        for row, values in found.items():
            gains[row].append(values - found["prior"])
    joined = {row: np.concatenate(values) for row, values in gains.items()}
    return {
        "n_pairs": len(edges),
        "rows": {
            row: {"mean": float(g.mean()), "error": float(g.std(ddof=1) / np.sqrt(len(g)))}
            for row, g in joined.items()
        },
    }


def judge_fold(
    prior: dw.SmoothPrior,
    finder: EvidenceFinder,
    X: Array,
    evidence: Evidence,
    edges: Array,
    codes: Array,
    train: Array,
    test: Array,
) -> dict[str, Array]:
    """Log-marginals of the pairs ``test`` under what was learned from the pairs ``train``."""
    space, frame = prior.space, finder.frame

    def judge(covariance_of: Callable[[int], Array]) -> Array:
        values = np.empty(len(test))
        for code in np.unique(codes[test]):
            mine = np.flatnonzero(codes[test] == code)
            values[mine] = evidence.condition(covariance_of(code), test[mine]).log_marginals
        return values

    def by_pairs(method: Any) -> Callable[[int], Array]:
        found = dw.align_pairs(
            space, X, X, edges=edges[train], method=method, prior=prior, progress=False
        )
        known = [int(code) for code in np.unique(codes[train])]
        model = dw.WarpModel.fit(
            space, {code: found.theta[codes[train] == code] for code in known},
            edges={code: edges[train][codes[train] == code] for code in known},
        )  # fmt: skip

        def covariance_of(code: int) -> Array:
            theta = model.covariance(int(code) if code in known else None)
            own = frame.inverse @ theta @ frame.inverse.T
            # Modes leave directions out: as good as none, but not none.
            return (own + own.T) / 2.0 + 1e-6 * np.eye(len(own))

        return covariance_of

    seen = evidence.only(train)
    best = eb.choose_displacement(seen, edges[train], finder.smooth_prior, eb.DISPLACEMENTS)
    target = (best / finder.smooth_prior.displacement) ** 2 * np.eye(frame.rank)
    pool = eb.fit_pool_covariance(seen, target, 15, target=target)
    pool_pairs = eb.choose_pool_pairs(seen, edges[train], codes[train], pool, None)
    own = {
        code: eb.fit_class_covariance(evidence, train[codes[train] == code], pool, pool_pairs, None)
        for code in np.unique(codes)
    }
    return {
        "prior": judge(lambda code: frame.pull(prior.covariance)),
        "MAP": judge(by_pairs("map")),
        "Laplace": judge(by_pairs("laplace")),
        "EM, pooled": judge(lambda code: pool),
        "EM, per class": judge(lambda code: own[code]),
    }


def format_table(known: dict[str, Any]) -> str:
    """Nats per pair more than under the prior, with standard errors, as Markdown."""
    lines = [f"| data | {' | '.join(ROWS[1:])} |", "| --- |" + " --: |" * (len(ROWS) - 1)]
    for name, found in known.items():
        rows = found["rows"]
        cells = (f"{rows[row]['mean']:+.2f} ± {rows[row]['error']:.2f}" for row in ROWS[1:])
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run missing trials unless only the table is asked for; print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.marginals", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--table", action="store_true", help="run nothing, print stored results")
    either.add_argument("--smoke", action="store_true", help="one small set, keep nothing")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # some pairs can't be aligned, some classes are small
    if options.smoke:
        digits = dw.data.mnist_small()
        print(format_table({"digits": compare(digits.X[::10], digits.y[::10], (3, 3))}))
        return 0
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, (load, cells) in {} if options.table else SETS.items():
        if name not in known:
            known[name] = compare(*load(), cells)
            print(format_table({name: known[name]}), file=sys.stderr, flush=True)
            with write_beside(RESULTS) as part:
                part.write_text(json.dumps(known, indent=1) + "\n")
    print(format_table(known))
    if len(known) == len(SETS):
        fill(README, "marginals", format_table(known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
