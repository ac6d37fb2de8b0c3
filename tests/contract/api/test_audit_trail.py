"""The audit log behind a real server: a record before each answer, refusals too, read back over REST."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from starlette.types import Scope

from mesos_gpu.access.asked import Asked
from mesos_gpu.access.floods import FIRST
from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings
from mesos_gpu.adapters.audit.verify import verify
from mesos_gpu.adapters.disk import room
from mesos_gpu.api.http import note
from mesos_gpu.errors import NoRoom
from mesos_gpu.model.access.caller import ANYBODY, NOBODY, Caller, Proof
from mesos_gpu.model.access.record import Result
from tests.conftest import wait_until
from tests.contract.rig import KEPT, Rig, code_of
from tests.doubles.builders import gpu
from tests.unit.adapters.audit.test_audit_log import fill, small

__all__ = ["small"]  # a fixture


class Identity:
    """Who calls, as a test says."""

    def __init__(self) -> None:
        self.caller: Caller = ANYBODY
        self.wrong = ""  # the name that a wrong proof is for

    async def __call__(self, _scope: Scope) -> Caller:
        if self.wrong:
            note.claimed(self.wrong, "token")
            return NOBODY
        return self.caller


class Audited(Rig):
    """A server that keeps records in a directory."""

    def __init__(self, directory: Path) -> None:
        self.identity = Identity()
        self.trail = AuditLog(AuditSettings(directory))
        super().__init__(audit=self.trail, identify=self.identity)

    def records(self, **query: Any) -> list[dict[str, Any]]:
        """All that are asked for, the oldest first, without those that the log writes of itself."""
        answer = self.call("GET", "/v1/audit", params={"limit": 1000, **query})
        assert answer.status_code == 200, answer.text
        return [record for record in reversed(answer.json()["records"]) if record["who"] != "scheduler"]

    def close(self) -> None:
        super().close()
        self.trail.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Audited]:
    rig = Audited(tmp_path / "audit")
    rig.node(gpus=(gpu("GPU-0"), gpu("GPU-1")))
    yield rig
    rig.close()
    assert [each.flaws for each in verify(tmp_path / "audit")] == [(), ()]


def test_audit_record_of_a_change_precedes_its_answer(rig: Audited) -> None:
    job = rig.submit(user="ann", command="echo hunter2", env={"TOKEN": "hunter2"})["id"]
    calls = [
        ("DELETE", f"/v1/jobs/{job[:-2]}", None, "DELETE /v1/jobs/{id}", ["job:" + job]),
        (
            "POST",
            "/v1/gpus/a1:0/drain",
            {"reason": "fan", "by": "bob"},
            "POST /v1/gpus/{id}/drain",
            ["gpu:GPU-0"],
        ),
        ("DELETE", "/v1/gpus/GPU-0/drain?by=bob", None, "DELETE /v1/gpus/{id}/drain", ["gpu:GPU-0"]),
        ("POST", "/v1/nodes/a1/drain", {"reason": "move"}, "POST /v1/nodes/{id}/drain", ["node:a1.example"]),
    ]
    for verb, path, body, what, on in calls:
        answer = rig.call(verb, path, json=body)
        assert answer.status_code < 300, answer.text
        last = rig.records()[-1]
        assert (last["what"], last["on"], last["result"]) == (what, on, "done")
        assert last["request_id"] == answer.headers["X-Request-Id"]
        assert abs(last["at"] - time.time()) < 60
    first, _, drained, *_ = rig.records()
    assert (first["on"], first["right"], first["who"]) == (["job:" + job], "job:run", "anybody")
    assert first["detail"] == "user=ann"
    assert drained["detail"] == "by=bob"
    assert first["address"].startswith("127.0.0.1:")
    assert "hunter2" not in str(rig.records())


def test_removal_of_a_volume_is_on_record_with_its_owner(rig: Audited) -> None:
    job = rig.submit(user="ann", volumes=[{"name": "data", "path": "data", "size": 1}])["id"]
    assert rig.call("DELETE", "/v1/volumes/data").status_code == 409
    rig.call("DELETE", f"/v1/jobs/{job}")
    assert rig.call("DELETE", "/v1/volumes/data?user=ann").status_code == 202
    _, refused, _, removed = rig.records()
    for record, result in ((refused, "refused"), (removed, "done")):
        what = (record["what"], record["on"], record["right"], record["result"])
        assert what == ("DELETE /v1/volumes/{name}", ["volume:ann/data"], "job:kill", result)


def test_changes_of_apps_name_the_app_and_the_deployment(rig: Audited) -> None:
    made = rig.call("POST", "/v2/apps", json={"id": "/shop/web", "cmd": "sleep 1", "user": "carl"})
    deployment = made.headers["Marathon-Deployment-Id"]
    rig.call("PUT", "/v2/apps//shop/web?force=true", json={"instances": 2})
    rig.call("DELETE", "/v2/apps/shop/web/tasks?scale=true&host=secret-host")
    rig.call("DELETE", "/v2/groups/shop?force=true")
    created, changed, tasks, group = rig.records()
    assert (created["what"], created["on"]) == (
        "POST /v2/apps",
        [f"deployment:{deployment}", "app:/shop/web"],
    )
    assert (changed["what"], changed["detail"]) == ("PUT /v2/apps/{id}", "force=true")
    assert "app:/shop/web" in changed["on"]
    assert (tasks["what"], tasks["on"][0]) == ("DELETE /v2/apps/{id}/tasks", "app:/shop/web")
    assert "secret-host" not in tasks["detail"]
    assert (group["what"], group["on"][0]) == ("DELETE /v2/groups/{id}", "group:/shop")
    assert [record["what"] for record in rig.records(on="app:/shop/*")] == [
        "POST /v2/apps", "PUT /v2/apps/{id}", "DELETE /v2/apps/{id}/tasks", "DELETE /v2/groups/{id}",
    ]  # fmt: skip


def test_every_refusal_is_on_record_with_its_reason(rig: Audited) -> None:
    json, plain = {"Content-Type": "application/json"}, {"Content-Type": "text/plain"}
    rig.call("POST", "/v1/jobs", json={"cpus": -1})
    rig.call("POST", "/v1/jobs", data=b"[", headers=json)
    rig.call("POST", "/v1/jobs", data=b"{}", headers=plain)
    rig.call("POST", "/v1/jobs", data=b"{}", headers={**json, "Origin": "http://evil.example"})
    rig.call("GET", "/v1/jobs", headers={"Host": "evil.example"})
    rig.call("DELETE", "/v1/jobs/none")
    rig.call("PUT", "/v1/jobs", json={})
    rig.call("DELETE", "/v2/apps/none")
    assert [(r["what"], r["status"], r["reason"], r["on"]) for r in rig.records(result="refused")] == [
        ("POST /v1/jobs", 422, "invalid", []),
        ("POST /v1/jobs", 400, "bad-json", []),
        ("POST /v1/jobs", 415, "media-type", []),
        ("POST /v1/jobs", 403, "forbidden", []),
        ("GET /v1/jobs", 403, "forbidden", []),
        ("DELETE /v1/jobs/{id}", 404, "not-found", ["job:none"]),
        ("PUT /v1/jobs", 405, "method", []),
        ("DELETE /v2/apps/{id}", 404, "not-found", ["app:/none"]),
    ]


def test_audit_record_of_a_refusal_has_the_name_and_marks_a_wrong_proof(rig: Audited) -> None:
    rig.submit()
    rig.identity.caller = Caller("ann", proof=Proof.TOKEN, proof_id="t1")
    assert rig.call("DELETE", "/v1/jobs/x").status_code == 403
    assert code_of(rig.call("GET", "/v1/audit")) == (403, "forbidden")
    rig.identity.caller = NOBODY
    assert rig.call("GET", "/v1/audit").status_code == 401
    rig.identity.wrong = "root\x1b[31m"
    assert rig.call("GET", "/v1/jobs").status_code == 401
    rig.identity.wrong, rig.identity.caller = "", ANYBODY
    refused = rig.records(result="refused")
    assert [(r["who"], r["proof"], r["proved"], r["status"], r["what"]) for r in refused] == [
        ("ann", "token:t1", True, 403, "DELETE /v1/jobs/{id}"),
        ("ann", "token:t1", True, 403, "GET /v1/audit"),
        ("nobody", "none", False, 401, "GET /v1/audit"),
        ("root\\x1b[31m", "token", False, 401, "GET /v1/jobs"),
    ]
    assert [record["right"] for record in refused[:2]] == ["job:kill", "audit:see"]


def test_a_request_has_one_id_in_its_answer_its_error_and_the_lines_of_the_log(
    rig: Audited, caplog: pytest.LogCaptureFixture
) -> None:
    from mesos_gpu.scheduler.logs import Text

    caplog.handler.setFormatter(Text())
    caplog.set_level("INFO")
    own = rig.call("GET", "/v1/jobs", headers={"X-Request-Id": "ci-run.42_a"})
    assert own.headers["X-Request-Id"] == "ci-run.42_a"
    for odd in (
        "short",
        "x" * 65,
        "a b c d e f",
        "abcdefg\u00e9h".encode().decode("latin-1"),
        "../../etc/passwd",
    ):
        made = rig.call("GET", "/v1/jobs", headers={"X-Request-Id": odd}).headers["X-Request-Id"]
        assert re.fullmatch("[0-9a-f]{32}", made)
    error = rig.call("GET", "/v1/jobs/none")
    assert error.json()["error"]["request_id"] == error.headers["X-Request-Id"]
    assert "X-Request-Id" in rig.call("GET", "/v2/apps/none").headers
    job = rig.call("POST", "/v1/jobs", json={"command": "true"})
    lines = [
        line
        for line in caplog.text.splitlines()
        if job.json()["id"] in line and ("pending: queued" in line or "mesos_gpu.audit" in line)
    ]
    assert len(lines) == 2
    assert all(f"[request {job.headers['X-Request-Id']}]" in line for line in lines), lines


def test_a_defect_is_on_record_and_its_answer_has_the_id(
    rig: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rig.daemon, "request", broken)
    answer = rig.call("POST", "/v1/jobs", json={"command": "true"})
    assert answer.status_code == 500
    assert answer.json()["error"]["request_id"] == answer.headers["X-Request-Id"]
    (record,) = rig.records(result="failed")
    assert (record["what"], record["status"], record["request_id"]) == (
        "POST /v1/jobs", 500, answer.headers["X-Request-Id"],
    )  # fmt: skip


def test_audit_refuses_a_change_that_cannot_be_recorded(
    rig: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = rig.submit()["id"]
    full = NoRoom("the audit log cannot be written: No space left on device", remedy="make room")
    monkeypatch.setattr(rig.trail, "full", lambda: full)
    for verb, path, body in (
        ("POST", "/v1/jobs", {"command": "true"}),
        ("DELETE", f"/v1/jobs/{job}", None),
        ("POST", "/v2/apps", {"id": "/web", "cmd": "true"}),
    ):
        answer = rig.call(verb, path, json=body)
        assert (answer.status_code, "No space left" in answer.text) == (507, True)
    listed = rig.call("GET", "/v1/jobs").json()["jobs"]
    assert [(each["id"], each["state"] == "killed") for each in listed] == [(job, False)]
    assert rig.call("GET", "/v1/audit").json()["full"] == full.what
    assert rig.call("POST", "/v1/plan/defrag", json={"gpus": 1}).status_code == 200, "it changes nothing"


def test_filters_and_pages(rig: Audited) -> None:
    ids = [rig.submit(name=f"job-{i}")["id"] for i in range(5)]
    rig.identity.caller = Caller("ann", proof=Proof.SOCKET, local_admin=True)
    rig.call("DELETE", f"/v1/jobs/{ids[0]}")
    assert [record["on"] for record in rig.records(who="ann")] == [["job:" + ids[0]]]
    assert len(rig.records(on=ids[0])) == 2
    assert len(rig.records(what="job:run")) == 5
    assert len(rig.records(what="DELETE")) == 1
    assert len(rig.records(on="job:job-*")) == 6
    middle = rig.records()[3]["at"]
    assert len(rig.records(since=middle)) == 3
    assert len(rig.records(until=middle)) == 3
    seen, cursor = [], None
    while True:
        page = rig.call(
            "GET", "/v1/audit", params={"limit": 2, **({"cursor": cursor} if cursor else {})}
        ).json()
        seen += page["records"]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert [record["id"] for record in seen if record["who"] != "scheduler"] == [
        record["id"] for record in reversed(rig.records())
    ]


@pytest.mark.parametrize("query", ["limit=0", "since=x", "result=maybe", "cursor=1", "who=" + "x" * 257])
def test_a_query_that_is_wrong_is_refused(rig: Audited, query: str) -> None:
    answer = rig.call("GET", f"/v1/audit?{query}")
    assert code_of(answer) == (422, "invalid")
    assert answer.json()["error"]["problems"][0]["path"] == "/" + query.partition("=")[0]


def test_audit_of_a_job_or_gpu_is_for_its_viewers(rig: Audited) -> None:
    job = rig.submit()["id"]
    rig.call("DELETE", f"/v1/jobs/{job}")
    rig.call("DELETE", f"/v1/jobs/{job}x")
    rig.call("POST", "/v1/gpus/GPU-1/drain", json={"reason": "fan", "by": "bob"})
    changes = rig.call("GET", f"/v1/jobs/{job[:-1]}/changes").json()["changes"]
    assert [(change["who"], change["what"]) for change in changes] == [
        ("anybody", "DELETE /v1/jobs/{id}"), ("anybody", "POST /v1/jobs"),
    ]  # fmt: skip
    (drained,) = rig.call("GET", "/v1/gpus/GPU-1/changes").json()["changes"]
    assert (drained["what"], drained["detail"]) == ("POST /v1/gpus/{id}/drain", "by=bob")
    assert "address" not in drained
    assert rig.call("GET", "/v1/gpus/GPU-0/changes").json() == {"changes": []}
    rig.identity.caller = Caller("eve", proof=Proof.TOKEN)
    assert rig.call("GET", f"/v1/jobs/{job}/changes").status_code == 403


def test_a_flood_of_refusals_is_counted_and_hides_no_change(rig: Audited) -> None:
    rig.identity.wrong = "eve"
    for _ in range(4 * FIRST):
        rig.call("GET", "/v1/jobs", headers=KEPT)
    rig.identity.wrong = ""
    rig.submit()
    refused, done = rig.records(result="refused"), rig.records(result="done")
    assert FIRST <= len(refused) < 3 * FIRST  # a minute may have ended between
    assert len(done) == 1


def test_audit_record_cannot_be_forged_by_a_field(rig: Audited) -> None:
    evil = 'eve" result=done \x1b[2J\u202e\n{"seq":1}'
    rig.call("POST", "/v1/gpus/GPU-0/drain", json={"reason": "x", "by": evil})
    session = requests.Session()
    session.trust_env = False
    session.request(
        "DELETE", rig.url + "/v1/jobs/%0A%1b%5B2J%7Bx", headers={"X-Forwarded-For": "1.2.3.4 \xa0"}
    )
    session.close()
    for record in rig.records():
        text = " ".join([record["what"], record["detail"] or "", record["relayed"] or "", *record["on"]])
        assert text.isprintable(), record
    assert rig.records()[-1]["on"] == ["job:\\n\\x1b[2J{x"]


def test_audit_lines_are_written_without_an_audit_log() -> None:
    rig = Rig()
    try:
        assert "X-Request-Id" in rig.call("POST", "/v1/jobs", json={"command": "true"}).headers
        assert code_of(rig.call("GET", "/v1/audit")) == (404, "not-found")
    finally:
        rig.close()


def test_audit_on_a_full_disk_refuses_changes_and_has_all_that_were_made(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "AHEAD", 1 << 15)  # some hundred records instead of thousands
    rig = Audited(small / "audit")
    try:
        ballast, made = fill(small), set[str]()
        while (answer := rig.call("POST", "/v1/jobs", json={"command": "true"})).status_code == 201:
            made.add(answer.json()["id"])
            assert len(made) < 20_000
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "no-room")
        assert {job["id"] for job in rig.call("GET", "/v1/jobs").json()["jobs"]} <= made
        ballast.unlink()
        wait_until(
            "there is room",
            lambda: rig.call("POST", "/v1/jobs", json={"command": "true"}).status_code == 201,
        )
        assert rig.trail.lost == 0
        kept, cursor = set[str](), ""
        while True:
            page = rig.trail.search(Asked(what="job:run", result=Result.DONE), limit=1000, cursor=cursor)
            kept |= {record.on[0].removeprefix("job:") for _, record in page.records}
            cursor = page.cursor
            if not cursor:
                break
        assert made <= kept
    finally:
        rig.close()
    assert [each.flaws for each in verify(small / "audit")] == [(), ()]
