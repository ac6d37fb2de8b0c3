"""Health checks as the executor makes them beside its task, against a scripted agent."""

import base64
import os
import time
from pathlib import Path

import pytest

from isolator.host.processes import descendants
from mesos_gpu.model.jobs.healthcheck import Checked, HealthCheck, Protocol
from mesos_gpu.wire.hosts.checked import decode_checked
from mesos_gpu.wire.mesos.checks import encode
from tests.answers import answering, status
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import GPUS, Host, host

UPDATED = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"


def told(agent: ScriptedAgent) -> list[tuple[str, bool | None, str]]:
    """State, health and reason of each update."""
    seen = {status["uuid"]: status for status in agent.updates}.values()
    return [(status["state"], status.get("healthy"), status.get("reason", "")) for status in seen]


def command(text: str) -> str:
    return encode([HealthCheck(Protocol.COMMAND, command=text, grace_period_s=0, interval_s=0, delay_s=0)])


def test_health_check_failures_are_told_and_the_last_ends_the_task(one: Host, agent: ScriptedAgent) -> None:
    one.launch("touch up; sleep 60 & wait", checks=command("test -e up || { echo it is down; exit 3; }"))
    agent.wait_for(lambda: ("TASK_RUNNING", True, UPDATED) in told(agent))
    (one.sandbox / "up").unlink()
    message, outcome = one.end("TASK_KILLED")
    assert message == "unhealthy: COMMAND check failed 3 times: exit code 3: it is down"
    assert outcome.unhealthy == "COMMAND check failed 3 times: exit code 3: it is down"
    assert not outcome.infrastructure, "the task's own failure"
    assert told(agent) == [
        ("TASK_RUNNING", None, ""),
        ("TASK_RUNNING", True, UPDATED),
        *[("TASK_RUNNING", False, UPDATED)] * 3,
        ("TASK_KILLING", None, ""),
        ("TASK_KILLED", False, ""),
    ]
    assert agent.updates[-3]["message"] == "exit code 3: it is down"


def test_result_of_a_shown_check_is_told_and_ends_nothing(one: Host, agent: ScriptedAgent) -> None:
    one.launch("sleep 60", check=command("test -e up || exit 3"))

    def results() -> list[Checked]:
        seen = {status["uuid"]: status for status in agent.updates}.values()
        said = (decode_checked(base64.b64decode(status.get("data", ""))) for status in seen)
        return [each for each in said if each is not None]

    agent.wait_for(lambda: results() == [Checked(False, 3)])
    (one.sandbox / "up").touch()
    agent.wait_for(lambda: results() == [Checked(False, 3), Checked(True, 0)])
    assert {health for _, health, _ in told(agent)} == {None}
    one.kill(grace_s=0)
    one.end("TASK_KILLED")


def test_an_end_stops_a_check_and_nothing_says_running_after_it(one: Host, agent: ScriptedAgent) -> None:
    checks = command("echo > at-work; trap '' TERM; sleep 61")
    one.launch("trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done", gpus=GPUS[:1], checks=checks)
    wait_until("both are at work", lambda: one.stdout() and (one.sandbox / "at-work").exists())
    begun = time.monotonic()
    one.kill(grace_s=20)
    one.end("TASK_KILLED")
    assert time.monotonic() - begun < 15, "the check, which ignores SIGTERM, is not waited for"
    assert [state for state, _, _ in told(agent)][1:] == ["TASK_KILLING", "TASK_KILLED"]


@pytest.mark.parametrize("proof", ["on", "off"])
def test_a_port_is_asked_and_a_check_of_two_alone_says_nothing(
    open_directory: Path, agent: ScriptedAgent, proof: str
) -> None:
    """The server is this process, and no part of the task: it is asked only if nothing is to be proved."""
    later = HealthCheck(Protocol.COMMAND, command="true", delay_s=0, interval_s=60)
    with (
        answering(status("200 OK")) as server,
        host(open_directory, agent, MESOS_GPU_PORT_PROOF=proof) as one,
    ):
        http = HealthCheck(Protocol.MESOS_HTTP, port=server.port, delay_s=0, interval_s=60, grace_period_s=0)
        one.launch("sleep 60", checks=encode([http, later]))
        agent.wait_for(lambda: len(told(agent)) >= 2)
        assert told(agent)[1:] == [("TASK_RUNNING", proof == "off", UPDATED)]
        strange = f"listens at port {server.port} instead of the job" in agent.updates[-1].get("message", "")
        assert strange == (proof == "on" and os.geteuid() == 0)
        one.kill(grace_s=0)
        one.end("TASK_KILLED")


def test_a_command_that_ends_by_itself_has_its_own_end(one: Host, agent: ScriptedAgent) -> None:
    one.launch("true", checks=command("true"))
    one.end("TASK_FINISHED")


def test_health_check_that_hangs_leaves_no_process(one: Host, agent: ScriptedAgent) -> None:
    """Nobody else does: its orphans are the executor's children, and it may live for months."""
    hangs = HealthCheck(
        Protocol.COMMAND, command="(sleep 61 & sleep 62)", timeout_s=1, grace_period_s=0, delay_s=0
    )
    one.launch("exec sleep 60", checks=encode([hangs]))
    agent.wait_for(lambda: ("TASK_RUNNING", False, UPDATED) in told(agent))
    left = [(Path("/proc") / str(pid) / "comm").read_text() for pid in descendants(one.process.pid)]
    assert left == ["sleep\n", "memfd:mesos-gpu\n"], "the task and its inner process alone"
    one.kill(grace_s=0)
    one.end("TASK_KILLED")


def test_checks_of_another_version_are_refused(one: Host) -> None:
    one.launch("true", checks='[{"protocol": "COMMAND"}]')
    message, _ = one.end("TASK_FAILED")
    assert message.startswith("not a task for this executor: not a health check")
