"""NVML in a child process: real processes, a driver that is a fake, and hangs of it on a clock of the test."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isolator.gpus.probing import ChildProbe, Clock, Line, Lines, serve
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.health import Reading, Survey
from mesos_gpu.policy.gpus.health import at_first_sight
from tests.conftest import wait_until
from tests.doubles.nvml.fake import FakeNvml

HANGS = {"hangs": True}  # the line of a child whose driver hangs
PROGRAM = """
import os, sys
from pathlib import Path
from isolator.gpus.probing import serve
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from tests.doubles.nvml import fake
with open(sys.argv[1] + ".pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
sys.exit(serve(fake.FakeNvml(simulated_gpus(int(sys.argv[2]), "Tesla T4", seed="fake"), Path(sys.argv[1]))))
"""
GPUS = simulated_gpus(8, "Tesla T4", seed="fake")
UUIDS = [gpu.id for gpu in GPUS]
RECHECK_S = 60.0
Make = Callable[..., "Driver"]


@pytest.fixture(autouse=True)
def patient_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a killed child waited for, however busy the machine is."""
    monkeypatch.setattr("isolator.gpus.probing.KILL_S", 60.0)


class HangClock(Clock):
    """A clock that stands still but where a probe waits for a driver that hangs: the wait takes no time of the test.

    Attributes:
        at: Seconds.
        hangs: Count of children whose driver hung so far.
    """

    def __init__(self) -> None:
        self.at, self.hangs = 0.0, 0

    def now(self) -> float:
        return self.at

    def next_line(self, lines: Lines, timeout_s: float) -> Line:
        line = lines.get() if timeout_s else lines.get_nowait()
        if line != HANGS:
            return line
        self.hangs += 1
        self.at += timeout_s
        raise queue.Empty


class Forked(subprocess.Popen[str]):
    """A child of a probe that is forked: an interpreter of its own takes ten times as long to start.

    Args:
        path: State of the driver; the child adds its pid to a list beside it, and says when the driver hangs.
        count: GPUs of the driver.
    """

    def __init__(self, path: Path, count: int) -> None:
        asked, asks = os.pipe()
        answers, answered = os.pipe()
        self.args, self.returncode, self.stderr = "forked", None, None
        self._waitpid_lock, self._child_created = threading.Lock(), True  # of subprocess
        self.pid = os.fork()
        if not self.pid:
            try:
                os.dup2(asked, 0)
                os.dup2(answered, 1)
                os.closerange(3, 4096)
                sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", buffering=1)
                with open(f"{path}.pids", "a") as file:
                    file.write(f"{os.getpid()}\n")
                serve(SayingFake(simulated_gpus(count, "Tesla T4", seed="fake"), path))
            finally:
                os._exit(1)
        os.close(asked)
        os.close(answered)
        self.stdin, self.stdout = os.fdopen(asks, "w", buffering=1), os.fdopen(answers)


class SayingFake(FakeNvml):
    """A driver that says in a line of stdout when it begins to hang."""

    def hang(self) -> None:
        print(json.dumps(HANGS), flush=True)
        super().hang()


class Driver:
    """A probe, and the state of the driver that its children see."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.says()
        self.clock = HangClock()
        self.probe = ChildProbe(
            command=[str(path)], deadline_s=1.5, recheck_s=RECHECK_S, clock=self.clock, **settings
        )

    def says(self, **state: Any) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(state))
        part.rename(self.path)

    def pids(self) -> list[int]:
        """Pids of the probe's children, from the first on."""
        return [int(pid) for pid in Path(f"{self.path}.pids").read_text().split()]

    def unreadable(self) -> list[int]:
        return [n for n, r in enumerate(in_order(self.probe.survey())) if r.unreadable]


def in_order(survey: Survey) -> list[Reading]:
    readings = {reading.gpu.id: reading for reading in survey.readings}
    assert len(readings) == len(survey.readings)
    return [readings[uuid] for uuid in UUIDS if uuid in readings]


def heard(probe: ChildProbe) -> int:
    """How many XIDs wait for the next survey."""
    assert probe._child is not None
    return sum(len(xids) for xids in probe._child._xids.values())


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[Driver] = []
    counts: dict[str, int] = {}
    monkeypatch.setattr(
        "isolator.gpus.probing.start", lambda command, env: Forked(Path(command[0]), counts[command[0]])
    )

    def driver(count: int = 8, **settings: Any) -> Driver:
        path = tmp_path / f"{len(made)}.json"
        counts[str(path)] = count
        made.append(Driver(path, **settings))
        return made[-1]

    yield driver
    for each in made:
        each.probe.close()
        left = [pid for pid in each.pids() if os.path.exists(f"/proc/{pid}")]
        assert left == [], "children were left"


def test_probe_child_reads_all_cards_and_stays(make: Make) -> None:
    driver = make()
    survey = driver.probe.survey()
    assert [reading.gpu.id for reading in survey.readings] == UUIDS
    assert (survey.source, survey.driver_version, survey.cuda_version) == ("nvml", "535.0.0-fake", "12.2")
    assert survey.readings[0].gpu.links == GPUS[0].links
    assert driver.probe.survey() == survey
    assert len(driver.pids()) == 1


def test_lost_card_leaves_seven_healthy(make: Make) -> None:
    driver = make()
    driver.says(cards={"3": {"lost": True}})
    gpus = at_first_sight(driver.probe.survey(), 1.0).gpus
    assert {gpu.id: gpu.health for gpu in gpus} == {
        uuid: Health.LOST if n == 3 else Health.OK for n, uuid in enumerate(UUIDS)
    }


def test_card_that_hangs_before_it_is_named_is_left_out_and_comes_back(make: Make) -> None:
    driver = make()
    driver.says(cards={"3": {"hang": True}})
    assert [reading.gpu.id for reading in driver.probe.survey().readings] == [*UUIDS[:3], *UUIDS[4:]]
    assert driver.clock.at == 1.5, "one deadline"
    driver.says()
    driver.clock.at += RECHECK_S
    wait_until("the card is read again", lambda: len(driver.probe.survey().readings) == 8)
    assert driver.unreadable() == []
    assert driver.clock.at == 1.5 + RECHECK_S, "no further deadline"
    assert len(driver.pids()) == 4, "a new session reads all cards as soon as one is back"


def test_card_that_hangs_is_alone_unreadable_and_is_tried_again_without_waiting(make: Make) -> None:
    driver = make(2)
    assert driver.unreadable() == []
    driver.says(cards={"1": {"hang": True}})
    readings = in_order(driver.probe.survey())
    assert [reading.unreadable for reading in readings] == ["", "it did not answer within 1.5 s"]
    assert driver.clock.hangs == 1

    driver.clock.at += RECHECK_S
    begun_at = driver.clock.at
    wait_until("the second try hangs", lambda: driver.unreadable() == [1] and driver.clock.hangs == 2)
    assert driver.clock.at == begun_at, "no survey waits for a card that is tried again"
    driver.clock.at += 1.5
    assert driver.unreadable() == [1]
    assert driver.probe._hung[1].count == 2
    driver.says()
    driver.clock.at += 2 * RECHECK_S
    wait_until("the card is back", lambda: driver.unreadable() == [])


def test_card_that_hung_is_tried_again_after_its_reset(make: Make) -> None:
    driver = make(2, reset_command=["true"])
    assert driver.unreadable() == []
    driver.says(cards={"1": {"hang": True}})
    assert driver.unreadable() == [1]
    driver.says()
    assert driver.probe.reset(UUIDS[1]) == ""
    wait_until("the card is back", lambda: driver.unreadable() == [])
    assert driver.clock.at == 1.5, "before its next try is due"


def test_xids_of_a_child_that_hangs_are_not_lost(make: Make) -> None:
    driver = make(2)
    driver.probe.survey()
    events = [[UUIDS[0], 31]]
    driver.says(events=events)
    wait_until("the event came", lambda: heard(driver.probe) == 1)
    driver.says(events=events, cards={"1": {"hang": True}})
    readings = in_order(driver.probe.survey())
    assert [reading.xids for reading in readings] == [(31,), ()]


def test_two_cards_that_hang_cost_two_deadlines(make: Make) -> None:
    driver = make()
    assert driver.unreadable() == []
    driver.says(cards={"0": {"hang": True}, "7": {"hang": True}})
    assert driver.unreadable() == [0, 7]
    assert driver.unreadable() == [0, 7], "they are skipped now"
    assert (driver.clock.at, driver.clock.hangs, len(driver.pids())) == (3.0, 2, 3)


def test_probe_child_that_cannot_be_killed_keeps_its_card_from_being_tried(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process stands for one in uninterruptible sleep: neither a signal nor the end of its stdin ends it."""
    driver = make(2)
    assert driver.unreadable() == []
    with monkeypatch.context() as patch:
        patch.setattr("isolator.gpus.probing.KILL_S", 0.05)
        patch.setattr(subprocess.Popen, "kill", lambda process: os.kill(process.pid, signal.SIGSTOP))
        driver.says(cards={"1": {"hang": True}})
        assert driver.unreadable() == [1]
    driver.says()
    for _ in range(3):
        driver.clock.at += RECHECK_S
        assert driver.unreadable() == [1]
        assert not driver.probe._hung[1].tries
    os.kill(driver.pids()[0], signal.SIGKILL)
    wait_until("the card is tried again, and well", lambda: driver.unreadable() == [])


def test_driver_that_hangs_is_tried_again_without_waiting(make: Make) -> None:
    driver = make(2)
    driver.says(hang=True)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"NVML did not answer within 4\.5 s"):
            driver.probe.survey()
        assert (driver.clock.at, driver.clock.hangs) == (4.5, 1), "a driver has three deadlines to begin"
    driver.says()
    driver.clock.at += RECHECK_S

    def read() -> bool:
        try:
            return len(driver.probe.survey().readings) == 2
        except Unavailable:
            return False

    wait_until("the driver is back", read)
    assert driver.clock.at == 4.5 + RECHECK_S


def test_nvml_failure_is_reported_in_its_words(make: Make) -> None:
    driver = make()
    driver.says(broken="unknown")
    with pytest.raises(Unavailable, match="NVML failed: Unknown Error"):
        driver.probe.survey()
    driver.says()
    assert driver.unreadable() == []


def test_xids_come_once_with_the_next_survey_and_never_of_other_hosts_cards(make: Make) -> None:
    driver = make(2)
    driver.probe.survey()
    assert not driver.probe.changed()
    driver.says(events=[["GPU-of-another-host", 79], [UUIDS[1], 31], [UUIDS[1], 62]])
    wait_until("they came", lambda: heard(driver.probe) == 3)
    assert driver.probe.changed()
    assert [reading.xids for reading in driver.probe.survey().readings] == [(), (31, 62)]
    assert not driver.probe.changed()
    assert [reading.xids for reading in driver.probe.survey().readings] == [(), ()]


def test_xid_of_each_tier_decides_the_health(make: Make) -> None:
    driver = make(5)
    driver.probe.survey()
    driver.says(events=[[uuid, xid] for uuid, xid in zip(UUIDS, (31, 62, 54, 79), strict=False)])
    wait_until("they came", lambda: heard(driver.probe) == 4)
    gpus = at_first_sight(driver.probe.survey(), 1.0).gpus
    assert [(gpu.health.value, gpu.reason, gpu.warnings) for gpu in gpus] == [
        ("ok", "", ("XID 31",)),
        ("sick", "XID 62", ()),
        ("sick", "XID 54", ()),
        ("lost", "XID 79", ()),
        ("ok", "", ()),
    ]


def test_probe_child_that_is_killed_between_surveys_is_replaced(make: Make) -> None:
    driver = make(2)
    driver.probe.survey()
    os.kill(driver.pids()[0], 9)
    wait_until("it is dead", lambda: driver.probe._child is not None and driver.probe._child.ended())
    assert driver.unreadable() == []
    assert len(driver.pids()) == 2


@pytest.mark.parametrize("hang", [False, True], ids=["idle", "in a hang"])
def test_probe_child_dies_with_its_parent(tmp_path: Path, hang: bool) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"hang": hang}))
    code = (
        "import sys, time; from isolator.gpus.probing import ChildProbe; "
        f"probe = ChildProbe(command=[sys.executable, '-c', {PROGRAM!r}, {str(path)!r}, '1'], deadline_s=60); "
        "probe.survey(); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        said = Path(f"{path}.pids")
        child = wait_until("it has a child", lambda: said.read_text().split() if said.exists() else [])
    finally:
        parent.kill()
        parent.wait()
    wait_until("the child is gone", lambda: not os.path.exists(f"/proc/{child[0]}"))


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["true"], ""),
        (["sh", "-c", "echo GPU $0 is in use; exit 1"], f"GPU {UUIDS[0]} is in use"),
        (["false"], "exit code 1"),
        (["no-such-tool"], "no-such-tool cannot be run: No such file or directory"),
    ],
)
def test_reset_is_done_by_the_tool_without_a_session_in_its_way(
    make: Make, command: list[str], says: str
) -> None:
    driver = make(1, reset_command=command)
    driver.probe.survey()
    assert driver.probe.reset(UUIDS[0]) == says
    assert not os.path.exists(f"/proc/{driver.pids()[0]}")
    assert driver.unreadable() == []


def test_probe_child_reads_this_host() -> None:
    probe = ChildProbe(deadline_s=30)
    try:
        survey = probe.survey()
        assert survey.readings or survey.note
        assert probe.reset.__doc__
    finally:
        probe.close()
