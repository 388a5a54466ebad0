"""How strong warps should be, and whether they help."""

from __future__ import annotations

import math
import textwrap

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from dreamwarp.augment.verdict import Judgement
from dreamwarp.report import figures


def draw_strength(judgement: Judgement, *, with_verdict: bool = True) -> Figure:
    """Errors on held-out samples by the strength of warps, the strength chosen, and the verdict.

    Parameters
    ----------
    judgement : Judgement
        Of ``Augmenter.judge`` or ``dreamwarp.torch.choose_strength``.
    with_verdict : bool
        Whether the verdict stands over the figure, in words.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = figures.new_figure(7.2, 3.6)
    axes = figure.subplots()
    if with_verdict:
        words = "\n".join(textwrap.wrap(str(judgement.verdict), 86))
        axes.set_title(words, fontsize=9.5, color=figures.INK, loc="left")
    if not judgement.errors:
        axes.set_axis_off()
        axes.text(
            0.0, 0.9, "No errors by strength: nothing was held out.", fontsize=10,
            color=figures.INK, transform=axes.transAxes,
        )  # fmt: skip
        return figure
    strengths = sorted(judgement.errors)
    errors = [judgement.errors[strength] for strength in strengths]
    spreads = [judgement.spreads.get(strength, 0.0) for strength in strengths]
    axes.errorbar(
        strengths, errors, yerr=spreads if any(spreads) else None, color=figures.GRID, marker="o",
        markersize=5, linewidth=1.4, capsize=3, elinewidth=0.9,
    )  # fmt: skip
    chosen = judgement.strength
    if math.isfinite(judgement.errors.get(chosen, math.nan)):
        axes.plot(
            chosen, judgement.errors[chosen], marker="o", markersize=11, markerfacecolor="none",
            markeredgecolor=figures.MARKS[0], markeredgewidth=1.8,
        )  # fmt: skip
        axes.annotate(
            f"chosen: {chosen:g}", (chosen, judgement.errors[chosen]), xytext=(0, 14),
            textcoords="offset points", ha="center", fontsize=9, color=figures.MARKS[0],
        )  # fmt: skip
    axes.set_ylim(0.0, 1.12 * max(e + s for e, s in zip(errors, spreads, strict=True)) or 1.0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    how = ", near misses in part" if judgement.is_smooth else ""
    axes.set_ylabel(f"error{how}", fontsize=9, color=figures.INK)
    axes.set_xlabel("strength of warps (0: none)", fontsize=9, color=figures.INK)
    figures.plain_axes(axes)
    return figure
