"""Strength: a factor beside the learned distribution."""

from __future__ import annotations

import numpy as np
import pytest

from dreamwarp.model.strength import resolve_strength
from tests.model.test_warpmodel import fit


def test_a_number_means_the_same_whatever_is_recommended() -> None:
    for recommended in (0.0, 0.5, 1.0, 3.0):
        assert resolve_strength(fit().with_strength(recommended), 2) == 2.0
    assert resolve_strength(fit(), None) == 1.0
    assert resolve_strength(fit().with_strength(0.5), None) == 0.5


def test_a_recommended_strength_of_0_warns_of_copies() -> None:
    still = fit().with_strength(0.0)
    with pytest.warns(RuntimeWarning, match=r"strength 0.*copies.*strength=1"):
        assert resolve_strength(still, None) == 0.0
    assert resolve_strength(still, 0) == 0.0  # asked for


@pytest.mark.parametrize("strength", [-1.0, np.nan, np.inf, "auto", True])
def test_other_strengths_are_refused(strength: object) -> None:
    with pytest.raises(ValueError, match="`strength` must be a finite, non-negative number, or No"):
        resolve_strength(fit(), strength)  # type: ignore[arg-type]
