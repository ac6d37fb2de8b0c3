"""Marathon's interface under what nobody meant: refused with 4xx in its shape, and nothing is changed."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesos_gpu.model.apps.app import Group
from mesos_gpu.wire.marathon.gpu import GPU
from mesos_gpu.wire.marathon.shapes import APP, CONTAINER
from tests.contract.api.test_api import Broken
from tests.contract.marathon.test_marathon_api import CMD, Marathon
from tests.spoiling import spoilt

FILE: Final = Path(__file__).parents[2] / "data/marathon/documents.jsonl.gz"
LINES: Final = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]
DOCUMENTS: Final = [line["document"] for line in LINES]
APPS: Final = [line["document"] for line in LINES if line["kind"] == "app"]
JSON: Final = {"Content-Type": "application/json"}
PLACES: Final = (
    ("POST", "/v2/apps"),
    ("POST", "/v2/apps?force=True"),
    ("PUT", "/v2/apps"),
    ("PATCH", "/v2/apps?force=true"),
    ("PUT", "/v2/apps/kept"),
    ("PUT", "/v2/apps//kept?partialUpdate=False&force=TRUE"),
    ("PATCH", "/v2/apps/%2Fkept"),
    ("POST", "/v2/apps/kept/restart"),
    ("POST", "/v2/groups"),
    ("POST", "/v2/groups/shop"),
    ("PUT", "/v2/groups"),
    ("PUT", "/v2/groups/%2Fshop?force=true"),
    ("PUT", "/v2/groups/shop?dryRun=True"),
    ("POST", "/v2/tasks/delete"),
    ("POST", "/v2/tasks/delete?scale=true"),
    ("DELETE", "/v2/deployments/nobody?force=true"),
    ("PUT", "/v2/deployments"),
    ("DELETE", "/v2/queue/kept/delay"),
    ("POST", "/v2/queue"),
    ("POST", "/v2/pods"),
    ("PUT", "/v2/pods/kept"),
)
TAKING: Final = tuple(
    place for place in PLACES if place[1].startswith(("/v2/apps", "/v2/groups", "/v2/tasks"))
)
WORDS: Final = ["", "/", "/kept", "shop", "..", "*", "HTTP", "host", "DOCKER", "1.0", "2015-02-11T09:31:50.021Z", "\0",
                "é", "x" * 2000, "MESOS_HTTP", "true"]  # fmt: skip
KEYS: Final = st.sampled_from(
    [field.key for record in (APP, CONTAINER, GPU) for field in record.fields]
    + ["groups", "apps", "scaleBy", "ids", "image", "port", "secret", "persistent", "version", "dependencies"]
)
VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 70000)
    | st.sampled_from([10**400, 2**63, -1, 0.5, 1e308, 3.0])
    | st.sampled_from(WORDS)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
WRONG: Final[tuple[dict[str, Any], ...]] = (
    {"cpus": -1},
    {"cpus": "many"},
    {"mem": -0.1},
    {"instances": -1},
    {"instances": "two"},
    {"instances": 1e9},
    {"backoffFactor": 0},
    {"container": 5},
    {"cmd": 7},
    {"labels": ["a"]},
    {"env": "PATH"},
    {"healthChecks": [{"protocol": "SMOKE"}]},
    {"constraints": [["hostname"]]},
    {"constraints": [["hostname", "NEAR"]]},
    {"portDefinitions": {}},
    {"upgradeStrategy": {"minimumHealthCapacity": 2, "maximumOverCapacity": 0}},
    {"user": "root"},
    {"gpus": 1 << 40},
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real document whose text was cut, or has other bytes in it."""
    text = json.dumps(draw(st.sampled_from(DOCUMENTS))).encode()
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.binary(max_size=4)) + (text[at + 1 :] if draw(st.booleans()) else b"")


@st.composite
def unfit(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """What must be refused: a real document with a mistake in it, where it would be read, or no JSON."""
    verb, path = draw(st.sampled_from([place for place in TAKING if "restart" not in place[1]]))
    if draw(st.booleans()):
        return verb, path, draw(damaged().filter(lambda text: not is_json(text)))
    app = {**draw(st.sampled_from(APPS)), **draw(st.sampled_from(WRONG))}
    body: Any = {"apps": [{"id": "good", **CMD}], "groups": [{"id": "deep", "apps": [app]}]}
    if path.startswith("/v2/apps"):
        body = [app] if verb != "POST" and "kept" not in path else app
    return verb, path, json.dumps(body).encode()


def is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


BODIES: Final = (
    spoilt(DOCUMENTS, KEYS, VALUES).map(lambda body: json.dumps(body).encode())
    | VALUES.map(lambda body: json.dumps(body).encode())
    | damaged()
    | st.binary(max_size=20)
)


class Fuzzed(Marathon):
    """Counts what it is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: Counter[int] = Counter()
        self.start_over()

    def start_over(self) -> None:
        """Leave an app, and nothing else."""
        kept = {"id": "kept", **CMD, "instances": 0}
        self.ask("PUT", "/v2/groups?force=true", json={"apps": [kept], "groups": []})
        self.settled()

    def tree(self) -> tuple[Group, frozenset[str]]:
        return self.daemon.read(lambda view: (view.catalog.root, frozenset(view.deployments))).result(60)

    def send(self, verb: str, path: str, body: bytes, *, chunked: bool = False) -> requests.Response:
        """Send a body; what is refused, and what is only planned, changes nothing."""
        before, deployments = self.tree()
        self.clock.time += 1.0
        answer = self.call(verb, path, data=iter([body]) if chunked else body, headers=JSON)
        self.statuses[answer.status_code] += 1
        said = f"{verb} {path} {body!r} → {answer.status_code} {answer.text}"
        assert answer.status_code in (200, 201, 202, 204, 400, 404, 405, 409, 422, 501), said
        assert answer.status_code == 204 or answer.headers["Content-Type"] == "application/json", said
        if answer.status_code >= 400:
            assert answer.json()["message"], said
        if answer.status_code >= 400 or "dryRun" in path:
            after, now = self.tree()
            assert after is before, said
            assert now <= deployments, said
        elif len(list(self.tree()[0].all_apps())) > 20:
            self.start_over()
        return answer


@pytest.fixture(scope="module")
def running() -> Iterator[Fuzzed]:
    rig = Fuzzed()
    yield rig
    rig.close()


@pytest.fixture
def rig(running: Fuzzed) -> Fuzzed:
    running.start_over()
    return running


def fuzz(rig: Fuzzed, count: int) -> None:
    @given(st.sampled_from(PLACES), BODIES, st.booleans())
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def send(place: tuple[str, str], body: bytes, chunked: bool) -> None:
        rig.send(*place, body, chunked=chunked)

    send()


def fuzz_with_mistakes(rig: Fuzzed, count: int) -> None:
    @given(unfit(), st.booleans())
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def send(asked: tuple[str, str, bytes], chunked: bool) -> None:
        answer = rig.send(*asked, chunked=chunked)
        assert 400 <= answer.status_code < 500, f"{asked} → {answer.status_code} {answer.text}"

    send()


def test_fuzzed_app_that_must_be_refused_is_refused(rig: Fuzzed) -> None:
    fuzz_with_mistakes(rig, 45)


def test_any_body_is_taken_or_refused_whole(rig: Fuzzed) -> None:
    fuzz(rig, 50)


@pytest.mark.long
@pytest.mark.parametrize("send", [fuzz, fuzz_with_mistakes])
def test_ten_thousand_bodies(
    rig: Fuzzed, send: Callable[[Fuzzed, int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    rig.statuses.clear()
    send(rig, 10_000)
    with capsys.disabled():
        print(f"\n{rig.statuses.total()} bodies, answered:", dict(sorted(rig.statuses.items())))


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_fuzzed_app_with_a_fault_anywhere_is_refused(rig: Fuzzed, wrong: dict[str, Any]) -> None:
    app = {"id": "new", **CMD, "instances": 0, **wrong}
    group = {"apps": [{"id": "good", **CMD, "instances": 0}], "groups": [{"id": "deep", "apps": [app]}]}
    for verb, path, body in (
        ("POST", "/v2/apps", app),
        ("PUT", "/v2/apps/new", app),
        ("PUT", "/v2/apps", [app]),
        ("PATCH", "/v2/apps/kept", wrong),
        ("PATCH", "/v2/apps", [{"id": "kept", **wrong}]),
        ("POST", "/v2/groups", {"id": "fresh", **group}),
        ("PUT", "/v2/groups/fresh", group),
        ("PUT", "/v2/groups/fresh?dryRun=true", group),
    ):
        assert rig.send(verb, path, json.dumps(body).encode()).status_code == 422


@given(
    verb=st.sampled_from(["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE"]),
    top=st.sampled_from(["", "apps", "groups", "tasks", "deployments", "queue", "pods", "info", "x"]),
    path=st.lists(
        st.sampled_from(["", "kept", "*", "tasks", "versions", "restart", "delay", "a" * 300, "%00", "%2F"]),
        max_size=5,
    ),
)  # fmt: skip
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_any_path_is_answered(rig: Fuzzed, verb: str, top: str, path: list[str]) -> None:
    answer = rig.call(verb, "/".join(["/v2", top, *path]), json={"disk": -1}, allow_redirects=False)
    assert answer.status_code < 500 or answer.status_code == 501, answer.text
    if answer.status_code >= 400:
        assert answer.headers["Content-Type"] == "application/json"
        assert verb == "HEAD" or answer.json()["message"]
    if answer.status_code == 405:
        assert answer.headers["Allow"]


@pytest.mark.parametrize(
    ("verb", "path", "more", "status"),
    [
        ("GET", "/v2", {}, 404),
        ("GET", "/v2/", {}, 404),
        ("GET", "//v2/apps", {}, 404),
        ("TRACE", "/v2/apps", {}, 405),
        ("POST", "/v2/apps/kept", {"json": {}}, 405),
        ("POST", "/v2/apps", {"data": b"{}", "headers": {"Content-Type": "text/plain"}}, 415),
        ("POST", "/v2/apps", {"data": iter([b"{}"])}, 415),
        ("POST", "/v2/apps", {"data": b" " * 17_000_000, "headers": JSON}, 413),
        ("POST", "/v2/apps", {"data": iter([b" " * 600_000] * 29), "headers": JSON}, 413),
        ("POST", "/v2/tasks/delete", {"data": b" " * 1_100_000, "headers": JSON}, 413),
        ("POST", "/v2/apps", {"data": b"\xff{}", "headers": JSON}, 400),
        ("POST", "/v2/apps", {"json": {}, "headers": {"Origin": "http://evil.example"}}, 403),
        ("DELETE", "/v2/apps/kept", {"headers": {"Origin": "null"}}, 403),
        ("GET", "/v2/apps", {"headers": {"Host": "evil.example"}}, 403),
        ("GET", "/v2/apps", {"headers": {"Host": "["}}, 403),
    ],
)  # fmt: skip
def test_every_refusal_has_marathons_shape(
    rig: Fuzzed, verb: str, path: str, more: dict[str, Any], status: int
) -> None:
    answer = rig.session.request(verb, rig.url + path, timeout=60, **more)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json")
    assert answer.json()["message"]
    assert "error" not in answer.json()


def test_options_of_a_marathon_path_tell_its_methods(rig: Fuzzed) -> None:
    answer = rig.call("OPTIONS", "/v2/apps")
    assert (answer.status_code, answer.content) == (200, b"")
    assert {*answer.headers["Allow"].split(", ")} == {"GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS"}
    head, get = rig.call("HEAD", "/v2/apps"), rig.call("GET", "/v2/apps")
    assert (head.status_code, head.content, head.headers["Content-Type"]) == (
        200,
        b"",
        get.headers["Content-Type"],
    )
    assert rig.call("OPTIONS", "/v2/nothing").status_code == 404


def test_a_defect_is_said_in_marathons_shape(caplog: pytest.LogCaptureFixture) -> None:
    rig = Marathon(Broken)
    try:
        answer = rig.call("GET", "/v2/apps")
    finally:
        rig.close()
    assert (answer.status_code, set(answer.json())) == (500, {"message", "remedy"})
    assert "KeyError: 'defect'" in caplog.text
