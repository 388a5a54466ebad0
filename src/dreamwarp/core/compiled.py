"""Compiling, caching and multithreading of kernels.

A kernel is a loop over a range of tasks, ``kernel(first, last, *arrays)``, that uses no Python
objects and releases the interpreter lock. ``spread`` splits the range into blocks, which threads
take in turn. No two tasks write to the same place, so results do not depend on the threads. We use
plain threads because numba's parallel loops must not be entered from two threads at once or after
a fork, and both happen in data loaders.

The decorators:

``kernel``       float64 sums stay in the order written, so results do not depend on vector width
``part``         called by kernels; allocates nothing, so it needs no reference counts. Inlined by
                 LLVM: calls with many arrays took a third of the time of interpolation
``inlined``      called by kernels; inlined by numba, so that constants keep their values
``lane_kernel``  a part that loops over lanes; the compiler may fuse and reorder operations

Compiled code is cached on disk: beside the source if that is writable, else in the user's cache
directory. If neither is writable, every process compiles. Long compiling prints a notice.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache, NullCache
from numba.core.registry import cpu_target
from numba.core.serialize import dumps
from threadpoolctl import ThreadpoolController

from dreamwarp.core.files import write_beside
from dreamwarp.core.progress import notify

# Total seconds of compiling before the notice.
TELL_SECONDS = 2.0
# More blocks per thread balance the load, fewer cost less overhead.
BLOCKS_PER_THREAD = 4
# Results computed in advance, per thread: enough to bridge a pause, few enough that blocks of
# samples take only tens of megabytes.
AHEAD = 3


def _hash(text: str) -> str:
    """Eight hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@cache
def _kernel_stamp() -> str:
    """Hash of numba's version and of all modules of this package that define or call kernels."""
    stamp = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        source = path.read_bytes()
        if b"numba" in source or b"dreamwarp.core.compiled" in source:
            stamp.update(source)
    return stamp.hexdigest()


class _KernelFiles:
    """Files of one function's compiled code: one per signature and processor.

    Numba's own files share an index. Two processes that compile different signatures at once can
    leave an index that names the other's code. Here the name of a file follows from its key, and
    files are replaced as a whole. The key is in the file too, in case two keys share a name.
    """

    def __init__(self, base: Path) -> None:
        self._base = base

    def _path(self, key: Any) -> Path:
        return self._base.with_name(f"{self._base.name}.{_hash(repr(key))}.nbc")

    def save(self, key: Any, data: Any) -> None:
        """Store the code of a key."""
        with write_beside(self._path(key)) as temporary:
            temporary.write_bytes(dumps((key, data)))

    def load(self, key: Any) -> Any:
        """The code of a key; None if there is none."""
        try:
            found, data = pickle.loads(self._path(key).read_bytes())
        except FileNotFoundError:
            return None
        return data if found == key else None

    def flush(self) -> None:
        """Forget all code of the function."""
        for path in self._base.parent.glob(f"{self._base.name}.*.nbc"):
            path.unlink(missing_ok=True)


class _KernelCache(FunctionCache):
    """Numba's cache, invalidated when any kernel changes.

    Numba checks only the date of a function's own file, and would reuse a compiled caller after a
    function it calls has changed. Here the names of files include a hash of all kernels.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        name = f"{self._impl.filename_base}.{_kernel_stamp()[:8]}"
        self._cache_file: Any = _KernelFiles(Path(self._cache_path, name))


def _compiler(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    def decorate(function: Callable[..., Any]) -> Any:
        compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
        with suppress(RuntimeError):  # numba found no directory to write to
            compiled._cache = _KernelCache(function)
        return compiled

    return decorate


# Only kernels are called from Python. The others need no wrapper, which for tuples of arrays takes
# as long to compile as the function itself.
BARE = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
kernel = _compiler(no_cfunc_wrapper=True)
part = _compiler(_nrt=False, forceinline=True, **BARE)
inlined = _compiler(inline="always", **BARE)
lane_kernel = _compiler(_nrt=False, fastmath={"nsz", "arcp", "contract", "afn", "reassoc"}, **BARE)


def mark_of(compiled: Any, name: str) -> Path | None:
    """Path of a marker file beside a kernel's cache; None without a cache.

    The path depends on the version of the kernels and on the processor.
    """
    if isinstance(compiled._cache, NullCache):
        return None
    stamps = _kernel_stamp()[:8], _hash(repr(cpu_target.target_context.codegen().magic_tuple()))
    return Path(compiled._cache.cache_path, ".".join((name, *stamps)))


class _CompilingNotice(event.Listener):
    """Prints one notice per process when compiling takes long; reading the cache does not count.

    Functions compile within the compilation of their callers, so events are frequent and nested.
    Numba's global lock keeps events of several threads apart.
    """

    def __init__(self) -> None:
        self._depth, self._seconds, self._last, self._is_done = 0, 0.0, 0.0, False

    def on_start(self, event: event.Event) -> None:
        """Numba starts to compile a function."""
        self._count(event.data["dispatcher"], 1)

    def on_end(self, event: event.Event) -> None:
        """Numba has compiled a function, or failed to."""
        self._count(event.data["dispatcher"], -1)

    def _count(self, dispatcher: Any, step: int) -> None:
        if self._is_done or not dispatcher.py_func.__module__.startswith("dreamwarp."):
            return
        now = time.monotonic()
        self._seconds += now - self._last if self._depth > 0 else 0.0
        self._last, self._depth = now, self._depth + step
        if self._seconds > TELL_SECONDS:
            is_lost = isinstance(dispatcher._cache, NullCache)
            kept = "; set NUMBA_CACHE_DIR to keep the result" if is_lost else ", then kept on disk"
            self._is_done = notify(f"compiling (about a minute{kept})")


event.register("numba:compile", _CompilingNotice())


def thread_count(n_threads: int | None = None) -> int:
    """Number of threads: ``n_threads``, or numba's setting (``NUMBA_NUM_THREADS``)."""
    if n_threads is None:
        return int(numba.get_num_threads())
    if not isinstance(n_threads, Integral) or isinstance(n_threads, bool) or n_threads < 1:
        raise ValueError(
            f"`n_threads` must be a positive integer, got {n_threads!r}. Leave it out to use "
            "every core that NUMBA_NUM_THREADS allows."
        )
    return int(n_threads)


def count_chunks(n_items: int, size: int) -> int:
    """Number of chunks of at most ``size`` items."""
    return -(-n_items // size)


@cache
def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    # Keyed by process: a forked child inherits the pool object but none of its threads.
    return ThreadPoolExecutor(n_threads, thread_name_prefix="dreamwarp")


def spread(
    kernel: Any,
    n_tasks: int,
    *arguments: Any,
    n_threads: int | None = None,
    smallest_block: int = 1,
) -> None:
    """Run ``kernel(first, last, *arguments)`` over ``range(n_tasks)`` on several threads.

    ``smallest_block`` tasks should take well over 50 µs, the cost of starting a block.
    """
    n_threads = min(thread_count(n_threads), max(n_tasks // smallest_block, 1))
    if n_threads == 1:
        kernel(0, n_tasks, *arguments)
        return
    size = max(smallest_block, count_chunks(n_tasks, n_threads * BLOCKS_PER_THREAD))
    starts = itertools.count(0, size)

    def work() -> None:
        for start in starts:
            if start >= n_tasks:
                return
            kernel(start, min(start + size, n_tasks), *arguments)

    pool = _pool(n_threads - 1, os.getpid())
    helpers = [pool.submit(work) for _ in range(n_threads - 1)]
    try:
        work()  # in this thread too
    finally:
        for helper in helpers:
            if not helper.cancel():  # a helper that has not started has nothing left to do
                helper.result()


def map_on_threads(
    function: Callable[[Any], Any], items: Sequence[Any], n_threads: int | None = None
) -> list[Any]:
    """``function(item)`` of every item, in order, on threads that stay alive between calls."""
    n_threads = min(thread_count(n_threads), len(items))
    if n_threads <= 1:
        return [function(item) for item in items]
    return list(_pool(n_threads, os.getpid()).map(function, items))


def map_ahead(
    function: Callable[[Any], Any], tasks: Iterable[Any], n_threads: int
) -> Generator[Any, None, None]:
    """Yield ``function(task)`` in the order of the tasks; threads compute some in advance."""
    with ThreadPoolExecutor(n_threads, thread_name_prefix="dreamwarp-generate") as pool:
        waiting: deque[Future[Any]] = deque()
        try:
            for task in tasks:
                waiting.append(pool.submit(function, task))
                if len(waiting) > AHEAD * n_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


@cache
def _algebra_libraries() -> ThreadpoolController:
    return ThreadpoolController()  # takes 2 to 8 ms


def limit_algebra(n_threads: int | None = 1) -> AbstractContextManager[Any]:
    """Limit BLAS to some threads within the block; None: no limit.

    On small matrices one thread is fastest.
    """
    return _algebra_libraries().limit(limits=n_threads, user_api="blas")
