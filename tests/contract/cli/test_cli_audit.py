"""`mesos-gpu audit`, and who changed a job or a GPU, against a real scheduler's REST interface and real files."""

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.cli import output
from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.model.ids import GpuId
from tests.contract.api.test_audit_trail import Audited
from tests.contract.cli.cli_rig import call, finish, read_until, started
from tests.doubles.builders import gpu

UUID = "GPU-22fbf57c-c73e-9aea-5239-e7d583afc8ba"


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Audited]:
    rig = Audited(tmp_path / "audit")
    rig.node(gpus=(replace(gpu("GPU-0"), id=GpuId(UUID)),))
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    monkeypatch.setenv("MESOS_GPU_AUDIT", str(tmp_path / "audit"))
    yield rig
    rig.close()


def good(*words: str) -> str:
    done = call(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_audit_command_prints_changes_newest_last(rig: Audited) -> None:
    job = rig.submit(name="train")["id"]
    rig.identity.caller = Caller("ann", proof=Proof.SOCKET, local_admin=True)
    rig.call("DELETE", f"/v1/jobs/{job}")
    rig.call("DELETE", "/v1/jobs/none")
    rows = good("audit", "--on", "job:*").splitlines()
    assert rows[0].split() == ["TIME", "WHO", "WHAT", "ON", "RESULT", "FROM", "PROOF", "REQUEST"]
    assert [re.split("  +", row)[1:5] for row in rows[1:]] == [
        ["anybody", "job:run", f"job:{job}", "done"],
        ["ann", "job:kill", f"job:{job}", "done"],
        ["ann", "job:kill", "job:none", "404 not-found"],
    ]
    assert [record["status"] for record in json.loads(good("audit", "--refused", "--json"))] == [404]
    assert good("audit", "--who", "ann", "-n", "1").count("\n") == 2
    assert good("audit", "--who", "ann", "--since", "1h").count("\n") == 3
    assert good("audit", "--until", "2001-09-09T01:46:40Z").count("\n") == 1


def test_a_name_that_is_claimed_has_a_question_mark(rig: Audited) -> None:
    rig.identity.wrong = "root"
    rig.call("DELETE", "/v1/jobs/x")
    rig.identity.wrong = ""
    assert " root?  " in good("audit", "--refused")


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_table_fits_its_terminal(rig: Audited, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.identity.caller = Caller("ann.of.the.platform@example.com", proof=Proof.OIDC, local_admin=True)
    job = rig.submit(name="train-a-rather-long-name")["id"]
    rig.call("DELETE", f"/v1/jobs/{job}", headers={"X-Forwarded-For": "192.0.2.7"})
    rig.call("POST", f"/v1/gpus/{UUID}/drain", json={"reason": "fan"})
    rig.call("DELETE", "/v1/jobs/none")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    rows = good("audit", "--on", "*").splitlines()
    assert max(len(row.rstrip()) for row in rows) <= width, rows
    assert {"TIME", "WHO", "WHAT", "ON", "RESULT"} <= set(rows[0].split())


@pytest.mark.parametrize("since", ["yesterday", "2h ago", "", "2027-13-01", "-3"])
def test_a_time_that_is_none_is_wrong_use(rig: Audited, since: str) -> None:
    done = call("audit", f"--since={since}")
    assert (done.exit_code, "is not a time; write an age" in done.output) == (2, True)


def test_audit_command_follows_new_records(rig: Audited) -> None:
    rig.submit(name="first")
    with started("audit", "--follow", "--what", "job:run") as process:
        assert process.stdout is not None
        out = process.stdout.fileno()
        assert b"job:first-" in read_until(out, b"done")
        second, third = rig.submit(name="second")["id"], rig.submit(name="third")["id"]
        seen = read_until(out, third.encode())
        assert seen.count(second.encode()) == 1
        process.send_signal(signal.SIGINT)
        code, rest, _ = finish(process)
    assert code == 130
    assert second not in rest


def test_files_are_verified_and_a_change_shows(rig: Audited, tmp_path: Path) -> None:
    rig.submit()
    rig.submit()
    said = good("audit", "--verify")
    assert re.match(
        r"changes: lines 1 to 3 in 1 files: sound; the last one's SHA-256 is [0-9a-f]{64}\n", said
    )
    file = tmp_path / "audit" / "changes-00000001.jsonl"
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    fd = os.open(file, os.O_WRONLY)
    os.pwrite(fd, changed, 0)
    done = call("audit", "--verify")
    assert done.exit_code == 65
    assert "was modified" in done.output
    assert "changes-00000001.jsonl:" in done.output
    assert json.loads(call("audit", "--verify", "--json").stdout)[0]["flaws"] != []
    os.pwrite(fd, whole, 0)
    os.close(fd)
    assert "FLAWS" not in good("audit", "--verify")


def test_a_directory_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    done = call("audit", "--verify", "--dir", str(tmp_path / "none"))
    assert (done.exit_code, "No such file" in done.output) == (78, True)
    assert "--dir DIRECTORY" in done.output


def test_audit_verify_fails_for_a_missing_log(rig: Audited, tmp_path: Path) -> None:
    """Somebody may have removed all of it, the marks too; or another directory was named."""
    rig.submit()
    for file in (tmp_path / "audit").iterdir():
        file.unlink()
    done = call("audit", "--verify")
    assert (done.exit_code, "has no audit log" in done.output, "sound" in done.output) == (66, True, False)


def test_a_host_where_root_has_done_nothing_has_no_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESOS_GPU_HOST_AUDIT", str(tmp_path / "audit"))
    assert json.loads(good("audit", "--host", "--json")) == []


def test_a_job_and_a_card_say_who_changed_them(rig: Audited) -> None:
    rig.identity.caller = Caller("ann", proof=Proof.SOCKET, local_admin=True)
    job = rig.submit(name="train")["id"]
    rig.call("POST", f"/v1/gpus/{UUID}/drain", json={"reason": "fan", "by": "bob"})
    for _ in range(3):
        rig.call("DELETE", f"/v1/jobs/{job}")
    text = good("show", job)
    assert [line.split()[2] for line in text.splitlines() if line.startswith("changed by")] == ["ann"] * 3
    assert re.search(r"\nchanged by +ann  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  killed\n", text)
    assert [change["what"] for change in json.loads(good("show", job, "--json"))["changes"]] == [
        "DELETE /v1/jobs/{id}"
    ] * 3
    card = good("gpu", "health", UUID)
    assert re.search(r"\nchanged by +ann  .*  drained  by=bob\n", card)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only its acts are kept")
def test_audit_of_root_on_a_host_is_in_a_log_of_that_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESOS_GPU_HOST_AUDIT", str(tmp_path / "log" / "audit"))
    assert call("backup", str(tmp_path / "copy"), "--state", str(tmp_path / "none")).exit_code != 0
    SqliteStore(tmp_path / "state").close()
    for name in ("one", "two"):
        good("backup", str(tmp_path / name), "--state", str(tmp_path / "state"))
    good("restore", str(tmp_path / "one"), "--state", str(tmp_path / "state"))
    records = json.loads(good("audit", "--host", "--json"))
    assert [(r["what"], r["result"], r["on"][1]) for r in records] == [
        ("backup", "failed", f"file:{tmp_path}/copy"),
        ("backup", "done", f"file:{tmp_path}/one"),
        ("backup", "done", f"file:{tmp_path}/two"),
        ("restore", "done", f"file:{tmp_path}/one"),
    ]
    assert {record["proof"] for record in records} <= {"login", "uid"}
    assert good("audit", "--host", "--on", "file:*/two").count("\n") == 1, "a * is for the end alone"
    assert "lines 1 to 4 in 1 files: sound" in good("audit", "--host", "--verify")
    assert (tmp_path / "log" / "audit").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only its acts are kept")
def test_a_command_whose_record_cannot_be_kept_is_done_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MESOS_GPU_HOST_AUDIT", str(tmp_path / "file" / "audit"))
    SqliteStore(tmp_path / "state").close()
    done = call("backup", str(tmp_path / "one"), "--state", str(tmp_path / "state"))
    assert (done.exit_code, "could not be recorded in the audit log: " in done.output) == (0, True)
