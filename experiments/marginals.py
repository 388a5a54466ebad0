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

Warps per template are not defined for held-out samples. Half of the samples are therefore
templates, and each is paired with a random held-out sample of its class, and with the nearest one:
"per template" is the mixture of ``model.template`` as `Augmenter` sets it, from the template's
neighbours among the other templates. On the same pairs, "per class" is as above, from random pairs
or from pairs of neighbours.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import dreamwarp as dw
from benchmarks.readme import README, fill
from dreamwarp.align.evidence import Evidence, EvidenceFinder, Frame
from dreamwarp.align.images import simplify
from dreamwarp.align.pairs import neighbor_pairs, random_pairs
from dreamwarp.augment.learning import EB_CLASS_PAIRS, EB_DRIFT
from dreamwarp.core.defaults import N_NEIGHBORS
from dreamwarp.core.files import write_beside
from dreamwarp.model import empirical_bayes as eb
from dreamwarp.model.template import TemplateMixture
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
TEMPLATE_ROWS = ("EM, per class", "EM of neighbours, per class", "per template")
PARTNERS = ("random", "nearest")  # held-out samples that templates are paired with
# Pairs that are aligned, and templates that are judged, at most.
N_PAIRS, N_TEMPLATES = 3000, 1000
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


@dataclass(frozen=True)
class Study:
    """A data set, the noise and the prior that empirical Bayes finds for it."""

    prior: dw.SmoothPrior
    X: Array  # as `Augmenter` aligns them
    codes: Array
    edges: Array  # random pairs
    pool: eb.Pool

    @classmethod
    def of(cls, X: Array, y: Array, cells: tuple[int, ...]) -> Study:
        """Align some of the random pairs of a data set."""
        space = dw.WarpSpace(cells, boundary="free")
        prior = dw.SmoothPrior(space, displacement=DISPLACEMENT)
        codes = np.unique(y, return_inverse=True)[1]
        edges = random_pairs(codes, N_PAIRS)
        X = simplify(space, X, alike=edges)
        finder = EvidenceFinder.for_images(
            prior, X, edges, similarity="ssd", sigma="auto", max_steps=50, progress=False
        )
        pool = eb.find_pool(finder, edges, codes[edges[:, 0]], displacements=eb.DISPLACEMENTS)
        return cls(prior, X, codes, edges, pool)

    def find(self, edges: Array) -> Evidence:
        """Evidence of pairs at their modes under the pool."""
        return self.pool.finder.find(edges, self.pool.covariance, sigma=self.pool.sigma)

    def learn_classes(self, evidence: Evidence, edges: Array) -> tuple[Array, dict[int, Array]]:
        """Covariances of u by empirical Bayes from these pairs: of the pool, and by class."""
        smooth, frame = self.pool.finder.frame.prior, self.pool.finder.frame
        codes = self.codes[edges[:, 0]]
        best = eb.choose_displacement(evidence, edges, smooth, eb.DISPLACEMENTS)
        target = (best / smooth.displacement) ** 2 * np.eye(frame.rank)
        pool = eb.fit_covariance(evidence, target, target=target, n_steps=15)
        folds = eb.hold_out(evidence, edges, codes, pool, None)
        pool_pairs = eb.choose_pool_pairs(evidence, codes, folds, None)
        return pool, {
            int(code): eb.fit_covariance(
                evidence,
                pool,
                chosen=np.flatnonzero(codes == code),
                target=pool,
                target_pairs=pool_pairs,
            )
            for code in np.unique(self.codes)
        }


def compare(X: Array, y: Array, cells: tuple[int, ...]) -> dict[str, Any]:
    """Mean log-marginals relative to the prior, with standard errors: by row, and of templates."""
    study = Study.of(X, y, cells)
    evidence, edges = study.find(study.edges), study.edges
    folds = [
        judge_fold(study, evidence, train, test) for train, test in eb.split_by_sample(edges, 2)
    ]
    halves = np.random.default_rng(0).integers(2, size=len(X)).astype(bool)
    templates = [judge_templates(study, evidence, half) for half in (halves, ~halves)]
    augmenter = dw.Augmenter(cells=cells, strength=1.0, progress=False).fit(X, y)
    return {
        "n_pairs": len(edges),
        "kind": augmenter.model_.kind,
        "rows": summarize(folds),
        "templates": {
            partner: summarize([found[partner] for found in templates]) for partner in PARTNERS
        },
    }


def summarize(folds: list[dict[str, Array]]) -> dict[str, dict[str, float]]:
    """Mean and standard error over the pairs of all folds, relative to the prior."""
    out = {}
    for row in folds[0]:
        gains = np.concatenate([fold[row] - fold["prior"] for fold in folds])
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        out[row] = {"mean": float(gains.mean()), "error": float(error)}
    return out


def judge_fold(study: Study, evidence: Evidence, train: Array, test: Array) -> dict[str, Array]:
    """Log-marginals of the pairs ``test`` under what was learned from the pairs ``train``."""
    prior, X, edges, frame = study.prior, study.X, study.edges, study.pool.finder.frame
    space, codes = prior.space, study.codes[edges[:, 0]]

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
            # Modes leave directions out: as good as none, but not none.
            return pull(frame, theta) + 1e-6 * np.eye(frame.rank)

        return covariance_of

    pool, own = study.learn_classes(evidence.only(train), edges[train])
    return {
        "prior": judge(lambda code: pull(frame, prior.covariance)),
        "MAP": judge(by_pairs("map")),
        "Laplace": judge(by_pairs("laplace")),
        "EM, pooled": judge(lambda code: pool),
        "EM, per class": judge(lambda code: own[code]),
    }


def pull(frame: Frame, covariance: Array) -> Array:
    """Covariance (r, r) of u from that of θ (d, d)."""
    out = frame.inverse @ covariance @ frame.inverse.T
    return np.asarray((out + out.T) / 2.0)


def judge_templates(study: Study, evidence: Evidence, half: Array) -> dict[str, dict[str, Array]]:
    """Log-marginals of pairs of a template, a sample of ``half``, with others: by partner."""
    prior, frame, codes = study.prior, study.pool.finder.frame, study.codes
    inside = half[study.edges].all(axis=1)
    random = study.learn_classes(evidence.only(inside), study.edges[inside])[1]
    members = np.flatnonzero(half)
    edges = members[neighbor_pairs(study.X[members], codes[members], n_neighbors=N_NEIGHBORS)]
    near = study.learn_classes(study.find(edges), edges)[1]
    theta = dw.align_pairs(
        prior.space, study.X, study.X, edges=edges, prior=prior, progress=False
    ).theta
    wide = pull(frame, prior.covariance)
    found = {}
    for partner in PARTNERS:
        pairs = pairs_outside(study, half, partner)
        judged = study.find(pairs)
        found[partner] = {row: np.empty(len(pairs)) for row in ("prior", *TEMPLATE_ROWS)}
        for code in np.unique(codes[pairs[:, 0]]):
            mine = np.flatnonzero(codes[pairs[:, 0]] == code)
            own = codes[edges[:, 0]] == code
            covariances = (wide, random[code], near[code])
            for row, covariance in zip(found[partner], covariances, strict=False):
                found[partner][row][mine] = judged.condition(covariance, mine).log_marginals
            mixture = TemplateMixture(
                factor=np.linalg.cholesky(random[code]), theta=theta[own] @ frame.inverse.T,
                edges=edges[own], weights=np.ones(own.sum()), class_pairs=EB_CLASS_PAIRS,
                drift=EB_DRIFT,
            )  # fmt: skip
            found[partner]["per template"][mine] = judged.only(mine).log_marginals(
                *mixture.moments(pairs[mine, 0])
            )
    return found


def pairs_outside(study: Study, half: Array, partner: str) -> Array:
    """Pairs of a sample of ``half`` and another sample of its class, at most so many."""
    flat, pairs = study.X.reshape(len(study.X), -1), []
    chance = np.random.default_rng(2)
    for code in np.unique(study.codes):
        own = study.codes == code
        templates, others = np.flatnonzero(own & half), np.flatnonzero(own & ~half)
        if len(templates) > 1 and len(others):
            chosen = chance.integers(len(others), size=len(templates))
            if partner == "nearest":
                chosen = cdist(flat[templates], flat[others]).argmin(axis=1)
            pairs.append(np.stack([templates, others[chosen]], axis=1))
    joined = np.concatenate(pairs)
    some = np.random.default_rng(1).permutation(len(joined))[:N_TEMPLATES]
    return joined[np.sort(some)]


def format_templates(known: dict[str, Any]) -> str:
    """The same for pairs of a template and a held-out sample."""
    lines = [
        f"| data | paired with | {' | '.join(TEMPLATE_ROWS)} | `Augmenter` uses |",
        "| --- | --- |" + " --: |" * len(TEMPLATE_ROWS) + " --- |",
    ]
    for partner in PARTNERS:
        for name, found in known.items():
            rows = found["templates"][partner]
            cells = (
                f"{rows[row]['mean']:+.2f} ± {rows[row]['error']:.2f}" for row in TEMPLATE_ROWS
            )
            kind = "per template" if found["kind"] == "template" else "per class"
            lines.append(f"| {name} | {partner} | {' | '.join(cells)} | {kind} |")
    return "\n".join(lines)


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
        known = {"digits": compare(digits.X[::10], digits.y[::10], (3, 3))}
        print(format_table(known), format_templates(known), sep="\n\n")
        return 0
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, (load, cells) in {} if options.table else SETS.items():
        if name not in known:
            known[name] = compare(*load(), cells)
            print(format_table({name: known[name]}), file=sys.stderr, flush=True)
            with write_beside(RESULTS) as part:
                part.write_text(json.dumps(known, indent=1) + "\n")
    print(format_table(known), format_templates(known), sep="\n\n")
    if len(known) == len(SETS):
        fill(README, "marginals", format_table(known))
        fill(README, "marginals of templates", format_templates(known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
