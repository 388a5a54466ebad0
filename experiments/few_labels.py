"""Question: with few labels, do learned warps help classifiers more than hand-made deformations.

Each rival makes new samples from a few labelled ones, for a nearest neighbour, an MLP of 3 x 512
units and the paper's ConvNet. Networks are trained for 7,200 steps of 128 samples, made as they go;
the nearest neighbour gets 100,000. Batches, their order and the initial weights are the same for
all rivals.

The strength of a rival is tuned in a draw of labels of its own, on validation samples with their
labels (10,000 for MNIST). If the best strength is at the edge of the grid, the grid is extended.
"learned, all defaults" is `Augmenter` for the nearest neighbour and `LearnedWarp` for networks; it
is tuned on nothing. Finals are five other draws. Two sets judge them: the test samples, and, for
networks, "others", the training samples that are neither labelled nor used for tuning.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from benchmarks.readme import README, fill
from experiments import classifiers, lab, paper
from experiments.rivals import BY_DEFAULT, ELASTIC_AND_AFFINE, ELASTIC_CUBIC, RIVALS
from experiments.tasks import LARGE, SERIES, TUNING, load_task

ARCHIVE = lab.Archive(lab.RESULTS / "few_labels", protocol=1)
EXAMPLES = """
Results are JSON files in results/few_labels, one per trial: stop and go on at will.

examples:
  python -m experiments.few_labels                        run what is missing, then the tables
  python -m experiments.few_labels --only mnist-100/MLP   one data set and classifier
  python -m experiments.few_labels --table                only the tables, of what there is
  python -m experiments.few_labels --smoke                try all parts on next to nothing
"""
N_DRAWS = 5
MAIN = (
    "nothing", "elastic", ELASTIC_CUBIC, ELASTIC_AND_AFFINE, "prior", "learned per class",
    BY_DEFAULT,
)  # fmt: skip
# Sharper interpolation is tried with networks only: it makes nearest neighbours worse.
ALL = tuple(name for name in RIVALS if name != ELASTIC_CUBIC)
FOR_SERIES = tuple(name for name in ALL if name != "InfiMNIST-style")
# What is run, the most decisive first.
PLAN: dict[str, tuple[str, ...]] = {
    "mnist-100/MLP": MAIN,
    "mnist-100/ConvNet": (
        "nothing",
        "elastic",
        ELASTIC_CUBIC,
        ELASTIC_AND_AFFINE,
        "learned per class",
        BY_DEFAULT,
    ),
    "fashion-100/MLP": MAIN,
    "mnist-100/1-NN": ALL,
    "mnist-10/1-NN": ALL,
    "mnist-500/1-NN": ALL,
    "digits-10/1-NN": ALL,
    "digits-10/MLP": ALL,
    "digits-10/ConvNet": MAIN,
    "letters-10/1-NN": ALL,
    "letters-10/MLP": ALL,
    "letters-10/ConvNet": MAIN,
    "mnist-10/MLP": ALL,
    "fashion-100/1-NN": ALL,
    "fashion-10/1-NN": ALL,
    "fashion-10/MLP": ALL,
    "mnist-10/ConvNet": MAIN,
    "fashion-100/ConvNet": MAIN,
    "mnist-500/MLP": ALL,
    "fashion-500/1-NN": ALL,
    "fashion-500/MLP": ALL,
    **{f"{name}/{classifier}": FOR_SERIES for name in SERIES for classifier in ("1-NN", "MLP")},
}


class Trial(NamedTuple):
    """One classifier: what it learns from, and who deforms how much."""

    task: str
    classifier: str
    rival: str
    setting: float | None
    draw: int

    def __str__(self) -> str:
        chosen = "" if self.setting is None else f" {self.setting:g}"
        draw = "tuning" if self.draw == TUNING else f"draw {self.draw}"
        return f"{self.task}, {self.classifier}, {self.rival}{chosen}, {draw}"


def tune(archive: lab.Archive, trials: Sequence[Trial]) -> tuple[list[Trial], float | None]:
    """Tuning trials to run next of a grid in order, and the best setting once there are none.

    The three settings in the middle come first, then others while the best is at the edge. Of
    settings that tie, the one in the middle is best.
    """
    middle = len(trials) // 2
    low, high = max(middle - 1, 0), min(middle + 2, len(trials))
    while True:
        outcomes = [archive.find(trial) for trial in trials[low:high]]
        missing = [t for t, found in zip(trials[low:high], outcomes, strict=True) if found is None]
        if missing:
            return missing, None
        errors = [found["validation"] for found in outcomes if found is not None]
        ties = np.flatnonzero(errors == np.min(errors))
        best = low + int(ties[len(ties) // 2])
        if best == low and low > 0:
            low -= 1
        elif best == high - 1 and high < len(trials):
            high += 1
        else:
            return [], trials[best].setting


def settings_of(archive: lab.Archive, task: str, classifier: str, name: str) -> Any:
    """Tuning trials to run next, and the setting; None for both until it is known."""
    name = RIVALS[name].tuned_as or name
    grid = [Trial(task, classifier, name, s, TUNING) for s in RIVALS[name].settings]
    return tune(archive, grid) if grid else ([], None)


def list_trials(archive: lab.Archive, study: str, rivals: Iterable[str]) -> list[Trial]:
    """All trials that can be run by now: tuning first, then finals, draw by draw."""
    task, classifier = study.split("/")
    tuning: list[Trial] = []
    finals: list[Trial] = []
    for name in rivals:
        more, setting = settings_of(archive, task, classifier, name)
        tuning += more
        if not more:
            finals += [Trial(task, classifier, name, setting, draw) for draw in range(N_DRAWS)]
    return tuning + sorted(finals, key=lambda trial: trial.draw)


def run(trial: Trial, **options: Any) -> dict[str, Any]:
    """Share of mistakes by judge: of validation samples where a rival is tuned, else of others."""
    task, for_network = load_task(trial.task, trial.draw), trial.classifier != "1-NN"
    judges = {"validation": task.validation}
    if trial.draw != TUNING:
        judges = task.judges if for_network else {"test": task.judges["test"]}
    deform = RIVALS[trial.rival].prepare(task, trial.setting, for_network)
    made = None if trial.rival == "nothing" else deform
    return classifiers.classify(trial.classifier, task, made, judges, seed=trial.draw, **options)


# -- tables


def judges_of(study: str) -> tuple[str, ...]:
    """Names of the sets of samples that judge a study; the first decides."""
    task, classifier = study.split("/")
    return ("others", "test") if classifier != "1-NN" and task in LARGE else ("test",)


def final_errors(archive: lab.Archive, study: str, name: str, judge: str) -> np.ndarray[Any, Any]:
    """Errors in percent by draw (N_DRAWS,), NaN where there is none yet."""
    task, classifier = study.split("/")
    more, setting = settings_of(archive, task, classifier, name)
    found = [
        None if more else archive.find(Trial(task, classifier, name, setting, draw))
        for draw in range(N_DRAWS)
    ]
    return np.array([np.nan if one is None else 100 * one[judge] for one in found])


def format_study(archive: lab.Archive, study: str, rivals: Iterable[str]) -> str:
    """Errors in percent as Markdown: mean over draws and each, and the gap to the default."""
    task, classifier = study.split("/")
    judges = judges_of(study)
    titles = " | ".join(f"{judge} | default − this" for judge in judges)
    lines = [f"| {task}, {classifier} | setting | runs | {titles} |"]
    lines.append("| --- |" + " --: |" * (2 + 2 * len(judges)))
    for name in rivals:
        setting, cells, n_runs = settings_of(archive, task, classifier, name)[1], [], 0
        for judge in judges:
            errors = final_errors(archive, study, name, judge)
            known = np.isfinite(errors)
            n_runs = int(known.sum())
            if not n_runs:
                break
            gaps = final_errors(archive, study, BY_DEFAULT, judge) - errors
            each = ", ".join(f"{e:.2f}" for e in errors[known])
            cells.append(f"{errors[known].mean():.2f} ({each})")
            cells.append("" if name == BY_DEFAULT else format_gap(gaps[np.isfinite(gaps)]))
        if n_runs:
            chosen = "" if setting is None else f"{setting:g}"
            lines.append(f"| {name} | {chosen} | {n_runs} | {' | '.join(cells)} |")
    return "\n".join(lines)


def format_gap(gaps: np.ndarray[Any, Any]) -> str:
    """Mean of paired differences with its 95 % interval by Student's distribution."""
    if len(gaps) < 2:
        return ""
    reach = float(stdtrit(len(gaps) - 1, 0.975)) * gaps.std(ddof=1) / np.sqrt(len(gaps))
    return f"{gaps.mean():+.2f} ± {reach:.2f}, {int((gaps <= 0).sum())} of {len(gaps)} no worse"


# Rows and columns of the README's table.
SUMMARY_ROWS = {
    "nothing": "none",
    "elastic": "elastic noise, tuned",
    ELASTIC_AND_AFFINE: "elastic and affine noise, tuned",
    BY_DEFAULT: "learned warps, default settings",
}
SUMMARY = (
    "mnist-10/1-NN", "mnist-100/1-NN", "mnist-500/1-NN", "mnist-100/MLP", "mnist-100/ConvNet",
    "fashion-100/MLP",
)  # fmt: skip


def format_summary(archive: lab.Archive) -> str:
    """The README's table: mean test errors in percent, of what was run in every draw."""
    means = np.array(
        [
            [final_errors(archive, study, name, "test").mean() for study in SUMMARY]
            for name in SUMMARY_ROWS
        ]
    )
    known = np.isfinite(means)
    columns = np.flatnonzero(known[list(SUMMARY_ROWS).index(BY_DEFAULT)])
    rows = np.flatnonzero(known[:, columns].any(axis=1))
    titles = [_title(SUMMARY[column]) for column in columns]
    lines = [f"| augmentation | {' | '.join(titles)} |", "|---|" + "--:|" * len(titles)]
    for row in rows:
        cells = [f"{means[row, c]:.2f} %" if known[row, c] else "" for c in columns]
        lines.append(f"| {list(SUMMARY_ROWS.values())[row]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _title(study: str) -> str:
    task, classifier = study.split("/")
    data, n_labels = task.split("-")
    return f"{'Fashion-MNIST, ' if data == 'fashion' else ''}{classifier}, {n_labels} per class"


# Published test errors on MNIST in percent, by labels per class.
PUBLISHED = {
    10: "pSTN affine 8.7, pSTN CPAB 9.2 (older code 6.7), CNN 13.5",
    100: "kernel-regularised VGG 2.2, scattering 2.3, pSTN affine 2.8, pSTN CPAB 3.2, CNN 3.8",
    500: "scattering 1.03",
}


def format_published(archive: lab.Archive) -> str:
    """Test errors of learned warps with all defaults beside published ones, as Markdown."""
    titles = " | ".join(classifiers.CLASSIFIERS)
    lines = [f"| labels per class | published | {titles} |", "| --: | --- | --: | --: | --: |"]
    for n_labels, published in PUBLISHED.items():
        cells = []
        for classifier in classifiers.CLASSIFIERS:
            errors = final_errors(archive, f"mnist-{n_labels}/{classifier}", BY_DEFAULT, "test")
            errors = errors[np.isfinite(errors)]
            cells.append(f"{errors.mean():.2f} ({len(errors)})" if len(errors) else "")
        if n_labels == 500:
            row = paper.format_cells(paper.ARCHIVE, "AlignMNIST500", 1.0)
            cells[1:] = [own or other for own, other in zip(cells[1:], row[2::2], strict=True)]
        lines.append(f"| {n_labels} | {published} | {' | '.join(cells)} |")
    return "\n".join(lines)


# Former defaults, whose finals were read in the same draws and with the same test samples.
EARLIER = {
    "warps of neighbours, full resolution": "neighbors",
    "warps of random pairs, full resolution": "full_resolution",
    "the same, 4 pixels per cell": "uneven_brightness",
    "the same, equal brightness, networks at strength 1.25": "fixed_strength",
    "the same, networks' strength by held-out samples": "linear",
    "the same, cubic interpolation for networks": "as_learned",
    "the same, flattened spectra for networks": "one_factor",
}


def format_earlier(archive: lab.Archive) -> str:
    """Mean errors in percent of this default and of former ones, as Markdown."""
    folder = lab.RESULTS / "earlier"
    archives = {
        title: lab.Archive(folder / name / "few_labels", archive.protocol)
        for title, name in EARLIER.items()
    } | {"the same, stronger for networks with few samples (the default)": archive}
    titles = [f"{s.replace('/', ', ')}: {j}" for s in SUMMARY for j in judges_of(s)]
    rows, lines = [], [f"| learned, all defaults | {' | '.join(titles)} |"]
    for title, one in archives.items():
        means = [final_errors(one, s, BY_DEFAULT, j).mean() for s in SUMMARY for j in judges_of(s)]
        cells = ["" if np.isnan(mean) else f"{mean:.2f}" for mean in means]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join([*lines, "| --- |" + " --: |" * len(titles), *rows])


def fill_pages(archive: lab.Archive) -> None:
    """Put the tables into the README and docs/experiments.md."""
    tables = [format_study(archive, study, rivals) for study, rivals in PLAN.items()]
    known = [table for table in tables if table.count("\n") > 1]
    fill(README, "few labels", "\n\n".join(known))
    fill(README, "strengths", format_strengths(archive))
    fill(README, "former defaults", format_earlier(archive))
    fill(README, "published", format_published(archive))
    fill(README, "results", format_summary(archive))


def format_strengths(archive: lab.Archive) -> str:
    """Validation errors in percent of learned warps by strength, as Markdown."""
    name = "learned per class"
    strengths = RIVALS[name].settings
    lines = [f"| tuning draw | {' | '.join(f'strength {s:g}' for s in strengths)} |"]
    lines.append("| --- |" + " --: |" * len(strengths))
    for study in PLAN:
        task, classifier = study.split("/")
        found = [archive.find(Trial(task, classifier, name, s, TUNING)) for s in strengths]
        if any(found):
            cells = ["" if one is None else f"{100 * one['validation']:.2f}" for one in found]
            lines.append(f"| {task}, {classifier} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing unless only asked for the tables, and tell."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.few_labels", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=PLAN, metavar="SET/CLASSIFIER", default=[])
    parser.add_argument("--rivals", nargs="+", choices=RIVALS, metavar="RIVAL", default=[])
    parser.add_argument("--processes", type=int, default=2, help="one core each")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--table", action="store_true", help="run nothing, tell what is known")
    either.add_argument("--smoke", action="store_true", help="run next to nothing, keep nothing")
    either.add_argument("--fill", action="store_true", help="only fill README and docs")
    options = parser.parse_args(arguments)
    if options.smoke:
        return smoke()
    if options.fill:
        fill_pages(ARCHIVE)
        return 0
    studies = {
        study: [name for name in rivals if not options.rivals or name in options.rivals]
        for study, rivals in PLAN.items()
        if not options.only or study in options.only
    }
    n_failed = 0
    for study, rivals in () if options.table else studies.items():
        results = lab.run_missing(
            ARCHIVE, lambda s=study, r=rivals: list_trials(ARCHIVE, s, r), run,
            n_processes=options.processes,
        )  # fmt: skip
        n_failed += lab.tell(results)
    for study, rivals in studies.items():
        print(format_study(ARCHIVE, study, rivals) + "\n")
    print(format_strengths(ARCHIVE))
    if not options.table:
        fill_pages(ARCHIVE)
    return 1 if n_failed else 0


def smoke() -> int:
    """Every rival once, with a network of few steps or a nearest neighbour of few samples."""
    for k, (name, rival) in enumerate(RIVALS.items()):
        setting = rival.settings[1] if rival.settings else None
        trial = Trial("digits-10", ("1-NN", "MLP")[k % 2], name, setting, TUNING * (k % 3 == 0))
        print(f"{trial}: {run(trial, n_steps=2, n_new=200)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
