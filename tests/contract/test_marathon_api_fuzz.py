"""Marathon's interface under bodies that nobody meant: refused with 4xx, and nothing is changed."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesos_gpu.wire.marathon.shapes import APP
from tests.contract.test_marathon_api import CMD, Marathon

_PLACES = (
    ("POST", "/v2/apps"),
    ("PUT", "/v2/apps"),
    ("PATCH", "/v2/apps"),
    ("PUT", "/v2/apps/kept"),
    ("PUT", "/v2/apps/kept?partialUpdate=false"),
    ("PATCH", "/v2/apps/kept"),
    ("POST", "/v2/groups"),
    ("PUT", "/v2/groups"),
    ("PUT", "/v2/groups/shop?dryRun=true"),
    ("POST", "/v2/tasks/delete"),
)
_WORDS = st.sampled_from(
    [
        "",
        "/",
        "/kept",
        "shop",
        "..",
        "*",
        "HTTP",
        "host",
        "DOCKER",
        "1.0",
        "2015-02-11T09:31:50.021Z",
        "\0",
        "é",
    ]
)
_ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
)
_KEYS = st.sampled_from(
    [field.key for field in APP.fields]
    + ["groups", "apps", "scaleBy", "ids", "type", "docker", "image", "port"]
)
_VALUES = st.recursive(
    _ATOMS | _WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=8,
)
_APPS = st.dictionaries(_KEYS, _VALUES, max_size=4).map(
    lambda more: {"id": "kept", **CMD, "instances": 0, **more}
)
_GROUPS = st.builds(
    lambda apps, more: {"id": "shop", "apps": apps, **more}, st.lists(_APPS, max_size=2), _APPS
)
_BODIES = _VALUES | _APPS | st.lists(_APPS, max_size=2) | _GROUPS


@pytest.fixture(scope="module")
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    rig.create("/kept", instances=0)
    yield rig
    rig.close()


@given(place=st.sampled_from(_PLACES), body=_BODIES)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_body_is_taken_or_refused_whole(rig: Marathon, place: tuple[str, str], body: object) -> None:
    before = rig.daemon.read(lambda view: view.root).result(10)
    answer = rig.call(*place, json=body)
    assert answer.status_code < 500 or answer.status_code == 501, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    if answer.status_code >= 400:
        assert answer.json()["message"]
        assert rig.daemon.read(lambda view: view.root).result(10) is before


@given(
    verb=st.sampled_from(["GET", "PUT", "POST", "PATCH", "DELETE"]),
    path=st.lists(
        st.sampled_from(["", "kept", "*", "..", "tasks", "versions", "restart", "a" * 300, "%00", "%C3"]),
        max_size=5,
    ),
    top=st.sampled_from(["apps", "groups", "tasks", "deployments", "queue", "pods", "x"]),
)
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_path_is_answered(rig: Marathon, verb: str, path: list[str], top: str) -> None:
    answer = rig.call(verb, "/".join([f"/v2/{top}", *path]), json={"disk": -1})
    assert answer.status_code < 500 or answer.status_code == 501, answer.text
