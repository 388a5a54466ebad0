"""Options of the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")

RESULTS = Path(__file__).parent / "results"
# Ignored by git: a quick run must not overwrite the figures that the documentation quotes.
QUICK_RESULTS = Path("out") / "benchmarks"


@dataclass(frozen=True)
class Settings:
    """Options that every benchmark takes.

    Parameters
    ----------
    folder : Path
        Where JSON files and plots go.
    quick : bool
        Small sizes and few repeats: shows that everything runs, gives no figures worth quoting.
    peers : bool
        Measure other packages too.
    seed : int
    n_threads : int
        For every contestant that supports it.
    """

    folder: Path
    quick: bool = False
    peers: bool = True
    seed: int = 0
    n_threads: int = 2

    def pick(self, full: Value, quick: Value) -> Value:
        """``quick`` in a quick run, else ``full``."""
        return quick if self.quick else full
