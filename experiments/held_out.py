"""Question: which kind of model explains the warps of MNIST's classes best.

500 labels per class of the first 50,000 training images, pairs of neighbours aligned as `Augmenter`
does by default, and the log-likelihood of pairs that were held out, in nats per pair.
``python -m experiments.held_out`` writes ``results/held_out.json``, and puts the table into
the README; ``--table`` does the latter with what is there.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import dreamwarp as dw
from benchmarks.readme import README, fill
from dreamwarp.model import held_out_log_likelihood
from dreamwarp.model.comparison import HeldOut
from experiments.alignment import align_classes

RESULTS = Path(__file__).parent / "results" / "held_out.json"
KINDS = ("gaussian", "kde", "template")


def main() -> None:
    """Compare unless only asked for the table, and tell."""
    if sys.argv[1:] != ["--table"]:
        RESULTS.write_text(json.dumps(asdict(compare()), indent=1) + "\n")
    table = HeldOut(**json.loads(RESULTS.read_text()))
    fill(README, "held out", f"```text\n{table}\n```")
    print(table)


def compare() -> HeldOut:
    """Align pairs, and hold some out in turn."""
    data = dw.data.mnist()
    few = dw.data.paper_split(data.y).few
    space = dw.WarpSpace((4, 4))
    theta, edges = align_classes(space, data.X[few], data.y[few])
    return held_out_log_likelihood(space, theta, edges=edges, kinds=KINDS)


if __name__ == "__main__":
    main()
