"""Choose between warps of each sample and warps of its class, by held-out likelihood.

Take a pair of a kept sample and a held-out one. The kept sample is its template. Two models of the
pair's warp are compared: the mixture of the template's warps toward kept neighbours, and the
Gaussian of the class. Both are learned without the held-out samples. The one with the larger
marginal likelihood is the better model of unseen warps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.evidence import Array, Evidence, Integers
from dreamwarp.core.samples import choose_balanced
from dreamwarp.model.empirical_bayes import EvidenceFold
from dreamwarp.model.gaussian import triangular_factor
from dreamwarp.model.pairs import Pairs
from dreamwarp.model.template import TemplateMixture

# Largest number of pairs per fold: each has a covariance of its own, which takes time.
MAX_COMPARED = 150
# Templates are preferred unless the class is likelier by this many standard errors.
DOUBT = 2.0


def templates_explain(
    evidence: Evidence,
    edges: Integers,
    pair_codes: Integers,
    folds: Sequence[EvidenceFold],
    pool_pairs: float,
    neighbors: Sequence[Pairs],
    class_pairs: float,
    drift: float,
) -> bool:
    """Whether templates explain held-out pairs as well as classes do.

    ``edges`` (n, 2) and ``pair_codes`` (n,) are the random pairs of the evidence, ``neighbors`` the
    aligned neighbours of each class, as u. True if nothing can be held out.
    """
    gains = []
    for fold in folds:
        some = fold.crossing[choose_balanced(pair_codes[fold.crossing], MAX_COMPARED)]
        for code in np.unique(pair_codes[some]).tolist():
            near = neighbors[code]
            # Neighbours may be samples of no random pair: these are not held out.
            near = near.only(~np.isin(near.edges, np.flatnonzero(fold.held_out)).any(axis=1))
            if not len(near):
                continue
            covariance = fold.class_covariance(code, pool_pairs)
            mixture = TemplateMixture(
                factor=triangular_factor(covariance), theta=near.theta, edges=near.edges,
                weights=near.weights, class_pairs=class_pairs, drift=drift,
            )  # fmt: skip
            chosen = some[pair_codes[some] == code]
            gains.append(compare(evidence.only(chosen), edges[chosen], fold.held_out, mixture))
    found = np.concatenate([np.empty(0), *gains])
    if len(found) < 2:
        return True
    return bool(found.mean() > -DOUBT * found.std(ddof=1) / np.sqrt(len(found)))


def compare(
    evidence: Evidence, edges: Integers, held_out: NDArray[np.bool_], mixture: TemplateMixture
) -> Array:
    """Marginal log-likelihood under the template minus that under the class, per pair (m,).

    Pairs whose template has no neighbours are left out.
    """
    is_source = ~held_out[edges[:, 0]]  # else the template is the target, and the warp is -u
    templates = np.where(is_source, edges[:, 0], edges[:, 1])
    known = np.flatnonzero(np.isin(templates, mixture.table.templates))
    signs = np.where(is_source, 1.0, -1.0)[known, None]
    seen = evidence.only(known)
    seen = replace(seen, linear=signs * seen.linear)
    by_class = seen.log_marginals(np.zeros_like(seen.linear), mixture.covariance)
    return seen.log_marginals(*mixture.moments(templates[known])) - by_class
