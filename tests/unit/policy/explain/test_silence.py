"""Why a node gets no launches, or its GPUs are not known, in words: at each bound and beyond it."""

import pytest

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.gpu import Inventory, Program
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.wires import WIRE
from mesos_gpu.policy.explain.silence import backed_off, lost, paced, silent, unfit, unknown

NOW = 1_000_000.0


def node(**fields: object) -> Node:
    return Node(AgentId("a1"), "a1.example", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("under_way", "room", "tasks", "words"),
    [
        (5, None, 9, ""),  # no limit
        (5, 1, 1, ""),
        (5, 0, 1, "5 launches are under way"),
        (1, 0, 1, "1 launch is under way"),
        (5, 3, 3, ""),
        (5, 2, 3, "5 launches are under way"),
        (0, 2, 3, ""),  # a gang that is larger than any window starts where nothing else does
        (0, 0, 1, "0 launches are under way"),
    ],
)
def test_pace_keeps_tasks_waiting_beyond_the_room_of_a_node(
    under_way: int, room: int | None, tasks: int, words: str
) -> None:
    assert paced(node(), under_way, room, tasks, NOW) == words


@pytest.mark.parametrize(("until", "waits"), [(NOW - 1, False), (NOW, False), (NOW + 1, True)])
def test_pace_keeps_all_waiting_while_a_node_is_backed_off(until: float, waits: bool) -> None:
    words = paced(node(launch_not_before=until, timeouts=2), 0, None, 1, NOW)
    assert words.startswith("2 executors did not register in time") is waits


def test_back_off_says_until_when_and_for_how_many_executors() -> None:
    assert backed_off(node()) == ""
    one = backed_off(node(launch_not_before=NOW, timeouts=1))
    assert one == "1 executor did not register in time, so it gets no launches before 1970-01-12T13:46:40Z"


NEVER = (
    "its node monitor was started 3 times and has reported nothing: mesos-gpu-monitor must be on the PATH of the "
    "agent, or the scheduler needs --executor-archive; see stderr in the monitor's sandbox"
)


@pytest.mark.parametrize(
    ("reported_at", "launches", "words"),
    [
        (None, 0, ""),
        (None, 1, "its node monitor has not reported its GPUs yet"),
        (None, 3, NEVER),
        (NOW - 60, 1, ""),
        (NOW - 61, 1, "its node monitor has been silent for 61 s"),
        (NOW - 61, 0, "its node monitor has been silent for 61 s"),
    ],
)
def test_silence_of_a_monitor_is_said_when_its_report_is_too_old(
    reported_at: float | None, launches: int, words: str
) -> None:
    assert silent(node(reported_at=reported_at, monitor_launches=launches), NOW, 60.0) == words


def test_lost_agent_is_said_with_how_long_it_is_away() -> None:
    assert lost(node(), NOW) == ""
    assert lost(node(lost_at=NOW - 7), NOW) == "the master lost this agent 7 s ago"


@pytest.mark.parametrize(
    ("wire", "oldest", "spoken", "remedy"),
    [
        (
            WIRE + 2, WIRE + 1, f"wires {WIRE + 1} to {WIRE + 2}",
            "start a newer scheduler, or this one's programs on the host",
        ),
        (0, 0, "wire 0", "start programs of this release on the host: see mesos-gpu upgrade plan"),
    ],
)  # fmt: skip
def test_monitor_without_a_common_version_is_named_with_the_remedy(
    wire: int, oldest: int, spoken: str, remedy: str
) -> None:
    inventory = Inventory(program=Program("9.1", wire, oldest))
    stranger = node(inventory=inventory)
    words = f"its node monitor (release 9.1) speaks {spoken}, and this scheduler wires 1 to 2: {remedy}"
    assert unfit(stranger) == words
    assert unfit(node(inventory=Inventory())) == ""
    assert unfit(node()) == ""
    common = [Program("9.1", WIRE + 1, WIRE), Program("9.1", WIRE, WIRE), Program("9.1", 1, 1)]
    assert [unfit(node(inventory=Inventory(program=each))) for each in common] == ["", "", ""]


def test_reason_why_nothing_is_known_is_the_gravest() -> None:
    stranger = {"inventory": Inventory(program=Program("9.1", 9, 9)), "reported_at": NOW - 61}
    both = node(lost_at=NOW, **stranger)
    assert unknown(both, NOW, 60.0) == lost(both, NOW) != ""
    assert unknown(node(**stranger), NOW, 60.0) == unfit(node(**stranger)) != ""
    assert unknown(node(reported_at=NOW - 61), NOW, 60.0) == "its node monitor has been silent for 61 s"
    assert unknown(node(reported_at=NOW), NOW, 60.0) == ""
