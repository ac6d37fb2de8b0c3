"""Idle GPUs on the real Mesos: idle jobs are warned and ended, also over restarts, or only for a job that waits; busy,
kept and unknown ones are not; records have to the second the use that scripts of inventories simulate.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from isolator.agent.agent_api import TERMINAL
from isolator.gpus.ledger import Ledger
from mesos_gpu.adapters.simulated.use import script_of
from mesos_gpu.cli.client import Client
from mesos_gpu.engine import events as ev
from mesos_gpu.engine import journal
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.nodes.gpu_use import TaskUse
from mesos_gpu.simulate.replay import files_of
from mesos_gpu.wire.journal import decode_batch
from mesos_gpu.wire.mesos import report
from tests.clients import client_of, kill_all
from tests.conftest import wait_until
from tests.contract.cli.cli_rig import call
from tests.e2e.tenancy.story import apply, notices, runs, submit
from tests.fault.test_kill9 import kill_monitor, kill_scheduler

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

REPORT_S: Final = 1
RULES: Final[dict[str, Any]] = {
    "warn_after_s": 3, "return_after_s": 8, "busy_share": 0.05, "resume_s": 3, "start_grace_s": 1,
    "exempt_labels": ["demo"], "max_keep_s": 3600,
}  # fmt: skip
#: What jobs do, by their names: the one that keeps itself alive runs a kernel of 10 ms each 2 s.
SCRIPTS: Final[dict[str, Any]] = {
    "forgotten*": [{"for_s": 5, "busy_pct": 80}, {"busy_pct": 0}],
    "keepalive*": [{"burst_ms": 10, "every_s": 2}],
    "busy*": [{"busy_pct": 80}],
    "unknown*": [{"unknown": True}],
    "exempt*": [{"busy_pct": 0}],
    "kept*": [{"busy_pct": 0}],
}
QUEUES: Final = (
    "lab",
    "pressed",
    "restarted",
)  # of each test its own: what is on record of others is not looked at
KINDS: Final = ("forgotten", "keepalive", "busy", "unknown", "exempt")


@pytest.fixture(scope="module")
def cluster(open_directory: Path) -> Iterator[tuple[Stack, Client]]:
    arguments = ["--share-linger", "1", "--report-interval", str(REPORT_S)]
    nodes = [NodeSpec(len(KINDS), scripts=SCRIPTS)]
    with (
        Stack(open_directory / "stack", nodes, scheduler_arguments=arguments) as stack,
        client_of(stack, len(KINDS)) as made,
    ):
        yield stack, made


@pytest.fixture
def stack(cluster: tuple[Stack, Client]) -> Stack:
    return cluster[0]


@pytest.fixture
def client(cluster: tuple[Stack, Client]) -> Iterator[Client]:
    yield cluster[1]
    kill_all(cluster[1])


def records(client: Client, queue: str) -> dict[str, dict[str, Any]]:
    """Return the records of a queue by the first part of a job's name."""
    every = client.call("GET", "/v1/usage/export", dict[str, Any])["records"]
    return {each["job_id"].partition("-")[0]: each for each in every if each["queue"] == queue}


def standing(client: Client, job: str) -> str:
    told = client.job(job)["idle"]
    return told["state"] if told else ""


def was_ended(client: Client, job: str, within_s: float) -> None:
    wait_until(f"{job} was ended", lambda: client.job(job)["state"] == "killed", within_s)


def started(
    client: Client, queue: str, names: Sequence[str] = KINDS, policy: str = "always"
) -> dict[str, str]:
    """Start a job of each kind, when there is that policy; its id by its name."""
    rules = {"notice_s": 1, "idle": {**RULES, "policy": policy}}
    apply(client, {**dict.fromkeys(QUEUES, rules), "others": {}})
    labels = {"exempt": {"demo": "1"}}
    jobs = {name: submit(client, name, queue, gpus=1, labels=labels.get(name, {})) for name in names}
    runs(client, list(jobs.values()))
    return jobs


def said_by(stack: Stack, *words: str) -> tuple[int, str]:
    """Run a command; return its exit code and all that it prints."""
    done = call(*words, "--url", stack.reach)
    return done.exit_code, done.output


def test_idle_jobs_are_warned_and_ended_and_records_have_their_use(stack: Stack, client: Client) -> None:
    jobs = started(client, "lab")
    ledger = Ledger(stack.directory / "nodes" / "1" / "ledger.sqlite")
    since_ms = {held.task: round(1000 * held.since) for held in ledger.holdings()}
    for name in ("forgotten", "keepalive"):
        was_ended(client, jobs[name], 90)
        (launch,) = client.tasks(jobs[name])
        told = notices(client, jobs[name], launch["id"])
        assert [each["reason"] for each in told] == ["idle"] * len(told)
        first, last = told[0], told[-1]
        assert (first["warning"], last["warning"]) == (True, False), (
            "it was warned, and then told when it ends"
        )
        assert last["until"] > first["at"] + RULES["warn_after_s"] - REPORT_S
        assert client.job(jobs[name])["attempts"] == 0
    for name in ("busy", "unknown", "exempt"):
        job = client.job(jobs[name])
        assert (job["state"], standing(client, jobs[name]) in ("", "suspect")) == ("running", True), name
        assert "MESOS" not in job["message"]
    kill_all(client)
    wait_until(
        "all are on record",
        lambda: {each["reason"] for each in records(client, "lab").values()} == {"idle", "killed"},
    )
    kept = records(client, "lab")
    assert {name for name, each in kept.items() if each["reason"] == "idle"} == {"forgotten", "keepalive"}
    for name, each in kept.items():
        is_what_the_script_did(each, SCRIPTS[f"{name}*"])
        known_s = each["busy_gpu_s"] + each["idle_gpu_s"]
        assert (known_s == 0) is (name == "unknown")
        if name != "unknown":
            is_what_was_seen(
                each, SCRIPTS[f"{name}*"], since_ms[each["task_id"]], told_of(stack, each["task_id"])
            )
    rows = client.call("GET", "/v1/usage", dict[str, Any], {"by": "queue"})["rows"]
    (lab,) = [row for row in rows if row["queue"] == "lab"]
    for what in ("busy", "idle"):
        assert lab[f"{what}_gpu_hours"] * 3600 == pytest.approx(
            sum(each[f"{what}_gpu_s"] for each in kept.values())
        )
    assert lab["returned"] == 2
    for by in (("--by", "user", "--by", "queue"), ("--by", "queue")):
        code, said = said_by(stack, "report", "idle", *by, "--json")
        assert code == 0, said
        (row,) = [row for row in json.loads(said)["rows"] if row["queue"] == "lab"]
        assert {key for key in row if row[key] != lab[key]} <= {"owner"}


def told(client: Client, job: str) -> list[dict[str, Any]]:
    (launch,) = client.tasks(job)
    return notices(client, job, launch["id"])


def waits(client: Client) -> str:
    """A job that wants a GPU of another queue."""
    return submit(client, "waits", "others", "sleep 600", gpus=1)


@pytest.mark.long
def test_idle_jobs_are_ended_for_a_job_that_waits_and_for_no_other(stack: Stack, client: Client) -> None:
    def keep(*words: str) -> tuple[int, str]:
        return said_by(stack, "keep", *words)

    jobs = started(client, "pressed", ("forgotten", "keepalive", "busy", "unknown", "kept"), "pressure")
    code, said = keep(jobs["kept"], "--for", "2h")
    assert (code, "may be kept for 3600 s from now" in said, "/for_s" in said) == (65, True, True), said
    code, said = keep(jobs["kept"], "--for", "10m")
    assert (code, f"{jobs['kept']} is kept until" in said) == (0, True), said
    idlers = [jobs["forgotten"], jobs["keepalive"]]

    def are_due() -> bool:
        shown = [client.job(job)["idle"] for job in idlers]
        return all(
            each and each["state"] == "warned" and each["idle_s"] > RULES["return_after_s"] for each in shown
        )

    wait_until("both are warned, and idle for longer than they may be", are_due, 90)
    assert {client.job(job)["state"] for job in jobs.values()} == {"running"}, "nobody waits"
    _, shown = said_by(stack, "ps", "--columns", "id,use")
    uses = {line.partition("-")[0]: line.split()[1] for line in shown.splitlines()[1:]}
    assert {uses[name] for name in ("forgotten", "keepalive")} == {"warned"}, shown
    assert (uses["kept"], uses["unknown"]) == ("kept", "-"), shown
    first = waits(client)
    runs(client, [first], 90)
    (gone,) = [job for job in idlers if client.job(job)["state"] != "running"]
    assert client.job(gone)["state"] == "killed"
    last = told(client, gone)[-1]
    assert (last["reason"], last["by"], last["warning"]) == ("idle", first, False)
    code, said = keep(gone, "--for", "10m")
    assert (code, f"job {gone} is killed" in said) == (73, True), said
    runs(client, [waits(client)], 90)
    assert {client.job(job)["state"] for job in idlers} == {"killed"}
    third = waits(client)
    client.kill(first)
    runs(client, [third])
    for name in ("busy", "unknown", "kept"):
        assert (client.job(jobs[name])["state"], told(client, jobs[name])) == ("running", []), name


def told_of(stack: Stack, task_id: str) -> TaskUse:
    """Return the use of a task in the last report of a monitor before its end, as the scheduler's journal has it."""
    last = None
    for path in files_of(stack.directory / "scheduler" / "journal"):
        for line in path.read_bytes().splitlines()[1:]:
            for recorded in decode_batch(line).steps:
                event = journal.EVENTS.decode(recorded.event)
                if not isinstance(event, ev.StatusArrived):
                    continue
                if event.status.task_id == task_id and event.status.state in TERMINAL:
                    assert last is not None
                    return last
                if b'"use":' in event.status.data:
                    uses = report.decode(event.status.data).task_uses
                    last = next((use for use in uses if use.task_id == task_id), last)
    raise AssertionError(f"{task_id} has not ended")


def is_what_was_seen(record: dict[str, Any], script: Any, since_ms: int, told: TaskUse) -> None:
    """Compare a record with all that a monitor has seen of a task, and that with the script in just that time.

    `since_ms`: when the task took its card, and its script began.
    """
    work = told.work
    assert work is not None
    assert record["busy_gpu_s"] == pytest.approx(work.busy_ms / 1000)
    assert record["idle_gpu_s"] == pytest.approx((work.seen_ms - work.busy_ms) / 1000)
    begun_ms = round(1000 * work.since) - since_ms
    did = script_of(script, "").between(begun_ms, begun_ms + work.seen_ms)
    looked_ms = abs(1000 * (told.at - work.since) - work.seen_ms)  # a look is not at one moment
    assert work.busy_ms == pytest.approx(did.busy_ms, abs=1000 + looked_ms)


def is_what_the_script_did(record: dict[str, Any], script: Any) -> None:
    """Compare a record with a script that began with it: known times are right to the second. The rest is unknown:
    before the first look, after the last, and while the monitor did not look."""
    held_ms = round(1000 * (record["ends"] - record["begins"]))
    did = script_of(script, "").so_far(held_ms)
    unknown_s = record["gpu_s"] - record["busy_gpu_s"] - record["idle_gpu_s"]
    assert unknown_s >= 0
    if not did.seen_ms:
        assert (record["busy_gpu_s"], record["idle_gpu_s"] <= 1) == (0, True), record
        return
    for said_s, did_ms in (
        (record["busy_gpu_s"], did.busy_ms),
        (record["idle_gpu_s"], did.seen_ms - did.busy_ms),
    ):
        assert did_ms / 1000 - unknown_s - 1 <= said_s <= did_ms / 1000 + 1, record


@pytest.mark.long
def test_idle_rules_go_on_through_restarts_of_monitor_and_scheduler(stack: Stack, client: Client) -> None:
    jobs = started(client, "restarted")
    wait_until("it is warned", lambda: standing(client, jobs["forgotten"]) in ("warned", "notice"), 60)
    kill_monitor(stack)
    kill_scheduler(stack)
    for name in ("forgotten", "keepalive"):
        was_ended(client, jobs[name], 120)
        told = [each["warning"] for each in notices(client, jobs[name], client.tasks(jobs[name])[0]["id"])]
        assert told == sorted(told, reverse=True), "no notice before its warning"
        assert True in told
    assert {client.job(jobs[name])["state"] for name in ("busy", "unknown", "exempt")} == {"running"}
    kill_all(client)
    wait_until(
        "the last is on record",
        lambda: {e["reason"] for e in records(client, "restarted").values()} == {"idle", "killed"},
    )
    for name, each in records(client, "restarted").items():
        is_what_the_script_did(each, SCRIPTS[f"{name}*"])
