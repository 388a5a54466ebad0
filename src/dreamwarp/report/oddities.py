"""Samples that stand out: far from their neighbours even by the best warp."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from dreamwarp.report.study import Study

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Robust standard deviations above its class at which a sample is odd. A sample in 10,000 of a
# normal distribution is.
ODD = 3.7
# Normal standard deviations per median absolute deviation.
MAD = 1.4826
# Neighbours of any class that are asked what a sample looks like, and how many must agree.
N_VOTES, MOST_AGREE = 5, 4
# Samples are compared at a time.
BLOCK = 256


class Odd(NamedTuple):
    """A sample that stands out from its class.

    Attributes
    ----------
    sample : int
        Its place among those of the study.
    score : float
        Robust standard deviations above its class.
    looks_like : int or None
        Another class that most of its nearest neighbours have: it may be mislabelled.
    votes : int
        How many of them.
    """

    sample: int
    score: float
    looks_like: int | None
    votes: int


def find_odd(study: Study) -> list[Odd]:
    """Samples whose warps to their neighbours are extreme, or leave much over; the oddest first.

    A pair's energy is E = ½ θᵀΣ⁻¹θ + ½ ‖x_m ∘ T - x_n‖² / σ²: the size of its warp in the model of
    the class, and what the warp leaves over. A sample's is the median of its pairs', on a
    logarithmic scale. Odd are those above the median of their class by ``ODD`` robust standard
    deviations, and those that are above it by half as much while four of their five nearest
    neighbours have another label.
    """
    scores = sample_scores(study)
    labels, votes = neighbor_votes(study.subject.X, study.subject.codes)
    strange = (votes >= MOST_AGREE) & (labels != study.subject.codes)
    with np.errstate(invalid="ignore"):
        found = np.flatnonzero((scores > ODD) | (strange & (scores > ODD / 2)))
    # Suspected labels first: they do more harm than odd shapes.
    order = np.lexsort((-scores[found], ~strange[found]))
    return [
        Odd(int(i), float(scores[i]), int(labels[i]) if strange[i] else None, int(votes[i]))
        for i in found[order]
    ]


def sample_scores(study: Study) -> Array:
    """How far the energy of each sample (n,) is above its class, in robust standard deviations.

    NaN for samples without a pair.
    """
    energy = np.log(np.maximum(pair_energies(study), np.finfo(float).tiny))
    codes, edges = study.subject.codes, study.edges
    usable = np.flatnonzero(study.alignments.usable & np.isfinite(energy))
    of = np.full(len(codes), np.nan)
    ends = edges[usable].T.ravel()
    values = np.tile(energy[usable], 2)
    order = np.argsort(ends, kind="stable")
    samples, starts = np.unique(ends[order], return_index=True)
    for sample, group in zip(samples, np.split(values[order], starts[1:]), strict=True):
        of[sample] = np.median(group)
    scores = np.full(len(codes), np.nan)
    for code in range(len(study.subject.labels)):
        members = np.flatnonzero((codes == code) & np.isfinite(of))
        if len(members):
            middle = np.median(of[members])
            width = MAD * np.median(np.abs(of[members] - middle))
            scores[members] = (of[members] - middle) / max(width, 1e-9)
    return scores


def pair_energies(study: Study) -> Array:
    """Energy of each pair (e,): that of its warp, and that of what it leaves over."""
    size = 0.5 * study.model.space.dim * study.sizes**2
    sigma = study.alignments.sigma
    if sigma is None:
        return size
    return size + 0.5 * study.alignments.loss_after / sigma**2


def neighbor_votes(X: NDArray[Any], codes: Integers) -> tuple[Integers, Integers]:
    """The class that most of each sample's nearest others have (n,), and how many of them (n,)."""
    rows = np.asarray(X, dtype=np.float32).reshape(len(X), -1)
    n_votes, n_classes = min(N_VOTES, len(X) - 1), int(codes.max()) + 1
    winners, counts = np.empty(len(X), np.int64), np.empty(len(X), np.int64)
    for first in range(0, len(rows), BLOCK):
        block = np.arange(first, min(first + BLOCK, len(rows)))
        distances = cdist(rows[block], rows, "sqeuclidean")
        distances[np.arange(len(block)), block] = np.inf
        nearest = np.argpartition(distances, n_votes - 1, axis=1)[:, :n_votes]
        tally = np.stack(
            [(codes[nearest] == code).sum(axis=1) for code in range(n_classes)], axis=1
        )
        winners[block], counts[block] = tally.argmax(axis=1), tally.max(axis=1)
    return winners, counts
