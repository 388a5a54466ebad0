"""Options that several commands share, and messages in the command line's words."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import typer

from dreamwarp import WarpSpace, align_pairs
from dreamwarp.cli import app
from dreamwarp.commands.options import SPELLINGS, translate

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def options_of(command: str) -> dict[str, Any]:
    return {name: option for option in COMMANDS[command].params for name in option.opts}


def test_fit_has_what_align_has_in_the_same_words() -> None:
    align, fit = options_of("align"), options_of("fit")
    about_the_pair = {"source", "target", "--theta", "--method"}  # fit has one method more
    for name in align.keys() - about_the_pair - {"--output", "-o"}:
        assert fit[name].help.startswith(align[name].help), name  # fit may say what auto does
        if name not in ("--cells", "--displacement"):  # fit sees by the data what suits it
            assert fit[name].default == align[name].default, name


def test_files_are_replaced_by_one_word() -> None:
    for command in ("align", "fit", "infimnist"):
        assert "--overwrite" in options_of(command)
    assert not any({"--force", "--replace"} & options_of(command).keys() for command in COMMANDS)


def test_messages_name_options_that_exist() -> None:
    known = set().union(*(options_of(command) for command in COMMANDS))
    assert {name for name in SPELLINGS.values() if name.startswith("--")} <= known


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("3 of 9\n have not converged: see `converged` of the result. A larger `max_steps` helps.",
         "3 of 9 have not converged. A larger `--max-steps` helps."),
        ("strength 0 is chosen: see `verdict_`. Give `strength` a number.",
         "strength 0 is chosen. Give `--strength` a number."),
        ("`X` has few samples. Use larger `n_neighbors`.",
         "`DATA` has few samples. Use larger `--neighbors`."),
        ("2 classes have no more than n_neighbors=5 samples.",
         "2 classes have no more than --neighbors 5 samples."),
        ("`a.png` is a folder.", "`a.png` is a folder."),
    ],
)  # fmt: skip
def test_messages_in_the_words_of_the_command_line(message: str, expected: str) -> None:
    assert translate(message) == expected


def test_what_is_said_of_alignments_makes_sense_here() -> None:
    samples = np.random.default_rng(0).random((2, 1, 12, 12))
    with pytest.warns(RuntimeWarning, match="have not converged") as found:
        align_pairs(WarpSpace((2, 2)), *samples, sigma=1e-3, max_steps=1, progress=False)
    for warning in found:
        words = translate(str(warning.message))
        assert "of the result" not in words
        for name in re.findall(r"`([^`]+)`", words):
            assert name in options_of("fit") and name in options_of("align")


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_the_help_can_be_given(command: str) -> None:
    """Every example is parsed by the command it is for; nothing is run."""
    examples = re.findall(rf"^dreamwarp {command}\b.*$", COMMANDS[command].help, re.M)
    assert examples
    for example in examples:
        COMMANDS[command].make_context(command, example.split()[2:])
