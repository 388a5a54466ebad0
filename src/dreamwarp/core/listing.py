"""Public names of packages, for ``dir`` and tab completion; lazy imports; imports of extras."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def public_names(module: Mapping[str, Any], *more: str) -> list[str]:
    """``__all__`` of a module, its dunder names, and ``more``."""
    dunders = (name for name in module if name.startswith("__") and name.endswith("__"))
    return sorted({*module["__all__"], *dunders, *more})


def import_lazily(
    package: Mapping[str, Any], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package that imports its names at first use.

    ``package`` is its ``globals()``, and ``modules`` the module of each public name.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        return getattr(import_module(f"{package['__name__']}.{modules[name]}"), name)

    return find, lambda: public_names(package)


def import_extra(module: str, extra: str, what: str) -> Any:
    """Import a module of an extra. If it is missing, the error says that ``what`` needs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{what} needs {module.partition('.')[0]}, which is not installed. Use "
            f"`pip install dreamwarp[{extra}]`."
        ) from error
