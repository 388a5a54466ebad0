"""``dreamwarp explore``: what it says before it serves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp.commands import explore
from tests.commands.running import run
from tests.conftest import SOURCE
from tests.explore.cases import scene
from tests.report import cases as report_cases

pytest.importorskip("fastapi")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    subject = scene().kind.subject
    subject.model.save("m.dwm")
    np.savez("d.npz", X=subject.X, y=subject.source.data.y)
    np.savez("flat.npz", X=subject.X.reshape(len(subject.X), -1), y=subject.source.data.y)
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent differently")
def test_the_page_is_served_until_interrupted(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dreamwarp", "explore", "m.dwm", "d.npz", "--port", "0"],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "DISPLAY": "", "WAYLAND_DISPLAY": ""},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        lines = [process.stdout.readline(), process.stdout.readline()]  # type: ignore[union-attr]
        assert "30 samples of 28 x 28" in lines[0]
        address = lines[1].split()[4]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert b"<title>dreamwarp" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.stdout.close()  # type: ignore[union-attr]


def test_a_port_in_use_is_said_to_be(folder: Path, capsys: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run("explore", "m.dwm", "d.npz", "--port", str(port), "--no-browser") == 1
    assert f"port {port} is in use" in capsys.readouterr().err


def test_what_does_not_go_together_is_refused(folder: Path, capsys: Any) -> None:
    assert run("explore", "m.dwm", "flat.npz", "--port", "0") == 1
    assert "with 2 spatial axes" in capsys.readouterr().err
    report_cases.model(3).save("v.dwm")
    assert run("explore", "v.dwm", "d.npz", "--port", "0") == 1
    assert "with 3 spatial axes" in capsys.readouterr().err


def test_serving_to_others_warns(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    from dreamwarp.explore.server import Serving

    opened = []
    monkeypatch.setattr(Serving, "run", lambda self: self.socket.close())
    monkeypatch.setattr(explore, "has_display", lambda: True)
    monkeypatch.setattr(explore.webbrowser, "open", opened.append)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # shown, as commands show them
        assert (
            run("explore", "m.dwm", "d.npz", "--port", "0", "--host", "0.0.0.0", "--no-browser")
            == 130
        )
    shown = capsys.readouterr()
    assert "other machines can reach it" in shown.err and "?token=" in shown.out
    assert opened == []
    assert run("explore", "m.dwm", "d.npz", "--port", "0") == 130
    assert len(opened) == 1 and "token" not in opened[0]


def test_missing_parts_are_named(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "dreamwarp.explore.server", None)
    assert run("explore", "m.dwm", "d.npz") == 1
    assert "pip install dreamwarp[explore]" in capsys.readouterr().err
