"""The server of the interactive page: a FastAPI application, by default on localhost only."""

from __future__ import annotations

import errno
import ipaddress
import logging
import secrets
import socket
from importlib import resources
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import Route

from dreamwarp.explore.access import Guard
from dreamwarp.explore.arrays import View
from dreamwarp.explore.scene import MAX_MOSAIC, Scene

MAX_LANDMARKS = 64
MAX_COEFFICIENTS = 20_000
# Largest strength: stronger warps show nothing recognizable.
MAX_STRENGTH = 4.0
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/explore.css": ("explore.css", "text/css; charset=utf-8"),
    "/kinds.js": ("kinds.js", "text/javascript; charset=utf-8"),
    "/explore.js": ("explore.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")

Place = Annotated[int, Field(ge=0, le=2**31)]
SeedNumber = Annotated[int, Field(ge=0, le=2**53)]
Strength = Annotated[float, Field(ge=0.0, le=MAX_STRENGTH, allow_inf_nan=False)]
Coefficient = Annotated[float, Field(ge=-10.0, le=10.0, allow_inf_nan=False)]
Coordinate = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
# A number within its class, or the name of an upload.
SampleName = Place | Annotated[str, Field(max_length=64)]


class _Request(BaseModel):
    """Base of all requests: the slice to show of volumes. Rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")
    axis: Annotated[int, Field(ge=0, le=2)] = 2
    place: Coordinate = 0.5

    @property
    def view(self) -> View:
        """The slice."""
        return View(self.axis, self.place)


class SampleRequest(_Request):
    """A sample of a class, or an uploaded one."""

    class_number: Place
    sample: SampleName = 0


class WarpRequest(SampleRequest):
    """A sample, and a warp as standard deviations along the components of a class."""

    coefficients: Annotated[list[Coefficient], Field(max_length=MAX_COEFFICIENTS)] = []
    strength: Strength = 1.0
    landmarks: Annotated[list[tuple[Coordinate, Coordinate]], Field(max_length=MAX_LANDMARKS)] = []


class DiceRequest(_Request):
    """A random warp of a class."""

    class_number: Place
    sample: Place = 0
    seed: SeedNumber = 0


class MosaicRequest(_Request):
    """New samples of a class, or of all classes."""

    class_number: Place | None = None
    n: Annotated[int, Field(ge=1, le=MAX_MOSAIC)] = 36
    strength: Strength = 1.0
    seed: SeedNumber = 0


class MembersRequest(_Request):
    """Samples of a class, starting at a number."""

    class_number: Place
    first: Place = 0
    n: Annotated[int, Field(ge=1, le=MAX_MOSAIC)] = 12


class AlignRequest(_Request):
    """Two samples of a class."""

    class_number: Place
    first: Place
    second: Place


def create_app(scene: Scene) -> FastAPI:
    """Make the application, without access control."""
    explained = (HTTPException, RequestValidationError, ValueError, Exception)
    app = FastAPI(
        title="dreamwarp explore", docs_url=None, redoc_url=None,
        exception_handlers=dict.fromkeys(explained, _explain),
    )  # fmt: skip
    # Under fixed names, so that no request can name a file.
    folder = resources.files("dreamwarp.explore").joinpath("page")
    for path, (name, kind) in FILES.items():
        answer = Response(folder.joinpath(name).read_bytes(), media_type=kind)
        app.router.routes.append(Route(path, answer, methods=["GET"]))

    @app.get("/api/model")
    def model() -> dict[str, Any]:
        return scene.description

    @app.post("/api/members")
    def members(request: MembersRequest) -> dict[str, Any]:
        return scene.members(request.class_number, request.first, request.n, request.view)

    @app.post("/api/warp")
    def warp(request: WarpRequest) -> dict[str, Any]:
        theta = scene.theta(request.class_number, request.coefficients, request.strength)
        name = find(request)
        shown = scene.show_warp(name, theta, request.landmarks, request.view)
        code = scene.warp_code(
            request.class_number, name, request.coefficients, request.strength, request.view
        )
        return {**shown, "python": code}

    def find(request: SampleRequest) -> int | str:
        """Index of a sample in the data, or the name of an upload."""
        if isinstance(request.sample, str):
            return request.sample
        return scene.index(request.class_number, request.sample)

    @app.post("/api/sample")
    def sample(request: SampleRequest) -> dict[str, Any]:
        return {"image": scene.kind.encode(scene.sample(find(request)), request.view)}

    @app.post("/api/dice")
    def dice(request: DiceRequest) -> dict[str, Any]:
        drawn = scene.draw_coefficients(request.class_number, request.sample, request.seed)
        return {"coefficients": drawn}

    @app.post("/api/mosaic")
    def mosaic(request: MosaicRequest) -> dict[str, Any]:
        return scene.mosaic(
            request.class_number, request.n, request.strength, request.seed, request.view
        )

    @app.post("/api/align")
    def align(request: AlignRequest) -> dict[str, Any]:
        return scene.align(request.class_number, request.first, request.second, request.view)

    @app.post("/api/upload")
    async def upload(request: Request) -> dict[str, Any]:
        return {"sample": await run_in_threadpool(scene.add_upload, await request.body())}

    return app


async def _explain(request: Request, error: Exception) -> JSONResponse:
    """Answer any error with one sentence."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body")
        return JSONResponse({"error": f"`{place or 'request'}`: {first['msg']}."[:500]}, 422)
    if isinstance(error, ValueError):
        return JSONResponse({"error": str(error)}, 422)
    logging.getLogger("dreamwarp.explore").exception("a request failed", exc_info=error)
    return JSONResponse({"error": "internal error: see the terminal."}, 500)


# -- serving


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address, which only this machine can reach."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def open_socket(host: str, port: int) -> socket.socket:
    """Open a listening socket, with clear errors."""
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        return socket.create_server((name, port), family=family, backlog=128)
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: f"port {port} is in use, perhaps by another `dreamwarp explore`. Use "
            "`--port 0` for a free one.",
            errno.EACCES: f"port {port} needs administrator rights. Use one above 1023.",
        }
        other = f"`{host}` port {port} can't be opened: {error.strerror or error}."
        raise OSError(reasons.get(error.errno or 0, other)) from error


class Serving:
    """A server of a scene, with an open socket; :meth:`run` serves.

    For hosts other than loopback, visitors need a token. Port 0 is any free port.
    """

    def __init__(self, scene: Scene, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.socket = open_socket(host, port)
        self.port = int(self.socket.getsockname()[1])
        self.token = None if is_loopback(host) else secrets.token_urlsafe(18)
        names = {*LOOPBACK_NAMES, host}
        hosts = None if self.token else [f"{name}:{self.port}" for name in names]
        # A server on all addresses is reached by the name of the machine.
        named = socket.gethostname() if host in ("0.0.0.0", "::", "[::]") else host
        shown = f"[{named}]" if ":" in named and not named.startswith("[") else named
        self.address = f"http://{shown}:{self.port}/"
        if self.token:
            self.address += f"?token={self.token}"
        config = uvicorn.Config(
            Guard(create_app(scene), hosts, self.token), log_level="warning", access_log=False,
            server_header=False, timeout_graceful_shutdown=1, lifespan="off",
        )  # fmt: skip
        self.server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until interrupted."""
        self.server.run(sockets=[self.socket])

    def stop(self) -> None:
        """Make :meth:`run` return."""
        self.server.should_exit = True
