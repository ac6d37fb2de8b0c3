"""The life of an MPS daemon: every pair of its table; and what logs say of faults, and whose they are."""

import itertools

import pytest

from isolator.shares.mps.life import (
    TABLE,
    Action,
    Event,
    LogReading,
    Move,
    State,
    culprit,
    read_log,
    read_xid,
    step,
)

S, E, A = State, Event, Action
#: As the daemon and the server of 535.261.03 write it.
HEAD = """\
[2026-11-22 06:57:57.711 Control 10971] Starting control daemon using socket /run/mesos-gpu/mps/0dac0fae/control
[2026-11-22 06:57:57.715 Control 10971] Starting new server 10977 for user 1000
[2026-11-22 06:57:57.837 Control 10971] NEW SERVER 10977: Ready
"""
FAULT = """\
[2026-11-22 06:58:01.100 Other 10977] Client process 4711 encountered a fatal GPU error.
[2026-11-22 06:58:01.101 Other 10977] Server is handling a fatal GPU error.
"""
EXITED = "[2026-11-22 06:58:02.742 Control 10971] Server 10977 exited with status 1\n"


def test_mps_table_decides_every_pair() -> None:
    assert set(TABLE) == set(itertools.product(State, Event))


@pytest.mark.parametrize(("state", "event"), tuple(TABLE), ids=lambda each: each.value)
def test_mps_table_keeps_the_rules(state: State, event: Event) -> None:
    """What must hold whatever the state: the table is judged, not repeated."""
    move = step(state, event)
    assert (A.OPEN in move.does) <= (move.to is S.ACTIVE)  # shares are added only where it works
    if state is not S.ACTIVE and move.to is S.ACTIVE:
        assert move.does == (A.OPEN,)
    if state is S.ACTIVE and move.to in (S.HUNG, S.FAULT, S.GONE):
        assert A.CLOSE in move.does
    if event in (E.EXITED, E.ABSENT) and state in (S.ACTIVE, S.FAULT, S.HUNG):
        assert (move.to, A.EVICT in move.does, A.KILL in move.does) == (S.GONE, True, True)
    if event is E.FAULT:
        assert (move.to, A.EVICT in move.does) == (S.FAULT, True)
    if event in (E.ANSWERS, E.OVER):
        assert move.to is S.ACTIVE
        assert not {A.EVICT, A.KILL} & set(move.does)
    if event is E.STARTED:
        assert move == Move(S.STARTING)
    if A.KILL in move.does:
        assert move.to is S.GONE


def test_mps_silence_closes_and_a_second_one_evicts() -> None:
    first = step(S.ACTIVE, E.SILENT)
    assert first == Move(S.HUNG, (A.CLOSE,))
    assert step(first.to, E.SILENT) == Move(S.HUNG, (A.EVICT,))
    assert step(first.to, E.ANSWERS) == Move(S.ACTIVE, (A.OPEN,))


def test_a_fault_ends_when_its_clients_have_left() -> None:
    assert step(S.FAULT, E.FAULT).to is S.FAULT
    assert step(S.FAULT, E.OVER) == Move(S.ACTIVE, (A.OPEN,))


def test_a_card_is_whole_again_from_every_state() -> None:
    """No state needs a reboot: ended and started anew, it serves."""
    for state in State:
        state = step(state, E.EXITED).to
        assert state is S.GONE
        state = step(state, E.STARTED).to
        assert step(state, E.ANSWERS) == Move(S.ACTIVE, (A.OPEN,))


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("", LogReading()),
        (HEAD, LogReading()),
        (HEAD + FAULT, LogReading(fault=True, met=True, culprits=(4711,))),
        (HEAD + FAULT + FAULT, LogReading(fault=True, met=True, culprits=(4711,))),
        (HEAD + FAULT + EXITED, LogReading(met=True, culprits=(4711,))),
        (
            HEAD + FAULT + EXITED + HEAD + FAULT.replace("4711", "4712"),
            LogReading(fault=True, met=True, culprits=(4712,)),
        ),
        (
            HEAD + "[… Control 1] Server encountered a fatal exception. Shutting down\n",
            LogReading(fault=True, met=True),
        ),
        (HEAD + "[… Control 1] Cmd:Client process 4711 encountered a fatal GPU error.\n", LogReading()),
        (HEAD + FAULT + "[… Control 1] Cmd:NEW SERVER 1: Ready\n", LogReading(True, True, (4711,))),
        ("ess 4711 encountered a fatal GPU error.\n", LogReading()),  # its beginning is cut off
    ],
    ids=[
        "empty",
        "start",
        "fault",
        "twice",
        "over",
        "another",
        "exception",
        "command",
        "command of an end",
        "cut",
    ],
)
def test_a_log_tells_of_the_fault_that_lasts(text: str, reading: LogReading) -> None:
    assert read_log(text) == reading


def test_an_xid_names_a_pid() -> None:
    line = "[1234.5] NVRM: Xid (PCI:0000:3B:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000"
    told = read_xid(line)
    assert told is not None
    assert (told.pci_bus, told.xid, told.pid) == ("0000:3b:00", 31, 4711)
    assert read_xid("NVRM: Xid (PCI:0000:3B:00): 79, GPU has fallen off the bus.") is None
    assert read_xid("NVRM: loading") is None


CULPRITS = {
    "the XID names a client": ((11,), (), "a"),
    "the XID names the server, the log a client": ((99,), (21,), "b"),
    "they differ": ((11,), (21,), "a"),
    "the log names all": ((), (11, 21), None),
    "nobody is named": ((), (), None),
    "a stranger is named": ((99,), (98,), None),
    "two processes of one task": ((11, 12), (), "a"),
}


@pytest.mark.parametrize(("xids", "log", "whose"), CULPRITS.values(), ids=CULPRITS)
def test_mps_culprit_follows_from_xids_and_log(
    xids: tuple[int, ...], log: tuple[int, ...], whose: str | None
) -> None:
    assert culprit({"a", "b"}, {11: "a", 12: "a", 21: "b"}, xids, log) == whose


def test_mps_culprit_is_the_only_client() -> None:
    assert culprit({"a"}, {}, (), ()) == "a"


def test_a_task_that_has_left_is_not_blamed() -> None:
    assert culprit({"b", "c"}, {11: "a"}, (11,), ()) is None
