"""Sums of what tasks are charged, against a look at all of them; and what GPUs cost."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from mesos_gpu.engine.charges import at_cost, cost_of_granted, parts_of, pool_of_node
from mesos_gpu.engine.indexes.charges import ALL, Charges, Sums, up
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tenancy import ROOT, Pool, QueueDocument, QueueSpec
from mesos_gpu.model.usage import Part
from mesos_gpu.policy.tenancy.tree import Tree
from tests.doubles.builders import gpu

COSTS = QueueDocument(gpu_cost={"A100": 2, "H100": 5})
NODE = Node(
    AgentId("a"), "a", inventory=Inventory((gpu("g0"), gpu("g1", "H100"), gpu("g2", "T4"), gpu("g3")))
)


def looked_at(known: dict[TaskId, tuple[JobId, Charge]]) -> tuple[object, ...]:
    """All sums, made at once."""
    amounts, users, jobs, members = Counter(), Counter(), Counter(), Counter()  # type: ignore[var-annotated]
    leaves, of_job = dict[tuple[str, str], list[int]](), set[tuple[str, str, JobId]]()
    for job_id, charge in known.values():
        own = leaves.setdefault((charge.queue, charge.pool), [0, 0, 0])
        own[0], own[1], own[2] = own[0] + charge.milli, own[1] + charge.cpus_milli, own[2] + charge.mem_mib
        members[job_id] += 1
        for path in up(charge.queue):
            amounts[path, charge.pool] += charge.milli
            for user in (ALL, charge.user):
                users[path, user] += charge.milli
                of_job.add((path, user, job_id))
    jobs.update((path, user) for path, user, _ in of_job)
    return +amounts, {key: tuple(own) for key, own in leaves.items() if any(own)}, +users, jobs, members


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_charges_equal_a_look_at_all_tasks(seed: int) -> None:
    chance = random.Random(seed)
    charges = Charges(QueueDocument(), Tree(QueueDocument()), {})
    known = dict[TaskId, tuple[JobId, Charge]]()
    for _ in range(300):
        number = chance.randrange(12)
        task_id, job_id = TaskId(f"t{number}"), JobId(f"j{number // 3}")
        revision = charges.sums.revision
        before = known.pop(task_id, None)
        if chance.random() < 0.7:
            place = ("ml/a", "ml/b", "hpc")[number // 3 % 3], ("ann", "bob")[number // 6]
            milli, cpus, mem = chance.choice(((0, 0, 0), (1000, 250, 64), (500, 0, 0)))
            known[task_id] = job_id, Charge(*place, chance.choice(("default", "new")), milli, 0, cpus, mem)
        after = known.get(task_id)
        charges.put(task_id, after)
        assert charges.of_task == known
        assert charges.sums.revision - revision == (
            0 if before == after else (before is not None) + (after is not None)
        )
        for sums in (charges.sums, charges.sums.copied()):
            assert (+sums.amounts, sums.leaves, +sums.users, +sums.jobs, sums.members) == looked_at(known)


def test_copied_sums_are_changed_apart() -> None:
    sums, charge = Sums(), Charge("ml/a", "ann", "default", 1000, 0, 250, 64)
    sums.add(JobId("j"), charge)
    copied = sums.copied()
    copied.add(JobId("j"), charge, -1)
    assert (sums.amounts["ml", "default"], sums.jobs[ROOT, ALL], sums.members) == (1000, 1, {"j": 1})
    assert (copied.leaves, copied.members) == ({}, {})


@pytest.mark.parametrize(
    ("document", "node", "gpus", "asked", "milli", "parts"),
    [
        (QueueDocument(), NODE, ("g1",), (), 700, [("H100", 700, 700)]),
        (QueueDocument(), None, ("g1",), ("H100",), 700, [("", 700, 700)]),
        (QueueDocument(), NODE, ("g0", "g1"), (), 2000, [("A100", 1000, 1000), ("H100", 1000, 1000)]),
        (COSTS, NODE, ("g0",), (), 700, [("A100", 700, 1400)]),
        (COSTS, NODE, ("g2",), (), 700, [("T4", 700, 700)]),
        (COSTS, NODE, ("g0", "g1", "g3"), (), 3000, [("A100", 2000, 4000), ("H100", 1000, 5000)]),
        (COSTS, None, ("g0", "g1"), (), 2000, [("", 2000, 10_000)]),
        (COSTS, NODE, ("gone", "g0"), ("A100", "T4"), 2000, [("", 1000, 2000), ("A100", 1000, 2000)]),
        (COSTS, NODE, ("gone",), ("T4",), 500, [("", 500, 500)]),
        (COSTS, NODE, (), (), 0, []),
    ],
)
def test_parts_are_what_gpus_cost_by_their_models(
    document: QueueDocument,
    node: Node | None,
    gpus: tuple[str, ...],
    asked: tuple[str, ...],
    milli: int,
    parts: list[tuple[str, int, int]],
) -> None:
    ids = tuple(map(GpuId, gpus))
    assert parts_of(document, node, ids, asked, milli) == tuple(Part(*part) for part in parts)
    assert cost_of_granted(document, node, ids, asked, milli) == sum(cost for _, _, cost in parts)
    assert cost_of_granted(document, node, ids, asked, 0) == 0
    assert at_cost(document, [Part(model, own, 0) for model, own, _ in parts], asked) == tuple(
        Part(*part) for part in parts
    )


def test_pool_of_a_node_is_the_default_one_without_pools_or_node() -> None:
    pools = (Pool("new", models=("H100",)),)
    tree = Tree(QueueDocument(queues={"q": QueueSpec()}, pools=pools))
    newer = replace(NODE, inventory=Inventory((gpu("g1", "H100"),)))
    assert [pool_of_node(tree, each) for each in (None, newer)] == ["default", "new"]
    assert pool_of_node(Tree(QueueDocument()), newer) == "default"
