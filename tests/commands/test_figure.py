"""``dreamwarp figure`` and ``dreamwarp report``: what they write, and what they say."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp.report import catalog, story, study
from tests.commands.running import run
from tests.report import cases


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model and its data, and no alignment to wait for."""
    monkeypatch.chdir(tmp_path)
    cases.model(2).save("m.dwm")
    X, y = cases.data(2)
    np.savez("d.npz", X=X, y=y)
    np.savez("other.npz", X=X, y=np.repeat("up", len(y)))

    def made(*arguments: Any, **options: Any) -> Any:
        return cases.study(2)

    monkeypatch.setattr(catalog, "make_study", made)
    monkeypatch.setattr(study, "make_study", made)
    monkeypatch.setattr(story, "N_FRAMES", 3)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "output", "start"),
    [
        ("samples", "a.png", b"\x89PNG"),
        ("alignments", "new/a.svg", b"<?xml"),
        ("strength", "a.pdf", b"%PDF"),
        ("components", "a.gif", b"GIF89a"),
    ],
)
def test_figures_are_written(
    folder: Path, capsys: Any, name: str, output: str, start: bytes
) -> None:
    assert run("figure", name, "m.dwm", "d.npz", "-o", output, "--label", "left") == 0
    assert Path(output).read_bytes().startswith(start)
    assert capsys.readouterr().out == f"figure written to {output}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nothing", "m.dwm", "d.npz", "-o", "a.png"), 2, "'nothing' is not one of 'samples'"),
        (("samples", "m.dwm", "d.npz", "-o", "a.gif"), 1, "components can be animated"),
        (("samples", "m.dwm", "other.npz", "-o", "a.png"), 1, "must have every class"),
        (("samples", "no.dwm", "d.npz", "-o", "a.png"), 1, "`no.dwm` does not exist"),
        (("samples", "m.dwm", "d.npz", "-o", "d.npz"), 1, "must end in one of .pdf"),
        (("samples", "m.dwm", "d.npz", "-o", "a.png", "--label", "up"), 1, "`--label` must be"),
        (("components", "m.dwm", "d.npz", "-o", "a.png", "--component", "99"), 1,
         "`--component` must be from 1"),
    ],
)  # fmt: skip
def test_what_cant_be_drawn(
    folder: Path, capsys: Any, arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert run("figure", *arguments) == code
    shown = capsys.readouterr().err
    assert words in shown and shown.count("\n") == 1
    assert not Path("a.png").exists()


def test_files_are_not_replaced_unasked(folder: Path, capsys: Any) -> None:
    Path("a.png").write_text("mine")
    assert run("figure", "spectrum", "m.dwm", "d.npz", "-o", "a.png") == 1
    assert "`a.png` exists" in capsys.readouterr().err
    assert run("figure", "spectrum", "m.dwm", "d.npz", "-o", "a.png", "--overwrite") == 0
    assert Path("a.png").stat().st_size > 1000


def test_commands_of_a_report_run_as_printed(folder: Path, capsys: Any) -> None:
    X, y = cases.data(2)
    np.savez("my data.npz", pics=X.reshape(len(X), -1), who=y)
    reading = ["--fields", "pics,who", "--shape", "12x16"]
    assert run("report", "m.dwm", "my data.npz", "-o", "r.html", *reading) == 0
    (code,) = re.findall("<pre><code>(.*?)</code>", Path("r.html").read_text(), re.S)
    explore, *others = (shlex.split(line)[1:] for line in html.unescape(code).splitlines())
    assert explore == ["explore", "m.dwm", "my data.npz", *reading]
    assert [words[0] for words in others] == ["sample", "figure"]
    for words in others:
        assert run(*words) == 0, capsys.readouterr().err
    assert Path("class.gif").is_file()
    # As many as the verdict was about: 24 copies of 16 samples.
    assert "384 samples in more" in capsys.readouterr().out


def test_reports_are_written(folder: Path, capsys: Any) -> None:
    assert run("report", "m.dwm", "d.npz", "-o", "out/report.html") == 0
    assert capsys.readouterr().out == "it helps.\nreport written to out/report.html\n"
    text = Path("out/report.html").read_text()
    assert "dreamwarp explore m.dwm d.npz" in text
    assert run("report", "m.dwm", "d.npz", "-o", "report.txt") == 1
    assert "must end in .html" in capsys.readouterr().err
