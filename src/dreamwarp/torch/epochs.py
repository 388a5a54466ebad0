"""Epochs: each has its own warps; repeated numbers without ``set_epoch`` give a warning."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.utils.data import get_worker_info

from dreamwarp.core.validation import check_whole, warn_user

# Numbers that an epoch remembers. Those come again in the next one, so that some are enough.
N_REMEMBERED = 4096
# Places in the shared memory: the epoch, whether a warning was given, the numbers drawn.
EPOCH, HAS_WARNED, DRAWN = 0, 1, 2
NO_NUMBER = -1


class SharedEpoch:
    """The epoch that warps are drawn for, shared by all processes.

    Draws by number repeat when a number comes again in the same epoch. So numbers are remembered,
    at least the first of them, until the epoch is set anew. Remembering changes no draw: what a
    number gets does not depend on what was drawn before.
    """

    def __init__(self, epoch: int) -> None:
        self._value = torch.zeros(DRAWN + N_REMEMBERED, dtype=torch.int64).share_memory_()
        self.set(epoch)

    def get(self) -> int:
        """The epoch."""
        return int(self._value[EPOCH].item())

    def set(self, epoch: int) -> None:
        """Change it, in all processes; forget what was drawn, and count from 0 again."""
        self._value[EPOCH] = check_whole("epoch", epoch, 0)
        self._value[DRAWN:] = NO_NUMBER
        self._count = 0

    def count_on(self, n: int, remedy: str) -> int:
        """Number of the first of ``n`` more samples, counted as they come."""
        if get_worker_info() is not None:
            raise RuntimeError(
                "in a worker of a DataLoader samples can't be counted, since every worker would "
                f"count the same numbers. {remedy}"
            )
        first = self._count
        self._count += n
        return first

    def warn_of_repeats(self, numbers: ArrayLike, remedy: str, what: str = "sample") -> None:
        """Warn, once, if one of the numbers was drawn before in this epoch."""
        state = self._value.numpy()
        if state[HAS_WARNED]:
            return
        repeated = self._remember(np.asarray(numbers, np.int64))
        if repeated is not None:
            state[HAS_WARNED] = True
            warn_user(
                f"{what} {repeated} came a second time in epoch {self.get()}, and is the same as "
                f"the first time. {remedy}",
                UserWarning,
            )

    def _remember(self, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> int | None:
        """One of the numbers that was remembered already; None if none was."""
        # Each number has a place, which the first to come keeps. Processes that write at the same
        # time can only overlook a number, and there are many.
        drawn = self._value.numpy()[DRAWN:]
        places = numbers % len(drawn)
        before = drawn[places]
        in_order = np.sort(numbers)
        repeated = [*numbers[before == numbers], *in_order[1:][np.diff(in_order) == 0]]
        drawn[places[before == NO_NUMBER]] = numbers[before == NO_NUMBER]
        return int(repeated[0]) if repeated else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy holds an epoch of its own, in memory that is not shared until it is asked to be.
        self.__dict__.update(state)
        self._value.share_memory_()
