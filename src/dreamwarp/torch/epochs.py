"""Warps by epoch and sample number, for training loops of one or several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import get_worker_info

from dreamwarp.core.draws import Seed, derive_seed
from dreamwarp.core.validation import check_integer, warn_user
from dreamwarp.model import WarpModel
from dreamwarp.torch.drawing import RandomWarps, WarpOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Numbers remembered per epoch. Some are enough: without a call of set_epoch, all numbers repeat.
N_REMEMBERED = 4096
# Layout of the shared memory: the epoch, whether a warning was given, the numbers drawn.
EPOCH, HAS_WARNED, DRAWN = 0, 1, 2
NO_NUMBER = -1


class SharedEpoch:
    """The current epoch, shared by all processes.

    A sample number repeated within an epoch gets the same warp again. To warn of that, numbers
    are stored until the next :meth:`set`, at most ``N_REMEMBERED``. Draws do not depend on it.
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
        """Remember numbers; warn, once, if one was drawn before in this epoch."""
        state, given = self._value.numpy(), np.asarray(numbers, np.int64)
        if state[HAS_WARNED]:
            return
        # A hash table without chains: the first number keeps its slot. If processes write at the
        # same time, some numbers are lost; the others are enough to detect repeats.
        drawn = state[DRAWN:]
        places = given % len(drawn)
        before = drawn[places]
        in_order = np.sort(given)
        repeated = [*given[before == given], *in_order[1:][np.diff(in_order) == 0]]
        drawn[places[before == NO_NUMBER]] = given[before == NO_NUMBER]
        if repeated:
            state[HAS_WARNED] = True
            warn_user(
                f"{what} {repeated[0]} was drawn twice in epoch {self.get()}, with the same "
                f"result. {remedy}",
                UserWarning,
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy has its own epoch, whose memory is not shared yet.
        self.__dict__.update(state)
        self._value.share_memory_()


class EpochWarps(RandomWarps):
    """Random warps by (seed, epoch, number, label), with the epoch shared by all processes."""

    def __init__(
        self, model: WarpModel, *, seed: Seed = 0, epoch: int = 0, **options: Unpack[WarpOptions]
    ) -> None:
        super().__init__(model, seed=seed, **options)
        self.epoch = SharedEpoch(epoch)

    def draw_numbered(
        self, labels: Any, numbers: ArrayLike, remedy: str, templates: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Draw θ (n, d) by sample number (n,); warn if one was drawn before in this epoch."""
        theta = self.draw(labels, numbers, key=self.epoch_key, templates=templates)
        self.epoch.warn_of_repeats(numbers, remedy)
        return theta

    @property
    def epoch_key(self) -> int:
        """Seed of the draws of the current epoch."""
        return derive_seed(self.key, self.epoch.get())
