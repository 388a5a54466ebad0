"""A small web server with the virtues and vices of real ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What a server has, what it was asked for, and how it misbehaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    address: str = ""
    # (method, path) of each request.
    requests: list[tuple[str, str]] = field(default_factory=list)
    # The next answers break off after so many bytes.
    breaks: list[int] = field(default_factory=list)
    # Say nothing about the length of what is sent.
    hides_length: bool = False
    # Time between the first half of a file and the second.
    pause_seconds: float = 0.0


class _Handler(BaseHTTPRequestHandler):
    site: Site

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def _answer(self, *, with_content: bool) -> None:
        site = self.site
        site.requests.append((self.command, self.path))
        content = site.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        if not site.hides_length:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_content:
            end = site.breaks.pop(0) if site.breaks else len(content)
            self.wfile.write(content[: end // 2])
            for _ in range(100):
                time.sleep(site.pause_seconds / 100)
            self.wfile.write(content[end // 2 : end])

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def serve(site: Site) -> Iterator[Site]:
    """Serve a site on this machine."""
    handler = type("Handler", (_Handler,), {"site": site})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        site.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
