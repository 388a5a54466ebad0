"""Recent: a thread-safe cache of the values used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class Recent:
    """Keeps ``n_most`` values; drops the least recently used first."""

    def __init__(self, n_most: int) -> None:
        self.n_most = n_most
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value of a key, made if it is not there. Two threads may make it twice."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self.n_most:
                self._kept.popitem(last=False)
        return made
