"""Choose hyper-parameters by held-out likelihood.

Pairs that share a sample are dependent. If edges are known, folds are therefore made of samples: a
pair is a test pair if both its samples are held out, and a training pair if neither is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dreamwarp.core.compiled import limit_algebra
from dreamwarp.core.labels import Label
from dreamwarp.model.fitting import (
    HyperParameters,
    blend,
    estimate_class_covariance,
    estimate_pool_covariance,
    fit_class,
    shrink_covariance,
)
from dreamwarp.model.gaussian import (
    Array,
    is_definite,
    log_density,
    triangular_factor,
    whiten,
)
from dreamwarp.model.pairs import Pairs, join

N_FOLDS = 5
# More pairs and classes than these hardly change the choice, but cost time.
MAX_PAIRS = 1500
MAX_CLASSES, MIN_CLASSES = 20, 3

# Candidates. If nothing can be held out, the first entry of CLASS_PAIRS is used.
SHRINKAGES: tuple[float | str, ...] = (0.0, "oas", "ledoit-wolf")
# Candidates for ν / d. The pooled covariance counts as ν pairs in each class.
POOL_PAIRS_PER_DIMENSION = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, np.inf)
CLASS_PAIRS = (7.0, 1.0, 2.0, 4.0, 12.0, 25.0, 100.0)
DRIFTS = (0.0, 0.25, 0.5, 0.75, 1.0)
# Shrinkage and ν / d if nothing can be held out.
CAUTIOUS_SHRINKAGE, CAUTIOUS_POOL_PAIRS_PER_DIMENSION = "oas", 1.0


class PairFold(NamedTuple):
    """Training and test pairs by class; either may be empty."""

    train: dict[Label, Pairs]
    test: dict[Label, Pairs]


def choose_hyperparameters(
    pairs_by_class: Mapping[Label, Pairs], given: HyperParameters, dim: int
) -> HyperParameters:
    """Choose the hyper-parameters that are None: first those of the covariance, then the others."""
    with limit_algebra():
        hyper = _choose_covariance(pairs_by_class, given, dim)
        return _choose_mixture(pairs_by_class, hyper, dim) if given.kind == "template" else hyper


# -- folds


def make_folds(
    pairs_by_class: Mapping[Label, Pairs],
    *,
    by_sample: bool,
    n_repeats: int = 1,
    n_folds: int = N_FOLDS,
) -> list[PairFold]:
    """Folds of the pairs of every class; deterministic.

    If folds are made of samples, each fold tests about 1 / n_folds² of the pairs, so n_folds
    repeats test each pair about once.
    """
    rng = np.random.default_rng(0)
    folds = []
    for _ in range(n_repeats):
        masks = {
            label: _hold_out(pairs, by_sample, n_folds, rng)
            for label, pairs in pairs_by_class.items()
        }
        for f in range(n_folds):
            fold = PairFold({}, {})
            for label, pairs in pairs_by_class.items():
                train, test = masks[label]
                fold.train[label], fold.test[label] = pairs.only(train[f]), pairs.only(test[f])
            folds.append(fold)
    return folds


def _hold_out(
    pairs: Pairs, by_sample: bool, n_folds: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Masks (n_folds, n_pairs) of training and of test pairs."""
    items = pairs.edges if by_sample else np.arange(len(pairs))[:, None]
    assert items is not None
    different, places = np.unique(items, return_inverse=True)
    fold_of = (rng.permutation(len(different)) % n_folds)[places].reshape(items.shape)
    held_out = fold_of == np.arange(n_folds)[:, None, None]
    return ~held_out.any(axis=2), held_out.all(axis=2)


def thin_out(pairs_by_class: Mapping[Label, Pairs], dim: int) -> dict[Label, Pairs]:
    """Subsample classes and pairs."""
    rng = np.random.default_rng(0)
    # Fewer classes in high dimensions: a factorisation takes time of order d³.
    n_classes = int(np.clip(MAX_CLASSES * (100.0 / dim) ** 2, MIN_CLASSES, MAX_CLASSES))
    classes = [label for label, pairs in pairs_by_class.items() if len(pairs)]
    if len(classes) > n_classes:
        classes = [classes[i] for i in sorted(rng.permutation(len(classes))[:n_classes])]
    return {label: _thin_out_class(pairs_by_class[label], rng) for label in classes}


def _thin_out_class(pairs: Pairs, rng: np.random.Generator) -> Pairs:
    """About ``MAX_PAIRS`` pairs. If edges are known, all pairs among a subset of the samples."""
    if len(pairs) <= MAX_PAIRS:
        return pairs
    if pairs.edges is None:
        return pairs.only(np.sort(rng.permutation(len(pairs))[:MAX_PAIRS]))
    samples, ends = np.unique(pairs.edges, return_inverse=True)
    ranks = rng.permutation(len(samples))[ends].reshape(-1, 2).max(axis=1)
    return pairs.only(ranks <= np.partition(ranks, MAX_PAIRS)[MAX_PAIRS])


# -- choices


def _choose_covariance(
    pairs_by_class: Mapping[Label, Pairs], given: HyperParameters, dim: int
) -> HyperParameters:
    """Choose shrinkage and pool pairs, the same for all classes.

    ``pool_pairs`` is a prior count, not a fixed weight, so the pool weighs more in small classes,
    which have too few pairs to hold out.
    """
    shrinkages = SHRINKAGES if given.shrinkage is None else (given.shrinkage,)
    if given.pooling is not None or len(pairs_by_class) == 1:
        numbers = [0.0]  # not used: the pooling is given, or the only class is the pool
    else:
        numbers = [dim * share for share in POOL_PAIRS_PER_DIMENSION]
    candidates = [replace(given, shrinkage=s, pool_pairs=n) for s in shrinkages for n in numbers]
    if len(candidates) == 1:
        return candidates[0]
    few = thin_out(pairs_by_class, dim)
    by_sample = all(pairs.edges is not None for pairs in few.values())
    n_repeats = 3 if by_sample and dim <= 100 else 1
    scores = np.zeros(len(candidates))
    for fold in make_folds(few, by_sample=by_sample, n_repeats=n_repeats):
        scores += _score_covariances(fold, candidates)
    if not scores.any() or not np.isfinite(scores).any():
        shrinkage = CAUTIOUS_SHRINKAGE if given.shrinkage is None else given.shrinkage
        pool_pairs = dim * CAUTIOUS_POOL_PAIRS_PER_DIMENSION
        return replace(given, shrinkage=shrinkage, pool_pairs=pool_pairs)
    return candidates[int(scores.argmax())]


def _score_covariances(fold: PairFold, candidates: Sequence[HyperParameters]) -> Array:
    """Held-out log-likelihood of each candidate's Gaussians, summed over the pairs of a fold."""
    scores = np.zeros(len(candidates))
    train = {label: pairs for label, pairs in fold.train.items() if len(pairs)}
    if not train:
        return scores
    for shrinkage in dict.fromkeys(candidate.shrinkage for candidate in candidates):
        pool_covariance = shrink_covariance(join(train), shrinkage)[0]
        for label, test in fold.test.items():
            if not len(test):
                continue
            pairs = fold.train[label]
            own = shrink_covariance(pairs, shrinkage)[0] if len(pairs) else pool_covariance
            for c, candidate in enumerate(candidates):
                if candidate.shrinkage == shrinkage:
                    pooling = candidate.pooling_of(pairs.effective_number)
                    covariance = blend(own, pool_covariance, pooling)
                    scores[c] += _score_covariance(covariance, test)
    return scores


def _score_covariance(covariance: Array, test: Pairs) -> float:
    lower = triangular_factor(covariance)
    if not is_definite(lower):
        return -np.inf
    return float(test.weights @ log_density(whiten(lower, test.theta), lower))


def _choose_mixture(
    pairs_by_class: Mapping[Label, Pairs], hyper: HyperParameters, dim: int
) -> HyperParameters:
    """For templates, choose ``class_pairs`` at drift 0 or the given one, then ``drift``."""
    # Split by pair, not by sample: each test template needs training pairs of its own.
    folds = make_folds(thin_out(pairs_by_class, dim), by_sample=False)
    drifts = DRIFTS if hyper.drift is None else (hyper.drift,)
    n_pairs = CLASS_PAIRS if hyper.class_pairs is None else (hyper.class_pairs,)
    hyper = _choose_best(folds, [replace(hyper, class_pairs=n, drift=drifts[0]) for n in n_pairs])
    return _choose_best(folds, [replace(hyper, drift=drift) for drift in drifts])


def _choose_best(
    folds: Sequence[PairFold], candidates: Sequence[HyperParameters]
) -> HyperParameters:
    """The mixture of highest held-out likelihood; the first if nothing can be held out.

    Candidates have the same covariances.
    """
    if len(candidates) == 1:
        return candidates[0]
    scores = np.zeros(len(candidates))
    for fold in folds:
        train = {label: pairs for label, pairs in fold.train.items() if len(pairs)}
        if not train:
            continue
        pool_covariance = estimate_pool_covariance(train, candidates[0])
        for label, pairs in train.items():
            test = fold.test[label]
            covariance = estimate_class_covariance(pairs, pool_covariance, candidates[0])[0]
            if len(test) and is_definite(triangular_factor(covariance)):
                assert test.edges is not None
                for c, candidate in enumerate(candidates):
                    mixture = fit_class(pairs, covariance, candidate)
                    forward = mixture.log_prob(test.theta, test.edges[:, 0])
                    backward = mixture.log_prob(-test.theta, test.edges[:, 1])
                    scores[c] += float(test.weights @ ((forward + backward) / 2.0))
    return candidates[int(scores.argmax())]
