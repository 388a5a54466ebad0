"""Samples by class."""

from __future__ import annotations

import numpy as np

from dreamwarp.augment.members import Members
from dreamwarp.augment.sampling_strategy import number_new


def test_every_member_is_picked_once() -> None:
    codes = np.array([2, 0, 2, 1, 0, 2])
    members = Members.of(codes)
    assert members.counts.tolist() == [2, 1, 3]
    for code, count in enumerate(members.counts):
        picked = members.pick(np.full(count, code), np.arange(count))
        np.testing.assert_array_equal(picked, np.flatnonzero(codes == code))


def test_new_samples_have_numbers_of_their_class() -> None:
    numbers = number_new(np.array([2, 0, 3]))
    assert numbers.tolist() == [0, 3, 2, 5, 8]
    assert (numbers % 3).tolist() == [0, 0, 2, 2, 2]
