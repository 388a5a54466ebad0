"""Work on a cluster of dask.distributed: one function, something that all tasks share, many tasks.

A worker that is lost costs the tasks it had in hand: the others do them again. As results depend
on nothing but the task, they are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client, Future

# Seconds until a scheduler that does not answer is taken for out of reach.
ANSWER_SECONDS = 10.0
# Seconds that a scheduler without workers is given: those that were lost may be coming back.
WORKER_SECONDS = 30.0
# Times that tasks are handed out, if every worker that had what they share is lost.
ATTEMPTS = 5


def connect(address: str) -> Client:
    """A client of the scheduler at an address such as ``tcp://10.0.0.1:8786``."""
    try:
        from distributed import Client
    except ImportError:
        raise ImportError(
            "work on a cluster goes through dask.distributed, which is not installed. Use "
            "`pip install dreamwarp[cluster]`."
        ) from None
    try:
        return Client(address, timeout=ANSWER_SECONDS)
    except (OSError, ValueError) as error:
        raise OSError(
            f"no scheduler answers at {address!r} ({error}). Start one with `dask scheduler`, and "
            "workers with `dask worker ADDRESS`."
        ) from error


def run_on(
    client: Client, function: Callable[..., Any], shared: Any, tasks: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Any]]:
    """Place of each task, and ``function(shared, *task)``, in the order in which they end.

    Parameters
    ----------
    client : distributed.Client
    function : callable
        Of a module that workers can import, and without side effects that matter when it is called
        twice.
    shared : object
        Sent to every worker once.
    tasks : sequence of tuple
    """
    left = dict(enumerate(tasks))
    for _ in range(ATTEMPTS):
        if not left:
            return
        for place, result in _run_once(client, function, shared, dict(left)):
            del left[place]
            yield place, result
    if left:
        raise OSError(
            f"the cluster's workers were lost again and again, and {len(left)} of {len(tasks)} "
            "tasks are not done. See the workers' logs; they may be short of memory."
        )


def _run_once(
    client: Client, function: Callable[..., Any], shared: Any, tasks: dict[int, tuple[Any, ...]]
) -> Iterator[tuple[int, Any]]:
    """Place and result of the tasks that could be done."""
    from distributed import as_completed

    sent = _send(client, shared)
    futures = {
        client.submit(function, sent, *task, pure=False): place for place, task in tasks.items()
    }
    try:
        for future in as_completed(list(futures)):
            if not _is_lost(future):
                yield futures[future], future.result()
    finally:
        # Whatever has not begun is not needed any more; a scheduler that is gone knows that.
        with suppress(OSError, RuntimeError):
            client.cancel(list(futures))


def _send(client: Client, shared: Any) -> Future[Any]:
    """Something that every worker then has."""
    try:
        # Under a name of its own: to hash large data takes longer than to send it.
        return client.scatter(shared, broadcast=True, hash=False, timeout=WORKER_SECONDS)
    except TimeoutError as error:
        known = client.scheduler_info()
        if known["workers"]:
            raise
        address = known["address"]
        raise OSError(
            f"the scheduler at {address} has no workers. Start some with `dask worker {address}`."
        ) from error


def _is_lost(future: Future[Any]) -> bool:
    """Whether a task failed for want of a worker, rather than by itself."""
    from distributed import KilledWorker

    if future.status in ("cancelled", "lost"):
        return True
    return future.status == "error" and isinstance(future.exception(), KilledWorker)
