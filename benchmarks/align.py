"""Question: how fast and how well are pairs of digits aligned, next to registration packages.

The paper's pairs: 500 MNIST digits per class, each with its 5 nearest in its class, aligned on
(4, 4) cells. All of them by ``map`` and ``laplace``, some by the samplers, which run until their
chains have mixed, and some by peers too. `Augmenter` does it all: pairs, alignment, a model, how
strong its warps should be. Times are wall times of whole calls, after a call that compiles. A quick
run takes scikit-learn's small digits, which need not be fetched.
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from benchmarks.flows import build_peer
from benchmarks.measure import Timing
from benchmarks.registration import CHOSEN, Outcome, Registration, judge
from benchmarks.report import Report, Target, duration
from benchmarks.settings import Settings
from experiments.split import paper_split

Array = NDArray[Any]

CELLS, N_NEIGHBORS, N_PER_CLASS = (4, 4), 5, 500
N_CONTESTED, N_SAMPLED = 200, 64
R_HAT = 1.05
# Of the prior; said here, so that figures of different versions can be compared.
DISPLACEMENT = 0.08
# Targets: milliseconds per pair, share of the squared difference that is left, seconds of a fit,
# how many times the time of a peer ours is to fit in, and what "by a wide margin" is taken to mean.
MAP_BOUND, LAPLACE_BOUND, METROPOLIS_BOUND = 2.0, 3.0, 100.0
LEFT_BOUND, FIT_BOUND, PEER_BOUND, MARGIN = 0.25, 90.0, 10.0, 5.0


def run(settings: Settings) -> Report:
    report = Report(
        "align", "how fast and how well are pairs aligned, next to registration packages?"
    )
    sources, targets = load_pairs(quick=settings.quick)
    report.details = {
        "cells": CELLS, "boundary": "zero", "images": sources.shape[1:], "n_pairs": len(sources),
        "figures": {},
    }  # fmt: skip
    measured, others = choose_pairs(
        len(sources), n_measured=settings.pick(N_CONTESTED, 6), seed=settings.seed
    )
    sigma = _align_all(report, settings, sources, targets)
    _fit(report, settings)
    sampled = measured[: settings.pick(N_SAMPLED, 2)]
    _sample(report, settings, sources[sampled], targets[sampled], sigma)
    _contest(report, settings, sources, targets, measured, others)
    return report


def load_pairs(*, quick: bool = False) -> tuple[Array, Array]:
    """Sources and targets of all pairs: (n, rows, columns), float32 in [0, 1]."""
    images, labels = _load_images(quick=quick)
    edges = dw.neighbor_pairs(images, n_neighbors=N_NEIGHBORS, y=labels)
    values = images.astype(np.float32) / np.float32(images.max())
    return values[edges[:, 0]], values[edges[:, 1]]


def _load_images(*, quick: bool) -> tuple[Array, Array]:
    """The images that pairs are of, and their labels."""
    if quick:
        data = dw.data.digits()
        return data.X[:100], data.y[:100]
    data = dw.data.mnist()
    few = paper_split(data.y, N_PER_CLASS).few
    return data.X[few], data.y[few]


def choose_pairs(
    n: int, *, n_measured: int = N_CONTESTED, n_others: int = 8, seed: int = 0
) -> tuple[Array, Array]:
    """Pairs to measure, and others to choose settings and to warm up with."""
    order = np.random.default_rng(seed).permutation(n)
    return order[:n_measured], order[n_measured : n_measured + n_others]


# -- all pairs


def _align_all(report: Report, settings: Settings, sources: Array, targets: Array) -> float:
    """Every pair by ``map`` and ``laplace``; returns σ, as it was estimated."""
    timings, sigma = [], 1.0
    for method, bound in (("map", MAP_BOUND), ("laplace", LAPLACE_BOUND)):
        seconds, found = _time_align(settings, sources, targets, method)
        timings.append(_single(method, seconds, len(sources)))
        before, after = found.loss_before, found.loss_after
        report.details["figures"][method] = {
            "pairs": len(sources),
            "seconds": seconds,
            "sigma": found.sigma,
            "SSD left": float(after.sum() / before.sum()),
            "SSD left, mean over pairs": float(np.mean(after / np.maximum(before, 1e-12))),
            "pairs worse than begun": float(np.mean(after > before)),
            "pairs not converged": float(np.mean(~found.converged)),
        }
        _claim(report, f"time per pair, {method}", bound, 1e3 * seconds / len(sources), "ms")
        if method == "map":
            sigma = float(found.sigma or 1.0)
            left = report.details["figures"][method]["SSD left"]
            _claim(report, "SSD left of all pairs, map", LEFT_BOUND, left)
            _claim(report, "pairs worse than they began, map", 0.0, float((after > before).sum()))
    report.add(f"All pairs, {CELLS} cells", "pair", timings)
    _note(report, ("map", "laplace"))
    return sigma


def _time_align(
    settings: Settings, sources: Array, targets: Array, method: Any, **options: Any
) -> tuple[float, dw.Alignments]:
    """Seconds of a call, after one with two pairs that compiles."""
    space = dw.WarpSpace(CELLS)
    prior = dw.SmoothPrior(space, displacement=DISPLACEMENT)
    align = partial(
        dw.align_pairs, space, method=method, prior=prior, seed=settings.seed,
        n_threads=settings.n_threads, progress=False, **options,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what did not converge is counted
        align(sources[:2], targets[:2], max_draws=100)
        start = time.perf_counter()
        found = align(sources, targets)
        return time.perf_counter() - start, found


def _fit(report: Report, settings: Settings) -> None:
    """Everything that `Augmenter` does by itself; most of what it calls is compiled by now."""
    images, labels = _load_images(quick=settings.quick)
    augmenter = dw.Augmenter(seed=settings.seed, n_threads=settings.n_threads, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # pairs that could not be aligned
        start = time.perf_counter()
        augmenter.fit(images, labels)
        seconds = time.perf_counter() - start
    report.details["figures"]["fit"] = {
        "images": len(images), "seconds": seconds, "strength": augmenter.strength_,
    }  # fmt: skip
    _claim(report, f"time to fit {len(images):,} images", FIT_BOUND, seconds, "s")
    _note(report, ("fit",))


# -- samplers


def _sample(
    report: Report, settings: Settings, sources: Array, targets: Array, sigma: float
) -> None:
    """Some pairs by the samplers, each until its chains have mixed or it gives up."""
    timings, speeds = [], {}
    for method in ("metropolis", "hmc"):
        seconds, found = _time_align(
            settings, sources, targets, method, sigma=sigma, r_hat=R_HAT, keep_chains=True
        )
        timings.append(_single(method, seconds, len(sources)))
        sweeps = sum(
            len(chains) * int(n)
            for chains, n in zip(found.chains, found.diagnostics["n_sweeps"], strict=True)
        )
        speeds[method] = float(found.diagnostics["ess"].sum() / seconds)
        report.details["figures"][method] = {
            "pairs": len(sources),
            "seconds": seconds,
            "sigma": sigma,
            "sweeps per second": sweeps / seconds,
            "effective draws per second": speeds[method],
            "R-hat, mean": float(found.diagnostics["r_hat"].mean()),
            "acceptance, mean": float(found.diagnostics["acceptance"].mean()),
            "pairs not converged": float(np.mean(~found.converged)),
        }
    report.add(f"Samplers, {CELLS} cells, until R-hat is at most {R_HAT}", "pair", timings)
    metropolis = 1e3 * timings[0].median
    _claim(
        report, f"time per pair to R-hat {R_HAT}, metropolis", METROPOLIS_BOUND, metropolis, "ms"
    )
    late = 100 * report.details["figures"]["metropolis"]["pairs not converged"]
    _claim(report, f"pairs that never get to R-hat {R_HAT}, metropolis", 0.0, late, "%")
    ratio = speeds["hmc"] / speeds["metropolis"]
    report.targets.append(
        Target("effective draws per second, hmc against metropolis", MARGIN, (ratio,))
    )
    _note(report, ("metropolis", "hmc"))


# -- peers


def _contest(
    report: Report,
    settings: Settings,
    sources: Array,
    targets: Array,
    measured: Array,
    others: Array,
) -> None:
    """The same pairs by all contestants, after two others that compile."""
    outcomes: dict[str, Outcome] = {}
    for name, contestant in _contestants(report, settings).items():
        contestant.register(sources[others[:2]], targets[others[:2]])
        outcomes[name] = judge(contestant, sources[measured], targets[measured])
        report.details["figures"][name] = {
            "pairs": len(measured), **contestant.options, **outcomes[name].as_dict()
        }  # fmt: skip
    timings = [_single(name, found.seconds, len(measured)) for name, found in outcomes.items()]
    cells = CHOSEN[next(iter(outcomes))][1]["cells"]
    report.add(f"Next to peers, ours on ({cells}, {cells}) cells", "pair", timings)
    _compare(report, outcomes)
    _note(report, tuple(outcomes))


def _contestants(report: Report, settings: Settings) -> dict[str, Registration]:
    """Those that are installed, ours first."""
    built = {}
    for k, (name, (build, options)) in enumerate(CHOSEN.items()):
        make = partial(build, n_threads=settings.n_threads, **options)
        made = make() if k == 0 else build_peer(report, settings, make)
        if made is not None:
            built[name] = made
    return built


def _compare(report: Report, outcomes: dict[str, Outcome]) -> None:
    own, *peers = CHOSEN
    ours = outcomes[own]
    _claim(report, "pairs with folds next to peers", 0.0, float((ours.folded > 0).sum()))
    for name in peers:
        found = outcomes.get(name)
        faster = () if found is None else (found.seconds / ours.seconds,)
        more = () if found is None else (float(found.after.sum() / ours.after.sum()),)
        report.targets.append(Target(f"alignment against {name}", PEER_BOUND, faster))
        report.targets.append(Target(f"SSD that {name} leaves, against ours", 1.0, more))


# -- parts of the above


def _single(name: str, seconds: float, n_items: int) -> Timing:
    """One round of one call: calls of minutes are not repeated."""
    return Timing(name, n_items, 1, (seconds / n_items,))


def _claim(report: Report, claim: str, bound: float, value: float, unit: str = "") -> None:
    report.targets.append(Target(claim, bound, (value,), unit, at_least=False))


def _note(report: Report, names: tuple[str, ...]) -> None:
    """Show the figures of some contestants, one per line."""
    for name in names:
        figures = report.details["figures"][name]
        shown = (f"{key} {_words(key, value)}" for key, value in figures.items())
        report.notes.append(f"{name}: {', '.join(shown)}")


def _words(key: str, value: float) -> str:
    if key.startswith("seconds"):
        return duration(value)
    share = key.startswith(("SSD", "pairs ", "area "))
    return f"{value:.2%}" if share else f"{value:,.4g}"
