"""The node monitor: what it reports, when, and what it does while the agent or the probe fails."""

import base64
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from isolator.agent_api import Settings
from isolator.commands import executor_command
from isolator.ledger import Ledger, Owner
from isolator.monitor import Monitor, interval_from
from mesos_gpu.adapters.simulated_gpus import SimulatedProbe, simulated_gpus, write_inventory
from mesos_gpu.model.gpu import Gpu, Health, Inventory
from mesos_gpu.ports import GpuProbe
from mesos_gpu.testing.scripted_agent import ScriptedAgent, scripted_agent
from mesos_gpu.wire import report
from tests.conftest import wait_until

TASK = "gpu-monitor.1"
GPUS = simulated_gpus(2, "Tesla T4", seed="monitor")
SICK = (replace(GPUS[0], health=Health.SICK, reason="XID 79"), GPUS[1])


class Moody:
    """A probe that answers with what `mood` holds; an exception is raised."""

    def __init__(self, mood: Inventory | Exception) -> None:
        self.mood, self.fresh = mood, True

    def inventory(self) -> Inventory:
        self.fresh = False
        if isinstance(self.mood, Exception):
            raise self.mood
        return self.mood

    def changed(self) -> bool:
        return self.fresh

    def becomes(self, mood: Inventory | Exception) -> None:
        self.mood, self.fresh = mood, True


@dataclass
class Scene:
    agent: ScriptedAgent
    ledger: Ledger
    exit_codes: list[int]

    def launch(self, data: bytes = b'{"report_interval_s": 60}') -> None:
        task = {"task_id": {"value": TASK}, "data": base64.b64encode(data).decode()}
        self.agent.send({"type": "LAUNCH", "launch": {"task": task}})

    def reports(self) -> list[tuple[Gpu, ...]]:
        """The GPUs of each report, in order, each once."""
        seen = {s["uuid"]: s for s in self.agent.updates if s["state"] == "TASK_RUNNING"}
        return [report.decode(base64.b64decode(s["data"])).gpus for s in seen.values()]

    def wait_for_report(self, check: Callable[[tuple[Gpu, ...]], bool]) -> None:
        self.agent.wait_for(lambda: any(check(gpus) for gpus in self.reports()))


@contextmanager
def scene(directory: Path, probe: GpuProbe) -> Iterator[Scene]:
    with scripted_agent() as agent:
        settings = Settings.from_environment(agent.environment(str(directory)))
        ledger, codes = Ledger(directory / "ledger.sqlite"), list[int]()
        monitor = Monitor(settings, probe, ledger)
        thread = threading.Thread(target=lambda: codes.append(monitor.run()))
        thread.start()
        try:
            yield Scene(agent, ledger, codes)
        finally:
            agent.send({"type": "SHUTDOWN"})
            thread.join(10)
            assert not thread.is_alive()


def test_it_reports_at_once_and_on_change(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write_inventory(path, GPUS)
    with scene(tmp_path, SimulatedProbe(path)) as seen:
        seen.launch()
        seen.wait_for_report(lambda gpus: gpus == GPUS)
        write_inventory(path, SICK)
        seen.wait_for_report(lambda gpus: gpus == SICK)
        assert seen.agent.updates[-1]["message"] == "2 GPUs (simulated), 1 not healthy"


def test_it_reports_at_every_interval(tmp_path: Path) -> None:
    with scene(tmp_path, Moody(Inventory(GPUS))) as seen:
        seen.launch(b'{"report_interval_s": 0.05}')
        seen.agent.wait_for(lambda: len(seen.reports()) >= 4)


def test_a_failed_probe_makes_all_gpus_unknown_and_a_good_one_well_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    probe = Moody(Inventory(GPUS))
    with caplog.at_level(logging.CRITICAL), scene(tmp_path, probe) as seen:
        seen.launch()
        seen.wait_for_report(lambda gpus: gpus == GPUS)
        probe.becomes(ZeroDivisionError("a driver's bug"))
        seen.wait_for_report(lambda gpus: {gpu.health for gpu in gpus} == {Health.UNKNOWN})
        assert "a driver's bug" in seen.reports()[-1][0].reason
        probe.becomes(Inventory(GPUS))
        seen.agent.wait_for(lambda: seen.reports()[1:] and seen.reports()[-1] == GPUS)


def test_a_file_that_becomes_wrong_is_a_failed_probe(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write_inventory(path, GPUS)
    with scene(tmp_path, SimulatedProbe(path)) as seen:
        seen.launch()
        seen.wait_for_report(lambda gpus: gpus == GPUS)
        path.write_text('{"gpus": 7}')
        seen.wait_for_report(lambda gpus: {gpu.health for gpu in gpus} == {Health.UNKNOWN})
        assert str(path) in seen.agent.updates[-1]["message"]


@pytest.mark.parametrize("interval", [b"0.02", b"60"], ids=["a short interval", "a long one"])
def test_while_the_agent_takes_nothing_one_report_waits_and_then_the_newest_comes(
    tmp_path: Path, interval: bytes
) -> None:
    probe = Moody(Inventory(GPUS))
    with scene(tmp_path, probe) as seen:
        seen.agent.acknowledge = False
        seen.launch(b'{"report_interval_s": %s}' % interval)
        seen.agent.wait_for(lambda: len(seen.reports()) == 1)
        probe.becomes(Inventory(SICK))
        wait_until("it was read", lambda: not probe.fresh)
        time.sleep(0.2)  # ten intervals: nothing may come, so there is nothing to wait for
        assert len(seen.reports()) == 1
        seen.agent.acknowledge = True
        seen.agent.break_stream()  # the report that waits is sent again, and is acknowledged
        seen.wait_for_report(lambda gpus: gpus == SICK)
        assert seen.reports()[:2] == [GPUS, SICK]


def test_killed_is_its_last_word(tmp_path: Path) -> None:
    with scene(tmp_path, Moody(Inventory(GPUS))) as seen:
        seen.launch(b'{"report_interval_s": 0.01}')
        seen.agent.wait_for(lambda: len(seen.reports()) >= 2)
        seen.agent.send({"type": "KILL", "kill": {"task_id": {"value": "another"}}})
        seen.agent.send({"type": "KILL", "kill": {"task_id": {"value": TASK}}})
        seen.agent.wait_for(lambda: "TASK_KILLED" in seen.agent.states(TASK))
        wait_until("it ends", lambda: seen.exit_codes)
        assert seen.exit_codes == [0]
        assert seen.agent.states(TASK)[-1] == "TASK_KILLED"


def test_a_dead_executors_claim_and_task_are_cleared_away(tmp_path: Path) -> None:
    executor = subprocess.Popen(["sleep", "600"])
    owner, mine = Owner.of(executor.pid), Owner.of(os.getpid())
    executor.kill()
    executor.wait()
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, "MESOS_TASK_ID": "dead.0"})
    try:
        with scene(tmp_path, Moody(Inventory(GPUS))) as seen:
            seen.ledger.claim("dead.0", [GPUS[0].id], owner)
            seen.ledger.claim("alive.0", [GPUS[1].id], mine)
            seen.launch()
            wait_until("the claim is gone", lambda: len(seen.ledger.claims()) == 1)
            assert [claim.task for claim in seen.ledger.claims()] == ["alive.0"]
            assert left.wait(10) == -9
    finally:
        left.kill()
        left.wait()


def test_a_damaged_ledger_does_not_stop_the_reports(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_text("damaged")
    with scene(tmp_path, Moody(Inventory(GPUS))) as seen:
        seen.launch()
        seen.wait_for_report(lambda gpus: gpus == GPUS)


@pytest.mark.parametrize(
    ("data", "env", "expected"),
    [
        (b"", {}, 10.0),
        (b"{}", {"MESOS_GPU_REPORT_INTERVAL_S": "3"}, 3.0),
        (b'{"report_interval_s": 0.5}', {"MESOS_GPU_REPORT_INTERVAL_S": "3"}, 0.5),
    ],
)
def test_the_interval(data: bytes, env: dict[str, str], expected: float) -> None:
    assert interval_from(data, env) == expected


@pytest.mark.parametrize("value", [b"0", b"-1", b'"often"', b"null", b"1e999", b"NaN"])
def test_a_wrong_interval_names_the_value(value: bytes) -> None:
    with pytest.raises(ValueError, match="report_interval_s must be a positive number"):
        interval_from(b'{"report_interval_s": %s}' % value, {})


@pytest.mark.parametrize("data", [b"[1]", b"{"])
def test_a_launch_with_wrong_data_fails_and_says_so(tmp_path: Path, data: bytes) -> None:
    with scene(tmp_path, Moody(Inventory(GPUS))) as seen:
        seen.launch(data)
        seen.agent.wait_for(lambda: seen.agent.states(TASK) == ["TASK_FAILED"])
        assert seen.agent.updates[0]["message"]
        wait_until("it ends", lambda: seen.exit_codes)


def test_as_a_process_it_reads_the_inventory_file(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write_inventory(path, GPUS)
    with scripted_agent() as agent:
        more: dict[str, Any] = {
            "PATH": os.environ["PATH"], "MESOS_GPU_INVENTORY": str(path), "MESOS_GPU_NODE_DIR": str(tmp_path),
        }  # fmt: skip
        env = agent.environment(str(tmp_path), **more)
        with open(tmp_path / "stderr", "wb") as err:
            process = subprocess.Popen(
                ["/bin/sh", "-c", executor_command("monitor")], env=env, cwd=tmp_path, stderr=err
            )
        try:
            seen = Scene(agent, Ledger(tmp_path / "ledger.sqlite"), [])
            seen.launch()
            seen.wait_for_report(lambda gpus: gpus == GPUS)
            agent.send({"type": "SHUTDOWN"})
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.wait()
