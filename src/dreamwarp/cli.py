"""The ``dreamwarp`` command: parses arguments and calls functions; contains no other logic.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted. Errors are one line on standard
error.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer

from dreamwarp import __version__
from dreamwarp.commands.align import align
from dreamwarp.commands.compile import compile
from dreamwarp.commands.data import data
from dreamwarp.commands.demo import demo
from dreamwarp.commands.explore import explore
from dreamwarp.commands.figure import figure
from dreamwarp.commands.fit import fit
from dreamwarp.commands.infimnist import infimnist
from dreamwarp.commands.interruption import INTERRUPTED, end, ending_soon, is_interrupted
from dreamwarp.commands.options import translate
from dreamwarp.commands.report import report
from dreamwarp.commands.sample import sample
from dreamwarp.commands.verify import verify

app = typer.Typer(
    name="dreamwarp",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    with ending_soon(), _plain_warnings():
        try:
            code = app(args=arguments, prog_name="dreamwarp", standalone_mode=False)
        except Exception as error:
            # An interruption may surface as any error: LLVM swallows KeyboardInterrupt, then fails.
            code = INTERRUPTED if is_interrupted() else _explain(error)
        if code == INTERRUPTED:
            end()
        sys.exit(code)


def _explain(error: Exception) -> int:
    """Print an expected error as one line, and return the exit code; raise any other."""
    message, code = str(error), 1
    if isinstance(error, typer.TyperException):
        message = f"{error.format_message().rstrip('.')} (see `dreamwarp --help`)"
        code = error.exit_code
    elif isinstance(error, MemoryError):
        message = f"not enough memory: {message or 'none is left'}. Use a smaller set."
    elif not isinstance(error, ImportError | OSError | ValueError):
        raise error
    print(f"dreamwarp: {translate(message)}", file=sys.stderr)
    return code


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print each warning once, as one line without a source location."""
    shown: set[str] = set()

    def show(message: Warning | str, *place: Any, **more: Any) -> None:
        words = translate(str(message))
        if words not in shown:
            shown.add(words)
            print(f"dreamwarp: warning: {words}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dreamwarp {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def dreamwarp(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Learned data augmentation: smooth, invertible warps that bend and stretch, never fold."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


COMMANDS = (
    demo, align, data, fit, sample, verify, figure, report, explore, infimnist, compile,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)
