"""The report tells its story in one file that needs nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp.model import WarpModel
from dreamwarp.report import story
from dreamwarp.report.outliers import Outlier
from dreamwarp.report.page import Page
from dreamwarp.report.subject import Subject
from tests.report import cases

SECTIONS = [
    "The data", "New samples", "What was learned, class by class", "How well pairs aligned",
    "How strong, and does it help?", "Warnings", "What to try next",
]  # fmt: skip


class Reader(HTMLParser):
    """Headings, pictures and addresses of a page; and whether its tags close."""

    VOID = ("meta", "link", "img", "input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.pictures: list[dict[str, Any]] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        found = dict(attributes)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "img" or found.get("role") == "img":
            self.pictures.append(found)
        self.ids += [found["id"]] if "id" in found else []
        self.addresses += [found[name] for name in ("src", "href") if name in found]
        self.addresses += re.findall(r"url\(([^)]*)\)", found.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(text)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_the_report_is_whole(tmp_path: Path, ndim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "N_FRAMES", 3)
    path = story.write_report(cases.study(ndim), tmp_path / "report.html", data_name="my <data>")
    text = path.read_text()
    reader = Reader()
    reader.feed(text)
    assert reader.open == [] and reader.headings == SECTIONS
    assert all(p.get("alt") or p.get("aria-label") for p in reader.pictures)
    assert len(reader.pictures) >= 8
    assert all(a.startswith(("data:", "#")) for a in reader.addresses)
    assert {a[1:] for a in reader.addresses if a.startswith("#")} <= set(reader.ids)
    assert len(set(reader.ids)) == len(reader.ids)
    assert "<script" not in text and "http://" not in text and "https://" not in text
    assert "<h1>What dreamwarp learned from my &lt;data&gt;</h1>" in text
    assert "It helps." in text and len(text) < 5e6


def test_only_pages_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.html"):
        story.write_report(cases.study(2), tmp_path / "report.pdf")


def test_a_sound_study_has_no_warnings() -> None:
    study = cases.study(2, loss_after=np.full(14, 10.0))
    assert list(story.find_warnings(study, [])) == []


def test_what_is_wrong_is_said() -> None:
    prior = cases.SmoothPrior(cases.SPACES[2])
    few = {"left": prior.sample(40, 1), "right": prior.sample(6, 2), "up": prior.sample(2, 3)}
    with pytest.warns(RuntimeWarning, match="up"):
        model = WarpModel.fit(cases.SPACES[2], few, shrinkage=0.1, pooling=0.2)
    study = cases.study(
        2, loss_after=np.full(14, 36.0), converged=np.zeros(14, bool),
        usable=np.array([False] + 13 * [True]),
    )  # fmt: skip
    study.subject.source.model = model
    outliers = [Outlier(3, 5.0, 1, 5), Outlier(4, 5.0, None, 2)]
    found = "\n".join(story.find_warnings(study, outliers))
    for words in (
        "1 class has too few pairs and got the warps of all classes: up",
        "1 class has fewer than 30 pairs: right",
        "In 2 classes most pairs keep over 60% of their difference: left, right",
        "14 of 14 alignments did not converge",
        "1 of 14 pairs could not be aligned",
        "1 sample looks like another class",
        "1 sample is an outlier",
        "The data has 2 of the model's 3 classes",
    ):
        assert words in found
    assert "Check the labels" in found and "finer --cells, such as 4x3," in found
    assert "or fit with more --neighbors" in found
    # Empirical Bayes takes random pairs, not neighbours.
    study.subject.source.model = model.with_settings(method="eb")
    assert "--neighbors" not in "\n".join(story.find_warnings(study, outliers))


@pytest.mark.parametrize(("ndim", "cells"), [(1, "6"), (3, "3x3x3")])
def test_advice_has_the_dimension_of_the_data(ndim: int, cells: str) -> None:
    study = cases.study(ndim, loss_after=np.full(14, 36.0))
    assert f"such as {cells}," in "\n".join(story.find_warnings(study, []))


def test_nothing_to_gain_is_neither_success_nor_warning() -> None:
    """Even if warps are used; and other classifiers may gain."""
    verdict = replace(cases.judgement().verdict, error_without=0.0, message="nothing to gain.")
    judged = replace(cases.judgement(), verdict=verdict)
    study = cases.study(2, loss_after=np.full(14, 10.0))
    study.subject.source.model = study.model.with_settings(judgement=judged.to_text())
    assert list(story.find_warnings(study, [])) == []
    (advice,) = story.give_advice(study)
    assert advice.startswith("Try your own classifier")
    page = Page("x")
    story.add_summary(page, study, 0)
    assert "note good" not in page.render()


def test_what_remains_of_differences_is_the_same_everywhere() -> None:
    before = np.linspace(1.0, 100.0, 14) ** 2
    study = cases.study(2, loss_before=before, loss_after=before * np.linspace(0.1, 0.9, 14) ** 2)
    page = Page("x")
    story.add_alignments(page, study)
    share = f"{study.alignments.median_left_over:.0%}"
    assert share == "25%" and "54%" not in page.render()  # the share of the sums
    assert f"<b>{share}</b><span>of the difference remaining, median" in page.render()
    assert f"{share}, median pair" in study.alignments._repr_html_()


def test_a_strength_that_was_changed_is_not_called_chosen() -> None:
    study = cases.study(2)
    for strength, words in ((0.8, "0.8, chosen for"), (2.0, "2, set after the fit")):
        study.subject.source.model = study.model.with_strength(strength)
        page = Page("x")
        story.add_strength(page, study)
        assert f"strength of the model is {words}" in page.render()


def test_classes_are_counted_in_all_of_the_data() -> None:
    """Also if a study is of too few samples to have every class."""
    study = cases.study(2)
    X, y = cases.data(2)
    few = replace(study, subject=Subject.of(study.model, (X[-3:], y[-3:])))
    assert story._class_row(few, 0)[:2] == ["right", "8"]


def test_odd_samples_are_shown_with_their_neighbours() -> None:
    figure = story.draw_outliers(cases.study(2), [Outlier(3, 5.04, 1, 4)])
    assert len(figure.axes[0].images) == 3  # itself, and both neighbours
    words = "\n".join(text.get_text() for text in figure.axes[0].texts)
    assert "5.0 standard deviations above its class" in words
    assert "4 of 5 nearest samples: right" in words
