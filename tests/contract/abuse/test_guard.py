"""What a page of another origin can make its visitor's browser do, and what browsers are told of our answers."""

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest
from starlette.types import Message, Receive, Scope, Send

from mesos_gpu.api.http.door import REFUSED, Reason
from mesos_gpu.api.http.guard import Guard
from tests.conftest import wait_until
from tests.contract.rig import Rig, code_of

NAMES: Final = ("gpu.example.com", "bücher.example")


def status_of(
    headers: dict[str, str | list[str]],
    *,
    server: str = "127.0.0.1",
    verb: str = "POST",
    scheme: str = "http",
    query: bytes = b"",
) -> int:
    """What the guard answers; 200: it lets the request pass."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    statuses: list[int] = []

    async def send(message: Message) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    raw = [
        (name.lower().encode(), value.encode("latin-1"))
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    scope = {
        "type": "http",
        "method": verb,
        "path": "/v1/jobs",
        "query_string": query,
        "server": (server, 8080),
        "scheme": scheme,
        "headers": raw,
    }
    asyncio.run(Guard(app, NAMES)(scope, receive, send))
    return statuses[0]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8080",
        "127.8.9.1",
        "[::1]",
        "[::1]:8080",
        "[::ffff:127.0.0.1]",
        "localhost",
        "LOCALHOST:1",
        "localhost.",
        "a.localhost",
        "gpu.example.com",
        "gpu.example.com.:443",
        "xn--bcher-kva.example",
    ],
)
def test_names_of_this_host_are_taken(host: str) -> None:
    assert status_of({"Host": host}) == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":8080",
        ".",
        "evil.example",
        "localhost.evil.example",
        "evil.localhost.example",
        "evillocalhost",
        "localhost..",
        "localhost:99999",
        "localhost:",
        "localhost:80:80",
        "localhost:-1",
        "localhost:8080@evil.example",
        "me@localhost",
        "evil.example#localhost",
        "evil.example/localhost",
        "localhost evil.example",
        "localhost,evil.example",
        "[::1",
        "::1",
        "[::1]evil",
        "[::1%25lo]",
        "[evil.example]",
        "[::]",
        "0.0.0.0",
        "0",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "169.254.169.254",
        "10.1.2.3",
        "127.0.0.1.evil.example",
        "b\xfccher.example",
        "loc\xe1lhost",
        "x.gpu.example.com",
        "gpu.example.com.evil.example",
    ],
)
def test_other_names_are_refused_however_they_are_written(host: str) -> None:
    before = REFUSED.read()[Reason.HOST]
    assert status_of({"Host": host}) == 403
    assert REFUSED.read()[Reason.HOST] == before + 1


@pytest.mark.parametrize(
    "hosts", [["localhost", "localhost"], ["localhost", "evil.example"], ["evil.example", "localhost"]]
)
def test_a_name_is_given_once(hosts: list[str]) -> None:
    assert status_of({"Host": hosts}) == 400


OURS: Final = {"Host": "gpu.example.com:8080"}


@pytest.mark.parametrize(
    ("host", "origin", "scheme", "status"),
    [
        ("gpu.example.com:8080", "http://gpu.example.com:8080", "http", 200),
        ("gpu.example.com", "http://gpu.example.com", "http", 200),
        ("gpu.example.com", "http://gpu.example.com:80", "http", 200),
        ("gpu.example.com", "https://gpu.example.com", "http", 200),  # a proxy before us speaks TLS
        ("gpu.example.com", "https://gpu.example.com", "https", 200),
        ("[::1]:8080", "http://[::1]:8080", "http", 200),
        ("gpu.example.com", "http://gpu.example.com", "https", 403),
        ("gpu.example.com:8080", "http://gpu.example.com:8081", "http", 403),
        ("gpu.example.com:8080", "http://gpu.example.com", "http", 403),
        ("gpu.example.com", "https://gpu.example.com:8443", "http", 403),
        ("localhost:8080", "http://127.0.0.1:8080", "http", 403),
        ("gpu.example.com", "http://evil.example", "http", 403),
        ("gpu.example.com", "http://gpu.example.com.evil.example", "http", 403),
        ("gpu.example.com", "http://me@gpu.example.com", "http", 403),
        ("gpu.example.com", "http://gpu.example.com/", "http", 403),
        ("gpu.example.com", "file://gpu.example.com", "http", 403),
        ("gpu.example.com", "gpu.example.com", "http", 403),
        ("gpu.example.com", "null", "http", 403),
        ("gpu.example.com", "", "http", 403),
        ("gpu.example.com", "http://", "http", 403),
    ],
)
def test_a_change_is_asked_for_by_our_own_pages_alone(
    host: str, origin: str, scheme: str, status: int
) -> None:
    assert status_of({"Host": host, "Origin": origin}, scheme=scheme) == status
    assert status_of({"Host": host, "Origin": origin}, scheme=scheme, verb="GET") == 200


@pytest.mark.parametrize(
    ("verb", "site", "mode", "status"),
    [
        ("POST", "same-origin", "cors", 200),
        ("POST", "none", "navigate", 200),
        ("POST", "cross-site", "navigate", 403),  # a form of another page
        ("POST", "same-site", "cors", 403),
        ("GET", "same-origin", "cors", 200),
        ("GET", "none", "navigate", 200),
        ("GET", "cross-site", "navigate", 200),  # a link to us
        ("GET", "cross-site", "no-cors", 403),  # an image, a script
        ("GET", "same-site", "websocket", 403),
        ("HEAD", "cross-site", "", 403),
    ],
)
def test_guard_heeds_what_a_browser_says_of_the_page(verb: str, site: str, mode: str, status: int) -> None:
    assert status_of({**OURS, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}, verb=verb) == status


def test_a_query_has_so_many_fields() -> None:
    assert status_of(dict(OURS), verb="GET", query=b"&" * 99) == 200
    assert status_of(dict(OURS), verb="GET", query=b"&" * 100) == 400


@pytest.mark.parametrize("server", ["10.1.2.3", "2001:db8::1"])
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("10.1.2.3", 200),
        ("[2001:db8::1]", 200),
        ("192.0.2.7", 200),  # an address is nobody's to make resolve to another one
        ("evil.example", 403),
        ("localhost", 403),
        ("gpu.example.com", 200),
        ("evil.gpu.example.com", 403),
        ("", 403),
    ],
)
def test_guard_on_an_address_of_a_network_has_the_given_names(server: str, host: str, status: int) -> None:
    assert status_of({"Host": f"{host}:8080"}, server=server) == status


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


@pytest.mark.parametrize(
    "path", ["/", "/static/app.js", "/v1/jobs", "/v2/apps", "/metrics", "/none", "/v1/jobs/none"]
)
def test_browsers_are_told_what_our_answers_may_do(rig: Rig, path: str) -> None:
    headers = rig.call("GET", path).headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Opener-Policy"] == headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in headers["Permissions-Policy"]
    assert headers["Cache-Control"] == ("no-cache" if path in ("/", "/static/app.js") else "no-store")
    assert "Server" not in headers
    assert "Access-Control-Allow-Origin" not in headers


def test_a_refusal_is_marked_too(rig: Rig) -> None:
    answer = rig.call("GET", "/v1/jobs", headers={"Host": "evil.example"})
    assert code_of(answer) == (403, "forbidden")
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Content-Security-Policy" in answer.headers


def test_a_client_s_address_is_its_connection_s(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """uvicorn believes what comes from loopback, unless it is told not to."""
    caplog.set_level("INFO", logger="mesos_gpu.audit")
    rig.call(
        "POST",
        "/v1/jobs",
        json={"cpus": -1},
        headers={"X-Forwarded-For": "10.0.0.1", "X-Forwarded-Proto": "https"},
    )
    wait_until("it is noted", lambda: "from=127.0.0.1:" in caplog.text)  # after the answer


@pytest.mark.parametrize(
    "name",
    [
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/setup.cfg",
        "..%5c..%5cx",
        "%252e%252e%252fx",
        "app.js%00",
        "app.js%0a",
        "/etc/passwd",
        "..;/x",
        "app.js/..",
        ".",
        "APP.JS",
    ],
)
def test_files_other_than_the_dashboard_s_are_not_served(rig: Rig, name: str) -> None:
    answer = rig.call("GET", "/static/" + name)
    assert code_of(answer) == (404, "not-found")


@pytest.mark.parametrize("path", ["/v1/jobs/", "/login/", "//v1/jobs", "//evil.example/v1/jobs/"])
def test_answers_never_lead_to_an_address_made_of_the_request(rig: Rig, path: str) -> None:
    answer = rig.call("GET", path, allow_redirects=False)
    assert (code_of(answer), answer.headers.get("Location")) == ((404, "not-found"), None)


@pytest.mark.parametrize(
    "query",
    [
        "stream=../stdout",
        "stream=%2e%2e%2fstdout",
        "stream=stdout%00",
        "stream=..%5cstderr",
        "stream=%252e%252e%252fstdout",
        "stream=stdout/../../x",
        "stream=/etc/passwd",
        "encoding=../x",
        "offset=-1%00",
        "length=1e99",
        "offset=NaN",
    ],
)
def test_files_other_than_a_task_s_streams_are_not_read(rig: Rig, query: str) -> None:
    job = rig.submit()
    assert code_of(rig.call("GET", f"/v1/jobs/{job['id']}/logs?{query}")) == (422, "invalid")


@pytest.mark.parametrize(
    "task", ["../x", "%2e%2e%2f", "x%00", "..%5c", "/frameworks/fw/executors", "%252e%252e"]
)
def test_a_task_is_one_of_the_job_s(rig: Rig, task: str) -> None:
    job = rig.submit()
    assert code_of(rig.call("GET", f"/v1/jobs/{job['id']}/logs?task_id={task}")) == (404, "not-found")
    assert rig.call("GET", f"/v1/jobs/{task}/logs").status_code == 404
