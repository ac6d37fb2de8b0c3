"""Versions of messages: what programs of earlier wires wrote is read, what they read is written, byte for byte."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.model.nodes.gpu import Inventory, Program
from mesos_gpu.model.nodes.wires import OLDEST, SILENT, WIRE, common, spoken
from mesos_gpu.model.tasks.assignment import Assignment
from mesos_gpu.wire.hosts.program import decode_program, encode_program, program_from_json
from mesos_gpu.wire.mesos import assignment, report
from tests.unit.wire.hosts.released import DATA, MESSAGES

EARLIER = [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in sorted(DATA.glob("*/*.json"))]
OURS = Program("0.1.0", WIRE, OLDEST, "ab" * 32)


def _written(path: Path) -> bytes:
    return path.read_bytes().removesuffix(b"\n")


def _plain(noun: Any) -> Any:
    """The noun with pairs as pairs: JSON has lists."""
    return (
        replace(noun, secrets=tuple((name, file) for name, file in noun.secrets))
        if isinstance(noun, Assignment)
        else noun
    )


def test_wire_data_has_each_message_of_each_earlier_wire() -> None:
    wires = sorted(int(each.name) for each in DATA.iterdir())
    assert wires == list(range(OLDEST, WIRE))
    for wire in wires:
        assert {path.stem for path in (DATA / str(wire)).iterdir()} <= set(MESSAGES)
    assert {path.stem for path in (DATA / "1").iterdir()} == set(MESSAGES)


@pytest.mark.parametrize("path", EARLIER)
def test_wire_messages_of_earlier_programs_are_read(path: Path) -> None:
    message = MESSAGES[path.stem]
    if message.read is None:
        return
    read = message.read(_written(path))
    if path.stem == "notice":
        assert (read.number, read.reason, read.by, read.left_s, read.signal) == (
            3,
            "reclaim",
            "job-9",
            30,
            "SIGUSR1",
        )
    elif path.stem == "seal":
        assert read[1:] == (4, message.noun.body.encode())
    else:
        assert _plain(read) == message.noun


@pytest.mark.parametrize("path", EARLIER)
def test_wire_messages_for_earlier_programs_are_byte_equal(path: Path) -> None:
    message = MESSAGES[path.stem]
    wrote, writes = _written(path), message.write(message.noun)
    if path.stem != "task-of-a-monitor":
        assert writes == wrote
        return
    then, now = json.loads(wrote), json.loads(writes)
    told, tells = (json.loads(base64.b64decode(each.pop("data"))) for each in (then, now))
    assert now == then
    assert tells == {**told, "wire": WIRE}  # monitors leave out what they do not know


def test_assignment_names_its_wire_from_the_second_on() -> None:
    plan = MESSAGES["assignment"].noun
    assert "wire" not in json.loads(assignment.encode(plan))
    newer = replace(plan, wire=2)
    assert json.loads(assignment.encode(newer))["wire"] == 2
    assert assignment.decode_assignment(assignment.encode(newer)) == newer


@pytest.mark.parametrize("wire", [0, WIRE + 1, 10**9])
def test_assignment_of_an_unknown_wire_is_refused_by_name(wire: int) -> None:
    value = json.loads(assignment.encode(MESSAGES["assignment"].noun)) | {"wire": wire}
    with pytest.raises(
        assignment.OtherWire, match=f"has wire {wire}, but this executor reads {spoken(WIRE, OLDEST)}"
    ):
        assignment.decode_assignment(json.dumps(value).encode())


@pytest.mark.parametrize("wire", ["2", None, 2.0, True, [2]])
def test_assignment_wire_that_is_no_number_is_refused(wire: object) -> None:
    value = json.loads(assignment.encode(MESSAGES["assignment"].noun)) | {"wire": wire}
    with pytest.raises(ValueError, match="wire must be a whole number"):
        assignment.decode_assignment(json.dumps(value).encode())


def _with_more(value: Any) -> Any:
    """The value with a field more in each object whose names are ours to give."""
    if isinstance(value, list):
        return [_with_more(each) for each in value]
    if not isinstance(value, dict):
        return value
    users = ("env", "labels", "log_options", "fetch")
    known = {name: each if name in users else _with_more(each) for name, each in value.items()}
    return known | {"field_of_a_later_release": {"a": [1]}}


@pytest.mark.parametrize("name", ["assignment", "assignment-with-all", "outcome", "outcome-with-all"])
def test_assignment_fields_of_a_later_program_are_ignored(name: str) -> None:
    message = MESSAGES[name]
    assert message.read is not None
    more = _with_more(json.loads(message.write(message.noun)))
    assert _plain(message.read(json.dumps(more).encode())) == message.noun


def test_report_fields_of_a_later_monitor_are_ignored() -> None:
    message = MESSAGES["report"]
    value = json.loads(message.write(message.noun)) | {"later": 1}
    value |= {"gpus": [{**gpu, "field_of_a_later_release": 1} for gpu in value["gpus"]]}
    assert report.decode(json.dumps(value).encode()) == message.noun


def test_report_names_the_program_of_its_monitor() -> None:
    said = Inventory(program=replace(OURS, replaced="cd" * 32))
    assert report.decode(report.encode(said)) == said
    assert "program" not in json.loads(report.encode(Inventory()))


@pytest.mark.parametrize(("wire", "oldest"), [(WIRE + 5, WIRE + 1)])
def test_report_of_an_incompatible_monitor_is_read_for_its_program_only(wire: int, oldest: int) -> None:
    body = {"version": 9, "gpus": "unheard of", "program": {"version": "9.0", "wire": wire, "oldest": oldest}}
    assert report.decode(json.dumps(body).encode()) == Inventory(
        source="", program=Program("9.0", wire, oldest)
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("wire", 0), ("wire", "2"), ("wire", True), ("wire", 10**7), ("oldest", None), ("oldest", WIRE + 1),
        ("version", ""), ("version", "0.1 beta\n"), ("version", "x" * 65), ("version", 1), ("digest", "xyz"),
        ("replaced", 1),
    ],
)  # fmt: skip
def test_report_program_that_is_malformed_is_refused_by_field(field: str, value: object) -> None:
    good = {"version": "0.1.0", "wire": WIRE, "oldest": OLDEST}
    assert program_from_json(good) == Program("0.1.0", WIRE, OLDEST)
    with pytest.raises(ValueError, match=f"program: {field}"):
        program_from_json({**good, field: value})


def test_executor_names_its_program() -> None:
    assert decode_program(encode_program("0.1.0")) == Program("0.1.0", WIRE, OLDEST)
    for other in (b"", b"{}", b'{"noticed":3}', b"[]", b"\xff"):
        assert decode_program(other) is None
    with pytest.raises(ValueError, match="must be an object"):
        decode_program(b'{"program":3}')


@pytest.mark.parametrize(
    ("wire", "oldest", "newest"),
    [
        (SILENT, SILENT, 1),
        (WIRE, OLDEST, WIRE),
        (WIRE + 7, 1, WIRE),
        (WIRE + 7, WIRE, WIRE),
        (WIRE + 1, WIRE + 1, 0),
    ],
)
def test_newest_common_wire_is_spoken(wire: int, oldest: int, newest: int) -> None:
    assert common(wire, oldest) == newest


def test_wires_in_words() -> None:
    assert (spoken(2, 2), spoken(3, 1)) == ("wire 2", "wires 1 to 3")
