"""Work on a dask.distributed cluster: one function, one shared object, many tasks.

If a worker is lost, others run its tasks again. A result depends only on the task, so it stays the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dreamwarp.core.listing import import_extra

if TYPE_CHECKING:
    from distributed import Client, Future

# Seconds to wait for the scheduler to answer.
ANSWER_SECONDS = 10.0
# Seconds to wait for workers if there are none: lost ones may restart.
WORKER_SECONDS = 30.0
# Attempts if all workers that hold the shared object are lost.
ATTEMPTS = 5


def connect(address: str) -> Client:
    """A client of the scheduler at an address such as ``tcp://10.0.0.1:8786``."""
    distributed = import_extra("distributed", "cluster", "work on a cluster")
    try:
        return distributed.Client(address, timeout=ANSWER_SECONDS)
    except (OSError, ValueError) as error:
        raise OSError(
            f"no scheduler answers at {address!r} ({error}). Start one with `dask scheduler`, and "
            "workers with `dask worker ADDRESS`."
        ) from error


def run_on(
    client: Client, function: Callable[..., Any], shared: Any, tasks: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Any]]:
    """Yield the index and ``function(shared, *task)`` of each task, in order of completion.

    ``function`` must be importable by workers and safe to call twice with the same task.
    ``shared`` is sent to every worker once.
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
            f"the cluster lost its workers {ATTEMPTS} times; {len(left)} of {len(tasks)} tasks "
            "are not done. See the workers' logs; they may be short of memory."
        )


def _run_once(
    client: Client, function: Callable[..., Any], shared: Any, tasks: dict[int, tuple[Any, ...]]
) -> Iterator[tuple[int, Any]]:
    """Yield the index and result of every task whose worker was not lost."""
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
        # Cancel tasks that have not started. Fails if the scheduler is gone.
        with suppress(OSError, RuntimeError):
            client.cancel(list(futures))


def _send(client: Client, shared: Any) -> Future[Any]:
    """Send an object to every worker."""
    try:
        # No hash: hashing large data takes longer than sending it.
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
    """Whether a task failed because its worker was lost, rather than by itself."""
    from distributed import KilledWorker

    if future.status in ("cancelled", "lost"):
        return True
    return future.status == "error" and isinstance(future.exception(), KilledWorker)
