"""Whatever is sent: an app or its problems, never an exception; and what is printed is read as it was."""

import gzip
import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.wire.marathon.app import Rollback, app_of, app_to_json, decode_app, updated
from mesos_gpu.wire.marathon.gpu import GPU
from mesos_gpu.wire.marathon.group import GroupRollback, Scale, group_of, group_to_json
from mesos_gpu.wire.marathon.kinds import Record
from mesos_gpu.wire.marathon.problems import Problems
from mesos_gpu.wire.marathon.rules import Allowed
from mesos_gpu.wire.marathon.select import selectors_of
from mesos_gpu.wire.marathon.shapes import APP, CONTAINER
from tests.spoiling import spoilt

EXAMPLES = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
SECRETS = Allowed(secrets=True)
FILE = Path(__file__).parents[2] / "data/marathon/documents.jsonl.gz"
LINES = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]
DOCUMENTS = [each["document"] for each in LINES if each["kind"] == "app"]
WORDS = [
    "",
    "a",
    "/",
    "..",
    "HOST",
    "MESOS",
    "DOCKER",
    "BRIDGE",
    "COMMAND",
    "disabled",
    "unlimited",
    "hostname",
    "UNIQUE",
]
WORDS += ["2015-02-11T09:31:50.021Z", "tcp", "container", "8.0", "A100", "host", "\0", "é", "x" * 2000]


def keys_of(record: Record) -> list[str]:
    return [field.key for field in record.fields]


KEYS = st.sampled_from(
    keys_of(APP) + keys_of(CONTAINER) + keys_of(GPU) + ["image", "secret", "persistent", "groups", "apps"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 70000)
    | st.sampled_from([10**400, -1, 0.5, 1e308, 2**31, 3.0])
    | st.floats(allow_nan=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=20,
)


@EXAMPLES
@given(VALUES | spoilt(DOCUMENTS, KEYS, VALUES))
def test_app_of_any_value_is_read_or_has_problems(value: object) -> None:
    app = app_of(value, allowed=SECRETS)
    if isinstance(app, App):
        assert app_of(json.loads(json.dumps(app_to_json(app))), allowed=SECRETS) == app
    else:
        assert app.status == 422
        assert app.as_json()["details"]


@EXAMPLES
@given(spoilt(DOCUMENTS, KEYS, VALUES), VALUES)
def test_update_of_any_value_is_read_or_has_problems(document: object, patch: object) -> None:
    old = app_of(document, allowed=SECRETS)
    if isinstance(old, App):
        new = updated(old, patch, allowed=SECRETS)
        assert isinstance(new, App | Problems | Rollback)
        assert not isinstance(new, App) or new.id == old.id
        assert updated(old, {}, allowed=SECRETS) == old


@EXAMPLES
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "id": VALUES,
            "apps": st.lists(spoilt(DOCUMENTS, KEYS, VALUES), max_size=3),
            "groups": VALUES,
        },
    )
    | VALUES
)
def test_group_of_any_value_is_read_or_has_problems(value: object) -> None:
    group = group_of(value, allowed=SECRETS)
    assert isinstance(group, Group | Problems | Scale | GroupRollback)
    if isinstance(group, Group):
        assert group_of(json.loads(json.dumps(group_to_json(group))), allowed=SECRETS) == group


@EXAMPLES
@given(st.binary(max_size=40))
def test_app_of_any_bytes_is_read_or_has_problems(body: bytes) -> None:
    refusal = decode_app(body)
    assert isinstance(refusal, Problems)
    assert refusal.status in (400, 422)


@EXAMPLES
@given(st.text(st.sampled_from("ab,()=! \\in"), max_size=12))
def test_selector_of_any_text_is_read_or_refused(text: str) -> None:
    assert isinstance(selectors_of(text), tuple | str)
