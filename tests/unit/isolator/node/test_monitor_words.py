"""Events and settings of a monitor, without an agent and without waiting."""

import base64
import json
import math
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from isolator.agent.agent_api import Settings
from isolator.gpus import driver_volume
from isolator.gpus.ledger import Ledger, Owner
from isolator.gpus.share_claims import Room, ShareClaim
from isolator.node import monitor as module
from isolator.node.monitor import Monitor, health_from, interval_from, probe_from
from isolator.node.reaper import Reaping
from mesos_gpu.adapters.simulated.use import Holder
from mesos_gpu.adapters.simulated_gpus import SimulatedProbe, simulated_gpus
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.model.nodes.health import Reading, Survey
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.policy.gpus.health import HealthSettings
from mesos_gpu.wire.channel.call import MARK

GPUS = simulated_gpus(2, "Tesla T4", seed="words")
WELL = Survey(tuple(Reading(gpu) for gpu in GPUS), "simulated", "535", "12.2")


class Probe:
    """Gives the answer of the test, and resets at once."""

    def __init__(self) -> None:
        self.answer: Survey | Exception = WELL
        self.problem = ""
        self.resets: list[GpuId] = []

    def survey(self) -> Survey:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def changed(self) -> bool:
        return False

    def reset(self, gpu_id: GpuId) -> str:
        self.resets.append(gpu_id)
        return self.problem

    def close(self) -> None:
        pass


class Connection:
    """Messages of a monitor to its agent."""

    def __init__(self, *_: object) -> None:
        self.said: list[tuple[str, str, str]] = []
        self.finished = 0
        self.waits = False

    def update(self, task_id: str, state: str, *, message: str = "", data: bytes = b"") -> None:
        self.said.append((task_id, state, message))

    def finish(self) -> None:
        self.finished += 1

    def waiting(self) -> bool:
        return self.waits


class Threads:
    """Threads that were begun, by what they run, and not run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[tuple[str, tuple[object, ...]]] = []
        threads = self

        class Thread:
            def __init__(
                self, *, target: Callable[..., None], args: tuple[object, ...] = (), daemon: bool
            ) -> None:
                assert daemon, "it keeps no process alive"
                self.what = target.__name__, args

            def start(self) -> None:
                threads.begun.append(self.what)

            def is_alive(self) -> bool:
                return False

        monkeypatch.setattr(threading, "Thread", Thread)


class Rig:
    """A monitor that runs nothing."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        monkeypatch.setattr(module, "Connection", Connection)
        self.ledger = Ledger(directory / "ledger.sqlite")
        self.probe, self.threads = Probe(), Threads(monkeypatch)
        agent = Settings.from_environment(
            {
                "MESOS_AGENT_ENDPOINT": "127.0.0.1:1",
                "MESOS_FRAMEWORK_ID": "f",
                "MESOS_EXECUTOR_ID": "e",
                "MESOS_SANDBOX": str(directory),
                "MESOS_DIRECTORY": str(directory),
            }
        )
        self.monitor = Monitor(agent, self.probe, self.ledger, **settings)
        self.connection = cast("Connection", self.monitor._connection)

    def launch(self, task: str = "m.1", data: bytes = b'{"report_interval_s": 7}') -> None:
        self.monitor.launch({"task_id": {"value": task}, "data": base64.b64encode(data).decode()})


class Repeated:
    """A reaper that is asked once more, by any method."""

    def __init__(self, again: Callable[[], None]) -> None:
        self.again = again

    def __getattr__(self, _name: str) -> Callable[[], None]:
        return self.again


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def test_monitor_is_launched_once(rig: Rig) -> None:
    rig.launch()
    assert rig.threads.begun == [("_report", (7.0,)), ("_widen", ())]
    rig.launch("m.2")
    assert rig.connection.said == [("m.2", "TASK_FAILED", "a monitor runs one task only")]
    assert len(rig.threads.begun) == 2


def test_monitor_that_is_launched_wrongly_has_failed(rig: Rig) -> None:
    rig.launch(data=b'{"report_interval_s": 0}')
    text = "report_interval_s must be a positive number of seconds, got 0"
    assert rig.connection.said == [("m.1", "TASK_FAILED", text)]
    assert rig.threads.begun == []
    rig.monitor.kill("m.1", None)
    assert len(rig.connection.said) == 1, "that was its last word"


def test_monitor_is_killed_by_its_own_name_and_once(rig: Rig) -> None:
    rig.monitor._end("nothing runs")
    rig.launch()
    rig.monitor.kill("m.2", None)
    assert rig.connection.said == []
    assert rig.monitor._sent()
    for _ in range(2):
        rig.monitor.kill("m.1", 5.0)
    states = [(task, state) for task, state, _ in rig.connection.said]
    assert states == [("m.1", "TASK_RUNNING"), ("m.1", "TASK_KILLED")]
    assert rig.connection.said[-1][2] == "killed on request"
    assert not rig.monitor._sent(), "no report follows the last word"
    assert len(rig.connection.said) == 2


def test_monitor_keeps_a_report_while_another_waits(rig: Rig) -> None:
    rig.launch()
    rig.connection.waits = True
    assert not rig.monitor._sent()
    assert rig.connection.said == []


def test_monitor_finishes_with_its_last_word_or_the_agents(rig: Rig) -> None:
    rig.launch()
    for state, finished in (
        ("TASK_RUNNING", 0),
        ("TASK_STARTING", 0),
        ("TASK_KILLED", 1),
        ("TASK_FAILED", 2),
    ):
        rig.monitor.acknowledged("m.1", state)
        assert rig.connection.finished == finished, state
    rig.monitor.shutdown()
    assert rig.connection.finished == 3
    assert not rig.monitor._sent()
    assert rig.monitor._wake.is_set()


def test_monitor_that_breaks_ends_its_process(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_interval_s: float) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(rig.monitor, "_report_until_stopped", broken)
    with pytest.raises(RuntimeError):
        rig.monitor._report(1.0)
    assert rig.connection.finished == 1
    rig.monitor.shutdown()
    with pytest.raises(RuntimeError):
        rig.monitor._report(1.0)
    assert rig.connection.finished == 2, "shutdown has said so"


@pytest.mark.parametrize(
    ("value", "begun"),
    [
        ({"reset": "GPU-a", "request": "r"}, [("_reset", (GpuId("GPU-a"), "r"))]),
        ({"reset": "", "request": "r"}, [("_reset", (GpuId(""), "r"))]),
        ({"reset": "GPU-a", "request": ""}, []),
        ({"reset": 7, "request": "r"}, []),
        ({"reset": "GPU-a", "request": 7}, []),
        ({"reset": "GPU-a"}, []),
        ({"request": "r"}, []),
        ([], []),
    ],
)
def test_monitor_takes_messages_that_name_a_card_and_a_request(
    rig: Rig, value: Any, begun: list[tuple[str, tuple[object, ...]]]
) -> None:
    rig.monitor.message(json.dumps(value).encode())
    assert rig.threads.begun == begun


def test_monitor_takes_a_call_for_a_kept_sandbox_apart(rig: Rig) -> None:
    data = b"any " + MARK + b" thing"
    rig.monitor.message(data)
    assert rig.threads.begun == [("_read_kept", (data,))]


@pytest.mark.parametrize("problem", ["", "it hangs"])
def test_monitor_resets_a_card_that_is_free_once_for_each_request(rig: Rig, problem: str) -> None:
    rig.monitor._look()
    rig.probe.problem = problem
    for request, is_done in (("r1", True), ("r1", False), ("r2", True)):
        rig.monitor._wake.clear()
        rig.monitor._reset(GPUS[0].id, request)
        assert rig.monitor._wake.is_set() is is_done, "what has changed is reported at once"
    assert rig.probe.resets == [GPUS[0].id] * 2
    record = rig.monitor._cards.get(GPUS[0].id)
    assert record is not None
    assert record.resets == ("r1", "r2")
    assert rig.ledger.holdings() == ()
    rig.monitor._reset(GpuId("GPU-unknown"), "r3")
    assert len(rig.probe.resets) == 2


def test_monitor_refuses_to_reset_a_card_that_is_in_use(rig: Rig) -> None:
    rig.monitor._look()
    me = Owner.of(os.getpid())
    share = ShareClaim(Share(1, 1, 1, Method.TURNS), {GPUS[0].id: Room(9)})
    for task in "a.1", "b.1":
        rig.ledger.claim(task, [GPUS[0].id], me, share=share)
    assert rig.monitor._reset_claimed(GPUS[0].id, "r") == "refused: the card is in use by a.1, b.1"
    assert rig.probe.resets == []


def test_monitor_resets_no_card_that_a_dead_task_cannot_be_taken_from(rig: Rig) -> None:
    tries: list[None] = []
    rig.monitor._reaping = cast("Reaping", Repeated(lambda: tries.append(None)))
    dead = replace(Owner.of(os.getpid()), boot_id="another")
    rig.ledger.claim("a.1", [GPUS[0].id], dead)
    why = "refused: remains of a dead task on the card cannot be removed yet"
    assert rig.monitor._reset_claimed(GPUS[0].id, "r") == why
    assert len(tries) == 1
    rig.monitor._reaping = cast("Reaping", Repeated(lambda: rig.ledger.drop(rig.ledger.holdings()[0])))
    assert rig.monitor._reset_claimed(GPUS[0].id, "r") == ""
    assert rig.probe.resets == [GPUS[0].id]
    assert rig.ledger.holdings() == ()
    (rig.ledger.directory / "ledger.sqlite").write_bytes(b"x" * 5000)
    assert rig.monitor._reset_claimed(GPUS[0].id, "r").startswith("refused: the ledger ")


def test_monitor_forgets_a_card_that_is_gone_when_it_is_to_be_reset(rig: Rig) -> None:
    rig.monitor._look()
    rig.probe.answer = replace(WELL, readings=WELL.readings[1:])
    rig.monitor._look()
    assert rig.monitor._cards.get(GPUS[0].id) is not None
    rig.monitor._reset(GPUS[0].id, "r")
    assert rig.monitor._cards.get(GPUS[0].id) is None
    assert rig.probe.resets == []


def test_monitor_says_how_many_cards_are_not_well(rig: Rig) -> None:
    rig.monitor._look()
    assert rig.monitor._summary() == "2 GPUs (simulated)"
    rig.probe.answer = replace(
        WELL, readings=(replace(WELL.readings[0], reset_required="x"), WELL.readings[1])
    )
    rig.monitor._look()
    assert rig.monitor._summary() == "2 GPUs (simulated), 1 not healthy"
    for error, text in ((Unavailable("why", remedy="none"), "why"), (ValueError("odd"), "ValueError('odd')")):
        rig.probe.answer = error
        rig.monitor._look()
        assert rig.monitor._summary() == f"the GPUs cannot be read: {text}"
        assert {gpu.health for gpu in rig.monitor._known.gpus} == {Health.UNKNOWN}
        assert rig.monitor._known.gpus[0].reason == f"probe failed: {text}"


def test_monitor_looks_at_no_card_while_one_is_reset(rig: Rig) -> None:
    with rig.monitor._probing:
        rig.monitor._look()
    assert rig.monitor._known == Inventory()
    rig.monitor._look()
    assert len(rig.monitor._known.gpus) == 2
    assert not rig.monitor._probing.locked()


@pytest.mark.parametrize(("recheck_s", "pace_s"), [(100.0, 10.0), (30.0, 3.0), (5.0, 0.5), (1.0, 0.5)])
def test_monitor_looks_more_often_while_something_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recheck_s: float, pace_s: float
) -> None:
    rig = Rig(tmp_path, monkeypatch, health=HealthSettings(recheck_s=recheck_s, recheck_most_s=3600))
    monkeypatch.setattr(module, "WATCH_S", 4.0)
    rig.monitor._look()
    rig.monitor._known = replace(rig.monitor._known, volume_problem="")
    assert rig.monitor._pace_s() == math.inf
    known, use = rig.monitor._known, ShareUse(TaskId("t"), GPUS[0].id, 100)
    rig.monitor._known = replace(known, uses=(use,))
    assert rig.monitor._pace_s() == 4.0
    rig.monitor._known = replace(known, volume_problem=driver_volume.AT_WORK)
    assert rig.monitor._pace_s() == 0.5
    rig.probe.answer = replace(
        WELL, readings=(replace(WELL.readings[0], reset_required="x"), WELL.readings[1])
    )
    rig.monitor._look()
    rig.monitor._known = known
    assert rig.monitor._pace_s() == pace_s
    rig.monitor._known = replace(known, uses=(use,))
    assert rig.monitor._pace_s() == min(pace_s, 4.0)


def test_monitor_says_whether_control_ports_are_denied(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, ports in (("off", "off"), ("", "denied")):
        monkeypatch.setenv("MESOS_GPU_CONTROL_PORTS", setting)
        rig.monitor._look()
        assert rig.monitor._known.control_ports == ports


@pytest.mark.parametrize(
    ("data", "env", "interval_s"),
    [
        (b"", {}, 10.0),
        (b"{}", {"MESOS_GPU_REPORT_INTERVAL_S": "3"}, 3.0),
        (b'{"report_interval_s": 0.5}', {"MESOS_GPU_REPORT_INTERVAL_S": "3"}, 0.5),
        (b'{"report_interval_s": 1}', {}, 1.0),
    ],
)
def test_monitor_interval_is_of_the_task_or_of_the_host(
    data: bytes, env: dict[str, str], interval_s: float
) -> None:
    assert interval_from(data, env) == interval_s


@pytest.mark.parametrize("value", ["0", "-0.5", "-1", "1e999", '"x"', "null", "[]"])
def test_monitor_interval_is_a_positive_number(value: str) -> None:
    with pytest.raises(ValueError, match=r"report_interval_s|is out of range"):
        interval_from(f'{{"report_interval_s": {value}}}'.encode(), {})


@pytest.mark.parametrize("text", ["0", "-1", "-0.5", "inf", "nan", "x"])
def test_monitor_seconds_are_a_positive_number(text: str) -> None:
    with pytest.raises(BadConfiguration, match=f"MESOS_GPU_RECHECK_S is '{text}'"):
        health_from({"MESOS_GPU_RECHECK_S": text})


@pytest.mark.parametrize(
    ("text", "recheck_s", "most_s"),
    [("", 60.0, 3600.0), ("0.5", 0.5, 3600.0), ("1", 1.0, 3600.0), ("4000", 4000.0, 4000.0)],
)
def test_monitor_rechecks_no_sooner_than_it_is_told(text: str, recheck_s: float, most_s: float) -> None:
    settings = health_from({"MESOS_GPU_RECHECK_S": text})
    assert (settings.recheck_s, settings.recheck_most_s) == (recheck_s, most_s)


def test_monitor_tells_simulated_cards_who_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Callable[[], Any]] = []
    monkeypatch.setattr(SimulatedProbe, "__init__", lambda _self, _named, holders: told.append(holders))
    ledger = Ledger(tmp_path / "ledger.sqlite", lambda: 12.3456)
    me = Owner.of(os.getpid())
    ledger.claim("a.1", [GPUS[0].id], me)
    ledger.claim("none.1", [], me)
    ledger.claim("dead.1", [GpuId("GPU-x")], replace(me, boot_id="another"))
    share = ShareClaim(Share(1, 1, 1, Method.TURNS), {GPUS[1].id: Room(9)})
    ledger.claim("b.1", [GPUS[1].id], me, share=share)
    for given in ledger, None:
        probe_from({"MESOS_GPU_INVENTORY": "/gpus.json"}, given)
    assert told[0]() == [
        Holder("a.1", (GPUS[0].id,), 12346, os.getpid(), True),
        Holder("b.1", (GPUS[1].id,), 12346, os.getpid(), False),
    ]
    assert list(told[1]()) == []
