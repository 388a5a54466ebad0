"""Fill the tables of the README and of the pages in docs. No figure is typed in by hand.

``python -m benchmarks.readme`` puts the results of the last full run between ``<!-- benchmark -->``
and ``<!-- /benchmark -->``; ``--beyond`` those of series, volumes and colour images, which may be
run one by one. Experiments fill their own parts with :func:`fill`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import QUESTIONS
from benchmarks.report import duration, is_busy, significant, with_range
from benchmarks.settings import RESULTS
from dreamwarp.core.files import write_beside

README = Path(__file__).parents[1] / "README.md"
# Benchmarks beyond small images, in a folder of their own: `python -m benchmarks NAME -o FOLDER`.
BEYOND, BEYOND_NAMES = RESULTS / "beyond", ("series", "volumes", "colour")
# Benchmarks whose times are shown one by one, and what they measure.
TASKS = {
    "flow2d": "28 x 28 points, (4, 4) cells",
    "flow1d": "1,000 points, 10 cells",
    "flow3d": "32 x 32 x 32 points, (2, 2, 2) cells",
    "images": "28 x 28 images",
    "align": "28 x 28 images",
    "training": "28 x 28 images, batches of 256",
}


def main(arguments: list[str] | None = None) -> int:
    """Fill the pages; 1 and a message if there is nothing to fill them from or no place for it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--readme", type=Path, default=README, metavar="FILE")
    parser.add_argument("--beyond", action="store_true", help="only series, volumes and colour")
    options = parser.parse_args(arguments)
    try:
        if options.beyond:
            fill(options.readme, "beyond", render_beyond(BEYOND))
            return 0
        fill(options.readme, "benchmark", render(load_results(options.results)))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def load_results(folder: Path) -> list[dict[str, Any]]:
    """Results of all benchmarks, in their order."""
    missing = [name for name in QUESTIONS if not (folder / f"{name}.json").exists()]
    if missing:
        raise ValueError(
            f"`{folder}` has no results of {', '.join(missing)}. Run `python -m benchmarks` first."
        )
    texts = [(folder / f"{name}.json").read_text(encoding="utf-8") for name in QUESTIONS]
    results = [json.loads(text) for text in texts]
    quick = [result["name"] for result in results if result["quick"]]
    if quick:
        raise ValueError(
            f"results of {', '.join(quick)} come from a quick run, whose figures mean nothing. "
            "Run `python -m benchmarks` without --quick."
        )
    runs = {(result["environment"]["started"], result["n_threads"]) for result in results}
    if len(runs) > 1:
        raise ValueError(
            f"results in `{folder}` must come from one run, got {len(runs)}. "
            "Run `python -m benchmarks` without names."
        )
    return results


def fill(readme: Path, name: str, text: str) -> None:
    """Put ``text`` between ``<!-- name -->`` and ``<!-- /name -->``, in the page that has them."""
    page, (head, _, tail) = find_part(readme, name)
    with write_beside(page) as temporary:
        temporary.write_text(
            f"{head}<!-- {name} -->\n{text}\n<!-- /{name} -->{tail}", encoding="utf-8"
        )


def find_part(readme: Path, name: str) -> tuple[Path, tuple[str, str, str]]:
    """The page with a part, the README or one in docs beside it; what is before, in and after."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pages = [readme, *sorted((readme.parent / "docs").glob("*.md"))]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    found = [page for page, text in texts.items() if begin in text or end in text]
    counts = [texts[page].count(mark) for page in found for mark in (begin, end)]
    if counts != [1, 1]:
        raise ValueError(
            f"`{readme}` or one page in docs beside it must have one {begin} and, after it, one "
            f"{end}."
        )
    head, rest = texts[found[0]].split(begin)
    inside, tail = rest.split(end)
    return found[0], (head, inside.strip("\n"), tail)


def render(results: list[dict[str, Any]]) -> str:
    """Markdown: each figure beside its target, times and errors of all contestants, the machine."""
    lines = ["| measured | figure (lowest–highest) | target |", "|---|---|---|"]
    for result in results:
        lines += [_target_row(target) for target in result["targets"]]
    lines += ["", "<details><summary>Times and errors of every contestant</summary>", ""]
    lines += ["| task | contestant | time | largest error |", "|---|---|---|---|"]
    for result in results:
        if result["name"] in TASKS:
            for group in result["groups"]:
                lines += _timing_rows(TASKS[result["name"]], group, result["errors"])
    notes = [_setting(results[0]), "All rounds, errors and settings are in `benchmarks/results`."]
    return "\n".join([*lines, "", "</details>", "", *notes])


def render_beyond(folder: Path) -> str:
    """Markdown: figures beside targets, costs by length, and errors, of what has been run."""
    files = [folder / f"{name}.json" for name in BEYOND_NAMES]
    results = [json.loads(f.read_text(encoding="utf-8")) for f in files if f.exists()]
    if not results:
        raise ValueError(
            f"`{folder}` has no results. Run `python -m benchmarks series -o {folder}`."
        )
    lines = ["| measured | figure (lowest–highest) | target |", "|---|---|---|"]
    for result in results:
        lines += [_target_row(target) for target in result["targets"]]
    for result in results:
        if result["curves"]:
            lines += ["", *_curve_rows(result["curves"])]
        lines += ["", *result["notes"]] if result["notes"] else []
    lines += ["", "| contestant | quantity | mean | largest |", "|---|---|--:|--:|"]
    for result in results:
        lines += [
            f"| {row['contestant']} | {row['setting']}, {row['quantity']} | "
            f"{significant(row['mean'])} | {significant(row['largest'])} |"
            for row in result["errors"]
        ]
    care = [f"{result['name']}: {_setting(result)}" for result in results]
    return "\n".join([*lines, "", *care])


def _curve_rows(curves: list[dict[str, Any]]) -> list[str]:
    """Costs by size, a column per contestant."""
    names = [curve["contestant"] for curve in curves]
    lines = [f"| {curves[0]['variable']} | {' | '.join(names)} |", "|--:|" + "--:|" * len(names)]
    for k, size in enumerate(curves[0]["sizes"]):
        seconds = [sorted(curve["timings"][k]["seconds"]) for curve in curves]
        cells = [duration(values[len(values) // 2]) for values in seconds]
        lines.append(f"| {size:,} | {' | '.join(cells)} |")
    return lines


def _target_row(target: dict[str, Any]) -> str:
    values = target["values"]
    figure = with_range(values, target["unit"]) if values else "not measured"
    sign = "≥" if target["at_least"] else "≤"
    bound = f"{sign} {target['bound']:g} {target['unit']}".strip()
    missed = " (missed)" if target["met"] is False else ""
    return f"| {target['claim']} | {figure}{missed} | {bound} |"


def _timing_rows(task: str, group: dict[str, Any], errors: list[dict[str, Any]]) -> list[str]:
    rows = []
    title = group["title"][0].lower() + group["title"][1:]
    for timing in group["timings"]:
        time = f"{duration(timing['median'])} / {group['item']}"
        error = _largest_error(group["title"], timing["name"], errors)
        rows.append(f"| {task}: {title} | {timing['name']} | {time} | {error} |")
    return rows


def _largest_error(title: str, contestant: str, errors: list[dict[str, Any]]) -> str:
    """Of the error row of just this task, or nothing: never that of a similar one."""
    found = [
        row
        for row in errors
        if title in (f"Flow, {row['setting']}", f"Flow and gradient of a scalar, {row['setting']}")
        and row["contestant"].startswith(contestant)
        and row["quantity"].startswith("gradient" if "gradient" in title else "distance")
    ]
    if not found:
        return ""
    unit = "of its length" if "gradient" in title else "px"
    failed = f", {found[0]['n_failed']} points failed" if found[0]["n_failed"] else ""
    return f"{significant(found[0]['largest'])} {unit}{failed}"


def _setting(result: dict[str, Any]) -> str:
    environment = result["environment"]
    versions = ", ".join(
        f"{name} {version}" for name, version in environment["versions"].items() if version
    )
    care = " The machine was not idle." if is_busy(environment) else ""
    return (
        f"Measured on {environment['processor']}, threads per contestant: {result['n_threads']}, "
        f"Python {environment['python']}, {versions}.{care}"
    )


if __name__ == "__main__":
    sys.exit(main())
