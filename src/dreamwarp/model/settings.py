"""Settings of a model: words and numbers, as they are kept in its file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dreamwarp.align.alignment import METHODS
from dreamwarp.align.points import MATCHES
from dreamwarp.model.fitting import FORMULAS, KINDS

# Sums of squares of larger numbers may overflow float64.
LARGEST_VALUE = 1e100
LEARNING_METHODS = ("eb", *METHODS)


class Rule(NamedTuple):
    """The words and the range of numbers that a setting may be."""

    words: tuple[str, ...] = ()
    low: float = math.inf  # infinite: words only
    high: float = LARGEST_VALUE
    is_whole: bool = False

    def allows(self, value: Any) -> bool:
        """Whether a setting may have this value."""
        if isinstance(value, str):
            return value in self.words
        is_of_type = type(value) is int if self.is_whole else is_number(value)
        return is_of_type and self.low <= value <= self.high

    def __str__(self) -> str:
        what = "an integer" if self.is_whole else "a number"
        numbers = [f"{what} from {self.low:g} to {self.high:g}"] if self.low < math.inf else []
        return " or ".join([*map(repr, self.words), *numbers])


SHARE, AMOUNT, POSITIVE = Rule(low=0.0, high=1.0), Rule(low=0.0), Rule(low=1.0 / LARGEST_VALUE)
COUNT = Rule(low=1, is_whole=True)
# Settings that have a rule. Others may be any word or number, and are checked where they are used.
RULES = {
    "kind": Rule(KINDS),
    "match": Rule(MATCHES),
    "method": Rule(LEARNING_METHODS),
    "normalize": Rule(("set", "each")),
    "shrinkage": SHARE._replace(words=FORMULAS),
    "strength": AMOUNT._replace(words=("auto",)),
    "seed": Rule(low=0, high=2**64 - 1, is_whole=True),
    **dict.fromkeys(("pooling", "drift", "power"), SHARE),
    **dict.fromkeys(("pool_pairs", "smooth_pairs", "network_strength"), AMOUNT),
    **dict.fromkeys(("min_pairs", "n_neighbors", "max_steps", "max_draws"), COUNT),
    **dict.fromkeys(("class_pairs", "length", "learned_sigma", "learned_displacement"), POSITIVE),
    **dict.fromkeys(("sigma", "displacement"), POSITIVE._replace(words=("auto",))),
    **dict.fromkeys(("max_pairs", "pixels_per_cell"), COUNT._replace(words=("auto", "all"))),
}


def is_number(value: Any) -> bool:
    """Whether a value is an int or a float of at most ``LARGEST_VALUE`` in size."""
    return type(value) in (int, float) and -LARGEST_VALUE <= value <= LARGEST_VALUE


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as plain words and numbers; raise unless a model file may hold them."""
    plain = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in settings.items()
    }
    for name, value in plain.items():
        rule = RULES.get(name)
        if not (rule.allows(value) if rule else isinstance(value, str) or is_number(value)):
            raise ValueError(
                f"the setting `{name:.40}` of a model must be {rule or 'a word or a number'}, got "
                f"{value!r:.40}."
            )
    return plain
