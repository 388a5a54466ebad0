"""The epoch of a training loop, shared by processes; warns of repeated sample numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.utils.data import get_worker_info

from dreamwarp.core.validation import check_integer, warn_user

# Numbers remembered per epoch. Some are enough: without a call of set_epoch, all numbers repeat.
N_REMEMBERED = 4096
# Layout of the shared memory: the epoch, whether a warning was given, the numbers drawn.
EPOCH, HAS_WARNED, DRAWN = 0, 1, 2
NO_NUMBER = -1


class SharedEpoch:
    """The current epoch, shared by all processes.

    A sample number repeated within an epoch gets the same warp again. To warn of that, numbers
    are stored until the next :meth:`set`, at most ``N_REMEMBERED``. This changes no draw.
    """

    def __init__(self, epoch: int) -> None:
        self._value = torch.zeros(DRAWN + N_REMEMBERED, dtype=torch.int64).share_memory_()
        self.set(epoch)

    def get(self) -> int:
        """Return the epoch."""
        return int(self._value[EPOCH].item())

    def set(self, epoch: int) -> None:
        """Set the epoch in all processes, forget the numbers, and count from 0 again."""
        self._value[EPOCH] = check_integer("epoch", epoch, 0)
        self._value[DRAWN:] = NO_NUMBER
        self._count = 0

    def count_on(self, n: int, remedy: str) -> int:
        """Count ``n`` more samples; return the number of the first."""
        if get_worker_info() is not None:
            raise RuntimeError(
                "samples can't be counted in a DataLoader worker, since every worker would count "
                f"the same numbers. {remedy}"
            )
        first = self._count
        self._count += n
        return first

    def warn_of_repeats(self, numbers: ArrayLike, remedy: str, what: str = "sample") -> None:
        """Warn, once, if a number was drawn before in this epoch."""
        state = self._value.numpy()
        if state[HAS_WARNED]:
            return
        repeated = self._remember(np.asarray(numbers, np.int64))
        if repeated is not None:
            state[HAS_WARNED] = True
            warn_user(
                f"{what} {repeated} was drawn twice in epoch {self.get()}, with the same result. "
                f"{remedy}",
                UserWarning,
            )

    def _remember(self, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> int | None:
        """Remember numbers; return one that was remembered before, or None."""
        # A hash table without chains: the first number keeps its slot. If processes write at the
        # same time, some numbers are lost; the others are enough to detect repeats.
        drawn = self._value.numpy()[DRAWN:]
        places = numbers % len(drawn)
        before = drawn[places]
        in_order = np.sort(numbers)
        repeated = [*numbers[before == numbers], *in_order[1:][np.diff(in_order) == 0]]
        drawn[places[before == NO_NUMBER]] = numbers[before == NO_NUMBER]
        return int(repeated[0]) if repeated else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy has its own epoch, whose memory is not shared yet.
        self.__dict__.update(state)
        self._value.share_memory_()
