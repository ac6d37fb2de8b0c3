"""Explanations of waiting jobs: every sentence that a user may read."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import GpuNodes, Job, JobSpec, JobState
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.jobs.why import Stage, Why
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import AMOUNTS, Resources
from mesos_gpu.policy.capacity.node import NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.explain.why import QueueView, explain
from tests.doubles.builders import World, gpu, request, seen, spec

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
NOW = NOON
JOB = Job(JobId("j1"), JobSpec("job", "true"), NOW, 1)


def node(
    name: str,
    *gpus: Gpu,
    cpus: float = 8.0,
    mem_mib: float = 8000.0,
    disk_mib: float = 1000.0,
    gpus_offered: int | None = None,
    ports: tuple[PortRange, ...] | None = (PortRange(31000, 31008),),
    **fields: object,
) -> NodeCapacity:
    """A node that offers all of its GPUs, if nothing else is said."""
    count = len(gpus) if gpus_offered is None else gpus_offered
    free = Resources(cpus=cpus, mem_mib=mem_mib, gpus=count, disk_mib=disk_mib)
    return seen(NodeCapacity(AgentId(name), name, free, ports=ports, installed=gpus), **fields)


BIG = node("big", *(gpu(f"g{i}") for i in range(4)))
SMALL = node("small", gpu("g8", "T4"))
MIXED = seen(
    BIG,
    hostname="mixed",
    installed=(
        replace(gpu("g1"), compute_capability="8.0"),
        replace(gpu("g2"), memory_mib=40960, compute_capability="8.0"),
    ),
)
OLD = replace(BIG, driver="470.82")
PLAIN = node("plain", cpus=1.0, mem_mib=100.0)


def ask(gpus: int = 0, *models: str, cpus: float = 1.0, **demands: Any) -> Request:
    return request(cpus, 128.0, gpus, models, **demands)


def sick(name: str, since: float) -> Gpu:
    return replace(gpu(name, health=Health.SICK), reason="XID 79", since=since)


CASES = {
    "nothing has offered": (ask(1), [], "no agent has made an offer yet", True),
    "unknown model": (
        ask(1, "H100"),
        [BIG, SMALL],
        "no node has a GPU of model H100; there are A100, T4",
        False,
    ),
    "more than any node has": (
        ask(6),
        [BIG, SMALL],
        "asks for 6 GPUs on one node, more than any node has; the largest is big with 4",
        False,
    ),
    "more of a model than any node has": (
        ask(2, "T4"),
        [BIG, SMALL],
        "asks for 2 GPUs of model T4 on one node, more than any node has; the largest is small with 1",
        False,
    ),
    "no GPUs at all": (ask(2), [PLAIN], "asks for 2 GPUs, and no node reports any", False),
    "all used": (
        ask(1, "T4"),
        [BIG, seen(SMALL, holders={GpuId("g8"): "train-1"})],
        "waits for 1 cpus, 128 MiB, 1 GPU of model T4; nearest is small, which lacks 1 GPU: "
        "g8 is used by train-1",
        True,
    ),
    "sick": (
        ask(4),
        [seen(BIG, installed=(*BIG.installed[:3], replace(gpu("g3", health=Health.SICK), reason="XID 79")))],
        "waits for 1 cpus, 128 MiB, 4 GPUs; nearest is big, which lacks 1 GPU: g3 is sick (XID 79)",
        True,
    ),
    "drained": (
        ask(1),
        [replace(BIG, drained="is drained by ann: new fan"), seen(SMALL, holders={GpuId("g8"): "j"})],
        "waits for 1 cpus, 128 MiB, 1 GPU; nearest is small, which lacks 1 GPU: g8 is used by j",
        True,
    ),
    "all drained": (
        ask(),
        [replace(PLAIN, drained="is drained by ann: new fan")],
        "waits for 1 cpus, 128 MiB; nearest is plain, which is drained by ann: new fan",
        True,
    ),
    "cpus": (ask(cpus=4), [PLAIN], "waits for 4 cpus, 128 MiB; nearest is plain, which lacks 3 cpus; "
             "lacks 28 MiB of memory", True),
    "driver": (
        ask(1, min_driver="535"),
        [OLD],
        "no node with the GPUs that it asks for has driver 535 or newer; the newest is 470.82 on big",
        False,
    ),
    "driver of none": (
        ask(min_driver="535"),
        [PLAIN],
        "no node has driver 535 or newer; no node reports a driver",
        False,
    ),
    "driver, and no report yet": (
        ask(1, min_driver="535"),
        [OLD, replace(PLAIN, silent="its node monitor has not reported its GPUs yet")],
        "waits for 1 cpus, 128 MiB, 1 GPU, driver 535 or newer; nearest is big, which has driver 470.82, "
        "and 535 is the oldest that will do",
        True,
    ),
    "driver elsewhere is full": (
        ask(1, min_driver="535"),
        [OLD, seen(SMALL, driver="535.54", holders={GpuId("g8"): "j"})],
        "waits for 1 cpus, 128 MiB, 1 GPU, driver 535 or newer; nearest is small, which lacks 1 GPU: "
        "g8 is used by j",
        True,
    ),
    "driver is as new": (
        ask(1, min_driver="470.9"), [OLD], "it fits now, and is about to be launched", True
    ),
    "it fits": (ask(1), [BIG], "it fits now, and is about to be launched", True),
    "sick since today": (
        ask(4),
        [seen(BIG, installed=(*BIG.installed[:3], sick("g3", since=NOON - 7080)))],
        "waits for 1 cpus, 128 MiB, 4 GPUs; nearest is big, which lacks 1 GPU: g3 is sick since 10:02Z (XID 79)",
        True,
    ),
    "sick for days": (
        ask(1),
        [seen(SMALL, installed=(sick("g8", since=NOON - 3 * 86400),))],
        "waits for 1 cpus, 128 MiB, 1 GPU; nearest is small, which lacks 1 GPU: "
        "g8 is sick since 2026-11-18T12:00Z (XID 79)",
        True,
    ),
    "memory that no GPU has": (
        ask(1, memory_mib=90000),
        [BIG, SMALL],
        "no node has a GPU with 90000 MiB; the largest has 81920, on big",
        False,
    ),
    "memory of too few": (
        ask(2, memory_mib=60000),
        [MIXED],
        "asks for 2 GPUs with 60000 MiB on one node, more than any node has; the largest is mixed with 1",
        False,
    ),
    "capability that no GPU has": (
        ask(1, compute_capability="9.0"),
        [MIXED, BIG],
        "no GPU has compute capability 9.0 or newer; the newest is 8.0",
        False,
    ),
    "capability that nobody knows": (
        ask(1, compute_capability="7.0"),
        [BIG],
        "no GPU has compute capability 7.0 or newer; no node reports one",
        False,
    ),
    "all that a GPU must have": (
        ask(1, "A100", memory_mib=60000, compute_capability="8.0"),
        [seen(MIXED, holders={GpuId("g1"): "j"})],
        "waits for 1 cpus, 128 MiB, 1 GPU of model A100 with 60000 MiB, compute capability 8.0 or newer; "
        "nearest is mixed, which lacks 1 GPU: g1 is used by j",
        True,
    ),
    "lost": (
        ask(1),
        [replace(BIG, lost="the master lost this agent 5 s ago")],
        "waits for 1 cpus, 128 MiB, 1 GPU; nearest is big, which cannot be used: the master lost this agent "
        "5 s ago",
        True,
    ),
}  # fmt: skip


def asking(job: Job, asked: Request) -> Job:
    """Return a job with the amounts of a request."""
    names = [amount.name for amount in AMOUNTS if amount.name != "gpus"]
    return replace(job, spec=replace(job.spec, **{name: getattr(asked.resources, name) for name in names}))


@pytest.mark.parametrize(("asked", "nodes", "summary", "can"), CASES.values(), ids=CASES)
def test_explanation_summary_names_what_is_in_the_way(
    asked: Request, nodes: list[NodeCapacity], summary: str, can: bool
) -> None:
    why = explain(asking(JOB, asked), asked, nodes, queue=QueueView(0), now=NOW)
    assert why.summary == summary
    assert why.can_ever_run is can


def test_explanation_names_a_reason_for_each_node() -> None:
    lost = replace(BIG, hostname="lost", lost="the master lost this agent 5 s ago")
    why = explain(JOB, ask(2), [lost, SMALL, PLAIN], queue=QueueView(3), now=NOW)
    assert {n.hostname: n.reasons[0] for n in why.nodes} == {
        "lost": "cannot be used: the master lost this agent 5 s ago",
        "small": "has only 1 GPU",
        "plain": "has only 0 GPUs",
    }
    assert why.queue_position == 3


@pytest.mark.parametrize(
    ("nodes", "summary"),
    [
        ([OLD, SMALL], "the image needs CUDA 12.4 or newer, driver 550; big has 470.82"),
        ([PLAIN, BIG], "the image needs CUDA 12.4 or newer, driver 550; no node reports a driver"),
        (
            [OLD, replace(SMALL, driver="550.54", drained="is drained by ann: fan")],
            "waits for 1 cpus, 128 MiB, 1 GPU, driver 550 or newer (the image needs CUDA 12.4 or newer); "
            "nearest is small, which is drained by ann: fan",
        ),
    ],
)
def test_explanation_names_the_driver_need_of_an_image(nodes: list[NodeCapacity], summary: str) -> None:
    job = replace(JOB, learnt_min_driver="550", image_needs="CUDA 12.4 or newer")
    why = explain(job, ask(1, min_driver=job.min_driver), nodes, queue=QueueView(0), now=NOW)
    assert why.summary == summary
    by_request = replace(job, spec=replace(job.spec, min_driver="555"))
    why = explain(by_request, ask(1, min_driver="555"), nodes, queue=QueueView(0), now=NOW)
    assert "the image" not in why.summary


def test_explanation_names_the_driver_of_each_node() -> None:
    why = explain(JOB, ask(1, min_driver="535"), [OLD, SMALL], queue=QueueView(0), now=NOW)
    assert {n.hostname: n.reasons[0] for n in why.nodes} == {
        "big": "has driver 470.82, and 535 is the oldest that will do",
        "small": "reports no NVIDIA driver, and 535 is the oldest that will do",
    }
    assert why.nearest is not None
    assert why.nearest.hostname == "big"


def test_explanation_names_the_back_off_of_a_job() -> None:
    job = replace(JOB, not_before=NOW + 4, message="attempt 1 of 3: exit 1")
    assert explain(job, ask(), [PLAIN], queue=QueueView(0), now=NOW).summary == (
        "waits 4.0 s before its next launch: attempt 1 of 3: exit 1"
    )


def test_explanation_of_a_job_that_does_not_wait() -> None:
    why = explain(replace(JOB, state=JobState.RUNNING), ask(), [], queue=QueueView(None), now=NOW)
    assert (why.summary, why.queue_position) == ("it is running", None)


def test_explanation_does_not_add_up_gpus_of_several_models() -> None:
    mixed: tuple[Gpu, ...] = (gpu("g0", "A"), gpu("g1", "B"))
    why = explain(JOB, ask(2, "A", "B"), [seen(BIG, installed=mixed)], queue=QueueView(0), now=NOW)
    assert not why.can_ever_run


# --- the funnel


def funnel_of(why: Why) -> list[tuple[str, int, int, str]]:
    return [(row.reason.value, row.removed, row.left, row.example) for row in why.funnel]


def cards(name: str, number: int = 2) -> tuple[Gpu, ...]:
    return tuple(replace(gpu(f"{name}{i}"), compute_capability="8.0") for i in range(number))


HELD = (gpu("p0"), gpu("p1"))
KEPT = Reservation(
    JobId("j0"),
    "default",
    ask(2).resources,
    NOW,
    AgentId("n17"),
    "n17",
    frozenset({GpuId("q0")}),
    Resources(cpus=8, mem_mib=8000, disk_mib=1000),
)
EVERY = (
    ("drained", node("n01", drained="is drained: new fan"), "is drained: new fan"),
    ("lost", node("n02", lost="the master lost it"), "cannot be used: the master lost it"),
    ("unreported", node("n03", silent="its monitor is silent"), "cannot be used: its monitor is silent"),
    ("constraint", node("n04", ruled_out="violates rack IS a"), "violates rack IS a"),
    ("driver", node("n05", *cards("e"), driver="470"), "has driver 470, and 535 is the oldest that will do"),
    ("model", node("n06", gpu("f0", "T4")), "has T4"),
    ("size", node("n07", *cards("g", 1)), "has only 1 GPU of model A100 or H100"),
    (
        "memory",
        node("n08", *(replace(card, memory_mib=40960) for card in cards("h"))),
        "has GPUs of 40960 MiB at most, and 60000 is the least that will do",
    ),
    (
        "compute_capability",
        node("n09", replace(cards("i")[0], compute_capability=None), replace(cards("i")[1], compute_capability="7.5")),
        "has compute capability 7.5, unknown, and 8.0 is the oldest that will do",
    ),
    (
        "health",
        node("n10", cards("j")[0], replace(cards("j")[1], health=Health.DIRTY, reason="process 7")),
        "lacks 1 GPU: j1 is dirty (process 7)",
    ),
    ("cpus", node("n11", *cards("k"), cpus=0.5), "lacks 0.5 cpus"),
    ("mem", node("n12", *cards("l"), mem_mib=100.0), "lacks 28 MiB of memory"),
    ("disk", node("n125", *cards("s"), disk_mib=60.0), "lacks 40 MiB of disk"),
    ("ports", node("n13", *cards("m"), ports=()), "has no free port, and each task takes one"),
    (
        "gpus",
        node("n14", *cards("n"), holders={GpuId("n0"): "a", GpuId("n1"): "b"}),
        "lacks 2 GPUs: n0 is used by a; n1 is used by b",
    ),
    ("gpus", node("n15", *cards("o"), gpus_offered=0), "lacks 2 GPUs: its offers hold 0"),
    (
        "offer",
        node("n16", *cards("p"), offered=False, ports=None),
        "has made no offer: it is full, or its offer is on the way",
    ),
    ("kept", node("n17", *cards("q"), kept=(KEPT,)), "keeps room for job j0, which is before it"),
    ("tasks", node("n18", *cards("r")), "has room for 1 of its 3 tasks; there is room for 1 in all"),
)  # fmt: skip


def test_explanation_funnel_counts_an_agent_at_its_first_stage_alone() -> None:
    wanted = ask(
        2, "A100", "H100", min_driver="535", memory_mib=60000, compute_capability="8.0", disk_mib=100
    )
    gang = replace(JOB, spec=replace(JOB.spec, gpus=2, tasks=3))
    nodes = [replace(view, driver=view.driver or "550") for _, view, _ in EVERY]
    why = explain(gang, wanted, nodes[::-1], queue=QueueView(0), now=NOW)
    left, rows = len(EVERY), []
    for name in dict.fromkeys(name for name, _, _ in EVERY):
        removed = [(view, words) for reason, view, words in EVERY if reason == name]
        left -= len(removed)
        rows.append((name, len(removed), left, f"{removed[0][0].hostname} {removed[0][1]}"))
    assert funnel_of(why) == rows
    assert {node.hostname: node.reasons for node in why.nodes}["n15"] == (EVERY[15][2],)
    assert (why.tasks_fit, why.can_ever_run) == (1, True)


def test_explanation_counts_room_beside_what_is_kept() -> None:
    view = node("n1", *cards("a", 4), kept=(replace(KEPT, gpus=frozenset({GpuId("a0")})),))
    assert explain(JOB, ask(3), [view], queue=QueueView(0), now=NOW).funnel == ()
    why = explain(JOB, ask(4), [view], queue=QueueView(0), now=NOW)
    assert funnel_of(why) == [("kept", 1, 0, "n1 keeps room for job j0, which is before it")]
    tight = replace(view, kept=(replace(KEPT, gpus=frozenset(), spare=Resources(cpus=0.5)),))
    assert explain(JOB, ask(1), [tight], queue=QueueView(0), now=NOW).funnel[0].reason is Stage.KEPT


def test_explanation_funnel_of_a_limit_removes_all_that_is_left() -> None:
    why = explain(JOB, ask(1), [BIG, SMALL, PLAIN], queue=QueueView(0, limit="lab is full"), now=NOW)
    assert funnel_of(why) == [("size", 1, 2, "plain has only 0 GPUs"), ("queue-limit", 2, 0, "lab is full")]
    assert why.summary == "waits for its queue: lab is full"


def test_fragmentation_is_of_the_cluster() -> None:
    nodes = [seen(node(f"n{i}", *cards(f"n{i}", 4)), holders={GpuId(f"n{i}0"): "j"}) for i in range(2)]
    full = node("n2", *cards("n2", 4), holders={card.id: "j" for card in cards("n2", 4)})
    why = explain(JOB, ask(4), [*nodes, full], queue=QueueView(0), now=NOW)
    assert funnel_of(why) == [
        ("gpus", 1, 2, "n2 lacks 4 GPUs: 4 are used by j"),
        (
            "fragmentation",
            2,
            0,
            "6 are free, on 2 nodes with at most 3 each; n0 lacks 1 GPU: n00 is used by j",
        ),
    ]
    assert why.summary.endswith(
        "; 6 are free, on 2 nodes with at most 3 each: fragmentation; "
        "nearest is n0, which lacks 1 GPU: n00 is used by j"
    )
    few = explain(JOB, ask(4), [nodes[0], full], queue=QueueView(0), now=NOW)
    assert [row.reason for row in few.funnel] == [Stage.GPUS]
    assert "fragmentation" not in few.summary


def test_work_without_gpus_is_kept_off_nodes_with_gpus() -> None:
    world = World(Settings.of("e", "m", gpu_nodes=GpuNodes.NEVER))
    world.register()
    world.node("a1", gpu("g0"))
    world.submit()
    why = explain_job(View(world.state, world.settings, world.now), JobId("j1"))
    example = "a1.example has GPUs, and jobs without GPUs are kept off such nodes"
    assert funnel_of(why) == [("scarce", 1, 0, example)]
    assert (why.summary, why.can_ever_run) == (f"no node meets its constraints; {example}", False)


def test_explanation_reports_a_refused_claim() -> None:
    world = World()
    world.register()
    world.node("a1", gpu("g0"))
    world.state.gpus.contested[GpuId("g0")] = world.now + 5
    world.submit(gpus=1)
    why = explain_job(View(world.state, world.settings, world.now), JobId("j1"))
    assert why.nodes[0].reasons == ("lacks 1 GPU: g0 is used by others: a claim of it was refused",)


def test_explanation_of_a_gang_that_exceeds_a_limit() -> None:
    world = World(Settings.of("e", "m", queue_limits={"lab": 4}))
    world.register()
    world.node("a1", *cards("g", 6))
    world.submit(gpus=2, tasks=3, queue="lab")
    why = explain_job(View(world.state, world.settings, world.now), JobId("j1"))
    assert (why.summary, why.can_ever_run) == ("queue lab may hold 4 GPUs, and it asks for 6", False)


# --- gangs


def test_constraints_between_its_own_tasks_count() -> None:
    world = World()
    world.register()
    for agent in ("a1", "a2"):
        world.node(agent, *cards(agent, 4))
    world.submit(tasks=3, constraints=(Constraint("hostname", Operator.UNIQUE),), gpus=1)
    why = explain_job(View(world.state, world.settings, world.now), JobId("j1"))
    assert (why.tasks_fit, why.can_ever_run) == (2, True)
    assert "; 2 of 3 tasks fit; nearest is a1.example, which has room for 1 of its 3 tasks" in why.summary
    world.node("a3", *cards("a3", 1))
    assert world.job().state is JobState.STARTING


def gang(tasks: int, **fields: object) -> Job:
    return replace(JOB, spec=replace(JOB.spec, tasks=tasks, gpus=2, **fields))  # type: ignore[arg-type]


def test_explanation_counts_the_tasks_of_a_gang_that_fit() -> None:
    nodes = [node("n1", *cards("a", 4)), node("n2", *cards("b", 2), holders={GpuId("b0"): "j"})]
    why = explain(gang(3), ask(2), nodes, queue=QueueView(0), now=NOW)
    assert why.summary == (
        "waits for 3 tasks of 1 cpus, 128 MiB, 2 GPUs each; 2 of 3 tasks fit; "
        "nearest is n2, which lacks 1 GPU: b0 is used by j"
    )
    assert (why.tasks_fit, why.can_ever_run) == (2, True)
    assert [(row.reason.value, row.removed) for row in why.funnel] == [("gpus", 1), ("tasks", 1)]
    assert why.funnel[1].example == "n1 has room for 2 of its 3 tasks; there is room for 2 in all"
    idle = [seen(view, holders={}) for view in nodes]
    why = explain(gang(3), ask(2), idle, queue=QueueView(0), now=NOW)
    assert (why.summary, why.tasks_fit, why.funnel) == ("it fits now, and is about to be launched", 3, ())


ONE_PORT = (PortRange(31000, 31000),)


@pytest.mark.parametrize(
    ("fields", "room"),
    [({"ports": ONE_PORT}, 1), ({"cpus": 1.5}, 1), ({"mem_mib": 300.0}, 2)],
)
def test_tasks_take_ports_cpus_and_memory(fields: dict[str, Any], room: int) -> None:
    view = node("n1", *cards("a", 6), **fields)
    assert explain(gang(3), ask(2), [view], queue=QueueView(0), now=NOW).tasks_fit == room


def test_free_gpus_may_be_too_scattered_for_a_gang() -> None:
    nodes = [node("n1", *cards("a", 3)), node("n2", *cards("b", 2), holders={GpuId("b0"): "j"})]
    why = explain(gang(2), ask(2), nodes, queue=QueueView(0), now=NOW)
    assert "1 of 2 tasks fit; 4 are free, on 2 nodes with at most 3 each: fragmentation" in why.summary
    assert [row.reason for row in why.funnel] == [Stage.FRAGMENTATION, Stage.TASKS]


def test_explanation_of_a_gang_larger_than_an_empty_cluster() -> None:
    nodes = [node("n1", *cards("a", 4), holders={GpuId("a0"): "j"}), SMALL]
    why = explain(gang(3), ask(2), nodes, queue=QueueView(0), now=NOW)
    assert (why.summary, why.can_ever_run) == (
        "asks for 3 tasks of 2 GPUs each, and all nodes together have room for 2, "
        "even when nothing else runs there",
        False,
    )
    cpus = explain(gang(99), ask(0), nodes, queue=QueueView(0), now=NOW)
    assert cpus.can_ever_run, "only offers say what an agent has"


@pytest.mark.parametrize(
    ("wished", "needs", "lacks"),
    [
        ((80, 31001), ", ports 80, 31001", "does not offer port 80; it offers 31000-31008"),
        ((31000, 31100), ", ports 31000, 31100", "does not offer port 31100; it offers 31000-31008"),
        ((0,) * 10, "", "offers 9 ports, and it asks for 10"),
    ],
)
def test_ports_that_no_agent_offers_are_what_it_waits_for(
    wished: tuple[int, ...], needs: str, lacks: str
) -> None:
    asks = ask(0)
    wishes = tuple(PortWish(None, 0, port) for port in wished)
    why = explain(Job(JobId("j"), spec(ports=wishes), 0.0, 1), asks, [node("n1")], queue=QueueView(), now=0.0)
    amounts = f"{asks.resources.cpus:g} cpus, {asks.resources.mem_mib:g} MiB"
    assert why.summary == f"waits for {amounts}{needs}; nearest is n1, which {lacks}"
    assert [(stage.reason, stage.left) for stage in why.funnel] == [(Stage.PORTS, 0)]


def test_explanation_names_a_sick_card_though_a_job_holds_it() -> None:
    sick = replace(gpu("g0"), health=Health.SICK, reason="XID 79")
    why = explain(
        Job(JobId("j"), spec(gpus=2), 0.0, 1), ask(2),
        [node("n1", sick, gpu("g1"), holders={GpuId("g0"): "train"})], queue=QueueView(), now=0.0,
    )  # fmt: skip
    assert why.nearest is not None
    assert why.nearest.missing == "lacks 1 GPU: g0 is used by train, and g0 is sick (XID 79)"
