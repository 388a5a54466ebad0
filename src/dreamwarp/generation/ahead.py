"""Results in order, some of them made ahead by threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Results made ahead of the one that is being used, per thread: enough to bridge a pause, few enough
# that blocks of samples stay within some tens of megabytes.
AHEAD = 3


def map_ahead(
    function: Callable[[Task], Result], tasks: Iterable[Task], n_threads: int
) -> Generator[Result, None, None]:
    """Results in the order of the tasks, some of them made ahead by threads."""
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
