"""An ordered map on threads, with a bounded number of results in advance."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Results computed in advance, per thread: enough to bridge a pause, few enough that blocks of
# samples take only tens of megabytes.
AHEAD = 3


def map_ahead(
    function: Callable[[Task], Result], tasks: Iterable[Task], n_threads: int
) -> Generator[Result, None, None]:
    """Yield ``function(task)`` in the order of the tasks; threads compute some in advance."""
    with ThreadPoolExecutor(n_threads, thread_name_prefix="dreamwarp-generate") as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                waiting.append(pool.submit(function, task))
                if len(waiting) > AHEAD * n_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
