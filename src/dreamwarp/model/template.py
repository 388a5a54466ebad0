"""Warps that depend on the sample to be warped: p(T | x, y).

A training sample x, the template, has its own warps θ_e, those toward its neighbours. A draw is a
random combination of them plus class noise:

    θ = Σ_e (s b p_e + sqrt(s p_e) z_e) θ_e + sqrt(1 - s) L z,    L Lᵀ = Σ_y,

with weights p_e that sum to 1 and standard normal z. So θ ~ N(s b θ̄_x, s S_x + (1 - s) Σ_y), with
θ̄_x and S_x the mean and second moment of the template's warps. The weight s = K / (K + c) grows
with the number K of neighbours: the class counts as c neighbours. The drift b, from 0 to 1, moves
samples toward the mean of their neighbours. Each pair enters its two templates as θ and -θ, so the
mean over all templates of a class is zero.

Samples of the class that are not templates get draws from N(0, Σ_y).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from dreamwarp.core.compiled import spread
from dreamwarp.core.draws import split_key
from dreamwarp.model import draw_kernels as kernels
from dreamwarp.model.gaussian import (
    Array,
    Batch,
    Gaussian,
    Integers,
    Shapes,
    log_density,
    whiten,
)

# Memory for the warps of a batch of templates.
BATCH_BYTES = 32 * 2**20
# Smallest number of rows per thread.
ROWS_PER_BLOCK = 512


class Table(NamedTuple):
    """The warps of every template of a class, sorted by template."""

    templates: Integers  # (n_templates,), sample indices, increasing
    begins: Integers  # (n_templates + 1,), first entry of each template
    theta: Array  # (n_entries, d), from the template toward a neighbour
    probabilities: Array  # (n_entries,), p, summing to 1 over a template
    shares: Array  # (n_templates,), s
    means: Array  # (n_entries,), s b p
    deviations: Array  # (n_entries,), sqrt(s p)


@dataclass(frozen=True, eq=False)
class TemplateMixture(Gaussian):
    """A Gaussian for the class, N(0, L Lᵀ), and warps of its own for each template."""

    theta: Array  # (n_pairs, d), warps of the pairs, each in one direction
    edges: Integers  # (n_pairs, 2), samples of each pair: θ aligns the first to the second
    weights: Array  # (n_pairs,)
    class_pairs: float  # c
    drift: float  # b

    kind: ClassVar[str] = "template"
    shapes: ClassVar[Shapes] = {
        **Gaussian.shapes,
        "theta": ("F64", "pairs", "dim"),
        "edges": ("I64", "pairs", 2),
        "weights": ("F64", "pairs"),
    }
    scalars: ClassVar[tuple[str, ...]] = ("class_pairs", "drift")

    @cached_property
    def table(self) -> Table:
        """The warps of every template, without those of weight 0."""
        kept = np.flatnonzero(np.concatenate([self.weights, self.weights]) > 0.0)
        ends = self.edges.T.ravel()[kept]
        order = np.argsort(ends, kind="stable")
        templates, begins = np.unique(ends[order], return_index=True)
        begins = np.append(begins, len(ends)).astype(np.int64)
        theta = np.concatenate([self.theta, -self.theta])[kept[order]]
        weights = np.concatenate([self.weights, self.weights])[kept[order]]
        totals = np.add.reduceat(weights, begins[:-1])
        # Kish's effective sample size.
        n_neighbors = totals**2 / np.add.reduceat(weights**2, begins[:-1])
        probabilities = weights / np.repeat(totals, np.diff(begins))
        shares = n_neighbors / (n_neighbors + self.class_pairs)
        parts = np.repeat(shares, np.diff(begins)) * probabilities
        return Table(
            templates, begins, np.ascontiguousarray(theta), probabilities, shares,
            self.drift * parts, np.sqrt(parts),
        )  # fmt: skip

    def _find(self, templates: Integers) -> tuple[Integers, Integers]:
        """Which of the given samples are templates, and their rows in the table."""
        known = self.table.templates
        places = np.minimum(np.searchsorted(known, templates), len(known) - 1)
        found = np.flatnonzero(known[places] == templates)
        return found, places[found]

    def moments(self, templates: Integers) -> tuple[Array, Array]:
        """Mean (n, d) and covariance (n, d, d) of the warps of templates (n,)."""
        table, places = self.table, np.searchsorted(self.table.templates, templates)
        means = np.empty((len(templates), len(self.factor)))
        covariances = (1.0 - table.shares[places])[:, None, None] * self.covariance
        for row, place in enumerate(places):
            some = slice(table.begins[place], table.begins[place + 1])
            scaled = table.deviations[some, None] * table.theta[some]
            means[row] = table.means[some] @ table.theta[some]
            covariances[row] += scaled.T @ scaled
        return means, covariances

    # -- density

    def log_prob(self, theta: Array, templates: Integers | None = None) -> Array:
        """Log density at θ (n, d), each for its template (n,), or without templates: (n,)."""
        white = whiten(self.lower, theta)
        out = log_density(white, self.lower)
        if templates is not None:
            found, places = self._find(templates)
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
        return whiten(self.lower, self.table.theta)

    def _log_prob_of(self, white: Array, places: Integers, width: int) -> Array:
        """Log density for templates that have at most ``width`` warps.

        In whitened θ the covariance is (1 - s)(I + AᵀA), with a row sqrt(s p_e / (1 - s)) L⁻¹ θ_e
        of A for each warp. The K x K matrix I + AAᵀ gives its inverse and determinant.
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
        at_zero = log_density(np.zeros((1, dim)), self.lower)
        return at_zero - 0.5 * (inside / (1.0 - shares) + log_determinant)

    def draw(self, key: int, batch: Batch) -> None:
        """Fill a batch with draws."""
        super().draw(key, batch)
        if (batch.templates < 0).all():
            return
        found, places = self._find(batch.templates)
        table = self.table
        spread(
            kernels.add_mixtures, len(found), *split_key(key), table.theta, table.means,
            table.deviations, table.begins[places], table.begins[places + 1],
            np.sqrt(1.0 - table.shares[places]), batch.numbers[found], batch.rows[found], batch.out,
            n_threads=batch.n_threads, smallest_block=ROWS_PER_BLOCK,
        )  # fmt: skip

    def check(self, name: str) -> None:
        """Raise ValueError if the fields, read from a file, are not valid."""
        super().check(name)
        if self.edges.min() < 0 or self.weights.min() < 0.0:
            raise ValueError(f"part {name!r} has negative sample indices or weights")
        if not self.weights.any():
            raise ValueError(f"part {name!r} has no weight above 0")
