"""Requests made up from the API's own description: ``python -m tests.explore.fuzz 5000``.

Half keep to the description, half break it: other types, numbers out of range, names that are not
there, bytes that are no JSON. Whatever comes, an answer must follow soon, and never be a 500.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS = 20.0

ODD: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=30)
    | st.sampled_from(["../../etc/passwd", "\x00", "null", 2**64, -1, 1e308, [], {}]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def values(schema: dict[str, Any], definitions: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema of the description allows."""
    if "$ref" in schema:
        return values(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return st.one_of([values(option, definitions) for option in schema["anyOf"]])
    kind = schema.get("type")
    if kind == "object":
        fields = {n: values(s, definitions) for n, s in schema.get("properties", {}).items()}
        required = {n: s for n, s in fields.items() if n in schema.get("required", ())}
        optional = {n: s for n, s in fields.items() if n not in required}
        return st.fixed_dictionaries(required, optional=optional)
    if kind == "integer":
        low, high = schema.get("minimum", 0), schema.get("maximum", 100)
        # Small ones are more often something that there is.
        return st.integers(low, min(high, low + 16)) | st.integers(low, high)
    if kind == "number":
        return st.floats(schema.get("minimum", -1e3), schema.get("maximum", 1e3))
    if kind == "array" and "prefixItems" in schema:
        return st.tuples(*(values(item, definitions) for item in schema["prefixItems"]))
    if kind == "array":
        return st.lists(
            values(schema["items"], definitions), max_size=min(schema.get("maxItems", 8), 12)
        )
    if kind == "string":
        return st.text(max_size=schema.get("maxLength", 20))
    return st.none()


def requests(description: dict[str, Any]) -> st.SearchStrategy[Any]:
    """(method, path, body, headers) of all that is described, and of some that is not."""
    definitions = description.get("components", {}).get("schemas", {})
    known = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema")
            right = st.just(b"") if schema is None else values(schema, definitions).map(to_json)
            body = right | right | ODD.map(to_json) | st.binary(max_size=300)
            if schema is not None:
                body = body | st.tuples(values(schema, definitions), st.text(max_size=12), ODD).map(
                    spoil
                )
            known.append(st.tuples(st.just(method.upper()), st.just(path), body))
    strange = st.tuples(
        st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]),
        st.sampled_from(
            ["/", "/api", "/api/../x", "/api/warp/", "/%00", "//", "/api/upload?x=%ff"]
        ),
        st.binary(max_size=50),
    )
    return st.one_of([*known, *known, strange])


def to_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def spoil(parts: tuple[Any, str, Any]) -> bytes:
    """A right request with one field replaced or added."""
    body, name, odd = parts
    fields = sorted(body) if isinstance(body, dict) else []
    key = fields[len(name) % len(fields)] if fields and len(name) % 3 else name
    return to_json({**body, key: odd} if isinstance(body, dict) else odd)


def run(client: Any, n: int) -> Counter[int]:
    """Send ``n`` requests; statuses, and how often each came."""
    description = client.get("/openapi.json").json()
    statuses: Counter[int] = Counter()

    @settings(max_examples=n, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(requests(description))
    def send(request: tuple[str, str, bytes]) -> None:
        method, path, body = request
        start = time.monotonic()
        headers = {"content-type": "application/json"}
        answer = client.request(method, path, content=body, headers=headers)
        statuses[answer.status_code] += 1
        assert answer.status_code < 500, (request, answer.text)
        assert time.monotonic() - start < SECONDS, request
        if answer.status_code >= 400 and method != "HEAD":
            assert isinstance(answer.json()["error"], str), (request, answer.text)

    send()
    return statuses


def main() -> None:
    import httpx

    from tests.explore.cases import scene
    from tests.explore.test_server import serving

    for kind in ("image", "signal", "volume", "mesh"):
        scene(kind).warm()
        with serving(scene=scene(kind)) as served, httpx.Client(base_url=served.address) as client:
            client.timeout = SECONDS
            start = time.monotonic()
            statuses = run(client, int(sys.argv[1]))
            print(kind, sum(statuses.values()), "requests", dict(statuses),
                  f"{time.monotonic() - start:.0f} s")  # fmt: skip


if __name__ == "__main__":
    main()
