"""Find outliers: samples far from their neighbours even under the best warp."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, stats
from sklearn.neighbors import NearestNeighbors

from dreamwarp.report.study import Study

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Robust standard deviations above its class at which a sample is an outlier: 1 in 10,000 of a
# normal distribution.
THRESHOLD = 3.7
# Nearest neighbours of any class that vote on a sample's label, and how many must agree.
N_VOTES, MOST_AGREE = 5, 4


class Outlier(NamedTuple):
    """A sample far from the others of its class."""

    sample: int  # index in the study
    score: float  # robust standard deviations above its class
    looks_like: int | None  # class of most nearest neighbours, if another: it may be mislabelled
    votes: int  # number of those neighbours


def find_odd(study: Study) -> list[Outlier]:
    """Find samples whose warps to their neighbours are extreme, or leave large differences.

    The energy of a pair is E = ½ θᵀΣ⁻¹θ + ½ ‖x_m ∘ T - x_n‖² / σ²: the size of its warp under the
    class's model, plus the remaining difference. The energy of a sample is the median over its
    pairs, on a logarithmic scale. Outliers lie above the median of their class by ``THRESHOLD``
    robust standard deviations, or by half as much if four of their five nearest neighbours have
    another label. Suspected labels come first, then higher scores.
    """
    scores = sample_scores(study)
    labels, votes = neighbor_votes(study.subject.X, study.subject.codes)
    strange = (votes >= MOST_AGREE) & (labels != study.subject.codes)
    with np.errstate(invalid="ignore"):
        found = np.flatnonzero((scores > THRESHOLD) | (strange & (scores > THRESHOLD / 2)))
    # Wrong labels do more harm than unusual shapes.
    order = np.lexsort((-scores[found], ~strange[found]))
    return [
        Outlier(int(i), float(scores[i]), int(labels[i]) if strange[i] else None, int(votes[i]))
        for i in found[order]
    ]


def sample_scores(study: Study) -> Array:
    """Energy of each sample (n,) above its class, in robust standard deviations.

    NaN for samples without a pair.
    """
    energy = np.log(np.maximum(pair_energies(study), np.finfo(float).tiny))
    codes = study.subject.codes
    usable = np.flatnonzero(study.alignments.usable & np.isfinite(energy))
    ends = study.edges[usable].T.ravel()
    samples = np.unique(ends)
    scores = np.full(len(codes), np.nan)
    if len(samples):
        scores[samples] = ndimage.median(np.tile(energy[usable], 2), ends, samples)
    for code in np.unique(codes[samples]):
        members = samples[codes[samples] == code]
        above = scores[members] - np.median(scores[members])
        scores[members] = above / max(stats.median_abs_deviation(above, scale="normal"), 1e-9)
    return scores


def pair_energies(study: Study) -> Array:
    """Energy of each pair (e,)."""
    size = 0.5 * study.model.space.dim * study.sizes**2
    sigma = study.alignments.sigma
    if sigma is None:
        return size
    return size + 0.5 * study.alignments.loss_after / sigma**2


def neighbor_votes(X: NDArray[Any], codes: Integers) -> tuple[Integers, Integers]:
    """Most frequent class among each sample's nearest neighbours (n,), and its count (n,)."""
    rows = np.asarray(X, dtype=np.float32).reshape(len(X), -1)
    finder = NearestNeighbors(n_neighbors=min(N_VOTES, len(X) - 1), algorithm="brute").fit(rows)
    votes = codes[finder.kneighbors(return_distance=False)]  # without the sample itself
    tally = np.stack([(votes == code).sum(axis=1) for code in range(codes.max() + 1)], axis=1)
    return tally.argmax(axis=1), tally.max(axis=1)
