"""Explanations of waiting jobs at the borders of one sentence and another."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.jobs.queue import Estimate
from mesos_gpu.model.jobs.why import (
    GuaranteeShare,
    Nearest,
    NodeReasons,
    PendingReclaim,
    Removed,
    Stage,
    VictimGroup,
    Why,
)
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.words import clock
from mesos_gpu.policy.capacity.node import NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.explain.funnel import funnel
from mesos_gpu.policy.explain.hurdles import asked_for, free_here, hurdles, of_model
from mesos_gpu.policy.explain.never import could, has_enough, is_able, never
from mesos_gpu.policy.explain.why import QueueView, explain
from tests.doubles.builders import gpu, seen
from tests.unit.policy.explain.test_why import BIG, JOB, NOON, NOW, PLAIN, SMALL, ask, cards, node

NEEDS = "waits for 1 cpus, 128 MiB, 1 GPU"
ROOM = PendingReclaim(
    (VictimGroup("dev", (JobId("d1"),), 1000),), NOW, NOW + 90, on=(AgentId("small"), AgentId("big"))
)
TAKEN = seen(SMALL, holders={GpuId("g8"): "j"})
BORROWS = "nearest is small, which lacks 1 GPU: g8 is used by j; it borrows, as"


def summary(asked: Request, nodes: list[NodeCapacity], queue: QueueView | None = None, **spec: Any) -> str:
    job = replace(JOB, spec=replace(JOB.spec, **spec))
    return explain(job, asked, nodes, queue=queue or QueueView(0), now=NOW).summary


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (QueueView(0, limit="lab is full"), "waits for its queue: lab is full"),
        (QueueView(0, limit="lab is full", stage=Stage.QUEUE_LIMIT), "waits for its queue: lab is full"),
        (QueueView(0, limit="lab is on hold", stage=Stage.HOLD), "waits for its queue: lab is on hold"),
        (QueueView(0, limit="ann has 3", stage=Stage.USER_LIMIT), "waits: ann has 3"),
        (QueueView(0, limit="lab is full", never="lab is too small"), "lab is too small"),
        (QueueView(0, never="lab is too small"), "lab is too small"),
        (
            QueueView(0, ending=("a", "b"), ended_by=NOON + 60),
            "preempts a, b, which end by 12:01Z (in 60s)",
        ),
        (QueueView(0, ending=("a",)), "preempts a"),
        (
            QueueView(0, owed=GuaranteeShare("ml", seated=True, in_nodes=True, seated_milli=2000)),
            f"{NEEDS}, guaranteed by queue ml: no GPU is free; 2 GPUs are held by jobs within guarantees",
        ),
        (
            QueueView(0, owed=GuaranteeShare("ml", seated=False, in_nodes=True)),
            f"{NEEDS}; {BORROWS} nothing that queue ml is guaranteed is free for it",
        ),
        (
            QueueView(0, owed=GuaranteeShare("ml", seated=False, in_nodes=True, too_large=True, room=ROOM)),
            f"{NEEDS}; {BORROWS} what queue ml is guaranteed has no room for it even when it is all free; "
            "reclaim of 1 GPU from queue dev (d1) now",
        ),
        (
            QueueView(0, owed=GuaranteeShare("ml", seated=False, in_nodes=True, room=ROOM)),
            f"{NEEDS}; {BORROWS} nothing that queue ml is guaranteed is free for it; reclaim of 1 GPU from queue dev "
            "(d1) now",
        ),
    ],
)  # fmt: skip
def test_explanation_says_what_its_queue_does(queue: QueueView, words: str) -> None:
    assert summary(ask(1), [TAKEN], queue) == words


def test_explanation_of_a_limit_for_ever_is_that_it_never_runs() -> None:
    estimate = Estimate(NOW, "soon")
    why = explain(JOB, ask(1), [BIG], queue=QueueView(2, never="too small", estimate=estimate), now=NOW)
    reasons = NodeReasons("big", AgentId("big"), ())
    assert why == Why(
        JOB.id, JobState.PENDING, "too small", 2, can_ever_run=False, nodes=(reasons,),
        nearest=Nearest("big", "has room for it"), estimate=estimate,
        funnel=(Removed(Stage.QUEUE_LIMIT, 1, 0, "too small"),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "message", "words"),
    [
        (JobState.RUNNING, "", "it is running"),
        (JobState.RUNNING, "running", "it is running"),
        (JobState.FAILED, "exit 1", "it has failed: exit 1"),
        (JobState.KILLED, "over time", "it was killed: over time"),
        (JobState.FINISHED, "", "it has finished"),
    ],
)
def test_explanation_of_a_job_that_ended_has_its_message(state: JobState, message: str, words: str) -> None:
    why = explain(replace(JOB, state=state, message=message), ask(), [], queue=QueueView(0), now=NOW)
    assert why == Why(JOB.id, state, words, None, can_ever_run=True)


@pytest.mark.parametrize(
    ("number", "more"), [(1, ""), (2, " (and on 1 more node)"), (3, " (and on 2 more nodes)")]
)
def test_explanation_of_a_job_whose_turn_is_to_come(number: int, more: str) -> None:
    nodes = [replace(node(f"n{n}", gpu(f"g{n}")), paced="2 launches are under way") for n in range(number)]
    assert summary(ask(1), nodes) == f"waits for its turn on n0{more}: 2 launches are under way"


@pytest.mark.parametrize(("later_s", "waits"), [(0.1, True), (0.0, False)])
def test_explanation_of_a_back_off_lasts_until_it_ends(later_s: float, waits: bool) -> None:
    job = replace(JOB, not_before=NOW + later_s, message="exit 1")
    said = explain(job, ask(1), [BIG], queue=QueueView(0), now=NOW).summary
    assert (said == "waits 0.1 s before its next launch: exit 1") is waits


@pytest.mark.parametrize(
    ("asked", "spec", "words"),
    [
        (ask(), {}, "waits for 1 cpus, 128 MiB"),
        (ask(cpus=0), {"cpus": 0}, "waits for 0 cpus, 128 MiB"),
        (ask(disk_mib=50), {"disk_mib": 50}, "waits for 1 cpus, 128 MiB, 50 MiB of disk"),
        (ask(2), {"tasks": 2}, "waits for 2 tasks of 1 cpus, 128 MiB, 2 GPUs each; 0 of 2 tasks fit"),
        (ask(), {"ports": (PortWish(None, 0, 80),)}, "waits for 1 cpus, 128 MiB, port 80"),
        (
            ask(), {"ports": tuple(PortWish(None, 0, port) for port in (9000, 80, 81, 0, None, 80, 443, 8))},
            "waits for 1 cpus, 128 MiB, ports 8, 80, 81, 443, 9000",
        ),
        (ask(1, "A100", memory_mib=10), {}, "waits for 1 cpus, 128 MiB, 1 GPU of model A100 with 10 MiB"),
    ],
)  # fmt: skip
def test_explanation_says_what_is_needed(asked: Request, spec: dict[str, Any], words: str) -> None:
    drained = [
        replace(seen(BIG, hostname=name), agent_id=AgentId(name), drained="is drained") for name in ("a", "b")
    ]
    assert summary(asked, drained, **spec) == f"{words}; nearest is a, which is drained"


# --- what keeps a job off a node


def words_of(asked: Request, view: NodeCapacity) -> list[str]:
    return [each.words for each in hurdles(asked, view, now=NOW)]


@pytest.mark.parametrize(
    ("ranges", "ports", "words"),
    [
        ([(1, 5)], [80], "does not offer port 80; it offers 1-5"),
        ([], [80, 79], "does not offer ports 79, 80; it offers none"),
        ([(9, 9), (1, 5)], [80], "does not offer port 80; it offers 1-5, 9-9"),
        ([(9, 9), (1, 5), (20, 30)], [80], "does not offer port 80; it offers 1-5, 9-9, 20-30"),
        (
            [(9, 9), (1, 5), (20, 30), (40, 41)],
            [80],
            "does not offer port 80; it offers 1-5, 9-9, 20-30 and 1 more",
        ),
        ([(1, 1)], [0, 0, None], "offers 1 port, and it asks for 2"),
        ([(1, 2)], [1, 0, 0], "offers 2 ports, and it asks for 3"),
    ],
)
def test_ports_that_are_lacking_are_named(
    ranges: list[tuple[int, int]], ports: list[int | None], words: str
) -> None:
    asked = replace(ask(), ports=tuple(PortWish(None, 0, port) for port in ports))
    view = node("n", ports=tuple(PortRange(*each) for each in ranges))
    assert words_of(asked, view) == [words]


@pytest.mark.parametrize(
    ("view", "asked", "words"),
    [
        (node("n", gpu("g0"), gpus_offered=0), ask(1), ["lacks 1 GPU: its offers hold 0"]),
        (node("n", gpu("g0", "T4"), gpu("g1", "A100")), ask(1, "H100"), ["has A100, T4"]),
        (node("n", gpu("g0")), ask(2), ["has only 1 GPU"]),
        (node("n", gpu("g0")), ask(2, "A100"), ["has only 1 GPU of model A100"]),
        (
            node("n", gpu("g0"), gpu("g1")), ask(1, memory_mib=90_000),
            ["has GPUs of 81920 MiB at most, and 90000 is the least that will do"],
        ),
        (
            node("n", gpu("g0"), replace(gpu("g1"), memory_mib=9)), ask(2, memory_mib=10),
            ["has only 1 GPU with 10 MiB"],
        ),
        (
            node("n", gpu("g0"), gpu("g1"), gpu("g2"), holders={GpuId("g0"): "a", GpuId("g1"): "a"}), ask(2),
            ["lacks 1 GPU: 2 are used by a"],
        ),
        (
            node(
                "n", gpu("g0", health=Health.SICK), gpu("g1", health=Health.LOST), gpu("g2"),
                holders={GpuId("g0"): "a"},
            ),
            ask(2), ["lacks 1 GPU: g0 is used by a, and g0 is sick; g1 is lost"],
        ),
        (
            node("n", gpu("g0", "A"), gpu("g1", "B"), gpu("g2", "B"), holders={GpuId("g0"): "a", GpuId("g2"): "b"}),
            ask(1, "A"), ["lacks 1 GPU: g0 is used by a"],
        ),
        (
            node("n", gpu("a", "A"), gpu("b", "A"), gpu("c", "B"), gpu("d", "B"),
                 holders={GpuId(each): each * 2 for each in "abc"}),
            ask(2), ["lacks 1 GPU: c is used by cc"],
        ),
        (
            node("n", kept=(Reservation(JobId(""), "", Resources(), NOW, AgentId("n"), booking="b", words="booked"),)),
            ask(), ["is booked"],
        ),
    ],
)  # fmt: skip
def test_hurdles_of_a_node_are_in_words(view: NodeCapacity, asked: Request, words: list[str]) -> None:
    assert words_of(asked, view) == words


@pytest.mark.parametrize(
    ("before_s", "words"),
    [
        (0, "12:00Z"),
        (86399, "12:00Z"),
        (86400, "2026-11-20T12:00Z"),
        (-86399, "11:59Z"),
        (-86400, "2026-11-22T12:00Z"),
    ],
)
def test_clock_has_the_date_from_a_day_on(before_s: float, words: str) -> None:
    assert clock(NOON - before_s, NOON) == words


SHIM = Sharing(80_000, ((Ability.SHIM, ""),))


@pytest.mark.parametrize(
    ("share", "count", "words"),
    [
        (None, 1, "1 GPU"),
        (None, 2, "2 GPUs"),
        (ShareRequest(250, 250), 1, "0.25 GPUs"),
        (ShareRequest(250, 250), 2, "0.5 GPUs"),
        (ShareRequest(250, 500), 1, "a share of 1 GPU (25 % of compute and 50 % of memory)"),
        (ShareRequest(250, 500), 2, "a share of 2 GPUs (25 % of compute and 50 % of memory each)"),
        (ShareRequest(250, 250, 99), 1, "a share of 1 GPU (25 % of compute and 99 MiB of memory)"),
    ],
)
def test_gpus_that_are_asked_for_in_words(share: ShareRequest | None, count: int, words: str) -> None:
    assert asked_for(GpuRequest(count, share=share)) == words


def test_models_that_are_asked_for_in_words() -> None:
    assert [of_model(GpuRequest(1, models=models)) for models in ((), ("A",), ("A", "B"))] == [
        "", " of model A", " of model A or B",
    ]  # fmt: skip


def test_cards_without_room_for_a_share_are_named_and_those_alike_together() -> None:
    asked = ask(1, share=ShareRequest(250, 250))
    asked = replace(asked, resources=asked.resources.with_gpus(0))
    states = (Health.OK, Health.OK, Health.SICK, Health.SICK, Health.LOST, Health.DIRTY)
    every = tuple(replace(gpu(f"g{n}", health=health), sharing=SHIM) for n, health in enumerate(states))
    held = {GpuId("g0"): "a", GpuId("g1"): "a", GpuId("g2"): "b"}
    few = node("n", *every[:4], holders=held)
    assert words_of(asked, few) == [
        "lacks 1 GPU with room for its share: g0 (and 1 more) is used by a; g2 is sick, and is used by b; g3 is sick"
    ]
    many = node("n", *every, holders=held)
    assert words_of(asked, many) == [
        "lacks 1 GPU with room for its share: g0 (and 1 more) is used by a; g2 is sick, and is used by b; g3 is sick; "
        "g4 is lost; and so on for 1 more GPU"
    ]


@pytest.mark.parametrize(("offered", "gpus_offered", "free"), [(True, 2, 2), (True, 9, 3), (False, 0, 3)])
def test_free_gpus_of_a_node_are_those_that_are_offered(offered: bool, gpus_offered: int, free: int) -> None:
    view = node("n", *cards("a", 4), holders={GpuId("a0"): "j"}, gpus_offered=gpus_offered, offered=offered)
    assert free_here(ask(1).gpu, view) == free


@pytest.mark.parametrize(
    ("cover", "words"),
    [
        (1, []),
        (2, ["lacks 1 GPU: its offers hold 1"]),
        (3, ["opens no GPU to shares now: the Mesos task that holds its shared GPUs failed to start"]),
    ],
)
def test_node_that_opens_no_gpu_to_shares_says_so(cover: int, words: list[str]) -> None:
    asked = ask(1, share=ShareRequest(250, 250))
    asked = replace(asked, resources=asked.resources.with_gpus(0))
    view = node("n", replace(gpu("g"), sharing=SHIM), cover=Resources(gpus=cover))
    assert words_of(asked, view) == words


# --- the funnel


def test_funnel_of_a_single_task_has_room_for_one() -> None:
    passed = funnel(ask(1), [BIG, PLAIN], now=NOW)
    assert (passed.tasks_fit, passed.left, passed.free, passed.scattered) == (1, 1, (4,), "")
    assert [(each.node.hostname, each.room, each.stage) for each in passed.passages] == [
        ("big", 1, None), ("plain", 0, Stage.SIZE),
    ]  # fmt: skip


def test_funnel_of_a_gang_is_of_the_model_with_most_room() -> None:
    nodes = [
        node("n1", gpu("a", "A"), gpu("b", "B"), gpu("c", "B")),
        node("n2", gpu("d", "B"), gpu("e", "A")),
    ]
    passed = funnel(ask(1, "A", "B", tasks=3), nodes, now=NOW)
    assert ([each.room for each in passed.passages], passed.tasks_fit) == ([2, 1], 3)
    single = funnel(ask(1, "A", "B"), [node("n1", gpu("a", "A")), node("n2", gpu("b", "B"))], now=NOW)
    assert ([each.room for each in single.passages], single.tasks_fit) == ([1, 1], 1)


def test_funnel_counts_nodes_and_tasks_left_by_constraints_between_tasks() -> None:
    nodes = [node(name, *cards(name, 4)) for name in ("n1", "n2", "n3")] + [PLAIN]
    asked: list[dict[str, int]] = []

    def apart(room: Any) -> Any:
        asked.append(dict(room))
        return {AgentId("n1"): 1, AgentId("n2"): 1}

    passed = funnel(ask(1, tasks=4), nodes, now=NOW, apart=apart)
    assert asked == [{"n1": 4, "n2": 4, "n3": 4}]
    assert [each.room for each in passed.passages] == [1, 1, 0, 0]
    assert (passed.tasks_fit, passed.left) == (2, 0)
    assert passed.stages[-1].example == "n1 has room for 1 of its 4 tasks; there is room for 2 in all"


def test_funnel_says_where_room_is_made_for_a_guarantee() -> None:
    other = seen(node("other", gpu("o")), holders={GpuId("o"): "k"})
    owed = GuaranteeShare("ml", seated=True, in_nodes=True, room=ROOM)
    passed = funnel(ask(1), [TAKEN, other, BIG], now=NOW, owed=owed)
    assert [(each.reason, each.removed, each.left) for each in passed.stages] == [
        (Stage.GPUS, 1, 2), (Stage.GUARANTEE, 1, 1),
    ]  # fmt: skip
    assert passed.stages[1].example.endswith("; reclaim of 1 GPU from queue dev (d1) now")
    without = funnel(ask(1), [TAKEN, other], now=NOW, owed=replace(owed, room=None))
    assert [each.reason for each in without.stages] == [Stage.GPUS]


@pytest.mark.parametrize(
    ("free", "scattered"), [((3, 3), True), ((3, 2), True), ((2, 2), True), ((3, 0), False)]
)
def test_funnel_finds_scattered_gpus(free: tuple[int, int], scattered: bool) -> None:
    nodes = [
        seen(node(f"n{n}", *cards(f"n{n}", 4)), holders={GpuId(f"n{n}{i}"): "j" for i in range(4 - number)})
        for n, number in enumerate(free)
    ]
    passed = funnel(ask(4), nodes, now=NOW)
    words = f"{sum(free)} are free, on 2 nodes with at most {max(free)} each"
    assert passed.scattered == (words if scattered else "")
    assert passed.free == tuple(number for number in free if number)
    assert {each.stage for each in passed.passages} == {Stage.FRAGMENTATION if scattered else Stage.GPUS}


# --- what can never be


@pytest.mark.parametrize(
    ("asked", "nodes", "able"),
    [
        (ask(), [], True),
        (ask(9), [], True),
        (ask(9), [replace(PLAIN, silent="no report")], True),
        (ask(9), [replace(PLAIN, lost="gone")], True),
        (ask(9), [replace(BIG, lost="gone")], False),
        (ask(9), [replace(BIG, silent="no report")], False),
        (ask(4), [BIG], True),
        (ask(5), [BIG], False),
        (ask(1, tasks=4), [BIG], True),
        (ask(1, tasks=5), [BIG, SMALL], True),
        (ask(1, tasks=6), [BIG, SMALL], False),
        (ask(2, tasks=2), [BIG, SMALL], True),
        (ask(2, tasks=3), [BIG, SMALL], False),
        (ask(1, "A100", "T4", tasks=5), [BIG, SMALL], False),
        (ask(min_driver="535"), [PLAIN], False),
        (ask(min_driver="535", tasks=9), [replace(PLAIN, driver="535")], True),
        (ask(1, min_driver="535"), [BIG, replace(SMALL, driver="550")], True),
        (ask(1, min_driver="535"), [replace(BIG, driver="470")], False),
    ],
)
def test_job_that_the_nodes_could_hold_is_able(asked: Request, nodes: list[NodeCapacity], able: bool) -> None:
    assert is_able(asked, nodes) is able


def test_node_has_enough_whatever_its_driver() -> None:
    old = replace(BIG, driver="470")
    asked = ask(4, min_driver="535")
    assert (has_enough(asked, old), could(asked, old), could(asked, replace(BIG, driver="535"))) == (
        True,
        False,
        True,
    )
    assert not has_enough(ask(5), old)


@pytest.mark.parametrize(
    ("asked", "nodes", "words"),
    [
        (ask(5), [replace(BIG, hostname="z"), replace(BIG, hostname="b", agent_id=AgentId("b"))],
         "asks for 5 GPUs on one node, more than any node has; the largest is b with 4"),
        (ask(1, memory_mib=99_999), [SMALL, BIG],
         "no node has a GPU with 99999 MiB; the largest has 81920, on big"),
        (ask(2, compute_capability="8.0"), [node("n", *cards("a", 1))],
         "asks for 2 GPUs of compute capability 8.0 on one node, more than any node has; the largest is n with 1"),
        (
            ask(1, compute_capability="12.0"),
            [node("n", *(replace(gpu(f"g{n}"), compute_capability=c) for n, c in enumerate(("10.0", "9.0", None))))],
            "no GPU has compute capability 12.0 or newer; the newest is 10.0",
        ),
        (ask(1, "H100", "L4"), [BIG, SMALL], "no node has a GPU of model H100 or L4; there are A100, T4"),
        (
            ask(1, min_driver="550"),
            [replace(SMALL, driver="535.9"), replace(BIG, driver="535.10"), replace(PLAIN, driver="560")],
            "no node with the GPUs that it asks for has driver 550 or newer; the newest is 535.10 on big",
        ),
        (
            ask(min_driver="550"), [replace(SMALL, driver="535"), replace(BIG, driver="535")],
            "no node has driver 550 or newer; the newest is 535 on big",
        ),
    ],
)  # fmt: skip
def test_job_that_can_never_run_says_what_comes_nearest(
    asked: Request, nodes: list[NodeCapacity], words: str
) -> None:
    assert never(JOB, asked, nodes) == words
