"""Alignments: the result of aligning pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.similarity import Array, Similarity, SquaredError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Alignments:
    """Warps between pairs of samples.

    Attributes
    ----------
    theta : (n, d)
        The source of each pair, warped by θ, looks like the target. -θ aligns target to source.
    loss_before, loss_after : (n,)
        Sum of squared differences to the target, without and with the warp. For similarities other
        than ``"ssd"``, minus the log-likelihood. Equal where the log-posterior is not finite.
    converged : (n,)
        Whether the search ended before ``max_steps`` or, for samplers, whether chains converged.
    usable : (n,)
        False for pairs that can't be aligned: an image is constant, or the log-posterior is not
        finite. Posterior draws that fit worse than the identity are usable: dropping them would
        bias the sample.
    diagnostics : dict of str to (n,)
        ``n_steps`` of the search and ``log_posterior`` (up to a constant); for samplers also
        ``r_hat`` (largest of all parameters), ``ess`` (smallest effective sample size),
        ``acceptance`` and ``n_sweeps``.
    similarity : Similarity
        The calibrated similarity. Passed as ``similarity``, it gives the same alignments.
    chains : list of (n_chains, n_draws, d)
        Posterior draws of each pair's θ, without burn-in; empty if not kept.
    log_posteriors : list of (n_chains, n_draws)
        Their log-posteriors.
    """

    theta: Array
    loss_before: Array
    loss_after: Array
    converged: NDArray[np.bool_]
    usable: NDArray[np.bool_]
    diagnostics: dict[str, NDArray[Any]]
    similarity: Similarity
    chains: list[Array] = field(default_factory=list, repr=False)
    log_posteriors: list[Array] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.theta)

    def plot(self) -> Figure:
        """Plot losses before and after or, if chains were kept, their traces."""
        from dreamwarp.report.notebooks import plot_alignments

        return plot_alignments(self)

    def _repr_html_(self) -> str:
        from dreamwarp.report.notebooks import summarize_alignments

        return summarize_alignments(self)

    @classmethod
    def join(cls, parts: Sequence[Alignments]) -> Alignments:
        """The pairs of all parts, at least one."""
        names = ("theta", "loss_before", "loss_after", "converged", "usable")
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in names
        }
        diagnostics = {
            name: np.concatenate([part.diagnostics[name] for part in parts])
            for name in parts[0].diagnostics
        }
        return cls(
            **arrays, diagnostics=diagnostics, similarity=parts[0].similarity,
            chains=[chains for part in parts for chains in part.chains],
            log_posteriors=[densities for part in parts for densities in part.log_posteriors],
        )  # fmt: skip

    @property
    def sigma(self) -> float | None:
        """Standard deviation of the pixel noise; None for similarities without it."""
        return self.similarity.sigma if isinstance(self.similarity, SquaredError) else None

    @cached_property
    def left_over(self) -> Array:
        """Fraction of each pair's squared difference that remains (n,); NaN if it had none.

        For other similarities, 1 minus the gain relative to the largest gain of all pairs.
        """
        before, after = self.loss_before, self.loss_after
        if self.sigma is None:
            gain = before - after
            return 1.0 - gain / max(float(np.nanmax(gain, initial=0.0)), np.finfo(float).tiny)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(before > 0, after / before, np.nan)

    @property
    def median_left_over(self) -> float:
        """Median of ``left_over`` over the usable pairs that had a difference; NaN if none had."""
        left = self.left_over[self.usable]
        left = left[np.isfinite(left)]
        return float(np.median(left)) if len(left) else float("nan")
