"""How kernels are compiled, cached and spread over threads.

A kernel is a plain loop over a range of tasks, ``kernel(first, last, *arrays)``, that holds no
Python object and lets go of the interpreter lock. ``spread`` cuts the range into blocks and lets
threads take them in turn. Which thread takes a block changes nothing in the result, because no two
tasks write the same place. Plain threads rather than numba's own parallel loops: those are not safe
to enter from two threads at once, nor after a fork, and both happen inside data loaders.

The decorators:

``kernel``       float64 sums stay in the order written, so results do not depend on vector width
``part``         a piece of kernels that allocates nothing, and so needs no reference counts
``inlined``      a piece so small that a call would cost more than it does
``lane_kernel``  a part that is a loop over lanes; the compiler may fuse and reorder operations

Compiled code is cached on disk: beside the source or, where that can't be written, in the user's
cache directory. Where neither can, kernels compile anew in each process. Compiling that takes
long shows a notice.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.registry import cpu_target
from threadpoolctl import ThreadpoolController

from dreamwarp.core.progress import Notice

# Seconds of compiling, in total, after which a notice is shown.
TELL_SECONDS = 2.0
# Blocks per thread: more even out the load, fewer cost less overhead.
BLOCKS_PER_THREAD = 4


@cache
def _kernel_stamp() -> str:
    """Hash of all modules of this package that define or call kernels."""
    stamp = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        source = path.read_bytes()
        if b"numba" in source or b"dreamwarp.core.compiled" in source:
            stamp.update(source)
    return stamp.hexdigest()


class _KernelCache(FunctionCache):
    """Numba's cache, but aware that kernels call kernels in other files.

    Numba looks at the date of a function's own file, and would go on using a compiled caller after
    what it calls has changed. The hash is in the file names too: numba unpickles an index before it
    looks at its stamp, and an index of another version may name classes that are gone.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}.{_kernel_stamp()[:8]}",
            source_stamp=_kernel_stamp(),
        )


def _compiler(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    def decorate(function: Callable[..., Any]) -> Any:
        compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
        with suppress(RuntimeError):  # numba found no directory to write to
            compiled._cache = _KernelCache(function)
        return compiled

    return decorate


# Only kernels are called from Python. Other functions need no wrapper, which for tuples of arrays
# takes as long to compile as the function itself.
BARE = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
kernel = _compiler(no_cfunc_wrapper=True)
part = _compiler(_nrt=False, **BARE)
inlined = _compiler(inline="always", **BARE)
lane_kernel = _compiler(_nrt=False, fastmath={"nsz", "arcp", "contract", "afn", "reassoc"}, **BARE)


def mark_of(compiled: Any, name: str) -> Path | None:
    """Marker file beside a kernel's cache that shows it was filled; None without a cache.

    Another version of the kernels, or another processor, has another mark.
    """
    if isinstance(compiled._cache, NullCache):
        return None
    processor = repr(cpu_target.target_context.codegen().magic_tuple()).encode()
    stamps = _kernel_stamp()[:8], hashlib.sha256(processor).hexdigest()[:8]
    return Path(compiled._cache.cache_path, ".".join((name, *stamps)))


class _CompilingNotice(event.Listener):
    """Shows a notice while kernels are compiled rather than read from the cache.

    Numba has a lock for all compiling, so events of several threads do not mix.
    """

    def __init__(self) -> None:
        self._notice: Notice | None = None

    def on_start(self, event: event.Event) -> None:
        """Numba begins to compile a function, which may be part of another."""
        dispatcher = event.data["dispatcher"]
        if _is_ours(dispatcher):
            if self._notice is None:
                self._notice = Notice(_describe_compiling(dispatcher), patience=TELL_SECONDS)
            self._notice.begin()

    def on_end(self, event: event.Event) -> None:
        """It has done so, or failed."""
        if self._notice is not None and _is_ours(event.data["dispatcher"]):
            self._notice.end()


def _is_ours(dispatcher: Any) -> bool:
    return dispatcher.py_func.__module__.partition(".")[0] == __name__.partition(".")[0]


def _describe_compiling(dispatcher: Any) -> str:
    if isinstance(dispatcher._cache, NullCache):
        return "compiling (about a minute; set NUMBA_CACHE_DIR to keep what comes of it)"
    return "compiling (about a minute, then kept on disk)"


event.register("numba:compile", _CompilingNotice())


def thread_count(n_threads: int | None = None) -> int:
    """Threads to use: as asked, else as numba is set (``NUMBA_NUM_THREADS``)."""
    if n_threads is None:
        return int(numba.get_num_threads())
    if not isinstance(n_threads, Integral) or isinstance(n_threads, bool) or n_threads < 1:
        raise ValueError(
            f"`n_threads` must be a positive whole number, got {n_threads!r}. "
            "Leave it out to use every core that NUMBA_NUM_THREADS allows."
        )
    return int(n_threads)


def count_chunks(n_items: int, size: int) -> int:
    """How many chunks of at most ``size`` hold all items."""
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

    ``smallest_block`` tasks should take well over the 50 µs that handing a block over may cost.
    """
    n_threads = min(thread_count(n_threads), max(n_tasks // smallest_block, 1))
    if n_threads == 1:
        kernel(0, n_tasks, *arguments)
        return
    size = max(smallest_block, -(-n_tasks // (n_threads * BLOCKS_PER_THREAD)))
    starts = itertools.count(0, size)

    def work() -> None:
        for start in starts:
            if start >= n_tasks:
                return
            kernel(start, min(start + size, n_tasks), *arguments)

    pool = _pool(n_threads - 1, os.getpid())
    helpers = [pool.submit(work) for _ in range(n_threads - 1)]
    try:
        work()  # this thread need not be woken up
    finally:
        for helper in helpers:
            if not helper.cancel():  # nothing is left for one that has not begun
                helper.result()


def map_on_threads(
    function: Callable[[Any], Any], items: Sequence[Any], n_threads: int | None = None
) -> list[Any]:
    """``function`` of every item, in order, on threads that stay alive between calls."""
    n_threads = min(thread_count(n_threads), len(items))
    if n_threads <= 1:
        return [function(item) for item in items]
    return list(_pool(n_threads, os.getpid()).map(function, items))


@cache
def _algebra_libraries() -> ThreadpoolController:
    return ThreadpoolController()  # which takes 2 ms to find them


def single_threaded_algebra() -> AbstractContextManager[Any]:
    """Have BLAS use one thread: on small matrices, its threads only wait for each other."""
    return _algebra_libraries().limit(limits=1)
