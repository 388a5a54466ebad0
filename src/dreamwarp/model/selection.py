"""Amounts chosen by held-out likelihood: shrinkage, pooling, bandwidth, template share.

Pairs that share a sample are not independent: a warp from a to b and one from b to c tell much
about the one from a to c. Where it is known which samples pairs join, folds are therefore made of
samples: a pair is tested when both its samples are held out, and trained on when neither is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from dreamwarp.model.gaussian import (
    Array,
    Integers,
    is_definite,
    log_density,
    triangular_factor,
    whiten,
)
from dreamwarp.model.labels import Label
from dreamwarp.model.moments import (
    Pairs,
    Rule,
    blend,
    class_covariance,
    join,
    own_covariance,
)

N_FOLDS = 5
# Amounts depend little on pairs past these, and time much.
MAX_PAIRS = 1500
MAX_CLASSES, MIN_CLASSES = 20, 3

SHRINKAGES: tuple[float | str, ...] = (0.0, "oas", "ledoit-wolf")
# Pairs that the covariance of all classes counts as, relative to the number of parameters.
PRIOR_PAIRS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, np.inf)
# Where nothing can be held out.
CAUTIOUS = Rule("oas", prior_pairs=1.0)

Candidate = TypeVar("Candidate")


class Density(Protocol):
    """What can be tested on held-out pairs."""

    @property
    def kind(self) -> str:
        """``"template"`` if the density depends on templates."""

    def log_prob(self, theta: Array, templates: Integers | None = None) -> Array:
        """Log density at θ (n, d)."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Pairs to fit on and pairs to test on, by class; a class may have none of either."""

    train: dict[Label, Pairs]
    test: dict[Label, Pairs]


# -- folds


def make_folds(
    classes: Mapping[Label, Pairs], *, by_sample: bool, n_repeats: int = 1, n_folds: int = N_FOLDS
) -> list[Fold]:
    """Folds of the pairs of every class, the same each time.

    By sample, a fold tests 1 / n_folds² of the pairs: repeat to test each about once.
    """
    rng = np.random.default_rng(0)
    split = _split_by_sample if by_sample else _split_by_pair
    folds = []
    for _ in range(n_repeats):
        masks = {label: split(pairs, n_folds, rng) for label, pairs in classes.items()}
        for f in range(n_folds):
            train = {label: classes[label].only(masks[label][0][f]) for label in classes}
            test = {label: classes[label].only(masks[label][1][f]) for label in classes}
            folds.append(Fold(train, test))
    return folds


def _split_by_pair(pairs: Pairs, n_folds: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Masks (n_folds, n_pairs) of the pairs to train and to test on."""
    test = rng.permutation(len(pairs)) % n_folds == np.arange(n_folds)[:, None]
    return ~test, test


def _split_by_sample(pairs: Pairs, n_folds: int, rng: np.random.Generator) -> tuple[Array, Array]:
    assert pairs.edges is not None
    samples, ends = np.unique(pairs.edges, return_inverse=True)
    fold_of = (rng.permutation(len(samples)) % n_folds)[ends].reshape(-1, 2)
    held_out = fold_of == np.arange(n_folds)[:, None, None]
    return ~held_out.any(axis=2), held_out.all(axis=2)


def thin_out(classes: Mapping[Label, Pairs], dim: int) -> dict[Label, Pairs]:
    """No more classes and pairs than are needed to choose amounts."""
    rng = np.random.default_rng(0)
    # The time of a factorisation grows as the cube of the number of parameters.
    n_classes = int(np.clip(MAX_CLASSES * (100.0 / dim) ** 2, MIN_CLASSES, MAX_CLASSES))
    labels = [label for label, pairs in classes.items() if len(pairs)]
    if len(labels) > n_classes:
        labels = [labels[i] for i in sorted(rng.permutation(len(labels))[:n_classes])]
    return {label: _thin_out_class(classes[label], rng) for label in labels}


def _thin_out_class(pairs: Pairs, rng: np.random.Generator) -> Pairs:
    """At most ``MAX_PAIRS``; by samples where those are known, so that the graph stays as dense."""
    if len(pairs) <= MAX_PAIRS:
        return pairs
    if pairs.edges is None:
        return pairs.only(np.sort(rng.permutation(len(pairs))[:MAX_PAIRS]))
    samples, ends = np.unique(pairs.edges, return_inverse=True)
    ranks = rng.permutation(len(samples))[ends].reshape(-1, 2).max(axis=1)
    return pairs.only(ranks <= np.partition(ranks, MAX_PAIRS)[MAX_PAIRS])


# -- choices


def choose_rule(
    classes: Mapping[Label, Pairs], shrinkage: float | str, pooling: float | str, dim: int
) -> Rule:
    """The rule for class covariances under which held-out pairs are likeliest.

    The same for all classes: a class of few pairs has too few to hold out, and takes more of the
    pool by the rule itself.
    """
    shrinkages = SHRINKAGES if shrinkage == "auto" else (shrinkage,)
    if pooling != "auto":
        rules = [Rule(share, pooling=float(pooling)) for share in shrinkages]
    elif len(classes) == 1:
        rules = [Rule(share) for share in shrinkages]
    else:
        rules = [Rule(s, prior_pairs=dim * prior) for s in shrinkages for prior in PRIOR_PAIRS]
    if len(rules) == 1:
        return rules[0]
    few = thin_out(classes, dim)
    by_sample = all(pairs.edges is not None for pairs in few.values())
    n_repeats = 3 if by_sample and dim <= 100 else 1
    scores = np.zeros(len(rules))
    for fold in make_folds(few, by_sample=by_sample, n_repeats=n_repeats):
        scores += _score_rules(fold, rules)
    if not scores.any() or not np.isfinite(scores).any():
        cautious = CAUTIOUS.shrinkage if shrinkage == "auto" else shrinkage
        return Rule(cautious, rules[0].pooling, dim * CAUTIOUS.prior_pairs)
    return rules[int(scores.argmax())]


def _score_rules(fold: Fold, rules: Sequence[Rule]) -> Array:
    """Held-out log-likelihood of each rule, summed over the pairs of a fold."""
    scores = np.zeros(len(rules))
    train = {label: pairs for label, pairs in fold.train.items() if len(pairs)}
    if not train:
        return scores
    for shrinkage in dict.fromkeys(rule.shrinkage for rule in rules):
        pool = own_covariance(join(train), shrinkage)[0]
        for label, test in fold.test.items():
            if not len(test):
                continue
            pairs = fold.train[label]
            own = own_covariance(pairs, shrinkage)[0] if len(pairs) else pool
            for r, rule in enumerate(rules):
                if rule.shrinkage == shrinkage:
                    pooling = rule.pooling_of(pairs.effective_number)
                    scores[r] += _score_covariance(blend(own, pool, pooling), test)
    return scores


def _score_covariance(covariance: Array, test: Pairs) -> float:
    lower = triangular_factor(covariance)
    if not is_definite(lower):
        return -np.inf
    return float(test.weights @ log_density(whiten(lower, test.theta), lower))


def choose(
    folds: Sequence[Fold],
    rule: Rule,
    candidates: Sequence[Candidate],
    fit_fn: Callable[[Pairs, Array, Candidate], Density],
) -> Candidate:
    """The candidate under which held-out pairs are likeliest, alike for all classes.

    ``fit_fn(pairs, covariance, candidate)`` fits a class. The first candidate, if there is nothing
    to hold out.
    """
    scores = np.zeros(len(candidates))
    for fold in folds:
        train = {label: pairs for label, pairs in fold.train.items() if len(pairs)}
        if not train:
            continue
        pool = own_covariance(join(train), rule.shrinkage)[0]
        for label, pairs in train.items():
            test = fold.test[label]
            covariance = class_covariance(pairs, pool, rule)[0]
            if len(test) and is_definite(triangular_factor(covariance)):
                for c, candidate in enumerate(candidates):
                    density = fit_fn(pairs, covariance, candidate)
                    scores[c] += float(test.weights @ held_out_log_prob(density, test))
    return candidates[int(scores.argmax())]


def held_out_log_prob(density: Density, test: Pairs) -> Array:
    """Log density of each pair (n_pairs,): the mean of its two directions, from either sample."""
    if test.edges is None or density.kind != "template":  # then the two are the same
        return density.log_prob(test.theta)
    there = density.log_prob(test.theta, test.edges[:, 0])
    return (there + density.log_prob(-test.theta, test.edges[:, 1])) / 2.0
