"""Strength: the one factor on learned warps.

A model holds the distribution that was learned, and recommends a strength beside it, which was
chosen for a nearest neighbour. Whoever warps data takes that, or a number of its own, which means
the same everywhere: 1 is as learned, 2 twice as large, whatever is recommended. Networks, which do
best with stronger warps than nearest neighbours, take the natural scale of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.validation import check_factor, warn_user

if TYPE_CHECKING:
    from dreamwarp.model.warpmodel import WarpModel


# What networks take unless told otherwise. By empirical Bayes, learned warps are as large as those
# between the samples themselves, and networks err least at about that size.
NETWORK_STRENGTH = 1.0


def resolve_network_strength(model: WarpModel, strength: float | None) -> float:
    """The strength for a network: the one given, or ``NETWORK_STRENGTH``.

    Warns if the model recommends 0: networks may be hurt by warps as well.
    """
    if strength is not None:
        return check_factor("strength", strength, or_else=", or None for networks' default")
    if model.strength == 0.0:
        warn_user(
            "the model recommends strength 0, because no warps did better than none for a nearest "
            f"neighbour; networks get strength {NETWORK_STRENGTH:g} all the same. Let "
            "`dreamwarp.torch.choose_strength` judge, or give `strength`.",
            RuntimeWarning,
        )
    return NETWORK_STRENGTH


def resolve_strength(model: WarpModel, strength: float | None) -> float:
    """The strength to use: the one given, or where that is None the one that the model recommends.

    Warns if the model recommends 0, since samples then come back unwarped.
    """
    if strength is not None:
        return check_factor("strength", strength, or_else=", or None for the model's own")
    if model.strength == 0.0:
        warn_user(
            "the model recommends strength 0, because no warps did better than none when it was "
            "fitted, so samples will be unwarped copies. Use `strength=1` for warps as large as "
            "learned.",
            RuntimeWarning,
        )
    return model.strength


def apply_strength(theta: NDArray[np.float64], strength: float) -> NDArray[np.float64]:
    """Warps θ (n, d) at a strength: T^(sθ) goes s times as far along the same flow."""
    return theta if strength == 1.0 else strength * theta
