"""Settings that all tests share."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest

SOURCE = Path(__file__).parents[1] / "src"

# The same examples in every run, so that a failure is one everybody sees. No deadline: the first
# example of a test may compile kernels.
hypothesis.settings.register_profile(
    "dreamwarp", deadline=None, derandomize=True, max_examples=25, print_blob=True
)
hypothesis.settings.load_profile("dreamwarp")


class _TorchvisionOperators(MetaPathFinder):
    """Declares torchvision's operators on its first import, where its compiled part can't.

    torchvision refuses to be imported unless ``torchvision::nms`` and ``torchvision::qnms`` are
    declared. Its compiled part does that, but loads only with the torch build it was made for: a
    wheel from PyPI does not load with a CPU-only torch. What dreamwarp uses of torchvision needs
    no operator, so here a declaration is enough.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.submodule_search_locations:
                _declare_operators(Path(spec.submodule_search_locations[0]))
        return None


def _declare_operators(torchvision: Path) -> None:
    import torch

    try:
        for library in torchvision.glob("_C*.so"):
            torch.ops.load_library(library)
    except OSError:
        boxes = "Tensor dets, Tensor scores, float iou_threshold"
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", f"({boxes}) -> Tensor")


sys.meta_path.insert(0, _TorchvisionOperators())


@pytest.fixture(autouse=True)
def _no_word_of_progress(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What tests write depends neither on the machine's speed nor on what was compiled before."""
    from dreamwarp.core import progress

    monkeypatch.setattr(progress, "LOG_PATIENCE_SECONDS", math.inf)
    with progress.silenced():
        yield


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run_python("-c", code, source=..., NAME=value)``: a new process that finds dreamwarp."""

    def run(
        *arguments: str, source: Path = SOURCE, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            env={**os.environ, "PYTHONPATH": str(source), **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run
