"""Alignment of point sets, by landmarks and by Chamfer's distance."""

from __future__ import annotations

import numpy as np
import pytest

from dreamwarp import SmoothPrior, Warp, WarpSpace
from dreamwarp.align.points import align_points, thin

SPACE = WarpSpace((3, 3))
RNG = np.random.default_rng(0)
POINTS = RNG.uniform(0.15, 0.85, (60, 2))
TRUE = SmoothPrior(SPACE, displacement=0.05).sample(3, seed=1)
MOVED = Warp(SPACE, TRUE).points(POINTS)


def test_landmarks_find_the_warp_that_moved_them() -> None:
    found = align_points(SPACE, [POINTS] * 3, MOVED, sigma=1e-3, progress=False)
    assert found.converged.all() and (found.loss_after < 1e-3 * found.loss_before).all()
    back = Warp(SPACE, found.theta).points(POINTS)
    assert np.abs(back - MOVED).max() < 0.01


def test_the_order_of_points_does_not_matter_to_chamfer() -> None:
    shuffled = [RNG.permutation(moved) for moved in MOVED]
    found = align_points(SPACE, [POINTS] * 3, shuffled, match="nearest", sigma=2e-3, progress=False)
    assert (found.loss_after < 0.1 * found.loss_before).all()


def test_sigma_is_estimated() -> None:
    noisy = MOVED + RNG.normal(scale=0.01, size=MOVED.shape)
    found = align_points(SPACE, [POINTS] * 3, noisy, progress=False)
    assert 0.006 < found.sigma < 0.014


def test_every_pair_may_be_matched_in_its_own_way() -> None:
    shuffled = RNG.permutation(MOVED[1])
    found = align_points(
        SPACE, [POINTS] * 2, [MOVED[0], shuffled], match=["known", "nearest"], progress=False
    )
    alone = [
        align_points(SPACE, [POINTS], [target], match=word, progress=False)
        for target, word in ((MOVED[0], "known"), (shuffled, "nearest"))
    ]
    np.testing.assert_allclose(found.theta, np.concatenate([each.theta for each in alone]))
    assert found.sigma == pytest.approx(np.sqrt(np.mean([each.sigma**2 for each in alone])))


def test_identical_points_stay() -> None:
    found = align_points(SPACE, [POINTS], [POINTS], progress=False)
    assert np.abs(found.theta).max() < 1e-6 and found.loss_after[0] < 1e-20


def test_many_points_are_thinned_out() -> None:
    assert len(thin(POINTS, 7)) == 7
    np.testing.assert_array_equal(thin(POINTS, 100), POINTS)


@pytest.mark.parametrize(
    ("sources", "targets", "options", "message"),
    [
        ([POINTS], [], {}, "must have equal lengths, got 1 and 0"),
        ([], [], {}, "at least one set"),
        ([POINTS * 100], [POINTS], {}, "must lie in the unit domain"),
        ([np.zeros((4, 3))], [POINTS], {}, r"`sources\[0\]` must have shape \(m, 2\)"),
        ([POINTS[:9]], [POINTS], {"match": "known"}, "equal numbers of points.*'nearest'"),
        ([POINTS], [POINTS], {"match": "icp"}, "`match` must be one of"),
        ([POINTS], [POINTS], {"match": None}, "`match` must be one of.*got None"),
        ([POINTS], [POINTS], {"match": ["known"] * 2}, "one for each of 1 pairs, got 2"),
        ([POINTS], [POINTS], {"sigma": 0.0}, "`sigma` must be a positive number"),
        ([POINTS], [POINTS], {"prior": SmoothPrior(WarpSpace((2, 2)))}, "`prior` must be over"),
    ],
)
def test_wrong_input(sources: list, targets: list, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        align_points(SPACE, sources, targets, progress=False, **options)
