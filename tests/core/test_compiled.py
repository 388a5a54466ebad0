"""The cache and the notice of compiling; threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dreamwarp.core.compiled import map_ahead

CODE = """
import sys
import numpy as np
import dreamwarp as dw
from dreamwarp.core import compiled

compiled.TELL_SECONDS = 0.1
if "align" in sys.argv:
    X = np.random.default_rng(0).random((4, 9, 9))
    dw.Augmenter(cells=(1, 1), n_neighbors=1, strength=1.0, progress=False).fit(X, [0, 0, 0, 0])
else:
    dw.neighbor_pairs(np.random.default_rng(0).random((9, 4)), n_neighbors=1)
"""


def run(cache: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", CODE, *arguments]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == ""
    return done.stderr


def test_compiling_is_told_once_and_the_cache_is_silent(tmp_path: Path) -> None:
    words = run(tmp_path)
    assert words == "dreamwarp: compiling (about a minute, then kept on disk)\n"
    assert run(tmp_path) == ""


def test_a_cache_that_cant_be_written_is_told() -> None:
    code = "import numba.core.caching as c; c.CacheImpl._locator_classes = []" + CODE
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "set NUMBA_CACHE_DIR to keep" in done.stderr


RACE = """
import sys
import numpy as np
from dreamwarp.core import compiled

def twice(values):
    return values + values

double = compiled.kernel(twice)
print(double(np.ones(1, sys.argv[1])).dtype, *double.stats.cache_hits.values())
"""


def test_processes_that_compile_at_once_keep_what_they_compiled(tmp_path: Path) -> None:
    script = tmp_path / "race.py"
    script.write_text(RACE)

    def start(dtype: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), dtype]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    dtypes = ["float32", "float64", "int64", "complex128"]
    for expected_hits in ("", " 1"):  # numba's own files fail the second round
        runs = [start(dtype) for dtype in dtypes]
        said = [run.communicate()[0].strip() for run in runs]
        assert said == [dtype + expected_hits for dtype in dtypes]


@pytest.mark.slow  # a minute: everything is compiled anew
def test_no_word_where_no_progress_is_wanted(tmp_path: Path) -> None:
    assert run(tmp_path, "align") == ""


def test_results_come_in_order_and_few_are_made_ahead() -> None:
    begun: list[int] = []

    def work(k: int) -> int:
        begun.append(k)
        return k

    results = map_ahead(work, range(1000), 2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    results.close()
    assert len(begun) < 20
