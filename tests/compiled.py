"""Parts of kernels, called from Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba

from dreamwarp.core.compiled import BARE


@cache
def callable_part(part: Any) -> Callable[..., Any]:
    """A part of kernels with the wrapper for Python that it lacks: to call it without crashes."""
    options = {name: value for name, value in part.targetoptions.items() if name not in BARE}
    return numba.jit(**options)(part.py_func)
