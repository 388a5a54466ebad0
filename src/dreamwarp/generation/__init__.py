"""Samples at scale: written in shards that can be resumed and verified, or streamed.

Not named ``generate``: importing a package of that name would replace the function
``dreamwarp.generate``. Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dreamwarp.core.listing import public_names

# Name to the module that has it.
PUBLIC = {
    "Generated": "generating",
    "Verification": "verification",
    "generate": "generating",
    "stream": "streaming",
    "verify": "verification",
}

__all__ = ["Generated", "Verification", "generate", "stream", "verify"]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return public_names(globals())
