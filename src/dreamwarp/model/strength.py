"""Strength: the factor on learned warps. 1 is as learned, 2 twice as large.

A model recommends a strength, chosen for a nearest-neighbour classifier. Networks have their own
default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.validation import check_factor, warn_user

if TYPE_CHECKING:
    from dreamwarp.model.warpmodel import WarpModel


# Default for networks. At strength 1, warps learned by empirical Bayes are as large as the
# differences between samples and the centre of their class. On MNIST, networks do best with
# slightly stronger warps: with 100 labels per class and 7,200 steps, in a draw apart from those of
# the study, the errors of an MLP at 1 / 1.3 / 1.6 were 2.56 / 2.22 / 2.30 %, those of a ConvNet at
# 1 / 1.2 1.45 / 1.42 %. On Fashion-MNIST, an MLP does better at 0.8 than at 1 or more.
NETWORK_STRENGTH = 1.25


def check_strength(strength: Any) -> float | None:
    """Return the strength, or None for "auto"; raise if it is neither."""
    if isinstance(strength, str) and strength == "auto":
        return None
    return check_factor("strength", strength, or_else=', or "auto"')


def resolve_network_strength(model: WarpModel, strength: float | None) -> float:
    """The given strength, or ``NETWORK_STRENGTH``, with a warning if the model recommends 0."""
    if strength is not None:
        return check_factor("strength", strength, or_else=", or None for networks' default")
    if model.strength == 0.0:
        warn_user(
            "the model recommends strength 0, because no strength was better than no warps for a "
            f"nearest-neighbour classifier. Networks get strength {NETWORK_STRENGTH:g} anyway. Use "
            "`dreamwarp.torch.choose_strength`, or give `strength`.",
            RuntimeWarning,
        )
    return NETWORK_STRENGTH


def resolve_strength(model: WarpModel, strength: float | None) -> float:
    """The given strength, or the recommended one, with a warning if that is 0."""
    if strength is not None:
        return check_factor("strength", strength, or_else=", or None for the model's own")
    if model.strength == 0.0:
        warn_user(
            "the model recommends strength 0, because no strength was better than no warps when it "
            "was fitted, so samples will be unwarped copies. Use `strength=1` for warps "
            "as large as learned.",
            RuntimeWarning,
        )
    return model.strength


def apply_strength(theta: NDArray[np.float64], strength: float) -> NDArray[np.float64]:
    """Scale warps θ (n, d): T^(sθ) follows the same flow s times as far."""
    return theta if strength == 1.0 else strength * theta
