"""Access control for the page's server.

The page is for the user of this machine. Other web pages must not reach it, neither by requests to
127.0.0.1 (the Origin header reveals them) nor by DNS rebinding, a foreign name that resolves to
127.0.0.1 (the Host header reveals it). If the page is served to other machines, they need a token.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from dreamwarp.explore.uploads import MAX_BYTES

# Largest request other than an upload, in bytes: a few thousand numbers.
MAX_REQUEST = 2**18
UPLOAD_PATH = "/api/upload"
# Time for a request to arrive completely.
PATIENCE_SECONDS = 20.0
COOKIE = "dreamwarp"
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


class Refused(Exception):
    """A rejected request: HTTP status and message."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Guard:
    """Middleware that passes requests on to an ASGI application, or rejects them.

    Parameters
    ----------
    app : ASGI application
    hosts : iterable of str, or None
        Allowed values of the Host header, such as ``127.0.0.1:8017``. None: any, which needs a
        token.
    token : str or None
        Secret that visitors need: first in the URL, then in a cookie.
    """

    def __init__(self, app: Any, hosts: Iterable[str] | None, token: str | None = None) -> None:
        if hosts is None and token is None:
            raise ValueError("`token` must be given without `hosts`.")
        self.app, self.token = app, token
        self.hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _read_headers(scope)
        try:
            self._check_origin(headers)
            if self._has_token(scope):
                await self._set_cookie(send)
                return
            self._check_token(headers)
            body = await _read_body(scope, headers, receive)
        except Refused as refused:
            await _answer(send, refused)
            return
        await self.app(scope, _replay(body, receive), _with_headers(send))

    def _check_origin(self, headers: dict[str, str]) -> None:
        """Raise for requests to another Host, or from another Origin."""
        host = headers.get("host", "").lower()
        if self.hosts is not None and host not in self.hosts:
            raise Refused(
                403, "the Host header must be the address that `dreamwarp explore` printed."
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Refused(403, "requests from other web pages are refused.")
        # Links from other sites are allowed; requests by their scripts and pictures are not.
        is_foreign = headers.get("sec-fetch-site", "none") in ("cross-site", "same-site")
        if is_foreign and headers.get("sec-fetch-mode") != "navigate":
            raise Refused(403, "requests from other web pages are refused.")

    def _has_token(self, scope: Any) -> bool:
        if self.token is None or scope["path"] != "/":
            return False
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=16)
        return _is_same(query.get("token", [""])[0], self.token)

    def _check_token(self, headers: dict[str, str]) -> None:
        if self.token is None:
            return
        cookie: SimpleCookie = SimpleCookie()
        try:
            cookie.load(headers.get("cookie", ""))
        except CookieError:
            cookie = SimpleCookie()
        shown = cookie[COOKIE].value if COOKIE in cookie else ""
        if not _is_same(shown, self.token):
            raise Refused(
                401, "a token is required: open the address that `dreamwarp explore` printed."
            )

    async def _set_cookie(self, send: Any) -> None:
        """Store the token in a cookie, and redirect to the URL without it."""
        cookie = f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        headers = {"location": "/", "set-cookie": cookie, "content-length": "0", **HEADERS}
        await send({"type": "http.response.start", "status": 303, "headers": _encode(headers)})
        await send({"type": "http.response.body", "body": b""})


def _is_same(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())


def _read_headers(scope: Any) -> dict[str, str]:
    """Return headers by lower-case name; the last of duplicates, but no Host if it is repeated."""
    pairs = [(k.decode("latin-1").lower(), v.decode("latin-1")) for k, v in scope["headers"]]
    found = dict(pairs)
    if sum(name == "host" for name, _ in pairs) != 1:
        found.pop("host", None)
    return found


async def _read_body(scope: Any, headers: dict[str, str], receive: Any) -> bytes:
    """Read the body; raise if it is too large or too slow."""
    limit = MAX_BYTES if scope["path"] == UPLOAD_PATH else MAX_REQUEST
    too_large = Refused(413, f"the request must have at most {limit:,} bytes.")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > limit:
        raise too_large
    try:
        return await asyncio.wait_for(_collect(receive, limit, too_large), PATIENCE_SECONDS)
    except asyncio.TimeoutError:
        raise Refused(408, "the request took too long to arrive.") from None


async def _collect(receive: Any, limit: int, too_large: Refused) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request ended early.")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise too_large
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes, receive: Any) -> Any:
    """Return a receive channel that yields the body once, then further messages."""
    is_given = False

    async def replay() -> Any:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_headers(send: Any) -> Any:
    async def forward(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *_encode(HEADERS)]}
        await send(message)

    return forward


async def _answer(send: Any, refused: Refused) -> None:
    body = json.dumps({"error": refused.words}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **HEADERS}
    # The rest of an oversized body is not read.
    if refused.status in (408, 413):
        headers["connection"] = "close"
    start = {"type": "http.response.start", "status": refused.status, "headers": _encode(headers)}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _encode(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
