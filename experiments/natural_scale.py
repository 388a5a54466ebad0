"""Question: is the natural scale of learned warps the right one for networks.

100 labels per class, an MLP and the paper's ConvNet, trained on warps made as they go. "learned" is
`LearnedWarp` of a model that `Augmenter` fitted to the labelled images alone, both with every
default; strength 1 is that of `LearnedWarp`. "elastic" is random elastic noise, whose amplitude is
the best of several on the validation images of the first draw. Batches, their order and the
network's first weights are the same for both. Errors are of training images without a label: 10,000
for validation, and all others, of which the table tells.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dreamwarp as dw
from benchmarks.readme import README, fill
from dreamwarp.augment.rivals.elastic import deform_elastically
from dreamwarp.core.files import write_beside
from experiments.few_labels import current_commit
from experiments.network import N_PROCESSES, use_one_core

RESULTS = Path(__file__).parent / "results" / "natural_scale.json"
EXAMPLES = """
Results are in results/natural_scale.json, written after every network: stop and go on at will.

examples:
  python -m experiments.natural_scale          train what is missing, then the table
  python -m experiments.natural_scale --table  only the table, of what there is
  python -m experiments.natural_scale --smoke  try all parts on next to nothing, and keep nothing
"""
DATA: dict[str, Callable[[], Any]] = {"mnist": dw.data.mnist, "fashion": dw.data.fashion_mnist}
NETWORKS = ("MLP", "ConvNet")
# The default and others; amplitudes in pixels.
STRENGTHS = {"learned": (1.0, 0.7, 1.4), "elastic": (1.4, 1.0, 2.0, 0.5)}
# Width of elastic noise, in pixels: the best for this network in the study of few labels.
WIDTH = 5.0
N_LABELS, N_DRAWS, N_VALIDATION = 100, 5, 10_000
N_STEPS, BATCH, N_CLASSES = 7200, 128, 10


class Trial(NamedTuple):
    """One network: what it learns from, and who warps."""

    data: str
    network: str
    draw: int
    rival: str
    strength: float

    def __str__(self) -> str:
        return f"{self.data}, {self.network}, draw {self.draw}, {self.rival} {self.strength:g}"


def list_trials(data: str, network: str, errors: dict[str, Any]) -> list[Trial]:
    """Trials to run: strengths are compared in the first draw, the chosen one goes into all."""
    first = [
        Trial(data, network, 0, rival, strength)
        for rival, strengths in STRENGTHS.items()
        for strength in strengths
    ]
    amplitude = best_of(first, "elastic", errors)
    others = [Trial(data, network, draw, "learned", 1.0) for draw in range(1, N_DRAWS)]
    if amplitude is not None:
        others += [Trial(data, network, d, "elastic", amplitude) for d in range(1, N_DRAWS)]
    return [*first, *sorted(others, key=lambda trial: trial.draw)]


def best_of(trials: Sequence[Trial], rival: str, errors: dict[str, Any]) -> float | None:
    """The strength that errs least on the validation images of the first draw; None until known."""
    tried = {
        trial.strength: errors[str(trial)]["validation"]
        for trial in trials
        if trial.draw == 0 and trial.rival == rival and str(trial) in errors
    }
    if len(tried) < len(STRENGTHS[rival]):
        return None
    return min(tried, key=lambda strength: tried[strength])


@lru_cache(maxsize=2)
def load_draw(data: str, draw: int, n_labels: int) -> tuple[Any, Any, Any, Any]:
    """A data set, and the numbers of labelled images, of those to tune by, and of all others."""
    whole = DATA[data]()
    few = dw.data.paper_split(whole.y, n_labels, seed=draw).few
    rest = np.setdiff1d(np.arange(len(whole.y)), few)
    return whole, few, rest[-N_VALIDATION:], rest[:-N_VALIDATION]


@lru_cache(maxsize=2)
def learn(data: str, draw: int, n_labels: int) -> dw.WarpModel:
    """The warps of the labelled images of a draw, by default."""
    whole, few, _, _ = load_draw(data, draw, n_labels)
    augmenter = dw.Augmenter(strength=1.0, seed=draw, progress=False)
    return augmenter.fit(whole.X[few], whole.y[few]).model_


def build(network: str) -> Any:
    """An untrained network."""
    from torch import nn

    if network == "ConvNet":
        return nn.Sequential(
            nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(800, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, N_CLASSES),
        )  # fmt: skip
    layers: list[nn.Module] = [nn.Flatten()]
    for n_inputs in (784, 512, 512):
        layers += [nn.Linear(n_inputs, 512), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(512, N_CLASSES))


def run(trial: Trial, n_steps: int = N_STEPS, n_labels: int = N_LABELS) -> dict[str, float]:
    """Errors of a network after its last step, and the seconds it took."""
    import torch
    from torch import nn

    from dreamwarp.torch import LearnedWarp

    begin = time.perf_counter()
    whole, few, validation, others = load_draw(trial.data, trial.draw, n_labels)
    X, y = whole.X[few], whole.y[few].astype(np.int64)
    warp: Any = None
    if trial.rival == "learned":
        model = learn(trial.data, trial.draw, n_labels)
        warp = LearnedWarp(model, seed=trial.draw, strength=trial.strength)
    torch.manual_seed(trial.draw)
    network = build(trial.network)
    optimizer = torch.optim.Adam(network.parameters())
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)

    def read(images: Any) -> Any:
        return torch.from_numpy(images[:, None].astype(np.float32) / 255.0)

    for step, chosen in enumerate(take_batches(len(X), n_steps, trial.draw)):
        labels = torch.from_numpy(y[chosen])
        if warp is None:
            shaken = deform_elastically(
                X[chosen], width=WIDTH, amplitude=trial.strength, seed=trial.draw,
                first=step * BATCH,
            )  # fmt: skip
            images = read(shaken)
        else:
            images = warp(read(X[chosen]), labels)[0]
        loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    network.eval()

    def judge(numbers: Any) -> float:
        with torch.no_grad():
            parts = np.array_split(numbers, -(-len(numbers) // 1000))
            found = [network(read(whole.X[part])).argmax(1).numpy() for part in parts]
        return float(np.mean(np.concatenate(found) != whole.y[numbers]))

    seconds = round(time.perf_counter() - begin, 1)
    return {"validation": judge(validation), "others": judge(others), "seconds": seconds}


def take_batches(n: int, n_steps: int, seed: int) -> Iterator[Any]:
    """Samples of each batch: all in turn, in a new order every epoch."""
    for step in range(n_steps):
        epochs, places = np.divmod(np.arange(step * BATCH, (step + 1) * BATCH), n)
        orders = {e: np.random.default_rng((seed, int(e))).permutation(n) for e in set(epochs)}
        yield np.array([orders[e][place] for e, place in zip(epochs, places, strict=True)])


def format_table(errors: dict[str, dict[str, Any]]) -> str:
    """Errors in percent on images that chose nothing: the mean over draws and each, as Markdown."""
    lines = ["| data, network | draws | learned, by default | elastic, tuned | learned - elastic |"]
    lines.append("| --- | --: | --: | --: | --: |")
    for data, network in product(DATA, NETWORKS):
        trials = list_trials(data, network, errors)
        amplitude = best_of(trials, "elastic", errors)
        if amplitude is None:
            continue
        pairs = [
            [
                100 * errors[str(trial)]["others"]
                for rival, strength in (("learned", 1.0), ("elastic", amplitude))
                if str(trial := Trial(data, network, draw, rival, strength)) in errors
            ]
            for draw in range(N_DRAWS)
        ]
        both = np.array([pair for pair in pairs if len(pair) == 2])
        gaps = both[:, 0] - both[:, 1]
        error = f" ± {gaps.std(ddof=1) / np.sqrt(len(gaps)):.2f}" if len(gaps) > 1 else ""
        cells = [
            f"{column.mean():.2f} ({', '.join(f'{e:.2f}' for e in column)})" for column in both.T
        ]
        cells[1] += f", amplitude {amplitude:g}"
        lines.append(
            f"| {data}, {network} | {len(both)} | {' | '.join(cells)} | {gaps.mean():+.2f}{error} |"
        )
    return "\n".join([*lines, "", *format_strengths(errors)])


def format_strengths(errors: dict[str, dict[str, Any]]) -> list[str]:
    """Errors in percent by strength in the first draw, on the validation images, as Markdown."""
    learned = sorted(STRENGTHS["learned"])
    lines = [f"| data, network, draw 0 | {' | '.join(f'learned, {s:g}' for s in learned)} |"]
    lines.append("| --- |" + " --: |" * len(learned))
    for data, network in product(DATA, NETWORKS):
        found = [errors.get(str(Trial(data, network, 0, "learned", s))) for s in learned]
        cells = ["" if one is None else f"{100 * one['validation']:.2f}" for one in found]
        if any(cells):
            lines.append(f"| {data}, {network} | {' | '.join(cells)} |")
    return lines


def run_missing(known: dict[str, Any]) -> Iterator[tuple[Trial, dict[str, float]]]:
    """Trials without a result, and their errors as they end: on a core each."""
    pool = ProcessPoolExecutor(N_PROCESSES, get_context("spawn"), use_one_core)
    try:
        for network, data in product(NETWORKS, DATA):
            while True:
                trials = list_trials(data, network, known)
                missing = [trial for trial in trials if str(trial) not in known]
                if not missing:
                    break
                futures = {pool.submit(run, trial): trial for trial in missing}
                for future in as_completed(futures):
                    yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def main(arguments: list[str] | None = None) -> int:
    """Train what is missing unless only asked for the table, and tell."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.natural_scale", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--table", action="store_true", help="run nothing, tell what is known")
    either.add_argument("--smoke", action="store_true", help="run next to nothing, keep nothing")
    options = parser.parse_args(arguments)
    if options.smoke:
        for rival, network in zip(STRENGTHS, NETWORKS, strict=True):
            trial = Trial("mnist", network, 0, rival, 1.0)
            print(f"{trial}: {run(trial, n_steps=2, n_labels=5)}")
        return 0
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    commit = current_commit()  # before it changes: workers keep what they have imported
    for trial, errors in () if options.table else run_missing(known):
        known[str(trial)] = {**errors, "n_steps": N_STEPS, "commit": commit}
        print(f"{trial}: {errors}", flush=True)
        with write_beside(RESULTS) as part:
            part.write_text(json.dumps(known, indent=1) + "\n")
    print(format_table(known))
    fill(README, "natural scale", format_table(known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
