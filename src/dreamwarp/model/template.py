"""Warps that depend on the sample they are for: p(T | x, y).

A template x of the training set has warps of its own, those toward its neighbours. A draw mixes
them at random, and adds class noise for what a few neighbours can't show:

    θ = Σ_e (s b p_e + sqrt(s p_e) z_e) θ_e + sqrt(1 - s) L z,    L Lᵀ = Σ_y,

with p_e the weights of the template's warps (alike, or those of the pairs) and z standard normal.
That is N(s b θ̄_x, s S_x + (1 - s) Σ_y), where S_x is the second moment of the template's warps and
θ̄_x their mean. The share s = K / (K + κ) grows with the number K of neighbours: the class counts as
κ of them. The drift b, from 0 to 1, carries samples toward the middle of their neighbours. A pair
seen from its other end has the opposite θ, so that over all templates of a class the mean is zero.

Other samples of the class get draws from a Gaussian of their own, which may be learned by other
means: empirical Bayes gives its natural scale, while templates keep to what their neighbours show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.compiled import spread
from dreamwarp.core.draws import split_key
from dreamwarp.model import draw_kernels as kernels
from dreamwarp.model.gaussian import Array, Gaussian, Integers, Shapes, log_density, whiten

# Memory for the warps of many templates at once.
BATCH_BYTES = 32 * 2**20
# Mixtures that are worth a thread.
ROWS_PER_BLOCK = 512


class Table(NamedTuple):
    """The warps of every template of a class, template by template.

    Attributes
    ----------
    templates : (n_templates,) int64
        Sample indices, increasing.
    begins : (n_templates + 1,) int64
        Where the entries of each template begin.
    theta : (n_entries, d)
        From the template toward a neighbour.
    probabilities : (n_entries,)
        p, adding up to 1 over a template.
    shares : (n_templates,)
        s.
    """

    templates: Integers
    begins: Integers
    theta: Array
    probabilities: Array
    shares: Array


@dataclass(frozen=True, eq=False)
class TemplateMixture:
    """The distribution above; for a sample without warps of its own, the general Gaussian.

    Attributes
    ----------
    general : Gaussian
        For samples without warps of their own.
    noise : Gaussian
        N(0, Σ_y).
    theta : (n_pairs, d)
        The warps of the class, each in one direction.
    edges : (n_pairs, 2) int64
        The samples that each joins: from the first to the second.
    weights : (n_pairs,)
    class_pairs : float
        κ.
    drift : float
        b.
    """

    general: Gaussian
    noise: Gaussian
    theta: Array
    edges: Integers
    weights: Array
    class_pairs: float
    drift: float

    kind: ClassVar[str] = "template"
    shapes: ClassVar[Shapes] = {
        "general": ("F64", "dim", "dim"),
        **Gaussian.shapes,
        "theta": ("F64", "pairs", "dim"),
        "edges": ("I64", "pairs", 2),
        "weights": ("F64", "pairs"),
    }
    scalars: ClassVar[tuple[str, ...]] = (*Gaussian.scalars, "class_pairs", "drift")

    @property
    def covariance(self) -> Array:
        """(d, d): that of draws for samples without warps of their own."""
        return self.general.covariance

    @cached_property
    def table(self) -> Table:
        """The warps of every template; those of weight 0 left out."""
        kept = np.flatnonzero(np.concatenate([self.weights, self.weights]) > 0.0)
        ends = self.edges.T.ravel()[kept]
        order = np.argsort(ends, kind="stable")
        templates, begins = np.unique(ends[order], return_index=True)
        begins = np.append(begins, len(ends)).astype(np.int64)
        theta = np.concatenate([self.theta, -self.theta])[kept[order]]
        weights = np.concatenate([self.weights, self.weights])[kept[order]]
        totals = np.add.reduceat(weights, begins[:-1])
        # Kish's number of equal weights that would tell as much.
        n_neighbors = totals**2 / np.add.reduceat(weights**2, begins[:-1])
        probabilities = weights / np.repeat(totals, np.diff(begins))
        shares = n_neighbors / (n_neighbors + self.class_pairs)
        return Table(templates, begins, np.ascontiguousarray(theta), probabilities, shares)

    def _find(self, templates: Integers) -> tuple[Integers, Integers]:
        """Which of the given samples have warps of their own, and their places in the table."""
        known = self.table.templates
        places = np.minimum(np.searchsorted(known, templates), len(known) - 1)
        found = np.flatnonzero(known[places] == templates)
        return found, places[found]

    # -- density

    def log_prob(self, theta: Array, templates: Integers | None = None) -> Array:
        """Log density at θ (n, d), each for its template (n,); without those, for the class."""
        out = self.general.log_prob(theta)
        if templates is not None:
            found, places = self._find(templates)
            white = whiten(self.noise.lower, theta)
            degrees = np.diff(self.table.begins)[places]
            widths = 2 ** np.ceil(np.log2(degrees)).astype(np.int64)
            for width in np.unique(widths):
                same = np.flatnonzero(widths == width)
                size = max(1, BATCH_BYTES // (8 * int(width) * theta.shape[1]))
                for start in range(0, len(same), size):
                    batch = same[start : start + size]
                    rows = found[batch]
                    out[rows] = self._log_prob_of(white[rows], places[batch], int(width))
        return out

    @cached_property
    def _white_theta(self) -> Array:
        return whiten(self.noise.lower, self.table.theta)

    def _log_prob_of(self, white: Array, places: Integers, width: int) -> Array:
        """Log density for templates that have at most ``width`` warps.

        In whitened θ the covariance is (1 - s)(I + AᵀA), with a row sqrt(s p_e / (1 - s)) L⁻¹ θ_e
        of A for each warp. Its inverse and determinant are had from I + AAᵀ, K by K.
        """
        begins, ends = self.table.begins[places, None], self.table.begins[places + 1, None]
        entries = begins + np.arange(width)
        present = entries < ends
        entries = np.where(present, entries, begins)
        shares, p = self.table.shares[places], self.table.probabilities[entries] * present
        warps = self._white_theta[entries]
        means = np.einsum("n,nk,nkd->nd", self.drift * shares, p, warps)
        rows = np.sqrt((shares / (1.0 - shares))[:, None] * p)[:, :, None] * warps
        residual = white - means
        seen = np.einsum("nkd,nd->nk", rows, residual)
        inner = np.eye(width) + rows @ rows.transpose(0, 2, 1)
        explained = np.einsum("nk,nk->n", seen, np.linalg.solve(inner, seen[:, :, None])[:, :, 0])
        inside = np.einsum("nd,nd->n", residual, residual) - explained
        dim = white.shape[1]
        log_determinant = np.linalg.slogdet(inner)[1] + dim * np.log1p(-shares)
        at_zero = log_density(np.zeros((1, dim)), self.noise.lower)
        return at_zero - 0.5 * (inside / (1.0 - shares) + log_determinant)

    # -- draws

    def draw(
        self,
        key: int,
        numbers: Integers,
        rows: Integers,
        templates: Integers,
        out: Array,
        n_threads: int | None,
    ) -> None:
        """Put θ of sample ``numbers[t]`` for ``templates[t]`` into ``out[rows[t]]``."""
        found, places = self._find(templates)
        others = np.delete(np.arange(len(rows)), found)
        for part, which in ((self.general, others), (self.noise, found)):
            part.draw(key, numbers[which], rows[which], templates[which], out, n_threads)
        table = self.table
        shares = np.repeat(table.shares, np.diff(table.begins))
        spread(
            kernels.add_mixtures, len(found), *split_key(key), table.theta,
            self.drift * shares * table.probabilities, np.sqrt(shares * table.probabilities),
            table.begins[places], table.begins[places + 1], np.sqrt(1.0 - table.shares[places]),
            numbers[found], rows[found], out, n_threads=n_threads, smallest_block=ROWS_PER_BLOCK,
        )  # fmt: skip

    # -- files

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file holds of it, with the shapes of ``shapes``."""
        return {
            "general": self.general.factor,
            **self.noise.arrays(),
            "theta": self.theta,
            "edges": self.edges,
            "weights": self.weights,
        }

    def parameters(self) -> dict[str, float]:
        """Single numbers that go with the arrays."""
        return {
            **self.noise.parameters(),
            "class_pairs": self.class_pairs,
            "drift": self.drift,
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], parameters: Mapping[str, float]
    ) -> TemplateMixture:
        """The reverse of ``arrays`` and ``parameters``; refuses what can't be."""
        class_pairs, drift = parameters["class_pairs"], parameters["drift"]
        if class_pairs <= 0.0 or not 0.0 <= drift <= 1.0:
            raise ValueError(f"class_pairs {class_pairs} and drift {drift}")
        if arrays["edges"].min() < 0 or arrays["weights"].min() < 0.0:
            raise ValueError("negative sample indices or weights")
        if not arrays["weights"].any():
            raise ValueError("no weight above 0")
        general = Gaussian.from_arrays({"factor": arrays["general"]}, parameters)
        noise = Gaussian.from_arrays(arrays, parameters)
        return cls(
            general, noise, arrays["theta"], arrays["edges"], arrays["weights"], class_pairs, drift
        )  # fmt: skip
