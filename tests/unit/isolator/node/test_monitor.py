"""The node monitor: what it reports, when, and what it does while the agent or the probe fails."""

import base64
import itertools
import json
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from isolator.agent.agent_api import Settings
from isolator.agent.commands import executor_command
from isolator.devices.facts import read_inventory
from isolator.gpus.ledger import Ledger, Owner
from isolator.gpus.share_claims import CardTrace
from isolator.node.monitor import Monitor, health_from, interval_from, probe_from
from isolator.shares.mps import daemon as mps
from isolator.shares.mps.compute_mode import Change, Nvml, begin_undo
from isolator.shares.mps.daemon import Host
from mesos_gpu.adapters.simulated_gpus import SimulatedProbe, change_gpu, simulated_gpus, write_inventory
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.nodes.gpu_use import Meters
from mesos_gpu.model.nodes.health import Reading, Survey
from mesos_gpu.policy.gpus.health import HealthSettings, Tier
from mesos_gpu.ports import GpuProbe
from mesos_gpu.wire.mesos import report
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent, scripted_agent
from tests.mps_hosts import Bindings

TASK = "gpu-monitor.1"
GPUS = simulated_gpus(2, "Tesla T4", seed="monitor")
PATIENCE = HealthSettings(recheck_s=0.4, clean_readings=2)
WELL = Survey(tuple(Reading(gpu) for gpu in GPUS), "simulated", "535", "12.2")
SICK = replace(WELL, readings=(replace(WELL.readings[0], reset_required="XID 62"), WELL.readings[1]))
Healths = tuple[str, ...]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look each 50 ms, not each 500."""
    monkeypatch.setattr("isolator.node.monitor.LOOK_S", 0.05)


class Moody:
    """A probe that answers with what `mood` holds; an exception is raised.

    Attributes:
        mood: The next survey.
        fresh: Whether `mood` was not read yet.
        asked: Count of surveys and of questions whether something changed: the monitor asks once between two reports.
        problem: The answer to a reset.
    """

    def __init__(self, mood: Survey | Exception = WELL) -> None:
        self.mood, self.fresh, self.asked = mood, True, 0
        self.problem = ""
        self.resets: list[GpuId] = []
        self.during: Callable[[], None] = lambda: None

    def survey(self) -> Survey:
        self.fresh = False
        self.asked += 1
        if isinstance(self.mood, Exception):
            raise self.mood
        return self.mood

    def changed(self) -> bool:
        self.asked += 1
        return self.fresh

    def becomes(self, mood: Survey | Exception) -> None:
        self.mood, self.fresh = mood, True

    def reset(self, gpu_id: GpuId) -> str:
        self.resets.append(gpu_id)
        self.during()
        return self.problem

    def close(self) -> None:
        pass


@dataclass
class Scene:
    agent: ScriptedAgent
    ledger: Ledger
    exit_codes: list[int]

    def launch(self, data: bytes = b'{"report_interval_s": 60}') -> None:
        task = {"task_id": {"value": TASK}, "data": base64.b64encode(data).decode()}
        self.agent.send({"type": "LAUNCH", "launch": {"task": task}})

    def reports(self) -> list[Inventory]:
        """What each report says, in order, each once."""
        seen = {s["uuid"]: s for s in self.agent.updates if s["state"] == "TASK_RUNNING"}
        return [report.decode(base64.b64decode(s["data"])) for s in seen.values()]

    def healths(self) -> list[Healths]:
        """The healths of each report."""
        return [tuple(gpu.health.value for gpu in each.gpus) for each in self.reports()]

    def wait_for_report(self, *healths: str) -> Inventory:
        """The first one from now on that says so."""
        self.agent.wait_for(lambda: self.healths() and self.healths()[-1] == healths)
        return self.reports()[-1]

    def message(self, **value: str) -> None:
        data = base64.b64encode(json.dumps(value).encode()).decode()
        self.agent.send({"type": "MESSAGE", "message": {"data": data}})


@contextmanager
def scene(directory: Path, probe: GpuProbe, patience: HealthSettings = PATIENCE) -> Iterator[Scene]:
    with scripted_agent() as agent:
        settings = Settings.from_environment(agent.environment(str(directory)))
        ledger, codes = Ledger(directory / "ledger.sqlite"), list[int]()
        monitor = Monitor(settings, probe, ledger, patience)
        thread = threading.Thread(target=lambda: codes.append(monitor.run()))
        thread.start()
        try:
            yield Scene(agent, ledger, codes)
        finally:
            agent.send({"type": "SHUTDOWN"})
            thread.join(60)
            assert not thread.is_alive()


def story(gpu: Gpu) -> list[str]:
    return [f"{change.old.value} -> {change.new.value}: {change.reason}" for change in gpu.history]


def test_monitor_reports_at_once_and_on_change(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write_inventory(path, GPUS)
    with scene(tmp_path, SimulatedProbe(path)) as seen:
        seen.launch()
        report = seen.wait_for_report("ok", "ok")
        assert [gpu.id for gpu in report.gpus] == [gpu.id for gpu in GPUS]
        assert (report.source, report.cuda_version) == ("simulated", "12.2")
        change_gpu(path, GPUS[0].id, health="sick", reason="XID 79")
        report = seen.wait_for_report("sick", "ok")
        assert report.gpus[0].reason == "XID 79"
        assert seen.agent.updates[-1]["message"] == "2 GPUs (simulated), 1 not healthy"
        assert read_inventory(tmp_path) == replace(report, gpu_uses=(), program=None)


def test_a_flap_is_out_rechecked_and_back_each_once_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gpus.json"
    write_inventory(path, GPUS)
    with caplog.at_level(logging.INFO), scene(tmp_path, SimulatedProbe(path)) as seen:
        seen.launch()
        seen.wait_for_report("ok", "ok")
        change_gpu(path, GPUS[0].id, health="sick", reason="XID 79")
        seen.wait_for_report("sick", "ok")
        write_inventory(path, GPUS)
        report = seen.wait_for_report("ok", "ok")
    told = ["ok -> sick: XID 79", "sick -> suspect: no fault for 0.4 s", "suspect -> ok: clean readings"]
    assert story(report.gpus[0]) == told
    assert story(report.gpus[1]) == []
    assert [m for m in caplog.messages if " -> " in m] == [f"{GPUS[0].id}: {line}" for line in told]
    steady = [health for health, _ in itertools.groupby(seen.healths()) if health != ("suspect", "ok")]
    assert steady == [("ok", "ok"), ("sick", "ok"), ("ok", "ok")]


def test_an_xid_of_the_file_takes_a_card_out_once(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write_inventory(path, GPUS)
    with scene(tmp_path, SimulatedProbe(path)) as seen:
        seen.launch()
        seen.wait_for_report("ok", "ok")
        change_gpu(path, GPUS[1].id, xids=[62])
        seen.wait_for_report("ok", "sick")
        report = seen.wait_for_report("ok", "ok")
        assert story(report.gpus[1])[0] == "ok -> sick: XID 62"


def test_health_that_was_reported_survives_kill_9(tmp_path: Path) -> None:
    """The memory is on disk before a report is sent: nothing that was said is forgotten."""
    latched = replace(WELL, readings=(replace(WELL.readings[0], row_remapping_failed=True), WELL.readings[1]))
    with scene(tmp_path, Moody(latched)) as seen:
        seen.launch()
        before = seen.wait_for_report("sick", "ok")
        (tmp_path / "health.copy").write_bytes((tmp_path / "health.json").read_bytes())
    (tmp_path / "health.copy").replace(tmp_path / "health.json")
    with scene(tmp_path, Moody(WELL)) as seen:
        seen.launch(b'{"report_interval_s": 0.1}')
        seen.agent.wait_for(lambda: len(seen.reports()) >= 12)
        assert set(seen.healths()) == {("sick", "ok")}
        assert seen.reports()[-1].gpus == before.gpus


def test_cards_after_a_damaged_memory_are_not_trusted_at_once(tmp_path: Path) -> None:
    (tmp_path / "health.json").write_text('{"cards": [')
    with scene(tmp_path, Moody()) as seen:
        seen.launch()
        report = seen.wait_for_report("suspect", "suspect")
        assert report.gpus[0].reason.startswith("its history was lost")
        seen.wait_for_report("ok", "ok")
    assert (tmp_path / "health.json.damaged").exists()


def test_a_card_that_vanishes_is_lost_and_stays_in_the_report(tmp_path: Path) -> None:
    probe = Moody()
    with scene(tmp_path, probe) as seen:
        seen.launch()
        seen.wait_for_report("ok", "ok")
        probe.becomes(replace(WELL, readings=WELL.readings[1:]))
        report = seen.wait_for_report("lost", "ok")
        assert (report.gpus[0].id, report.gpus[0].model) == (GPUS[0].id, GPUS[0].model)


def test_a_driver_that_goes_says_nothing_of_its_cards(tmp_path: Path) -> None:
    probe = Moody()
    with scene(tmp_path, probe) as seen:
        seen.launch()
        seen.wait_for_report("ok", "ok")
        probe.becomes(Survey(note="this is a CPU host: Driver Not Loaded"))
        report = seen.wait_for_report("unknown", "unknown")
        assert report.gpus[0].reason == "probe failed: this is a CPU host: Driver Not Loaded"


def test_a_strangers_process_makes_a_card_dirty_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write_inventory(path, GPUS)
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        with scene(tmp_path, SimulatedProbe(path)) as seen:
            seen.launch()
            seen.wait_for_report("ok", "ok")
            change_gpu(path, GPUS[0].id, pids=[stranger.pid])
            report = seen.wait_for_report("dirty", "ok")
            assert f"pid {stranger.pid} (sleep) of " in report.gpus[0].reason
            stranger.kill()
            stranger.wait()
            seen.wait_for_report("ok", "ok")
    finally:
        stranger.kill()
        stranger.wait()


def test_a_reset_that_is_asked_for_twice_is_done_once_and_ends_the_latch(tmp_path: Path) -> None:
    probe = Moody(replace(WELL, readings=(replace(WELL.readings[0], row_remapping_failed=True),)))
    with scene(tmp_path, probe) as seen:
        seen.launch()
        seen.wait_for_report("sick")
        held: list[str] = []
        probe.during = lambda: held.extend(h.task for h in seen.ledger.holdings())
        probe.mood = replace(WELL, readings=WELL.readings[:1])
        seen.message(reset=GPUS[0].id, request="r1")
        seen.message(reset=GPUS[0].id, request="r1")
        report = seen.wait_for_report("ok")
        assert (probe.resets, held) == ([GPUS[0].id], ["reset.r1"])
        assert seen.ledger.holdings() == ()
        assert story(report.gpus[0]) == [
            "unknown -> sick: remapping of memory rows failed",
            "sick -> sick: reset r1: done",
            "sick -> suspect: no fault for 0.4 s",
            "suspect -> ok: clean readings",
        ]


def test_a_reset_of_a_card_that_is_held_is_refused_and_says_by_whom(tmp_path: Path) -> None:
    owner = subprocess.Popen(["sleep", "600"])
    probe = Moody(SICK)
    try:
        with scene(tmp_path, probe) as seen:
            seen.ledger.claim("job-1.0", [GPUS[0].id], Owner.of(owner.pid))
            seen.launch()
            seen.wait_for_report("sick", "ok")
            seen.message(reset=GPUS[0].id, request="r1")
            seen.agent.wait_for(lambda: len(seen.reports()[-1].gpus[0].history) == 2)
            assert (
                story(seen.reports()[-1].gpus[0])[-1]
                == "sick -> sick: reset r1: refused: the card is in use by job-1.0"
            )
            assert probe.resets == []
    finally:
        owner.kill()
        owner.wait()


def test_a_reset_that_fails_says_why_and_messages_of_no_sense_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    probe = Moody(SICK)
    probe.problem = "In use by another client"
    with scene(tmp_path, probe) as seen:
        seen.launch()
        seen.wait_for_report("sick", "ok")
        seen.message(reset="GPU-none", request="r0")
        seen.message(colour="red")
        seen.message(reset=GPUS[0].id, request="r1")
        seen.agent.wait_for(lambda: len(seen.reports()[-1].gpus[0].history) == 2)
        assert story(seen.reports()[-1].gpus[0])[-1] == "sick -> sick: reset r1: In use by another client"
    assert "reset r0 of GPU-none: no such card" in caplog.text
    assert "is not valid" in caplog.text


def test_a_reset_of_a_card_that_is_gone_forgets_it(tmp_path: Path) -> None:
    probe = Moody()
    with scene(tmp_path, probe) as seen:
        seen.launch()
        seen.wait_for_report("ok", "ok")
        probe.becomes(replace(WELL, readings=WELL.readings[1:]))
        seen.wait_for_report("lost", "ok")
        seen.message(reset=GPUS[0].id, request="r1")
        seen.wait_for_report("ok")


def test_monitor_reports_at_every_interval(tmp_path: Path) -> None:
    with scene(tmp_path, Moody()) as seen:
        seen.launch(b'{"report_interval_s": 0.05}')
        seen.agent.wait_for(lambda: len(seen.reports()) >= 4)


def test_a_failed_probe_makes_all_gpus_unknown_and_a_good_one_well_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    probe = Moody()
    with caplog.at_level(logging.CRITICAL), scene(tmp_path, probe) as seen:
        seen.launch()
        seen.wait_for_report("ok", "ok")
        probe.becomes(ZeroDivisionError("a driver's bug"))
        report = seen.wait_for_report("unknown", "unknown")
        assert "a driver's bug" in report.gpus[0].reason
        probe.becomes(WELL)
        seen.wait_for_report("ok", "ok")


def test_a_file_that_becomes_wrong_is_a_failed_probe(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write_inventory(path, GPUS)
    with scene(tmp_path, SimulatedProbe(path)) as seen:
        seen.launch()
        seen.wait_for_report("ok", "ok")
        path.write_text('{"gpus": 7}')
        seen.wait_for_report("unknown", "unknown")
        assert str(path) in seen.agent.updates[-1]["message"]


@pytest.mark.parametrize("interval", [b"0.02", b"60"], ids=["a short interval", "a long one"])
def test_monitor_with_a_deaf_agent_keeps_one_report_and_then_sends_the_newest(
    tmp_path: Path, interval: bytes
) -> None:
    probe = Moody()
    with scene(tmp_path, probe) as seen:
        seen.agent.acknowledge = False
        seen.launch(b'{"report_interval_s": %s}' % interval)
        seen.agent.wait_for(lambda: len(seen.reports()) == 1)
        probe.becomes(SICK)
        wait_until("the sick card was read", lambda: not probe.fresh)
        asked = probe.asked
        wait_until("ten further reports could have been sent", lambda: probe.asked > asked + 10)
        assert len(seen.reports()) == 1
        seen.agent.acknowledge = True
        seen.agent.break_stream()  # the report that waits is sent again, and is acknowledged
        seen.wait_for_report("sick", "ok")
        assert seen.healths()[:2] == [("ok", "ok"), ("sick", "ok")]


def test_monitor_reports_killed_last(tmp_path: Path) -> None:
    with scene(tmp_path, Moody()) as seen:
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
    dead = f"dead.{os.getpid()}"
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, "MESOS_TASK_ID": dead})
    try:
        with scene(tmp_path, Moody()) as seen:
            seen.ledger.claim(dead, [GPUS[0].id], owner)
            seen.ledger.claim("alive.0", [GPUS[1].id], mine)
            seen.launch()
            wait_until("the claim is gone", lambda: len(seen.ledger.holdings()) == 1)
            assert [holding.task for holding in seen.ledger.holdings()] == ["alive.0"]
            assert left.wait(60) == -9
    finally:
        left.kill()
        left.wait()


def test_an_undo_that_hangs_in_the_driver_delays_no_look_at_the_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card of a share that is gone is to get its compute mode back, and the driver never answers."""
    bindings, began = Bindings(tmp_path / "bindings"), list[Change]()
    bindings.set(hang=True)
    place = Host(None, nvml=bindings.nvml, root=tmp_path / "mps")

    def hangs(nvml: Nvml, gpu: str, note: Path) -> Change:
        note.parent.mkdir(exist_ok=True)
        note.write_text("0")
        change = begin_undo(nvml, gpu, note)
        began.append(change)
        return change

    monkeypatch.setattr(mps, "host_of", lambda *_: place)
    monkeypatch.setattr("isolator.shares.mps.compute_mode.DEADLINE_S", 3600.0)
    monkeypatch.setattr("isolator.shares.mps.compute_mode.begin_undo", hangs)
    probe = Moody()
    with scene(tmp_path, probe) as seen:
        seen.ledger.note(CardTrace(GPUS[0].id, mps.KIND, str(mps.Domain(GPUS[0].id, 65534))))
        seen.launch(b'{"report_interval_s": 0.1}')
        wait_until("the driver is asked", lambda: began)
        probe.becomes(SICK)
        seen.wait_for_report("sick", "ok")
        (change,) = began  # none is begun beside it
        assert change.process.poll() is None
        assert seen.ledger.cards(GPUS[0].id) != ()  # nor is it forgotten
        change.process.kill()


def test_a_damaged_ledger_does_not_stop_the_reports(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_text("damaged")
    with scene(tmp_path, Moody()) as seen:
        seen.launch()
        seen.wait_for_report("ok", "ok")


def test_the_use_of_cards_is_reported_exactly_and_no_executor_is_told(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write_inventory(path, GPUS)
    change_gpu(path, GPUS[0].id, use={"busy_pct": 40, "power_mw": 70123, "temperature_c": 61})
    with scene(tmp_path, SimulatedProbe(path)) as seen:
        seen.launch(b'{"report_interval_s": 0.2}')
        seen.agent.wait_for(lambda: any(use.work for each in seen.reports() for use in each.gpu_uses))
        one, other = seen.reports()[-1].gpu_uses
        assert one.meters == Meters(power_mw=70123, temperature_c=61)
        assert one.work is not None
        assert one.work.busy_ms == pytest.approx(0.4 * one.work.seen_ms, abs=10)
        assert (other.gpu_id, other.meters, other.work) == (GPUS[1].id, Meters(), None)
        assert read_inventory(tmp_path).gpu_uses == ()  # executors have no use for it


def test_simulated_use_that_is_invalid_names_card_and_field(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write_inventory(path, GPUS)
    for use, what in (
        ({"colour": 1}, "unknown field 'colour'"),
        ({"power_mw": -1}, "use.power_mw must be a whole number from 0"),
        ({"busy_pct": 101}, "use.busy_pct must be percent from 0 to 100"),
        ({"process_busy_pct": 1}, "use.process_busy_pct must be an object"),
    ):
        change_gpu(path, GPUS[1].id, use=use)
        why = SimulatedProbe(path).survey().readings[1].misdescribed
        assert why.startswith("gpus[1]: ")
        assert what in why


@pytest.mark.parametrize(
    ("data", "env", "expected"),
    [
        (b"", {}, 10.0),
        (b"{}", {"MESOS_GPU_REPORT_INTERVAL_S": "3"}, 3.0),
        (b'{"report_interval_s": 0.5}', {"MESOS_GPU_REPORT_INTERVAL_S": "3"}, 0.5),
    ],
)
def test_the_interval_comes_from_data_before_environment(
    data: bytes, env: dict[str, str], expected: float
) -> None:
    assert interval_from(data, env) == expected


@pytest.mark.parametrize("value", [b"0", b"-1", b'"often"', b"null", b"1e999", b"NaN"])
def test_monitor_interval_that_is_wrong_is_named(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"must be a positive number|is not a JSON number|is out of range"):
        interval_from(b'{"report_interval_s": %s}' % value, {})


def test_the_settings_of_health_come_from_the_environment() -> None:
    assert health_from({}).recheck_s == 60
    settings = health_from({"MESOS_GPU_RECHECK_S": "5000", "MESOS_GPU_XIDS": "13=reset"})
    assert (settings.recheck_s, settings.recheck_most_s, settings.xids) == (5000, 5000, {13: Tier.RESET})


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("MESOS_GPU_RECHECK_S", health_from),
        ("MESOS_GPU_XIDS", health_from),
        ("MESOS_GPU_PROBE_DEADLINE_S", probe_from),
    ],
)
def test_monitor_setting_that_is_invalid_is_named(
    name: str, read: Callable[[dict[str, str]], object]
) -> None:
    with pytest.raises(BadConfiguration, match=f"{name} .*'-1'"):
        read({name: "-1"})


@pytest.mark.parametrize("data", [b"[1]", b"{"])
def test_a_launch_with_wrong_data_fails_and_says_so(tmp_path: Path, data: bytes) -> None:
    with scene(tmp_path, Moody()) as seen:
        seen.launch(data)
        seen.agent.wait_for(lambda: seen.agent.states(TASK) == ["TASK_FAILED"])
        assert seen.agent.updates[0]["message"]
        wait_until("it ends", lambda: seen.exit_codes)


def test_monitor_as_a_process_reads_the_inventory_file(tmp_path: Path) -> None:
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
            seen.wait_for_report("ok", "ok")
            agent.send({"type": "SHUTDOWN"})
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
