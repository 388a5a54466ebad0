"""Options that several commands read alike."""

from __future__ import annotations

import re
from typing import Literal

import typer

CELLS = re.compile(r"\d+(x\d+){0,2}")


def parse_cells(text: str) -> tuple[int, ...]:
    """Numbers between the x's."""
    if not CELLS.fullmatch(text):
        raise typer.BadParameter(
            f"cells must be 1 to 3 whole numbers with x between them, such as 4x4, got {text!r}",
            param_hint="'--cells'",
        )
    return tuple(map(int, text.split("x")))


def parse_amount(name: str, text: str) -> float | Literal["auto"]:
    """A number, or "auto"."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"{name} must be a number or auto, got {text!r}", param_hint=f"'--{name}'"
        ) from None
