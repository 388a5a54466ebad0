"""Strength: the factor s on learned warps. 1 is as learned, 2 twice as large.

T^(sθ) follows the same flow as T^θ, s times as far.
A model recommends a strength, chosen for a nearest-neighbour classifier, and another for networks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dreamwarp.core.validation import check_factor, warn_user

if TYPE_CHECKING:
    from dreamwarp.model.warpmodel import WarpModel

# Default for networks if the model was not fitted by an ``Augmenter``.
NETWORK_STRENGTH = 1.25


def resolve_network_strength(model: WarpModel, strength: float | None) -> float:
    """The given strength, or that for networks, with a warning if ``model.strength`` is 0."""
    if strength is not None:
        return check_factor("strength", strength, or_else=", or None for networks' default")
    if model.strength == 0.0:
        warn_user(
            "the model recommends strength 0 for a nearest-neighbour classifier. Networks get "
            f"{model.network_strength:.3g} anyway. Use `dreamwarp.torch.choose_strength`, or give "
            "`strength`.",
            RuntimeWarning,
        )
    return model.network_strength


def resolve_strength(model: WarpModel, strength: float | None) -> float:
    """The given strength, or ``model.strength``, with a warning if that is 0."""
    if strength is not None:
        return check_factor("strength", strength, or_else=", or None for the model's own")
    if model.strength == 0.0:
        warn_user(
            "the model recommends strength 0, so samples will be unwarped copies. If `fit` chose "
            "it, warps did not reduce the error on held-out samples by more than one standard "
            "error. Use `strength=1` for warps as large as learned.",
            RuntimeWarning,
        )
    return model.strength
