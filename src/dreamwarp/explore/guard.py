"""Guard: what stands between the network and the page.

The page is for whoever sits at this machine. A web page of a stranger must not reach it, neither by
a request to 127.0.0.1 (its Origin tells) nor by a name of its own that it has the browser resolve
to 127.0.0.1, which is DNS rebinding (the Host tells). Where the page is served to other machines,
only those with the token get in.
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

# Bytes of a request other than an upload: a few thousand numbers.
MAX_REQUEST = 2**18
UPLOAD_PATH = "/api/upload"
# For a request to arrive in full.
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
    """A request that is not let in: status and words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Guard:
    """Lets requests through to an ASGI application, or answers them itself.

    Parameters
    ----------
    app : ASGI application
    hosts : iterable of str, or None
        What the Host of a request may be, such as ``127.0.0.1:8017``. None: anything, where a token
        is asked for.
    token : str or None
        What a visitor must have: in the address, then in a cookie.
    """

    def __init__(self, app: Any, hosts: Iterable[str] | None, token: str | None = None) -> None:
        if hosts is None and token is None:
            raise ValueError("without `hosts`, a `token` must be asked for.")
        self.app, self.token = app, token
        self.hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _read_headers(scope)
        try:
            self._check_place(headers)
            if self._brings_token(scope):
                await self._welcome(send)
                return
            self._check_token(headers)
            body = await _read_body(scope, headers, receive)
        except Refused as refused:
            await _answer(send, refused)
            return
        await self.app(scope, _replay(body, receive), _with_headers(send))

    def _check_place(self, headers: dict[str, str]) -> None:
        """Host and Origin: where the browser believes to be, and who asks."""
        host = headers.get("host", "").lower()
        if self.hosts is not None and host not in self.hosts:
            raise Refused(
                403, "the Host of a request must be the address that `dreamwarp explore` printed."
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Refused(403, "requests of other web pages are refused.")
        # A link may lead here from elsewhere; requests of scripts and pictures may not.
        is_foreign = headers.get("sec-fetch-site", "none") in ("cross-site", "same-site")
        if is_foreign and headers.get("sec-fetch-mode") != "navigate":
            raise Refused(403, "requests of other web pages are refused.")

    def _brings_token(self, scope: Any) -> bool:
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
                401, "a token is needed: open the address that `dreamwarp explore` printed."
            )

    async def _welcome(self, send: Any) -> None:
        """Keep the token in a cookie, and take it out of the address."""
        cookie = f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        headers = {"location": "/", "set-cookie": cookie, "content-length": "0", **HEADERS}
        await send({"type": "http.response.start", "status": 303, "headers": _encode(headers)})
        await send({"type": "http.response.body", "body": b""})


def _is_same(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())


def _read_headers(scope: Any) -> dict[str, str]:
    """Names in small letters; of several of a name, the last, but a second Host counts as none."""
    pairs = [(k.decode("latin-1").lower(), v.decode("latin-1")) for k, v in scope["headers"]]
    found = dict(pairs)
    if sum(name == "host" for name, _ in pairs) != 1:
        found.pop("host", None)
    return found


async def _read_body(scope: Any, headers: dict[str, str], receive: Any) -> bytes:
    """The whole body, which must be small, and must come in time."""
    limit = MAX_BYTES if scope["path"] == UPLOAD_PATH else MAX_REQUEST
    too_large = Refused(413, f"a request here must have at most {limit:,} bytes.")
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
    """A channel that gives the body once, and after that what comes."""
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
    # What is left of a body that is too large is not read.
    if refused.status in (408, 413):
        headers["connection"] = "close"
    start = {"type": "http.response.start", "status": refused.status, "headers": _encode(headers)}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _encode(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
