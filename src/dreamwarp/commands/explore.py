"""``dreamwarp explore``: play with a model in the browser."""

from __future__ import annotations

import os
import sys
import threading
import time
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from dreamwarp.commands.models import load_model
from dreamwarp.commands.options import (
    DataArgument,
    FieldsOption,
    ModelArgument,
    PadOption,
    ResizeOption,
    ShapeOption,
    data_options,
)
from dreamwarp.core.validation import warn_user

if TYPE_CHECKING:
    from dreamwarp.explore.server import Serving

# Time for a server to start before its page is opened.
PATIENCE_SECONDS = 20.0


def explore(
    model: ModelArgument,
    data: DataArgument,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to serve on; 0: any that is free.")
    ] = 8017,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    host: Annotated[
        str,
        typer.Option(
            help="Address to serve on. Any but this machine's own lets other machines in, who need "
            "the token that is printed."
        ),
    ] = "127.0.0.1",
    fields: FieldsOption = None,
    shape: ShapeOption = None,
    resize: ResizeOption = None,
    pad: PadOption = None,
) -> None:
    """Open a page to play with a model: drag its components, roll dice, align pairs, warp pictures.

    It serves signals and images, to this machine alone, until Ctrl-C.

    [bold]Examples[/bold]

    dreamwarp explore digits.dwm mnist

    dreamwarp explore leaves.dwm leaves/ --resize 64x64 --port 0 --no-browser
    """
    from dreamwarp.data import load

    try:
        from dreamwarp.explore.server import Serving
    except ImportError as error:
        raise ImportError(
            f"the page needs FastAPI and uvicorn: {error}. Use `pip install dreamwarp[explore]`."
        ) from error
    from dreamwarp.explore.scene import Scene

    options = data_options(fields, shape, resize, pad)
    scene = Scene.of(
        load_model(model), load(data, **options), model_name=model, data_name=data,
        load_options=options,
    )  # fmt: skip
    serving = Serving(scene, host=host, port=port)
    scene.warm()
    if serving.token:
        warn_user(
            f"the page is served on {host}, where other machines can reach it, without encryption. "
            "Give its address, which has the token, to nobody else.",
            UserWarning,
        )
    typer.echo(f"{scene.subject.source.data.describe()}")
    typer.echo(f"the page is at {serving.address} (Ctrl-C ends it)")
    if browser and has_display():
        threading.Thread(target=open_page, args=(serving,), daemon=True).start()
    serving.run()
    raise typer.Exit(130)  # whether or not uvicorn passes the interrupt on


def open_page(serving: Serving) -> None:
    """Open the page once it is served."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not serving.server.started and time.monotonic() < end:
        time.sleep(0.05)
    webbrowser.open(serving.address)


def has_display() -> bool:
    """Whether a browser could open a window: if not, one in the terminal might start instead."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
