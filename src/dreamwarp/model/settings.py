"""Settings of a model: words and numbers, as they are kept in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamwarp.align.alignment import METHODS
from dreamwarp.model.fitting import FORMULAS, KINDS

# Sums of squares of larger numbers may overflow float64.
LARGEST_VALUE = 1e100
LEARNING_METHODS = ("eb", *METHODS)


@dataclass(frozen=True)
class Rule:
    """The words and the numbers that a setting may be."""

    low: float | None = None  # smallest number; None: words only
    high: float = LARGEST_VALUE
    words: tuple[str, ...] = ()
    is_whole: bool = False
    excludes_low: bool = False

    def allows(self, value: Any) -> bool:
        """Whether a setting may have this value."""
        if isinstance(value, str):
            return value in self.words
        if self.low is None or not is_number(value) or (self.is_whole and type(value) is float):
            return False
        return self.low <= value <= self.high and not (self.excludes_low and value == self.low)

    def __str__(self) -> str:
        allowed = [repr(word) for word in self.words]
        if self.low is not None:
            what = "an integer" if self.is_whole else "a number"
            lower = f"above {self.low:g}" if self.excludes_low else f"of at least {self.low:g}"
            upper = f" and at most {self.high:g}" if self.high < LARGEST_VALUE else ""
            allowed.append(f"{what} {lower}{upper}")
        return " or ".join(allowed)


SHARE, AMOUNT, COUNT = Rule(0.0, 1.0), Rule(0.0), Rule(1, is_whole=True)
POSITIVE = Rule(0.0, excludes_low=True)
LEARNED = Rule(0.0, words=("auto",), excludes_low=True)
LIMIT = Rule(1, words=("auto", "all"), is_whole=True)
# Settings that the package writes and reads again. Others may be any word or number.
RULES = {
    "kind": Rule(words=KINDS),
    "method": Rule(words=LEARNING_METHODS),
    "normalize": Rule(words=("set", "each")),
    "shrinkage": Rule(0.0, 1.0, FORMULAS),
    "strength": Rule(0.0, words=("auto",)),
    "seed": Rule(0, 2**64 - 1, is_whole=True),
    **dict.fromkeys(("pooling", "drift", "power"), SHARE),
    **dict.fromkeys(("pool_pairs", "smooth_pairs", "network_strength"), AMOUNT),
    **dict.fromkeys(("min_pairs", "n_neighbors", "max_steps", "max_draws"), COUNT),
    **dict.fromkeys(("class_pairs", "length", "learned_sigma", "learned_displacement"), POSITIVE),
    **dict.fromkeys(("sigma", "displacement"), LEARNED),
    **dict.fromkeys(("max_pairs", "pixels_per_cell"), LIMIT),
}


def is_number(value: Any) -> bool:
    """Whether a value is an int or a float, and finite with a finite square."""
    return type(value) in (int, float) and -LARGEST_VALUE <= value <= LARGEST_VALUE


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with plain words and numbers; raise unless a model file may hold them."""
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
