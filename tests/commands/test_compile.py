"""``dreamwarp compile``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dreamwarp.augment import precompile

COUNT = """
import numpy as np
from numba.core import event
import dreamwarp as dw

with event.install_recorder("numba:compile") as recorder:
    space = dw.WarpSpace((2, 2))
    signals = np.random.default_rng(0).random((8, 9, 9), np.float32)
    theta = dw.align_pairs(space, signals[:4], signals[4:], progress=False).theta
    dw.Warp(space, theta).image(signals[:4])
print(sum(found.is_start for _, found in recorder.buffer))
"""


@pytest.mark.slow  # a minute: everything is compiled anew
def test_nothing_is_left_to_compile(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert run("-m", "dreamwarp", "compile").startswith("compiled in ")
    assert int(run("-c", COUNT)) == 0


FIT = """
import sys, numpy as np
from numba.core import event
import dreamwarp as dw

random = np.random.default_rng(0)
X, y = random.random((24, 9)).astype(np.float32), np.arange(24) % 2
with event.install_recorder("numba:compile") as recorder:
    dw.Augmenter(cells=(2,), strength=1.0).fit(X, y)
names = {found.data["dispatcher"].py_func.__module__ for _, found in recorder.buffer}
print("dreamwarp.align.image_kernels" in names)
"""


@pytest.mark.slow  # a minute: everything is compiled anew
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core compiles as it goes")
def test_a_first_fit_compiles_on_all_cores_and_says_so(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FIT]
    first, second = (
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        for _ in range(2)
    )
    assert first.stdout == second.stdout == "False\n"  # other processes did
    assert "compiling" in first.stderr and "compiling" not in second.stderr


def test_bad_cells_are_refused() -> None:
    command = [sys.executable, "-m", "dreamwarp", "compile", "--cells", "4by4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "4x4" in done.stderr and len(done.stderr.splitlines()) == 1


def test_more_cells_than_usual_compile_too() -> None:
    precompile._align((13,))
