"""Run trials once, one per core, and store each result as a JSON file.

A trial is any hashable description with a name. Its file holds its settings, results, run time,
commit and versions. Trials with a file are not run again, so a study can be stopped and resumed,
and several processes may share a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, Protocol

from benchmarks.readme import README, fill
from dreamwarp.core.files import write_beside

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("dreamwarp", "numpy", "torch")
Outcome = dict[str, Any]


class Described(Protocol):
    """A trial: ``str`` gives its name, ``_asdict`` its settings."""

    def _asdict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Archive:
    """The folder of a study.

    Attributes
    ----------
    folder : Path
    protocol : int
        Version of the study. Results of other protocols are kept and ignored.
    """

    folder: Path
    protocol: int

    def path(self, trial: Described) -> Path:
        """Path of the file of a trial."""
        slug = str(trial).lower().replace(", ", "_").replace(" ", "-").replace("/", "-")
        return self.folder / f"{slug}_v{self.protocol}.json"

    def find(self, trial: Described) -> Outcome | None:
        """Outcome of a trial; None if it was not run."""
        path = self.path(trial)
        return json.loads(path.read_text(encoding="utf-8"))["outcome"] if path.exists() else None

    def keep(self, trial: Described, outcome: Outcome, seconds: float, commit: str) -> None:
        """Write the file of a trial, atomically."""
        record = {
            "trial": trial._asdict(), "outcome": outcome, "seconds": round(seconds, 1),
            "protocol": self.protocol, "commit": commit, "versions": describe_versions(),
        }  # fmt: skip
        self.folder.mkdir(parents=True, exist_ok=True)
        with write_beside(self.path(trial)) as part:
            part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def records(self) -> list[dict[str, Any]]:
        """All files of this protocol."""
        paths = sorted(self.folder.glob(f"*_v{self.protocol}.json"))
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


class Result(NamedTuple):
    """A trial that has ended; ``problem`` instead of an outcome if it failed."""

    trial: Any
    outcome: Outcome | None
    seconds: float
    problem: str = ""


def run_missing(
    archive: Archive,
    list_trials: Callable[[], Iterable[Any]],
    run: Callable[[Any], Outcome],
    *,
    n_processes: int = 2,
    n_threads: int = 1,
) -> Iterator[Result]:
    """Run the trials that have no file, and those that depend on their results; store outcomes.

    ``list_trials`` is called again when all its trials have been run: its list may depend on
    results. A trial that fails is reported, and the others continue.
    """
    commit, failed = current_commit(), set[Any]()
    pool = ProcessPoolExecutor(n_processes, get_context("spawn"), start_worker, (n_threads,))
    try:
        while True:
            missing = [t for t in list_trials() if t not in failed and archive.find(t) is None]
            if not missing:
                return
            futures = {pool.submit(_timed, run, trial): trial for trial in missing}
            for future in as_completed(futures):
                trial = futures[future]
                try:
                    outcome, seconds = future.result()
                except Exception as problem:  # reported; the others continue
                    failed.add(trial)
                    yield Result(trial, None, 0.0, f"{type(problem).__name__}: {problem}")
                    continue
                archive.keep(trial, outcome, seconds, commit)
                yield Result(trial, outcome, seconds)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _timed(run: Callable[[Any], Outcome], trial: Any) -> tuple[Outcome, float]:
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of single alignments, in hundreds of trials
        return run(trial), time.perf_counter() - begin


def start_worker(n: int) -> None:
    """Limit every library to ``n`` threads; exit when the parent exits, for whatever reason."""
    import torch
    from numba import set_num_threads
    from threadpoolctl import threadpool_limits

    Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(n)
    torch.set_flush_denormal(True)
    set_num_threads(n)
    threadpool_limits(n)


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@cache
def describe_versions() -> dict[str, str]:
    """Versions of the packages that results may depend on."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def current_commit() -> str:
    """Commit of the running code, marked if the code has changes."""
    git = partial(
        subprocess.run, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    commit = git(["git", "rev-parse", "--short", "HEAD"]).stdout.strip() or "unknown"
    differs = git(["git", "diff", "--quiet", "HEAD", "--", "src", "experiments/*.py"]).returncode
    return f"{commit}-dirty" if differs else str(commit)


def tell(results: Iterable[Result]) -> int:
    """Print results as they arrive; return the number of failures."""
    n_failed = 0
    for trial, outcome, seconds, problem in results:
        if outcome is None:
            n_failed += 1
            print(f"{trial}: failed, {problem}", file=sys.stderr, flush=True)
        else:
            said = ", ".join(f"{k} {v:.4g}" for k, v in outcome.items() if isinstance(v, float))
            print(f"{trial}: {said} ({seconds:.0f} s)", flush=True)
    return n_failed


@dataclass(frozen=True)
class Study:
    """A short study: a list of trials, and one table of their results in the docs.

    Attributes
    ----------
    name : str
        Of its module, its folder and its place in the docs.
    question : str
        Shown by ``--help``.
    trials, smoke : sequences of trials
        All, and those of ``--smoke``, which stores nothing.
    run : callable
    format_table : callable
        From an archive to Markdown.
    protocol : int
    """

    name: str
    question: str
    trials: Sequence[Any]
    smoke: Sequence[Any]
    run: Callable[[Any], Outcome]
    format_table: Callable[[Archive], str]
    protocol: int = 1

    @property
    def archive(self) -> Archive:
        """The folder of results."""
        return Archive(RESULTS / self.name, self.protocol)

    def main(self, arguments: list[str] | None = None) -> int:
        """Run missing trials, print the table and update the docs."""
        parser = argparse.ArgumentParser(
            prog=f"python -m experiments.{self.name}", description=self.question,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        parser.add_argument("--only", default="", help="trials whose names contain this")
        parser.add_argument("--processes", type=int, default=2, help="one core each")
        parser.add_argument("--smoke", action="store_true", help="a small set, store nothing")
        options = parser.parse_args(arguments)
        if options.smoke:
            for trial in self.smoke:
                print(f"{trial}: {self.run(trial)}")
            return 0
        chosen = [trial for trial in self.trials if options.only in str(trial)]
        n_failed = tell(
            run_missing(self.archive, lambda: chosen, self.run, n_processes=options.processes)
        )
        table = self.format_table(self.archive)
        print(table)
        fill(README, self.name.replace("_", " "), table)
        return 1 if n_failed else 0
