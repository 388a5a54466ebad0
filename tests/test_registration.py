"""The registration benchmark's yardsticks, on maps that are known."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from benchmarks import align, registration
from benchmarks.peers import PeerMissing
from benchmarks.registration import Outcome, grid_points, jacobian_determinants, judge, pull_back

IMAGES = np.random.default_rng(0).random((2, 6, 8)).astype(np.float32)


def linear(matrix: Any, points: Any) -> Any:
    """Two maps: the identity and a linear one."""
    return np.stack([points, points @ np.transpose(matrix)])


def test_grids_share_the_domain() -> None:
    coarse, fine = grid_points((6, 8)), grid_points((6, 8), 2)
    np.testing.assert_allclose(coarse, np.stack(np.indices((6, 8)), axis=-1), atol=1e-12)
    np.testing.assert_allclose(fine[0, 0], -0.25)
    np.testing.assert_allclose(fine[-1, -1], (5.25, 7.25))


@pytest.mark.parametrize("matrix", [[[2.0, 1.0], [0.5, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
def test_determinants(matrix: Any) -> None:
    found = jacobian_determinants(partial(linear, matrix), grid_points((4, 4)))
    np.testing.assert_allclose(found[0], 1.0)
    np.testing.assert_allclose(found[1], np.linalg.det(matrix))


def test_images_are_pulled_back() -> None:
    moved = np.stack([grid_points((6, 8)) + np.array([1.0, 0.0])] * 2)
    np.testing.assert_allclose(pull_back(IMAGES, moved)[:, :-1], IMAGES[:, 1:], atol=1e-6)


def test_a_contestant_is_judged_by_its_maps() -> None:
    mirror = registration.Registration(
        "mirror", {"axis": 1}, lambda sources, targets: partial(linear, [[1.0, 0.0], [0.0, -1.0]])
    )
    outcome = judge(mirror, IMAGES, np.flip(IMAGES, axis=1))
    figures = outcome.as_dict()
    np.testing.assert_array_equal(outcome.folded, [0.0, 1.0])
    assert outcome.after[0] == pytest.approx(outcome.before[0])
    assert figures["pairs with folds"] == figures["area with folds"] == 0.5
    assert mirror.label == "mirror (axis 1)"


@pytest.mark.parametrize("name", list(align.CHOSEN))
def test_contestants_align(name: str) -> None:
    rows, columns = np.mgrid[:16, :16] / 16
    blobs = [np.exp(-60 * ((rows - c) ** 2 + (columns - 0.5) ** 2)) for c in (0.4, 0.5, 0.6)]
    images = np.float32(blobs)
    build, options = align.CHOSEN[name]
    if "rate" in options:
        options = {**options, "n_steps": 5}  # enough to see it go the right way
    try:
        contestant = build(n_threads=2, **options)
    except PeerMissing as missing:
        pytest.skip(str(missing))
    outcome = judge(contestant, images[:2], images[1:])
    assert (outcome.after < outcome.before).all()


def test_pairs_to_choose_settings_with_are_not_measured() -> None:
    measured, others = align.choose_pairs(300)
    assert len(measured) == align.N_CONTESTED
    assert not set(measured) & set(others)


def test_outcomes_are_compared_with_ours() -> None:
    report = align.Report("align", "?")
    one = np.ones(2)
    ours, theirs = Outcome(1.0, one, 0.1 * one, 0 * one), Outcome(12.0, one, 0.2 * one, 0 * one)
    own, first, second, *_ = align.CHOSEN
    align._compare(report, {own: ours, first: theirs})
    found = {target.claim: target.values for target in report.targets}
    assert found[f"alignment against {first}"] == (12.0,)
    assert found[f"SSD that {first} leaves, against ours"] == pytest.approx((2.0,))
    assert found[f"alignment against {second}"] == ()
