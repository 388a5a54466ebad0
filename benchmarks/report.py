"""Results of a benchmark: shown as tables, stored as JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import dreamwarp
from benchmarks.measure import Timing, ratios
from benchmarks.settings import Settings
from dreamwarp.core.files import write_beside

PACKAGES = (
    "numba", "numpy", "scipy", "torch",
    "libcpab", "difw", "kornia", "albumentations", "torchvision", "simpleitk",
    "monai", "torchio", "tslearn",
)  # fmt: skip
# Largest load of the machine, as a share of its cores, at which figures deserve trust.
QUIET = 0.25
# Calls this many times dearer than the smallest show how cost grows, not what any call costs.
PAST_OVERHEAD = 5.0


@dataclass(frozen=True)
class Target:
    """A figure that is to stay above (or below) a bound.

    Parameters
    ----------
    claim : str
    bound : float
    values : tuple of float
        What each round measured; empty if nothing could be.
    unit : str
    at_least : bool
        Whether the bound is one from below.
    """

    claim: str
    bound: float
    values: tuple[float, ...]
    unit: str = "×"
    at_least: bool = True

    @property
    def median(self) -> float | None:
        return float(np.median(self.values)) if self.values else None

    @property
    def met(self) -> bool | None:
        """Whether the median keeps the bound; None if nothing was measured."""
        if self.median is None:
            return None
        return self.median >= self.bound if self.at_least else self.median <= self.bound


@dataclass(frozen=True)
class Group:
    """Timings of contestants that did the same; the others are shown as multiples of the first."""

    title: str
    item: str
    timings: tuple[Timing, ...]


@dataclass(frozen=True)
class Curve:
    """Cost per call of one contestant against a size.

    Parameters
    ----------
    variable : str
        What grows.
    contestant : str
    sizes : tuple of int
    timings : tuple of Timing
        One call at each size.
    """

    variable: str
    contestant: str
    sizes: tuple[int, ...]
    timings: tuple[Timing, ...]

    def exponents(self) -> tuple[float, ...]:
        """Slope of log cost against log size, round by round; 1 means linear.

        Over the sizes that cost ``PAST_OVERHEAD`` times the smallest or more, so that what a call
        costs whatever it does has no part in it; empty if there are not two of them.
        """
        floor = PAST_OVERHEAD * self.timings[0].median
        chosen = [i for i, timing in enumerate(self.timings) if timing.median >= floor]
        if len(chosen) < 2:
            return ()
        sizes = np.log([self.sizes[i] for i in chosen])
        rounds = np.log(np.stack([self.timings[i].seconds for i in chosen]))
        return tuple(float(slope) for slope in np.polyfit(sizes, rounds, 1)[0])


@dataclass(frozen=True)
class ErrorRow:
    """How far a contestant's result is from the exact one.

    Parameters
    ----------
    contestant, setting, quantity : str
        Whose result, for which input, and what the figures are (with their unit).
    largest, mean : float
    n_failed : int
        Results that are no result at all; they are left out of the other figures.
    """

    contestant: str
    setting: str
    quantity: str
    largest: float
    mean: float
    n_failed: int = 0

    @classmethod
    def of(
        cls, contestant: str, setting: str, quantity: str, errors: NDArray[Any], n_failed: int = 0
    ) -> ErrorRow:
        return cls(
            contestant, setting, quantity, float(errors.max()), float(errors.mean()), n_failed
        )


@dataclass
class Report:
    """Answer to one question."""

    name: str
    question: str
    details: dict[str, Any] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    errors: list[ErrorRow] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, title: str, item: str, timings: Sequence[Timing]) -> None:
        self.groups.append(Group(title, item, tuple(timings)))

    def as_dict(self, settings: Settings, environment: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": self.name,
            "question": self.question,
            "quick": settings.quick,
            "seed": settings.seed,
            "n_threads": settings.n_threads,
            "environment": environment,
            "details": self.details,
            "groups": [_group_dict(group) for group in self.groups],
            "curves": [{**asdict(curve), "exponents": curve.exponents()} for curve in self.curves],
            "errors": [asdict(row) for row in self.errors],
            "targets": [{**asdict(t), "median": t.median, "met": t.met} for t in self.targets],
            "notes": self.notes,
        }

    def save(self, settings: Settings, environment: dict[str, Any]) -> Path:
        """Write ``<name>.json`` into the settings' folder."""
        path = settings.folder / f"{self.name}.json"
        text = json.dumps(self.as_dict(settings, environment), indent=1, ensure_ascii=False)
        with write_beside(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
        return path

    def show(self, console: Console) -> None:
        console.rule(f"[bold]{self.name}[/bold]: {self.question}")
        for group in self.groups:
            console.print(_timing_table(group))
        for variable in dict.fromkeys(curve.variable for curve in self.curves):
            curves = [curve for curve in self.curves if curve.variable == variable]
            console.print(_curve_table(variable, curves))
        if self.errors:
            console.print(_error_table(self.errors))
        if self.targets:
            console.print(_target_table(self.targets))
        for note in self.notes:
            console.print(note, style="dim", highlight=False)
        console.print()


def _group_dict(group: Group) -> dict[str, Any]:
    timings = []
    for timing in group.timings:
        times = np.asarray(ratios(timing, group.timings[0]))
        timings.append({
            **asdict(timing),
            "median": timing.median,
            "fastest": timing.fastest,
            "spread": timing.spread,
            "times_the_first": {
                "median": float(np.median(times)),
                "lowest": float(times.min()),
                "highest": float(times.max()),
            },
        })  # fmt: skip
    return {"title": group.title, "item": group.item, "timings": timings}


def _timing_table(group: Group) -> Table:
    table = Table(title=group.title, title_justify="left")
    table.add_column("")
    for column in ("median", "fastest", "spread", f"{group.item} per call", "times the first"):
        table.add_column(column, justify="right")
    for timing in group.timings:
        table.add_row(
            timing.name,
            f"{duration(timing.median)} / {group.item}",
            duration(timing.fastest),
            f"{timing.spread:.0%}",
            str(timing.n_items),
            with_range(ratios(timing, group.timings[0])),
        )
    return table


def _curve_table(variable: str, curves: Sequence[Curve]) -> Table:
    table = Table(title=f"Cost of a call against {variable}", title_justify="left")
    table.add_column(variable, justify="right")
    for curve in curves:
        table.add_column(curve.contestant, justify="right")
    costs = [dict(zip(curve.sizes, curve.timings, strict=True)) for curve in curves]
    for size in sorted({size for curve in curves for size in curve.sizes}):
        cells = [duration(cost[size].median) if size in cost else "" for cost in costs]
        table.add_row(f"{size:,}", *cells)
    return table


def _error_table(rows: Sequence[ErrorRow]) -> Table:
    table = Table(title="Distance from the exact result", title_justify="left")
    for column in ("", "input", "quantity"):
        table.add_column(column)
    for column in ("largest", "mean", "failed"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.contestant, row.setting, row.quantity,
            f"{row.largest:.2g}", f"{row.mean:.2g}", str(row.n_failed or ""),
        )  # fmt: skip
    return table


def _target_table(targets: Sequence[Target]) -> Table:
    table = Table(title="Targets", title_justify="left")
    table.add_column("")
    for column in ("measured", "target", "met"):
        table.add_column(column, justify="right")
    for target in targets:
        measured = with_range(target.values, target.unit) if target.values else "not measured"
        sign = "≥" if target.at_least else "≤"
        met = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "–"}[target.met]
        bound = f"{sign} {target.bound:g} {target.unit}".strip()
        table.add_row(target.claim, measured, bound, met)
    return table


def with_range(values: Sequence[float], unit: str = "×") -> str:
    """Median, lowest and highest of some values, such as "120 × (115–131)"."""
    middle = f"{significant(float(np.median(values)))} {unit}".strip()
    if len(values) == 1 or min(values) == max(values):
        return middle
    return f"{middle} ({significant(min(values))}–{significant(max(values))})"


def significant(value: float) -> str:
    """Three digits, with an exponent only for very large or small values."""
    if value == 0 or not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    rounded = float(f"{value:.3g}")  # 99.96 has three digits before the point, once rounded
    decimals = max(0, 2 - int(np.floor(np.log10(abs(rounded)))))
    return f"{value:,.{decimals}f}"


def duration(seconds: float) -> str:
    """A duration in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{significant(seconds / size)} {unit}"
    return f"{significant(seconds * 1e9)} ns"


def describe_environment() -> dict[str, Any]:
    """Machine, load and versions; ``started`` identifies the run."""
    return {
        "started": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": {
            "dreamwarp": dreamwarp.__version__,
            **{package: _version(package) for package in PACKAGES},
        },
    }


def is_busy(environment: dict[str, Any]) -> bool:
    """Whether something else was running when the environment was described."""
    load = environment["load"]
    return load is not None and load > QUIET * environment["cores"]


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
