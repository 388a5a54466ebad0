"""Question: which kind of model explains the warps of MNIST's classes best.

500 labels per class of the first 50,000 training images, pairs of neighbours aligned as `Augmenter`
does by default, and the log-likelihood of pairs that were held out, in nats per pair.
``python -m experiments.held_out`` writes ``results/held_out.json`` and shows the table.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

import dreamwarp as dw
from dreamwarp.model import held_out_log_likelihood

RESULTS = Path(__file__).parent / "results" / "held_out.json"
KINDS = ("gaussian", "low-rank", "kde", "template")


def main() -> None:
    """Align, compare, and tell."""
    data = dw.data.mnist()
    few = dw.data.paper_split(data.y).few
    X, y = data.X[few], data.y[few]
    space = dw.WarpSpace((4, 4))
    edges = dw.neighbor_pairs(X, y, n_neighbors=5)
    prior = dw.SmoothPrior(space, displacement=dw.Augmenter().displacement)
    found = dw.align_pairs(space, X[edges[:, 0]], X[edges[:, 1]], prior=prior)
    labels = y[edges[:, 0]]
    members = {int(label): np.flatnonzero((labels == label) & found.usable) for label in range(10)}
    table = held_out_log_likelihood(
        space,
        {label: found.theta[some] for label, some in members.items()},
        edges={label: edges[some] for label, some in members.items()},
        kinds=KINDS,
    )
    RESULTS.write_text(json.dumps(asdict(table), indent=1) + "\n")
    print(table)


if __name__ == "__main__":
    main()
