"""Strength: the factor on learned warps. 1 is as learned, 2 twice as large.

A model recommends a strength, chosen for a nearest-neighbour classifier, and another for networks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.validation import check_factor, warn_user

if TYPE_CHECKING:
    from dreamwarp.model.warpmodel import WarpModel


# Default for networks: NETWORK_FACTOR times the strength at which a nearest neighbour has the
# lowest error on held-out samples. That strength depends on the data and falls with the number of
# samples: about 1.1 with 10 samples per class of MNIST, 0.9 with 100, and 0.6 with 100 of
# Fashion-MNIST. Networks want stronger warps in the same order: an MLP about 1.75, 1.3, and 0.8 to
# 1, in draws apart from those of the study.
NETWORK_FACTOR = 1.5
# Upper bound: few held-out samples may choose a very large strength by chance.
LARGEST_NETWORK_STRENGTH = 2.5
# The same if strengths were not compared, or none helps a nearest neighbour.
NETWORK_STRENGTH = 1.25


def scale_for_networks(best: float) -> float:
    """Default strength for networks, from the best one for a nearest neighbour."""
    return min(NETWORK_FACTOR * best, LARGEST_NETWORK_STRENGTH)


def check_strength(strength: Any) -> float | None:
    """Return the strength, or None for "auto"; raise if it is neither."""
    if isinstance(strength, str) and strength == "auto":
        return None
    return check_factor("strength", strength, or_else=', or "auto"')


def resolve_network_strength(model: WarpModel, strength: float | None) -> float:
    """The given strength, or the model's for networks, with a warning if it recommends 0."""
    if strength is not None:
        return check_factor("strength", strength, or_else=", or None for networks' default")
    if model.strength == 0.0:
        warn_user(
            "the model recommends strength 0, because no strength was better than no warps for a "
            f"nearest-neighbour classifier. Networks get {model.network_strength:.3g} anyway. Use "
            "`dreamwarp.torch.choose_strength`, or give `strength`.",
            RuntimeWarning,
        )
    return model.network_strength


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
