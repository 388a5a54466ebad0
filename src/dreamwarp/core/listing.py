"""Names listed by ``dir`` and by tab completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def public_names(module: Mapping[str, Any], *more: str) -> list[str]:
    """``__all__`` of a module, its dunder names, and ``more``."""
    dunders = (name for name in module if name.startswith("__") and name.endswith("__"))
    return sorted({*module["__all__"], *dunders, *more})
