"""Names that ``dir`` shows and a prompt completes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def public_names(module: Mapping[str, Any], *more: str) -> list[str]:
    """``__all__`` of a module's globals, and the names that Python itself gave it."""
    given = (name for name in module if name.startswith("__") and name.endswith("__"))
    return sorted({*module["__all__"], *given, *more})
