"""Orders of a probe to its children, and their times: children that a script plays, on a clock of the test."""

import json
import queue
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from isolator.gpus import probing
from isolator.gpus.probing import ChildProbe, Clock, Line, Lines
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.nodes.health import Reading
from mesos_gpu.wire.mesos.health import reading_to_json

GPUS = simulated_gpus(4, "Tesla T4", seed="orders")
UUIDS = [gpu.id for gpu in GPUS]
HANGS, ENDS = {"hangs": True}, {"ends": True}


class StillClock(Clock):
    """Time passes only where a probe waits for a driver that hangs, and where a test says so."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.waits: list[float] = []
        self.hung: list[Lines] = []

    def now(self) -> float:
        return self.at

    def next_line(self, lines: Lines, timeout_s: float) -> Line:
        if lines not in self.hung:
            line = lines.get(timeout=30)
            if line != HANGS:
                return line
            self.hung.append(lines)
        self.waits.append(timeout_s)
        self.at += timeout_s
        raise queue.Empty


class Driver:
    """A driver with children. Each order to one is kept, by the number of the child."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.clock = StillClock()
        self.order = list(range(len(GPUS)))  # which card has which index
        self.hangs: set[int] = set()  # cards
        self.lost: set[int] = set()  # cards
        self.starts = True  # False: a child says nothing at all
        self.begins = True  # False: a child hangs before its first card
        self.broken = ""
        self.stuck: set[int] = set()  # children that cannot be killed
        self.note = ""
        self.children: list[Process] = []
        self.orders: list[tuple[int, list[int], int | None]] = []
        monkeypatch.setattr(probing, "start", self.start)
        self.probe = ChildProbe(
            command=["child"], deadline_s=2.0, recheck_s=60.0, clock=self.clock, **settings
        )

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> "Process":
        assert command == ["child"]
        self.children.append(Process(self, len(self.children), env))
        return self.children[-1]

    def answers(self, skip: Sequence[int], alone: int | None) -> Iterator[dict[str, Any]]:
        if not self.starts:
            yield HANGS
            return
        if not self.begins:
            yield {"at": None, "uuid": ""}
            yield HANGS
            return
        if self.broken:
            yield {"failed": self.broken, "remedy": "reboot"}
            return
        readings = []
        for index, card in enumerate(self.order):
            if index in skip or alone not in (None, index):
                continue
            yield {"at": index, "uuid": ""}
            yield {"at": index, "uuid": UUIDS[card]}
            if card in self.hangs:
                yield HANGS
                return
            readings.append(reading_to_json(Reading(GPUS[card], lost=card in self.lost)))
        yield {
            "source": "nvml",
            "driver_version": "1",
            "cuda_version": "2",
            "note": self.note,
            "readings": readings,
        }

    def unreadable(self) -> dict[int, str]:
        """Cards that are unreadable, and why; all others are read."""
        readings = self.probe.survey().readings
        assert len({reading.gpu.id for reading in readings}) == len(readings)
        return {UUIDS.index(each.gpu.id): each.unreadable for each in readings if each.unreadable}

    def taken(self) -> list[tuple[int, list[int], int | None]]:
        """The orders since the last call."""
        orders, self.orders = self.orders, []
        return orders


class Output:
    """Lines of a child, which come as it is asked."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[str]:
        while (text := self.queue.get()) is not None:
            yield text


class Process:
    """A child, as `subprocess.Popen` has it."""

    def __init__(self, driver: Driver, number: int, env: Mapping[str, str]) -> None:
        self.driver, self.number, self.env = driver, number, env
        self.stdin, self.stdout = self, Output()
        self.alive, self.closed, self.waited_s = True, False, list[float]()

    def say(self, line: Mapping[str, Any]) -> None:
        self.stdout.queue.put(json.dumps(line))

    def write(self, text: str) -> None:
        if not self.alive:
            raise BrokenPipeError
        if text.strip():
            order = json.loads(text)
            self.driver.orders.append((self.number, order["skip"], order["alone"]))
            for line in self.driver.answers(order["skip"], order["alone"]):
                self.end() if line == ENDS else self.say(line)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def end(self) -> None:
        self.alive = False
        self.stdout.queue.put(None)

    def kill(self) -> None:
        if self.number not in self.driver.stuck and self.alive:
            self.end()

    def wait(self, timeout_s: float) -> int:
        self.waited_s.append(timeout_s)
        if self.alive:
            raise subprocess.TimeoutExpired("child", timeout_s)
        return -9

    def poll(self) -> int | None:
        return None if self.alive else -9


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/a::/b")
    driver = Driver(monkeypatch)
    yield driver
    driver.stuck.clear()
    driver.probe.close()
    assert not [child.number for child in driver.children if child.alive]
    assert all(child.closed for child in driver.children)


def test_probe_asks_one_child_for_all_cards(driver: Driver) -> None:
    for _ in range(3):
        assert driver.unreadable() == {}
    assert driver.taken() == [(0, [], None)] * 3
    assert driver.children[0].env["LD_LIBRARY_PATH"] == "/a:/b"


@pytest.mark.parametrize(
    ("libraries", "inherited", "path"),
    [("/l", "/a:", "/l:/a"), ("/l", "", "/l"), (None, "/a", "/a"), (None, "", None), (None, ":", ":")],
)
def test_probe_puts_libraries_before_those_of_the_host(
    monkeypatch: pytest.MonkeyPatch, libraries: str | None, inherited: str, path: str | None
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    if inherited:
        monkeypatch.setenv("LD_LIBRARY_PATH", inherited)
    driver = Driver(monkeypatch, libraries=lambda: Path(libraries) if libraries else None)
    driver.unreadable()
    assert driver.children[0].env.get("LD_LIBRARY_PATH") == path
    driver.probe.close()


def test_probe_leaves_cards_that_hang_alone_and_tries_each_by_itself(driver: Driver) -> None:
    driver.unreadable()
    driver.hangs = {1, 3}
    why = "it did not answer within 2 s"
    assert driver.unreadable() == {1: why, 3: why}
    assert driver.clock.waits == [2.0, 2.0]
    assert driver.taken() == [(0, [], None), (0, [], None), (1, [1], None), (2, [1, 3], None)]
    assert driver.unreadable() == {1: why, 3: why}
    assert driver.taken() == [(2, [1, 3], None)]

    driver.clock.at = 1061.999  # card 1 is due at 1062, a child without the others' index at 1064
    driver.unreadable()
    assert driver.taken() == [(2, [1, 3], None)]
    driver.clock.at = 1062.0
    driver.hangs = {3}
    assert driver.unreadable() == {3: why}, "it is back, and a new child reads all"
    assert driver.taken() == [(3, [], 1), (4, [3], None)]
    assert not driver.children[3].alive
    driver.clock.at = 1064.0
    assert driver.unreadable() == {3: why}
    assert driver.taken() == [(5, [], 3), (4, [3], None)]
    driver.clock.at += 2
    assert driver.unreadable() == {3: why}, "it hangs again, and is left alone for twice as long each time"
    driver.taken()
    for delay_s in 120, 240:
        driver.clock.at += delay_s - 0.1
        driver.unreadable()
        assert not [alone for _, _, alone in driver.taken() if alone is not None]
        driver.clock.at += 0.1
        driver.unreadable()
        assert [alone for _, _, alone in driver.taken() if alone is not None] == [3]
        driver.clock.at += 2
        driver.unreadable()


def test_probe_takes_no_more_hangs_than_it_can_believe(driver: Driver) -> None:
    driver.unreadable()
    driver.hangs = {0, 1, 2, 3}
    with pytest.raises(Unavailable, match="NVML did not answer within 2 s"):
        driver.probe.survey()
    assert driver.clock.waits == [2.0] * 4
    driver.taken()
    assert driver.unreadable() == dict.fromkeys(range(4), "it did not answer within 2 s")
    assert [reading.gpu.minor for reading in driver.probe.survey().readings] == [
        (1 << 20) - 1 - index for index in range(4)
    ]


@pytest.mark.parametrize(
    ("attribute", "waits", "why"),
    [("starts", 30.0, "did not answer within 30 s"), ("begins", 6.0, "did not answer within 6 s")],
)
def test_probe_is_more_patient_with_a_driver_that_begins(
    driver: Driver, attribute: str, waits: float, why: str
) -> None:
    setattr(driver, attribute, False)
    for _ in range(2):
        with pytest.raises(Unavailable, match=f"NVML {why}") as raised:
            driver.probe.survey()
    assert raised.value.remedy == "see dmesg of this host; the card may need a reset, or the host a reboot"
    assert driver.clock.waits == [waits], "the second survey does not wait"
    driver.taken()
    setattr(driver, attribute, True)
    driver.clock.at += 60.0 - waits
    with pytest.raises(Unavailable):
        driver.probe.survey()
    assert driver.taken() == []
    driver.clock.at += waits
    assert driver.unreadable() == {}
    assert driver.taken() == [(1, [], -1), (2, [], None)]


def test_probe_tells_why_a_driver_fails_and_goes_on_with_its_child(driver: Driver) -> None:
    driver.broken = "NVML failed: Unknown Error"
    with pytest.raises(Unavailable) as raised:
        driver.probe.survey()
    assert (raised.value.what, raised.value.remedy) == ("NVML failed: Unknown Error", "reboot")
    driver.broken = ""
    assert driver.unreadable() == {}
    assert driver.taken() == [(0, [], None)] * 2


def test_probe_counts_a_driver_that_fails_when_a_card_is_tried_as_a_failure(driver: Driver) -> None:
    driver.unreadable()
    driver.hangs = {2}
    driver.unreadable()
    driver.taken()
    driver.clock.at += 60
    driver.broken = "it is broken"
    with pytest.raises(Unavailable, match="it is broken"):
        driver.probe.survey()
    driver.broken = ""
    assert driver.unreadable() == {2: "it it is broken"}
    driver.clock.at += 119
    driver.taken()
    driver.unreadable()
    assert [(skip, alone) for _, skip, alone in driver.taken()] == [([2], None)]
    driver.clock.at += 2
    driver.hangs = set()
    assert driver.unreadable() == {}


def test_probe_follows_cards_to_another_index(driver: Driver) -> None:
    driver.unreadable()
    driver.hangs = {1}
    assert list(driver.unreadable()) == [1]
    driver.order, driver.hangs = [1, 0, 2, 3], set()
    driver.taken()
    assert driver.unreadable() == {}, "what is skipped is another card now: nothing is skipped any more"
    assert driver.taken() == [(1, [1], None), (1, [], None)]


def test_probe_leaves_a_child_that_cannot_be_killed_and_starts_none_beside_it(driver: Driver) -> None:
    driver.unreadable()
    driver.hangs, driver.stuck = {1}, {0}
    assert list(driver.unreadable()) == [1]
    assert driver.children[0].waited_s == [probing.KILL_S]
    driver.taken()
    driver.hangs = set()
    driver.clock.at += 500
    for _ in range(2):
        assert list(driver.unreadable()) == [1]
    assert [(skip, alone) for _, skip, alone in driver.taken()] == [([1], None)] * 2
    assert (
        driver.probe.reset(UUIDS[1])
        == "a process of the probe hangs in the driver at this card: reboot the host"
    )
    driver.children[0].end()
    assert list(driver.unreadable()) == [1], "it has ended; the card is tried with the next survey"
    driver.taken()
    assert driver.unreadable() == {}
    assert driver.taken()[0][2] == 1


def test_probe_renews_its_session_while_a_card_is_lost(driver: Driver) -> None:
    driver.lost = {2}
    driver.unreadable()
    driver.clock.at += 59.9
    driver.unreadable()
    assert [number for number, _, _ in driver.taken()] == [0, 0]
    driver.clock.at += 0.1
    driver.unreadable()
    driver.clock.at += 59.9
    driver.unreadable()
    assert [number for number, _, _ in driver.taken()] == [1, 1]
    driver.lost = set()
    driver.clock.at += 0.1
    driver.unreadable()
    driver.clock.at += 1000
    driver.unreadable()
    assert [number for number, _, _ in driver.taken()] == [2, 2]
    assert not driver.children[0].alive


def test_probe_takes_a_child_that_crashes_as_a_hang_of_its_card(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.unreadable()
    answers = driver.answers

    def crashing(skip: Sequence[int], alone: int | None) -> Iterator[dict[str, Any]]:
        for line in answers(skip, alone):
            yield line
            if line.get("at") == 2 and line["uuid"]:
                yield ENDS
                return

    monkeypatch.setattr(driver, "answers", crashing)
    assert driver.unreadable() == {2: "it made the probe crash"}
    assert driver.clock.at == 1000.0


def test_probe_keeps_events_until_the_next_survey(driver: Driver) -> None:
    driver.unreadable()
    child = driver.children[0]
    for xid in 31, None, 62:
        child.say({"event": UUIDS[0], "xid": xid})
    child.say({"event": "GPU-unknown", "xid": 79})
    child.stdout.queue.put("no JSON")
    assert [reading.xids for reading in driver.probe.survey().readings] == [(31, 62), (), (), ()]
    assert [reading.xids for reading in driver.probe.survey().readings] == [()] * 4
    assert not driver.probe.changed()


def test_probe_resets_a_card_without_a_child_beside(
    monkeypatch: pytest.MonkeyPatch, driver: Driver, tmp_path: Path
) -> None:
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\necho " $LD_LIBRARY_PATH $1 "; exit $CODE\n')
    tool.chmod(0o755)
    monkeypatch.setattr(driver.probe, "_reset_command", [str(tool)])
    driver.unreadable()
    driver.hangs = {1}
    driver.unreadable()
    driver.hangs = set()
    for code, says in (("0", ""), ("1", f"/a:/b {UUIDS[1]}"), ("255", f"/a:/b {UUIDS[1]}")):
        monkeypatch.setenv("CODE", code)
        assert driver.probe.reset(UUIDS[1]) == says
    assert not [child for child in driver.children if child.alive]
    driver.taken()
    assert driver.unreadable() == {}, "it is tried at once"
    assert [alone for _, _, alone in driver.taken()] == [1, None]


def test_probe_says_once_that_a_tool_does_not_end(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "RESET_S", 0.05)
    monkeypatch.setattr(driver.probe, "_reset_command", ["sleep", "60"])
    processes: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def started(command: Sequence[str], **more: Any) -> "subprocess.Popen[str]":
        processes.append(popen(command[:2], **more))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", started)
    assert driver.probe.reset(UUIDS[0]) == "sleep did not end within 0.05 s"
    assert processes[0].wait(30) == -9
    assert processes[0].stdout is not None
    processes[0].stdout.close()


def test_probe_replaces_a_child_that_has_ended(driver: Driver) -> None:
    driver.unreadable()
    driver.children[0].end()
    assert driver.unreadable() == {}
    assert driver.taken() == [(0, [], None), (1, [], None)]


def test_probe_logs_the_name_of_what_hangs_and_each_new_note(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    driver.note = "no NVML"
    for _ in range(2):
        driver.unreadable()
    driver.note = ""
    driver.unreadable()
    driver.hangs = {1}
    driver.unreadable()
    assert [record.getMessage() for record in caplog.records] == [
        "no NVML",
        "NVML is there",
        f"{UUIDS[1]} did not answer within 2 s: it is not read for 60 s",
    ]


def test_probe_renews_its_session_while_a_card_is_unreadable(driver: Driver) -> None:
    driver.unreadable()
    driver.hangs, driver.stuck = {1}, {0}
    driver.unreadable()
    driver.clock.at += 60
    driver.unreadable()
    assert [number for number, _, _ in driver.taken()] == [0, 0, 1, 2]


def test_probe_that_is_closed_ends_a_card_that_is_tried(driver: Driver) -> None:
    driver.unreadable()
    driver.hangs = {1}
    driver.unreadable()
    driver.clock.at += 60
    driver.unreadable()
    driver.probe.close()
    assert not [child.number for child in driver.children if child.alive]
