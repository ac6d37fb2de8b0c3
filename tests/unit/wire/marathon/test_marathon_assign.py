"""Fields of apps by dotted paths: what text means for each, and what is no field."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.wire.marathon.assign import (
    Assignment,
    WrongAssignment,
    assigned,
    assignment_of,
    path_of,
    unknown_fields,
    without,
)


@pytest.mark.parametrize(
    ("key", "text", "path", "value"),
    [
        ("instances", "3", ("instances",), 3),
        ("instances", "-1", ("instances",), -1),  # its range is for the scheduler to say
        ("cmd", "123", ("cmd",), "123"),
        ("env.A", "1", ("env", "A"), "1"),
        ("labels.com.example.x", "", ("labels", "com.example.x"), ""),
        ("labels", '{"a": "b"}', ("labels",), {"a": "b"}),
        ("requirePorts", "true", ("requirePorts",), True),
        ("gpu.models", "A,B", ("gpu", "models"), ["A", "B"]),
        ("gpu.models", '["A, B"]', ("gpu", "models"), ["A, B"]),
        ("constraints", '[["hostname","UNIQUE"]]', ("constraints",), [["hostname", "UNIQUE"]]),
        ("healthChecks.0.command.value", "true", ("healthChecks", 0, "command", "value"), "true"),
        ("container.volumes.1.mode", "RO", ("container", "volumes", 1, "mode"), "RO"),
        ("unreachableStrategy", "disabled", ("unreachableStrategy",), "disabled"),
        ("unreachableStrategy.inactiveAfterSeconds", "3", ("unreachableStrategy", "inactiveAfterSeconds"), 3),
    ],
)
def test_marathon_assignment_text_has_the_type_of_the_field(
    key: str, text: str, path: tuple[Any, ...], value: Any
) -> None:
    assert assignment_of(key, text) == Assignment(path, value)


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("instancez", "3", "there is no field instancez; did you mean instances?"),
        ("upgradeStrategy.xyz", "3", "fields are maximumOverCapacity, minimumHealthCapacity"),
        ("instances", "x", "'x' is not a whole number"),
        ("mem", "2GiB", "is not a number"),
        ("requirePorts", "yes", "is not true or false"),
        ("killSelection", "OLDEST", "is not one of YOUNGEST_FIRST, OLDEST_FIRST"),
        ("labels", "a", "is not its JSON"),
        ("constraints.0", "hostname,UNIQUE", "is not its JSON"),
        ("constraints", "3", "is not a list"),
        ("cmd.x", "1", "after cmd must follow nothing, got 'x'"),
        ("healthChecks.first", "1", "after healthChecks must follow a number, from 0, got 'first'"),
        ("", "1", "there is no field "),
        ("env.", "1", "a name must follow the dot"),
    ],
)
def test_invalid_marathon_assignment_is_refused(key: str, text: str, words: str) -> None:
    with pytest.raises(WrongAssignment, match=words):
        assignment_of(key, text)


APP = {"id": "/a", "env": {"A": "1"}, "healthChecks": [{"path": "/"}], "instances": 2}


def test_marathon_assignment_patch_has_changed_fields_whole() -> None:
    patch = assigned(
        APP,
        [
            assignment_of("env.B", "2"),
            assignment_of("env.A", "0"),
            assignment_of("healthChecks.0.path", "/up"),
            assignment_of("healthChecks.1.protocol", "TCP"),
            assignment_of("gpu.priority", "5"),
        ],
    )
    assert patch == {
        "env": {"A": "0", "B": "2"},
        "healthChecks": [{"path": "/up"}, {"protocol": "TCP"}],
        "gpu": {"priority": 5},
    }
    assert APP["env"] == {"A": "1"}
    with pytest.raises(WrongAssignment, match="the list has 1 items; use 1 to append one"):
        assigned(APP, [assignment_of("healthChecks.2.path", "/")])


def test_marathon_assignment_removes_a_part() -> None:
    assert without(APP, path_of("env.A")) == {"env": {}}
    assert without(APP, path_of("healthChecks.0.path")) == {"healthChecks": [{}]}
    assert without(APP, path_of("env")) == {"env": None}
    for key in ("args", "env.B", "gpu.priority", "healthChecks.1.path"):
        with pytest.raises(WrongAssignment, match=f"{key}: the app does not have it"):
            without(APP, path_of(key))


def test_marathon_unknown_fields_are_found_at_any_depth() -> None:
    app = {
        "id": "/a",
        "instancess": 1,
        "env": {"any": "thing"},
        "labels": None,
        "healthChecks": [{"pth": "/"}, {"command": {"value": "x"}}, 3],
        "container": {"docker": {"image": "a", "privilegd": True}, "volumes": [{"hostPath": "/", "size": 1}]},
        "qqq": 1,
        "memory": 4096,
    }
    assert unknown_fields(app) == [
        "instancess (did you mean instances?)",
        "healthChecks.0.pth (did you mean path?)",
        "container.docker.privilegd (did you mean privileged?)",
        "container.volumes.0.size",
        "qqq",
        "memory (did you mean mem?)",
    ]


@given(st.text(max_size=30), st.text(max_size=20))
def test_marathon_assignment_of_any_text_is_read_or_refused(key: str, text: str) -> None:
    with contextlib.suppress(WrongAssignment):
        json.dumps(assignment_of(key, text).value)
