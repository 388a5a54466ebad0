"""Self-contained HTML pages: text, tables and pictures in one file."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from dreamwarp.core.files import write_beside

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #22283a; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; }
h1, h2 { line-height: 1.2; font-weight: 600; }
h2 { margin-top: 2.5rem; }
img { max-width: 100%; }
figcaption, .faint { color: #667; }
figure { margin: 1rem 0; }
table { border-collapse: collapse; }
th, td { padding: 0.3rem 0.9rem; text-align: right; border-bottom: 1px solid #d5d9e0; }
th:first-child, td:first-child { text-align: left; }
td.best { font-weight: 600; }
"""


class Page:
    """A page that grows from top to bottom.

    Parameters
    ----------
    title : str
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>"]

    def heading(self, text: str) -> None:
        """Start a section."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, words: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{html.escape(words)}</p>")

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, best: Sequence[int] = ()
    ) -> None:
        """Add a table; ``best`` are rows to point out, one for each of the last columns."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        self._parts.append(f"<table><tr>{head}</tr>")
        pointed_out: list[int | None] = [None] * (len(columns) - len(best)) + list(best)
        for number, row in enumerate(rows):
            cells = "".join(
                f"<td{' class=best' if number == chosen else ''}>{html.escape(cell)}</td>"
                for cell, chosen in zip(row, pointed_out, strict=True)
            )
            self._parts.append(f"<tr>{cells}</tr>")
        self._parts.append("</table>")

    def figure(self, figure: Figure, caption: str) -> None:
        """Add a picture."""
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=110)
        data = base64.b64encode(picture.getvalue()).decode("ascii")
        alternative, words = html.escape(caption, quote=True), html.escape(caption)
        self._parts.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{alternative}">'
            f"<figcaption>{words}</figcaption></figure>"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page whole or not at all."""
        target = check_page_path(path)
        body = "\n".join(self._parts)
        document = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{html.escape(self.title)}</title>\n<style>{STYLE}</style></head>\n"
            f"<body>\n{body}\n</body></html>\n"
        )
        with write_beside(target) as temporary:
            temporary.write_text(document, encoding="utf-8")
        return target


def check_page_path(path: str | os.PathLike[str]) -> Path:
    """``path``, if a page can have that name."""
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"`{target}` must end in .html: what is written is a page for a browser.")
    return target
