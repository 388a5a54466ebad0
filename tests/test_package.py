"""What importing the package does, and what the project's files promise."""

from __future__ import annotations

import re
import shutil
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest

import dreamwarp

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))

PACKAGES = [
    "dreamwarp",
    *(f"dreamwarp.{name}" for name in ("align", "augment", "data", "generation", "model")),
    "dreamwarp.report",
    "dreamwarp.space",
    "dreamwarp.torch",
    "dreamwarp.torchvision",
]

# What a new process may use before its first result, in seconds of processor time: several times
# what it takes, so that a slow machine passes and an eager compilation does not.
IMPORT_SECONDS = 5.0
FIRST_IMAGE_SECONDS = 8.0


def files_under(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def copied_source(tmp_path: Path) -> Path:
    """The package alone in a folder, without compiled code."""
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(dreamwarp.__file__).parent, source / "dreamwarp", ignore=ignored)
    return source


def test_public_names_exist() -> None:
    for name in dreamwarp.__all__:
        assert getattr(dreamwarp, name) is not None


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_shows_public_names_and_no_others(name: str) -> None:
    if "torch" in name:
        pytest.importorskip(name.partition(".")[2])
    module = import_module(name)
    shown = {shown for shown in dir(module) if not re.fullmatch(r"__\w+__", shown)}
    more = {"align", "augment", "generation", "model", "report", "space", "torch", "torchvision"}
    expected = {*module.__all__} | (more if module is dreamwarp else set())
    assert shown == expected - {"__version__"}
    assert {"__all__", "__doc__", "__name__"} <= set(dir(module))
    assert all(getattr(module, name) is not None for name in shown)


def test_listing_names_loads_nothing(run_python: Any) -> None:
    code = (
        "import sys, dreamwarp; names = dir(dreamwarp);"
        "print({'Augmenter', 'generate', 'torch'} <= set(names));"
        "print(*{'torch', 'sklearn', 'matplotlib'} & set(sys.modules))"
    )
    done = run_python("-c", code)
    assert (done.stdout, done.stderr) == ("True\n\n", "")


def test_submodules_are_reached_by_name_or_said_to_be_missing(run_python: Any) -> None:
    pytest.importorskip("torch")
    code = "import dreamwarp; print(dreamwarp.torch.LearnedWarp.__name__, dreamwarp.model.__name__)"
    assert run_python("-c", code).stdout == "LearnedWarp dreamwarp.model\n"
    code = (
        "import sys; sys.modules['torch'] = None; import dreamwarp;"
        "print(hasattr(dreamwarp, 'torch'), hasattr(dreamwarp, 'tensorflow')); dreamwarp.torch"
    )
    done = run_python("-c", code)
    assert done.stdout == "False False\n"
    message = r"AttributeError: `dreamwarp.torch` can't.*`pip install dreamwarp\[torch\]`"
    assert re.search(message, done.stderr)


def test_version_is_that_of_the_installed_package() -> None:
    try:
        installed = metadata.version("dreamwarp")
    except metadata.PackageNotFoundError:
        pytest.skip("dreamwarp is on the path, but not installed")
    assert dreamwarp.__version__ == installed


def test_import_is_quick_and_loads_nothing_heavy(run_python: Any) -> None:
    code = (
        "import sys, time; start = time.process_time(); import dreamwarp;"
        "print(time.process_time() - start);"
        "print(*{'torch', 'matplotlib', 'sklearn', 'typer'} & set(sys.modules))"
    )
    seconds, loaded = run_python("-c", code).stdout.splitlines()
    assert loaded == ""
    assert float(seconds) < IMPORT_SECONDS


def test_import_writes_no_file(run_python: Any, tmp_path: Path, copied_source: Path) -> None:
    before = files_under(tmp_path)
    home = str(tmp_path / "home")
    done = run_python(
        "-B", "-c", "import dreamwarp", source=copied_source, HOME=home, XDG_CACHE_HOME=home
    )
    assert done.returncode == 0, done.stderr
    assert files_under(tmp_path) == before


def test_works_where_compiled_code_cant_be_kept(run_python: Any, copied_source: Path) -> None:
    # A file where numba wants a folder stops even an administrator from writing there.
    for folder in {path.parent for path in copied_source.rglob("*.py")}:
        (folder / "__pycache__").touch()
    nowhere = "/dev/null/nowhere"
    code = (
        "import numpy, dreamwarp; space = dreamwarp.WarpSpace((2,), boundary='free');"
        "theta = space.theta_from_vertices(numpy.ones((3, 1)));"
        "print(space.velocity(theta, [[0.3]]).round(9))"
    )
    done = run_python(
        "-c", code, source=copied_source,
        HOME=nowhere, NUMBA_CACHE_DIR=nowhere, XDG_CACHE_HOME=nowhere,
    )  # fmt: skip
    assert done.stdout == "[[1.]]\n"
    told = "compiling (about a minute; set NUMBA_CACHE_DIR to keep"
    assert all(told in line for line in done.stderr.splitlines())  # if it takes long


def test_a_new_process_soon_warps_its_first_image(run_python: Any) -> None:
    code = (
        "import time, numpy, dreamwarp; space = dreamwarp.WarpSpace((4, 4));"
        "dreamwarp.Warp(space, numpy.full(space.dim, 0.01)).image(numpy.ones((28, 28)));"
        "print(time.process_time())"
    )
    run_python("-c", code)  # compiles, if that is still to do
    assert float(run_python("-c", code).stdout) < FIRST_IMAGE_SECONDS


def test_every_dependency_has_an_exact_version() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    needed = {name_of(line) for group in (project["dependencies"], *extras) for line in group}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {name_of(line) for line in lines if "==" in line}
    assert needed - pinned == {"dreamwarp"}


def name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def test_the_readme_opens_with_commands_that_exist() -> None:
    commands = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert commands is not None
    targets = re.findall(r"^make (\w+)", commands[1], re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_code_of_the_pages_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the README and then, as it says, that of the guide; on fewer digits."""
    pytest.importorskip("torch")
    whole = dreamwarp.data.mnist_small()
    few = dreamwarp.data.DataSet("few", whole.X[::10], whole.y[::10], whole.test)
    monkeypatch.setattr(dreamwarp.data, "mnist_small", lambda: few)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for page in ("README.md", "docs/guide.md"):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
        assert blocks
        for block in blocks:
            exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in DOCS)])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!http)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (folder / link).exists()] == []


def test_the_readme_is_short() -> None:
    """One to two screens."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110
