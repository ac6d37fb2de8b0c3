"""A line for each change that is asked for; and metrics that Prometheus' own checker takes."""

import logging
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import gpu


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.node(gpus=(gpu("g0"), gpu("g1")))
    yield rig
    rig.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[dict[str, Any]]]:
    """The fields of each."""
    records: list[dict[str, Any]] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.fields)  # type: ignore[attr-defined, method-assign]
    logger = logging.getLogger("mesos_gpu.audit")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_audit_line_has_caller_address_action_and_result(rig: Rig, lines: list[dict[str, Any]]) -> None:
    job = rig.submit(user="ann")
    rig.call("DELETE", f"/v1/jobs/{job['id']}")
    rig.call("POST", "/v1/gpus/g0/drain", json={"reason": "fan", "by": "bob"})
    rig.call("DELETE", "/v1/gpus/g0/drain?by=bob", headers={"X-Forwarded-For": "10.9.8.7"})
    rig.call("POST", "/v2/apps", json={"id": "/web", "cmd": "sleep 1", "user": "carl"})
    rig.call("POST", "/v1/jobs", json={"cpus": -1})
    rig.call("POST", "/v1/jobs", data=b"[", headers={"Content-Type": "application/json"})
    rig.call("POST", "/v1/jobs", json={"command": "true"}, headers={"Host": "evil.example"})
    wait_until("all are noted", lambda: len(lines) == 8)  # each after its answer
    assert [(f["method"], f["path"].replace(job["id"], "ID"), f["status"]) for f in lines] == [
        ("POST", "/v1/jobs", 201),
        ("DELETE", "/v1/jobs/ID", 202),
        ("POST", "/v1/gpus/g0/drain", 200),
        ("DELETE", "/v1/gpus/g0/drain", 200),
        ("POST", "/v2/apps", 201),
        ("POST", "/v1/jobs", 422),
        ("POST", "/v1/jobs", 400),
        ("POST", "/v1/jobs", 403),
    ]
    first, _, drain, undrain, app, *_ = lines
    assert (first["user"], first["made"]) == ("ann", f"/v1/jobs/{job['id']}")
    assert first["from"].startswith("127.0.0.1:")
    assert (drain["by"], undrain["by"], undrain["relayed"]) == ("bob", "bob", "x-forwarded-for: 10.9.8.7")
    assert (app["user"], app["about"]) == ("carl", "/web")
    assert app["made"] != ""


def test_changes_of_queues_are_noted_and_plans_are_not(rig: Rig, lines: list[dict[str, Any]]) -> None:
    rig.call("PUT", "/v1/queues", json={"version": 0, "queues": {"ml": {}, "ml/vision": {}}})
    rig.call("PATCH", "/v1/queues/ml/vision?reclaim_after_s=60", json={"version": 1, "stop": "hold"})
    rig.call("DELETE", "/v1/queues/ml/vision?version=1&dry_run=true")
    rig.call("POST", "/v1/plan/queues", json={"queues": {}})
    wait_until("all are noted", lambda: len(lines) == 3)  # a plan changes nothing
    assert [(f["method"], f["path"], f["query"], f["status"]) for f in lines] == [
        ("PUT", "/v1/queues", "", 200),
        ("PATCH", "/v1/queues/ml/vision", "reclaim_after_s=60", 200),
        ("DELETE", "/v1/queues/ml/vision", "dry_run=true", 409),
    ]


def test_audit_line_cannot_be_forged_by_a_field(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mesos_gpu.audit")
    forged = 'eve by=root from=10.0.0.1:1 x="'
    rig.call("POST", "/v1/gpus/g0/drain", json={"reason": "fan", "by": forged})
    rig.call("POST", "/v1/gpus/g0%20by=root%20/drain", json={"reason": "fan", "by": "bob\u2003by=root"})

    def said() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name == "mesos_gpu.audit"]

    wait_until("both are noted", lambda: len(said()) == 2)  # after the answer
    first, second = said()
    words = shlex.split(first)
    assert f"by={forged}" in words
    assert [word.partition("=")[0] for word in words[2:]] == ["from", "by", "status"], first
    assert shlex.split(second)[1] == "/v1/gpus/g0 by=root /drain"
    assert r'by="bob\u2003by=root"' in second


def test_audit_omits_requests_that_only_read(rig: Rig, lines: list[dict[str, Any]]) -> None:
    rig.call("GET", "/v1/jobs")
    rig.call("HEAD", "/v1/jobs")
    assert rig.call("POST", "/v1/plan/defrag", json={"gpus": 1}).status_code == 200
    assert rig.call("POST", "/v1/templates/vllm/render", json={}).status_code == 200
    assert lines == []


def test_audit_lines_contain_no_secret(
    rig: Rig, lines: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rig.submit(env={"TOKEN": "hunter2"}, command="echo hunter2")
    wait_until("it is noted", lambda: lines)  # after the answer
    assert len(lines) == 1
    assert "hunter2" not in caplog.text + str(lines)


@pytest.mark.parametrize(
    "body", [b'{"id":"\xff"}', b'{"id":"\xed\xa0\x80"}', b'{"by":"', b"[" * 5000, b"\xff\xfe"]
)
def test_a_body_that_is_no_text_claims_nothing(rig: Rig, lines: list[dict[str, Any]], body: bytes) -> None:
    answer = rig.call("POST", "/v1/jobs", data=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    wait_until("it is noted", lambda: lines)  # after the answer
    assert lines[0]["status"] == 400


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")
def test_promtool_takes_the_metrics(rig: Rig) -> None:
    rig.submit(gpus=1)
    assert rig.call("POST", "/v1/gpus/g1/drain", json={"reason": 'a "fan"\\'}).status_code == 200
    for app in ("/a", "/b"):
        assert rig.call("POST", "/v2/apps", json={"id": app, "cmd": "sleep 1"}).status_code == 201
    split = rig.call("PUT", "/v1/services/web", json={"apps": {"/a": 90, "/b": 10}})
    assert split.status_code == 200, split.text
    text = rig.call("GET", "/metrics/prometheus").text
    assert "mesos_gpu_service_weight{" in text
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, timeout=60
    )
    ours = [
        line for line in done.stderr.splitlines() if not line.startswith("DCGM_FI_DEV_")
    ]  # names of NVIDIA's
    assert (done.stdout, ours) == ("", []), text
