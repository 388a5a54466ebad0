"""Self-contained HTML pages: text, tables, pictures and animations in one file.

Pages need no network and no script. They follow the reader's light or dark mode, fit phones and
paper, and are accessible: every picture has an alternative text.
"""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from dreamwarp.core.files import write_beside

# Pixels per inch of pictures: sharp on high-resolution screens.
DPI = 170
# CSS pixels per inch of a figure; a CSS inch has 96.
UNITS_PER_INCH = 100
# Place of the table of contents. Text can't contain it: it is escaped.
CONTENTS = "<contents>"


class Page:
    """A page, built from top to bottom."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>"]
        self._sections: list[str] = []

    def contents(self) -> None:
        """Add a table of contents, of all sections of the page."""
        self._parts.append(CONTENTS)

    def heading(self, text: str) -> None:
        """Start a section."""
        self._sections.append(text)
        name = f"section-{len(self._sections)}"
        self._parts.append(f'<h2 id="{name}">{html.escape(text)}</h2>')

    def subheading(self, text: str) -> None:
        """Start a subsection."""
        self._parts.append(f"<h3>{html.escape(text)}</h3>")

    def text(self, words: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{html.escape(words)}</p>")

    def note(self, words: str, kind: Literal["", "good", "warning"] = "") -> None:
        """Add a highlighted paragraph."""
        name = f"note {kind}".strip()
        self._parts.append(f'<div class="{name}"><p>{html.escape(words)}</p></div>')

    def code(self, text: str) -> None:
        """Add lines of code."""
        self._parts.append(f"<pre><code>{html.escape(text)}</code></pre>")

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Add a row of numbers with descriptions."""
        listed = "".join(
            f"<li><b>{html.escape(number)}</b><span>{html.escape(words)}</span></li>"
            for number, words in facts
        )
        self._parts.append(f'<ul class="facts">{listed}</ul>')

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, best: Sequence[int] = ()
    ) -> None:
        """Add a table; ``best`` are rows to highlight, one for each of the last columns."""
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
        self._parts.append('<div class="table" tabindex="0" role="group" aria-label="Table">')
        self._parts.append(f"<table><tr>{head}</tr>")
        pointed_out: list[int | None] = [None] * (len(columns) - len(best)) + list(best)
        for number, row in enumerate(rows):
            cells = "".join(
                f"<td{' class=best' if number == chosen else ''}>{html.escape(cell)}</td>"
                for cell, chosen in zip(row, pointed_out, strict=True)
            )
            self._parts.append(f"<tr>{cells}</tr>")
        self._parts.append("</table></div>")

    def figure(
        self, figure: Figure, caption: str, *, alternative: str = "", is_photo: bool = False
    ) -> None:
        """Add a picture; its alternative text is by default the caption.

        ``is_photo``: keep the colours on a dark page, rather than invert them.
        """
        words = html.escape(alternative or caption, quote=True)
        width, height = (round(UNITS_PER_INCH * size) for size in figure.get_size_inches())
        name = "photo" if is_photo else "drawing"
        self._parts.append(
            f'<figure class="{"wide" if width > 480 else ""}">'
            '<div class="scroll" tabindex="0" role="group" aria-label="Figure">'
            f'<img class="{name}" width="{width}" height="{height}" '
            f'src="{encode_figure(figure)}" alt="{words}"></div>'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )

    def moving(
        self,
        pictures: Sequence[tuple[NDArray[np.uint8], str]],
        *,
        is_photo: bool = False,
        units: float = 0.8,
    ) -> None:
        """Add animations side by side, and a checkbox that pauses them; once per page.

        Each is of frames (n, rows, columns, 3) and a caption. Frames are played back and forth,
        with ``units`` CSS pixels per pixel.
        """
        self._parts.append(
            '<p><label class="pause"><input type="checkbox" id="pause">Pause animations</label></p>'
            '<div class="moving">'
        )
        for frames, caption in pictures:
            # A sprite: all frames stacked in one picture, one visible at a time.
            n, rows, columns, _ = frames.shape
            picture = io.BytesIO()
            stacked = Image.fromarray(frames.reshape(n * rows, columns, 3))
            stacked.save(picture, format="webp", quality=82, method=3)  # no visible loss
            words = html.escape(caption, quote=True)
            name = "photo" if is_photo else "drawing"
            # Start at the middle frame, which is unwarped: the one shown when paused.
            style = (
                f"max-width:{units * columns:.0f}px;aspect-ratio:{columns}/{rows};"
                f"background-size:100% {100 * n}%;"
                f"background-position:0 {100 * (n // 2) / (n - 1):.3f}%;"
                f"animation-timing-function:steps({n - 1});"
                f"background-image:url({data_address(picture)})"
            )
            self._parts.append(
                f'<figure><div class="sprite {name}" role="img" aria-label="{words}" '
                f'style="{style}"></div><figcaption>{html.escape(caption)}</figcaption></figure>'
            )
        self._parts.append("</div>")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page atomically."""
        target = check_page_path(path)
        with write_beside(target) as temporary:
            temporary.write_text(self.render(), encoding="utf-8")
        return target

    def render(self) -> str:
        """Render the page as HTML."""
        items = "".join(
            f'<li><a href="#section-{number}">{html.escape(text)}</a></li>'
            for number, text in enumerate(self._sections, 1)
        )
        contents = f'<nav class="contents" aria-label="Contents"><ol>{items}</ol></nav>'
        body = "\n".join(self._parts).replace(CONTENTS, contents)
        files = resources.files("dreamwarp.report")
        frame, style = (
            files.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css")
        )
        return Template(frame).substitute(title=html.escape(self.title), style=style, body=body)


def encode_figure(figure: Figure, dpi: int = DPI) -> str:
    """Encode a figure as lossless WebP, in an address that holds it."""
    picture = io.BytesIO()
    options: Any = {"lossless": True, "method": 4}
    figure.savefig(picture, format="webp", dpi=dpi, pil_kwargs=options)
    return data_address(picture)


def data_address(picture: io.BytesIO) -> str:
    """The address of a WebP picture that holds it."""
    return f"data:image/webp;base64,{base64.b64encode(picture.getvalue()).decode('ascii')}"


def check_page_path(path: str | os.PathLike[str]) -> Path:
    """Return ``path``, or raise if it does not end in .html."""
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"`{target}` must end in .html: the output is an HTML page.")
    return target
