"""The demo: what it compares, what it claims, what it writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dreamwarp
from dreamwarp import cli
from dreamwarp.commands import contest
from dreamwarp.commands.contest import NEIGHBOR, NETWORK, Outcome, Sizes
from dreamwarp.data import DataSet, Labeled
from tests.commands.running import run

SMALL = Sizes(
    n_new=400, n_updates=60, n_new_tuning=200, n_updates_tuning=20,
    elastic=((4.0, 0.7), (4.0, 3.0)),
)  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """A demo on fewer digits and with little training."""
    whole = dreamwarp.data.mnist_small()
    chosen = np.concatenate([np.flatnonzero(whole.y == label)[:12] for label in range(3)])
    few = Labeled(whole.X_test[:150], whole.y_test[:150])
    test = Labeled(*(values[few.y < 3] for values in few))
    data = DataSet("few", whole.X[chosen], whole.y[chosen], test)
    monkeypatch.setattr(contest, "mnist_small", lambda: data)
    monkeypatch.setattr(contest, "Sizes", lambda: SMALL)
    return data


@pytest.mark.filterwarnings("ignore:on held-out samples:RuntimeWarning")
def test_it_learns_and_writes_a_page(small: DataSet, capsys: Any, tmp_path: Path) -> None:
    page, picture = tmp_path / "out" / "demo.html", tmp_path / "digits.png"
    assert run("demo", "--output", str(page), "--picture", str(picture)) == 0
    words = capsys.readouterr().out
    assert re.search(rf"36 MNIST digits to learn from, {len(small.X_test)} to test on", words)
    rows = re.findall(r"^(?:training|and) .*?([\d.]+) % +([\d.]+) %$", words, re.M)
    assert len(rows) == 3
    model = page.with_suffix(".dwm")
    assert f"the report is {page}\n" in words
    assert words.endswith(f"dreamwarp explore {model} mnist-small\n")
    written = page.read_text()
    assert '<h2 id="section-1">Do new digits help?</h2>' in written
    assert "What was learned, class by class" in written
    assert "http://" not in written and "https://" not in written
    for error in (error for row in rows for error in row):  # what is printed is what is claimed
        assert f"{error} %" in written
    assert sorted(path.name for path in page.parent.iterdir()) == ["demo.dwm", "demo.html"]
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")


def test_interruption_is_code_130_and_leaves_nothing(
    small: DataSet, capsys: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(contest, "learn", interrupted)
    assert run("demo", "--output", str(tmp_path / "demo.html")) == cli.INTERRUPTED
    assert capsys.readouterr().err == "dreamwarp: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_a_picture_of_no_known_kind_is_refused_before_any_work(capsys: Any, tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    assert run("demo", "--output", str(page), "--picture", str(tmp_path / "digits.doc")) == 1
    assert "must end in one of" in capsys.readouterr().err


# -- what may be claimed


def outcome(n: int, none: int, elastic: int, learned: int) -> Outcome:
    """Errors on the first few of n test digits."""
    counts = {contest.NONE: none, contest.ELASTIC: elastic, contest.LEARNED: learned}
    return Outcome({kind: {NEIGHBOR: np.arange(n) < n_} for kind, n_ in counts.items()}, {}, SMALL)


@pytest.mark.parametrize(
    ("elastic", "learned", "words"),
    [(80, 50, "clearly better"), (50, 80, "clearly worse"), (52, 50, "no clear difference")],
)
def test_the_claim_follows_from_the_mistakes(elastic: int, learned: int, words: str) -> None:
    said = contest.claim(outcome(1000, 110, elastic, learned), NEIGHBOR)
    assert words in said
    assert f"from 11.00 % to {learned / 10:.2f} %" in said


def test_the_standard_error_is_that_of_paired_differences() -> None:
    random = np.random.default_rng(0)
    theirs, ours = random.uniform(size=(2, 400)) < 0.1
    gain, spread = contest.mean_gain(theirs, ours)
    draws = random.integers(0, 400, (4000, 400))  # bootstrap
    means = 100.0 * (theirs[draws].mean(axis=1) - ours[draws].mean(axis=1))
    assert gain == pytest.approx(100.0 * (theirs.mean() - ours.mean()))
    assert spread == pytest.approx(means.std(), rel=0.1)


def test_digits_are_held_out_by_class() -> None:
    y = np.repeat([0, 1, 2], [8, 12, 4])
    digits = Labeled(np.arange(24, dtype=np.float32)[:, None, None], y)
    kept, held_out = contest.hold_out(digits, 0.25, seed=0)
    assert np.bincount(held_out.y).tolist() == [2, 3, 1]
    assert sorted([*kept.X.ravel(), *held_out.X.ravel()]) == list(range(24))


def test_tuning_takes_the_setting_with_the_fewest_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {NEIGHBOR: (5, 2, 4), NETWORK: (3, 3, 1)}
    monkeypatch.setattr(
        contest,
        "_mistakes_of_all",
        lambda tasks, *more: [np.arange(6) < n for n in counts[tasks[0][0]]],
    )
    digits = Labeled(np.zeros((12, 28, 28), np.float32), np.arange(12) % 2)
    sizes = Sizes(n_new_tuning=20, elastic=((4.0, 0.7), (4.0, 1.0), (7.0, 0.7)))
    best = contest.tune_elastic(digits, sizes=sizes, seed=0)
    assert best == {NEIGHBOR: (4.0, 1.0), NETWORK: (7.0, 0.7)}


def test_saved_digits_are_saved_and_of_many_classes() -> None:
    y = np.repeat(np.arange(5), 20)
    none = np.zeros(100, bool)
    none[::2] = True
    learned = np.zeros(100, bool)
    learned[::4] = True
    mistakes = {contest.NONE: {NEIGHBOR: none}, contest.LEARNED: {NEIGHBOR: learned}}
    found = contest.find_saved(Outcome(mistakes, {}, SMALL), Labeled(np.zeros((100, 2, 2)), y), 5)
    assert (none[found] & ~learned[found]).all()
    assert y[found].tolist() == [0, 1, 2, 3, 4]
