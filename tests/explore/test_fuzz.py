"""A short run of made-up requests; ``python -m tests.explore.fuzz 5000`` is the long one."""

from __future__ import annotations

import pytest

from tests.explore.cases import scene

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")


@pytest.mark.parametrize("kind", ["image", "signal"])
def test_no_request_breaks_the_server(kind: str) -> None:
    from tests.explore.fuzz import SECONDS, run
    from tests.explore.test_server import serving

    shown = scene(kind)
    shown.warm()  # compiling would exceed the client's timeout
    with (
        serving(scene=shown) as served,
        httpx.Client(base_url=served.address, timeout=SECONDS) as client,
    ):
        statuses = run(client, 120)
    assert sum(statuses.values()) >= 120
    assert statuses[200] > 10 and statuses[422] > 10
