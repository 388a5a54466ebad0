"""Question: how long does a new process take to its first warped image.

Once with everything compiled and kept on disk, as on all days but the first, and once with an empty
cache folder, as on the first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dreamwarp
from benchmarks.measure import Timing
from benchmarks.report import Report, Target, duration
from benchmarks.settings import Settings

# What the new process does; it prints when each stage was over.
SCRIPT = """
import json, time
stages = {"interpreter": time.time()}
import numpy as np
import dreamwarp as dw
stages["import"] = time.time()
space = dw.WarpSpace((4, 4))
theta = np.linspace(-0.1, 0.1, space.dim)
dw.Warp(space, theta).image(np.ones((28, 28), np.float32))
stages["first image"] = time.time()
dw.Warp(space, theta).image(np.ones((28, 28), np.float32))
stages["second image"] = time.time()
print(json.dumps(stages))
"""
COMPILED_BOUND, FIRST_BOUND = 2.0, 30.0


def run(settings: Settings) -> Report:
    report = Report("startup", "how long does a new process take to its first warped image?")
    with tempfile.TemporaryDirectory() as folder:
        # A quick run has no time to compile: it takes the cache that is there.
        environment = {} if settings.quick else {"NUMBA_CACHE_DIR": folder}
        first = [] if settings.quick else [start_process(environment)]
        start_process(environment)  # the first to read from a cache may find it cold
        later = [start_process(environment) for _ in range(settings.pick(7, 2))]
    runs = {"compiled before": later, "first ever": first}
    report.details = {"seconds since start": runs}
    for name, stages in runs.items():
        if stages:
            seconds = tuple(stage["first image"] for stage in stages)
            report.add(f"To the first image, {name}", "process", [Timing(name, 1, 1, seconds)])
    for name, bound in (("compiled before", COMPILED_BOUND), ("first ever", FIRST_BOUND)):
        values = tuple(stage["first image"] for stage in runs[name])
        claim = f"start of a process to its first image, {name}"
        report.targets.append(Target(claim, bound, values, "s", at_least=False))
    if first:
        report.notes.append(_explain(first[0], later[-1]))
    return report


def start_process(environment: dict[str, str]) -> dict[str, float]:
    """Seconds from the start of a new process to the end of each of its stages."""
    source = str(Path(dreamwarp.__file__).parents[1])
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    start = time.time()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return {stage: at - start for stage, at in json.loads(done.stdout).items()}


def _explain(first: dict[str, float], later: dict[str, float]) -> str:
    compiling = (first["first image"] - first["import"]) - (later["first image"] - later["import"])
    return (
        f"The first ever call turns the kernels into machine code for this processor: "
        f"{duration(compiling)} of its {duration(first['first image'])}. The code is kept on disk, "
        f"so later processes load it: of their {duration(later['first image'])}, "
        f"{duration(later['import'])} go by until dreamwarp is imported, the rest is loading. "
        f"A second image takes {duration(later['second image'] - later['first image'])}."
    )
