"""Explanations of waiting shares of GPUs: every sentence that a user may read."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import GpuId, JobId
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.request import Isolation, ShareRequest
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.explain.hurdles import hurdles
from mesos_gpu.policy.explain.why import QueueView, explain
from tests.doubles.builders import World, gpu, offer, seen
from tests.unit.policy.explain.test_why import BIG, JOB, NOW, PLAIN, SMALL, ask, node

SHIM = Sharing(80_000, ((Ability.SHIM, ""),))
SHARED = node("shared", *(replace(gpu(f"s{i}"), sharing=SHIM) for i in range(2)))
QUARTER = ShareRequest(250, 250)


def share(of: ShareRequest, gpus: int = 1, **demands: Any) -> Request:
    asked = ask(gpus, share=of, **demands)
    return replace(asked, resources=asked.resources.with_gpus(0))


SHARES = {
    "it fits": (share(QUARTER), [SHARED], "it fits now, and is about to be launched", True),
    "nobody reports any": (share(QUARTER), [PLAIN], "asks for 0.25 GPUs, and no node reports any", False),
    "cards are held": (
        share(QUARTER),
        [seen(SHARED, holders={GpuId("s0"): "a", GpuId("s1"): "b"})],
        "waits for 1 cpus, 128 MiB, 0.25 GPUs; nearest is shared, which lacks 1 GPU with room for its share: "
        "s0 is used by a; s1 is used by b",
        True,
    ),
    "a monitor from before shares": (
        share(QUARTER),
        [BIG, SMALL],
        "no node can give it 0.25 GPUs: on big A100 cannot be shared: its host reports no method to share "
        "it; on small T4 cannot be shared: its host reports no method to share it",
        False,
    ),
    "strict, where nothing is": (
        share(ShareRequest(300, 0, 20_480, isolation=Isolation.STRICT)),
        [SHARED],
        "no node can give it a share of 1 GPU (30 % of compute and 20480 MiB of memory): on shared A100 "
        + str(
            SHARED.refusal(
                share(ShareRequest(300, 0, 20_480, isolation=Isolation.STRICT)), SHARED.installed[0]
            )
        ),
        False,
    ),
    "more memory than a card has": (
        share(ShareRequest(1000, 0, 90_000), gpus=2),
        [SHARED],
        "no node can give it a share of 2 GPUs (100 % of compute and 90000 MiB of memory each): on shared A100 "
        "has 80000 MiB for shares, and 90000 are asked for",
        False,
    ),
    "a gang larger than all cards": (
        share(QUARTER, tasks=9),
        [SHARED],
        "asks for 9 tasks of 0.25 GPUs each, and all nodes together have room for 8, even when nothing else runs "
        "there",
        False,
    ),
    "a gang of shares of two cards each": (
        share(ShareRequest(400, 0, 30_000), gpus=2, tasks=3),
        [SHARED],
        "asks for 3 tasks of a share of 2 GPUs (40 % of compute and 30000 MiB of memory each) each, and all nodes "
        "together have room for 2, even when nothing else runs there",
        False,
    ),
}


@pytest.mark.parametrize(("asked", "nodes", "summary", "able"), SHARES.values(), ids=SHARES)
def test_explanation_of_a_share_names_its_reason(
    asked: Request, nodes: list[NodeCapacity], summary: str, able: bool
) -> None:
    job = replace(JOB, spec=replace(JOB.spec, tasks=asked.tasks))
    why = explain(job, asked, nodes, queue=QueueView(0), now=NOW)
    assert (why.summary, why.can_ever_run) == (summary, able)


def test_explanation_of_a_share_names_the_jobs_and_dimension_that_fill_a_card() -> None:
    world = World()
    world.register()
    world.node("a1", *(replace(gpu(f"g{i}"), sharing=SHIM) for i in range(2)))
    world.submit("most", gpus=1, gpu_milli=700)
    world.offers(offer("o1", "a1", gpus=1))
    world.submit("some", gpus=1, gpu_milli=100)
    world.offers(offer("o2", "a1", gpus=1))
    world.submit("whole", gpus=1)
    world.offers(offer("o3", "a1"))
    wanted = {
        "memory": {"gpu_milli": 300},
        "compute": {"gpu_compute_pct": 30, "gpu_memory_mib": 1000},
        "card": {},
    }
    for name, fields in wanted.items():
        world.submit(name, gpus=1, **fields)
    view = View(world.state, world.settings, world.now)
    said = {name: explain_job(view, JobId(name)).nodes[0].reasons for name in wanted}
    lacks = "lacks 1 GPU with room for its share: g0 is full by"
    assert said == {
        "memory": (
            f"{lacks} memory: 16000 MiB are free, and 24000 are asked for (it is shared by most, some); "
            "g1 is used by whole",
        ),
        "compute": (
            f"{lacks} compute: 20 % are free, and 30 % are asked for (it is shared by most, some); g1 is used by whole",
        ),
        "card": ("lacks 1 GPU: g0 is used by most, some; g1 is used by whole",),
    }
    assert explain_job(view, JobId("memory")).can_ever_run


def _said(node: NodeCapacity, asked: Request) -> str:
    (hurdle,) = hurdles(asked, node, now=NOW)
    return hurdle.words


def test_explanation_of_a_share_names_the_user_of_an_mps_card() -> None:
    """MPS serves one user a card: another's share waits, though there is room by both amounts."""
    mps = Sharing(80_000, ((Ability.SHIM, ""), (Ability.MPS2, "")))
    world = World()
    world.register()
    world.node("a1", replace(gpu("g0"), sharing=mps))
    world.submit("anns", gpus=1, gpu_milli=300, user="ann")
    world.offers(offer("o1", "a1", gpus=1))
    world.submit("bobs", gpus=1, gpu_milli=300, user="bob")
    why = explain_job(View(world.state, world.settings, world.now), JobId("bobs"))
    assert why.nodes[0].reasons == (
        "lacks 1 GPU with room for its share: g0 is user ann's alone, as long as it has MPS shares "
        "(it is shared by anns)",
    )
    assert why.can_ever_run


def test_explanation_of_a_share_reports_a_drained_card_as_drained() -> None:
    world = World()
    world.register()
    world.node("a1", replace(gpu("g0"), sharing=SHIM))
    world.submit("holder", gpus=1, gpu_milli=700)
    world.offers(offer("o1", "a1", gpus=1))
    world.feed(ev.DrainRequested(Target.GPU, "g0", "the fan", "ann"))
    world.submit("late", gpus=1, gpu_milli=100)
    (words,) = explain_job(View(world.state, world.settings, world.now), JobId("late")).nodes[0].reasons
    assert words.startswith("lacks 1 GPU with room for its share: g0 is drained since ")
    assert words.endswith("(drained by ann: the fan), and is used by holder")


def test_explanation_of_a_share_names_mps_only_where_it_would_do() -> None:
    mps2 = Sharing(80_000, ((Ability.SHIM, ""), (Ability.MPS2, "")))
    alone = node("n", replace(gpu("g0"), sharing=mps2))
    said = _said(alone, share(ShareRequest(250, 250, isolation=Isolation.STRICT)))
    assert said == (
        "lacks 1 GPU with room for its share: g0 cannot enforce a share with isolation strict (dmem: not reported; "
        "mps3: not reported; misc: not reported)"
    )


def test_explanation_of_a_share_names_the_first_gpus_and_counts_the_rest() -> None:
    cards = [replace(gpu(f"g{i}"), sharing=Sharing(1000 + i, ((Ability.SHIM, ""),))) for i in range(9)]
    said = _said(node("n", *cards), share(ShareRequest(250, 0, 8_000)))
    assert said.count("MiB for shares") == 4
    assert said.endswith("g3 has 1003 MiB for shares, and 8000 are asked for; and so on for 5 more GPUs")
