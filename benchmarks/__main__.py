"""Run benchmarks: ``python -m benchmarks [name ...] [--quick] [-o DIR]``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import QUESTIONS
from benchmarks.settings import QUICK_RESULTS, RESULTS, Settings

if TYPE_CHECKING:
    from benchmarks.report import Report

# Read by numba, OpenMP and the BLAS libraries, when they are first imported.
THREAD_VARIABLES = (
    "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen benchmarks; 0 unless one of them broke."""
    options = _parse(arguments)
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(options.threads)
    folder = options.output or (QUICK_RESULTS if options.quick else RESULTS)
    settings = Settings(
        folder,
        quick=options.quick,
        peers=not options.without_peers,
        seed=options.seed,
        n_threads=options.threads,
    )
    run_all(options.names or list(QUESTIONS), settings)
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure dreamwarp and its peers; show tables and write JSON files.",
    )
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(QUESTIONS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--without-peers", action="store_true", help="measure dreamwarp alone")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder for the results")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in QUESTIONS]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(QUESTIONS)}")
    if options.threads < 1:
        parser.error(f"--threads must be at least 1, got {options.threads}")
    return options


def run_all(names: list[str], settings: Settings) -> list[Report]:
    """Run benchmarks one after the other, showing and saving each as it ends."""
    # Not before the number of threads is set.
    from rich.console import Console

    from benchmarks.report import describe_environment, is_busy

    console = Console(width=None if sys.stdout.isatty() else 120)
    environment = describe_environment()
    if is_busy(environment):
        console.print(
            f"The machine is not idle (load {environment['load']:.1f} on "
            f"{environment['cores']} cores): take the figures with care.",
            style="yellow",
        )
    reports = []
    for name in names:
        report = importlib.import_module(f"benchmarks.{name}").run(settings)
        report.show(console)
        report.save(settings, environment)
        reports.append(report)
    console.print(f"Results are in {settings.folder}")
    return reports


if __name__ == "__main__":
    sys.exit(main())
