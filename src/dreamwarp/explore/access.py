"""Access control for the page's server.

The page is for the user of this machine. Other web pages must not reach it, neither by requests to
127.0.0.1 (the Origin header reveals them) nor by DNS rebinding, a foreign name that resolves to
127.0.0.1 (the Host header reveals it). If the page is served to other machines, they need a token.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse

from dreamwarp.explore.uploads import MAX_BYTES

# Largest request other than an upload, in bytes: a few thousand numbers.
MAX_REQUEST = 2**18
UPLOAD_PATH = "/api/upload"
# Time for a request to arrive completely.
PATIENCE_SECONDS = 20.0
COOKIE = "dreamwarp"
# The rest of an oversized or slow body is not read.
CLOSE = {"connection": "close"}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Middleware that passes requests on to an ASGI application, or rejects them.

    ``hosts`` are allowed values of the Host header, such as ``127.0.0.1:8017``; None: any, which
    needs a token. ``token`` is a secret that visitors need: first in the URL, then in a cookie.
    """

    def __init__(self, app: Any, hosts: Iterable[str] | None, token: str | None = None) -> None:
        if hosts is None and token is None:
            raise ValueError(
                "`token` must be given if `hosts` is None, got None. Give a token, or `hosts`."
            )
        self.app, self.token = app, token
        self.hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request, send = Request(scope, receive), _with_headers(send)
        try:
            self._check_origin(request.headers)
            shown = request.query_params.get("token") if scope["path"] == "/" else None
            if self.token is not None and shown is not None and self._is_token(shown):
                # Store the token in a cookie, and redirect to the URL without it.
                cookie = f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
                await RedirectResponse("/", 303, {"set-cookie": cookie})(scope, receive, send)
                return
            if not self._is_token(request.cookies.get(COOKIE, "")):
                raise HTTPException(
                    401, "a token is required: open the address that `dreamwarp explore` printed."
                )
            body = await _read_body(request)
        except HTTPException as error:
            answer = JSONResponse({"error": error.detail}, error.status_code, error.headers)
            await answer(scope, receive, send)
            return
        await self.app(scope, _replay(body, receive), send)

    def _check_origin(self, headers: Headers) -> None:
        """Raise for requests to another Host, or to several, or from another Origin."""
        host = headers.get("host", "").lower()
        is_repeated = len(headers.getlist("host")) > 1
        if is_repeated or (self.hosts is not None and host not in self.hosts):
            raise HTTPException(
                403, "the Host header must be the address that `dreamwarp explore` printed."
            )
        origin = headers.get("origin", f"http://{host}").lower()
        is_foreign = headers.get("sec-fetch-site", "none") in ("cross-site", "same-site")
        # Links from other sites are allowed; requests by their scripts and pictures are not.
        is_link = headers.get("sec-fetch-mode") == "navigate"
        if origin not in (f"http://{host}", f"https://{host}") or (is_foreign and not is_link):
            raise HTTPException(403, "requests from other web pages are refused.")

    def _is_token(self, shown: str) -> bool:
        """Whether a visitor showed the token, or needs none."""
        return self.token is None or hmac.compare_digest(shown.encode(), self.token.encode())


async def _read_body(request: Request) -> bytes:
    """Read the body; raise if it is too large or too slow."""
    limit = MAX_BYTES if request.scope["path"] == UPLOAD_PATH else MAX_REQUEST
    too_large = HTTPException(413, f"the request must have at most {limit:,} bytes.", CLOSE)
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > limit:
        raise too_large

    async def collect() -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise too_large
        return bytes(body)

    try:
        return await asyncio.wait_for(collect(), PATIENCE_SECONDS)
    except ClientDisconnect:
        raise HTTPException(400, "the request ended early.") from None
    except asyncio.TimeoutError:
        raise HTTPException(408, "the request took too long to arrive.", CLOSE) from None


def _replay(body: bytes, receive: Any) -> Any:
    """Return a receive channel that yields the body once, then further messages."""
    whole = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Any:
        return next(whole, None) or await receive()

    return replay


def _with_headers(send: Any) -> Any:
    async def forward(message: Any) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return forward
