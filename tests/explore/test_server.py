"""The server answers its page, and refuses everybody else."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dreamwarp import Warp
from tests.explore.cases import pixels, scene

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from dreamwarp.explore import access  # noqa: E402
from dreamwarp.explore.server import Serving, is_loopback, open_socket  # noqa: E402


@contextmanager
def serving(**options: Any) -> Iterator[Serving]:
    served = Serving(options.pop("scene", scene()), **options)
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    while not served.server.started:
        time.sleep(0.01)
    try:
        yield served
    finally:
        served.stop()
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Serving) -> Iterator[Any]:
    with httpx.Client(base_url=served.address, timeout=30) as found:
        yield found


def test_pages_are_served_with_a_strict_policy(client: Any) -> None:
    for path, words in (
        ("/", "<title>dreamwarp"),
        ("/explore.js", "use strict"),
        ("/icon.svg", "svg"),
    ):
        answer = client.get(path)
        assert answer.status_code == 200 and words in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
    page = client.get("/").text
    assert "http://" not in page and "https://" not in page


def test_a_warp_is_that_of_the_library(client: Any) -> None:
    asked = {"class_number": 1, "sample": 3, "coefficients": [1.0, -1.0], "strength": 0.5}
    answer = client.post("/api/warp", json=asked).json()
    found = scene()
    theta = found.theta(1, [1.0, -1.0], 0.5)
    expected = Warp(found.kind.model.space, theta).image(found.kind.subject.sample(18))
    np.testing.assert_array_equal(pixels(answer["image"]), expected)
    assert "data.X[18]" in answer["python"]


def test_an_uploaded_picture_is_warped(client: Any) -> None:
    picture = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(picture, "png")
    answer = client.post("/api/upload", content=picture.getvalue()).json()
    shown = client.post("/api/warp", json={"class_number": 0, **answer}).json()
    own = client.post("/api/sample", json={"class_number": 0, **answer}).json()
    assert shown["image"] == own["image"]
    assert "yours.png" in shown["python"]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("warp", {"class_number": 99}, "`class_number` must be from 0 to 1"),
        ("warp", {"class_number": 0, "sample": 99}, "`sample` must be from 0 to 14"),
        ("warp", {"class_number": 0, "coefficients": ["a"]}, "`coefficients.0`: Input should"),
        ("warp", {"class_number": 0, "strength": 1e9}, "`strength`: Input should be less"),
        ("warp", {"class_number": 0, "sample": "../../etc/passwd"}, "expired upload"),
        ("warp", {"class_number": 0, "landmarks": [[2, 0]]}, "`landmarks.0.0`"),
        ("warp", {}, "`class_number`: Field required"),
        ("warp", {"class_number": 0, "path": "/etc"}, "Extra inputs"),
        ("mosaic", {"n": 10**9}, "`n`: Input should be less"),
        ("align", {"class_number": 0, "first": 0, "second": 10**6}, "`sample` must be from"),
    ],
)
def test_wrong_requests_are_explained(client: Any, path: str, body: Any, words: str) -> None:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/%2e%2e/x", "/explore.py", "/docs"])
def test_no_other_file_is_served(client: Any, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404 and "error" in answer.json()


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:80"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    ],
    ids=str,
)
def test_other_origins_are_refused(client: Any, headers: dict[str, str]) -> None:
    for answer in (
        client.get("/api/model", headers=headers),
        client.post("/api/dice", json={"class_number": 0}, headers=headers),
    ):
        assert answer.status_code == 403 and "error" in answer.json()


def test_its_own_names_are_welcome(client: Any, served: Serving) -> None:
    for name in ("127.0.0.1", "localhost", "LOCALHOST"):
        host = f"{name}:{served.port}"
        headers = {"host": host, "origin": f"http://{host.lower()}"}
        assert client.get("/api/model", headers=headers).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200


def test_two_hosts_are_none(served: Serving) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        request = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nHost: evil.example\r\n\r\n"
        connection.sendall(request.encode())
        assert connection.recv(100).split()[1] in (b"400", b"403")


def head_of(path: str, port: int, header: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{header}\r\n\r\n".encode()


def test_large_requests_are_refused(served: Serving) -> None:
    # By raw connections: who goes on sending may find the connection closed, the answer lost.
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        length = f"Content-Length: {access.MAX_REQUEST + 1}"
        connection.sendall(head_of("/api/warp", served.port, length))
        assert connection.recv(100).split()[1] == b"413"
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(head_of("/api/warp", served.port, "Transfer-Encoding: chunked"))
        connection.sendall(b"%x\r\n" % (access.MAX_REQUEST + 1) + bytes(access.MAX_REQUEST + 1))
        answer = b""
        while b"}" not in answer:
            answer += connection.recv(4096)
        assert answer.split()[1] == b"413" and b"at most 262,144 bytes" in answer


def test_a_request_that_never_ends_is_given_up(served: Serving, monkeypatch: Any) -> None:
    monkeypatch.setattr(access, "PATIENCE_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(head_of("/api/dice", served.port, "Content-Length: 9") + b"{")
        assert connection.recv(100).split()[1] == b"408"


def test_many_clients_are_served_at_once(client: Any) -> None:
    client.post("/api/align", json={"class_number": 0, "first": 0, "second": 1})

    def visit(number: int) -> int:
        asked = {"class_number": number % 2, "coefficients": [number / 10]}
        answers = [client.post("/api/warp", json=asked) for _ in range(5)]
        answers.append(client.post("/api/mosaic", json={"n": 9, "seed": number}))
        answers.append(
            client.post("/api/align", json={"class_number": 0, "first": 0, "second": number % 9})
        )
        return sum(answer.status_code == 200 for answer in answers)

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(visit, range(20))) == [7] * 20


def test_other_machines_need_the_token() -> None:
    with serving(host="0.0.0.0") as served, httpx.Client() as client:
        address = f"http://127.0.0.1:{served.port}"
        assert f"?token={served.token}" in served.address
        answer = client.get(f"{address}/api/model")
        assert answer.status_code == 401 and "a token is required" in answer.json()["error"]
        assert client.get(f"{address}/?token=wrong").status_code == 401
        welcome = client.get(f"{address}/", params={"token": served.token})
        assert welcome.status_code == 303 and welcome.headers["location"] == "/"
        assert "HttpOnly; SameSite=Strict" in welcome.headers["set-cookie"]
        assert client.get(f"{address}/api/model").status_code == 200
        evil = {"origin": "http://evil.example"}
        assert client.get(f"{address}/api/model", headers=evil).status_code == 403


def test_without_hosts_there_must_be_a_token() -> None:
    with pytest.raises(ValueError, match="`token` must be given"):
        access.Guard(None, None, None)


def test_a_port_in_use_says_so(served: Serving) -> None:
    with pytest.raises(OSError, match=rf"port {served.port} is in use.*`--port 0`"):
        open_socket("127.0.0.1", served.port)
    with pytest.raises(OSError, match="can't be opened"):
        open_socket("192.0.2.1", 0)


def test_loopback() -> None:
    assert all(
        is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]")
    )
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"))
