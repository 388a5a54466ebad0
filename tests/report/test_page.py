"""Pages: tables point out the best of each column, and text is escaped."""

from __future__ import annotations

from dreamwarp.report.page import Page


def test_tables_point_out_the_best_of_each_column(tmp_path):
    page = Page("errors")
    page.table(("who", "a", "b"), [("one", "1 %", "4 %"), ("two", "2 %", "3 %")], best=(0, 1))
    page.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<tr><td>one</td><td class=best>1 %</td><td>4 %</td></tr>" in text
    assert "<tr><td>two</td><td>2 %</td><td class=best>3 %</td></tr>" in text


def test_tables_need_not_point_out_anything(tmp_path):
    page = Page("a < b")
    page.table(("who", "a"), [("<one>", "1 %")])
    page.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<td>&lt;one&gt;</td><td>1 %</td>" in text
    assert "a &lt; b" in text
