"""Base class of the distributions over θ."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
# From a field's name to its dtype and axis sizes. A string stands for any size; the same string
# always for the same size.
Shapes: TypeAlias = "dict[str, tuple[str | int, ...]]"


class Batch(NamedTuple):
    """Draws to make, and where to put them.

    Attributes
    ----------
    numbers : (n,) int64
        Sample numbers: draw t depends on the key and ``numbers[t]`` alone.
    rows : (n,) int64
        Draw t goes into ``out[rows[t]]``.
    templates : (n,) int64
        Index of the sample to be warped; -1 for none.
    out : (m, d)
    n_threads : int or None
    """

    numbers: Integers
    rows: Integers
    templates: Integers
    out: Array
    n_threads: int | None = None

    def only(self, chosen: Integers) -> Batch:
        """Some of the draws."""
        return self._replace(
            numbers=self.numbers[chosen], rows=self.rows[chosen], templates=self.templates[chosen]
        )


class Distribution:
    """A distribution over θ for one class.

    Subclasses are dataclasses. A model file stores the fields named in ``shapes`` (arrays) and in
    ``scalars`` (floats).
    """

    kind: ClassVar[str]
    shapes: ClassVar[Shapes]
    scalars: ClassVar[tuple[str, ...]] = ()

    @property
    def covariance(self) -> Array:
        """(d, d)."""
        raise NotImplementedError

    def log_prob(self, theta: Array, templates: Integers | None = None) -> Array:
        """Log density at θ (n, d): (n,). Only template mixtures use ``templates`` (n,)."""
        raise NotImplementedError

    def draw(self, key: int, batch: Batch) -> None:
        """Fill a batch with draws."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise ValueError if the fields, read from a file, are not valid."""
        raise NotImplementedError

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that a file stores."""
        return {name: getattr(self, name) for name in self.shapes}

    def parameters(self) -> dict[str, float]:
        """The numbers that a file stores."""
        return {name: getattr(self, name) for name in self.scalars}
