"""``dreamwarp explore``: explore a model interactively in the browser."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from typing import Annotated

import typer

from dreamwarp.commands import options
from dreamwarp.commands.models import load_with_data
from dreamwarp.core.validation import warn_user


@options.reads_data
def explore(
    model: options.Model,
    data: options.Data,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to serve on; 0: any free port.")
    ] = 8017,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    host: Annotated[
        str,
        typer.Option(
            help="Address to serve on. With a non-local address, other machines can connect; they "
            "need the printed token."
        ),
    ] = "127.0.0.1",
    *,
    reading: options.Reading,
) -> None:
    """Serve an interactive page: move along components, draw warps, align pairs, warp pictures.

    For signals, images, volumes (slice by slice) and meshes. By default, only this machine
    can open the page. Ctrl-C ends it.

    [bold]Examples[/bold]

    dreamwarp explore digits.dwm mnist
    dreamwarp explore leaves.dwm leaves/ --resize 64x64 --port 0 --no-browser
    dreamwarp explore scans.dwm scans/ --resize 32x32x32
    dreamwarp explore bones.dwm meshes/
    """
    try:
        from dreamwarp.explore.server import Serving
    except ImportError as error:
        raise ImportError(
            f"the page needs FastAPI and uvicorn: {error}. Use `pip install dreamwarp[explore]`."
        ) from error
    from dreamwarp.explore.scene import Scene

    fitted, samples = load_with_data(model, data, reading)
    scene = Scene.of(
        fitted, samples, model_name=model, data_name=data, load_options=reading.options
    )
    serving = Serving(scene, host=host, port=port)
    scene.warm()
    if serving.token:
        warn_user(
            f"the page is served on {host}, where other machines can reach it, without encryption. "
            "Its address contains the token: do not share it.",
            UserWarning,
        )
    typer.echo(samples.describe())
    typer.echo(f"the page is at {serving.address} (Ctrl-C ends it)")
    if browser and has_display():
        # The socket is open: the browser waits until the server answers.
        threading.Thread(target=webbrowser.open, args=(serving.address,), daemon=True).start()
    serving.run()
    raise typer.Exit(130)  # uvicorn may swallow the interrupt


def has_display() -> bool:
    """Whether a browser can open a window; if not, a text browser might start in the terminal."""
    displays = os.environ.get("DISPLAY"), os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or any(displays)
