"""Why a job waits: every sentence that a user may read."""

from dataclasses import replace

import pytest

from mesos_gpu.model.gpu import Gpu, Health
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.job import Job, JobSpec, JobState
from mesos_gpu.policy.placement import Ask
from mesos_gpu.policy.why import NodeView, QueueView, explain
from mesos_gpu.testing.builders import gpu

NOW = 1000.0
JOB = Job(JobId("j1"), JobSpec("job", "true"), NOW, 1)
BIG = NodeView(AgentId("a1"), "big", tuple(gpu(f"g{i}") for i in range(4)), {}, cpus=8.0, mem_mib=8000.0)
SMALL = NodeView(AgentId("a2"), "small", (gpu("g8", "T4"),), {}, cpus=8.0, mem_mib=8000.0)
OLD = replace(BIG, driver="470.82")
PLAIN = NodeView(AgentId("a3"), "plain", (), {}, cpus=1.0, mem_mib=100.0)


def ask(gpus: int = 0, *models: str, cpus: float = 1.0) -> Ask:
    return Ask(cpus, 128.0, gpus, models)


CASES = {
    "nothing has offered": (ask(1), [], "no agent has offered anything yet", True),
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
        [BIG, replace(SMALL, holders={GpuId("g8"): "train-1"})],
        "waits for 1 cpus, 128 MiB, 1 GPU of model T4; nearest is small, which lacks 1 free GPU: "
        "g8 is used by train-1",
        True,
    ),
    "sick": (
        ask(4),
        [replace(BIG, gpus=(*BIG.gpus[:3], replace(gpu("g3", health=Health.SICK), reason="XID 79")))],
        "waits for 1 cpus, 128 MiB, 4 GPUs; nearest is big, which lacks 1 free GPU: g3 is sick (XID 79)",
        True,
    ),
    "drained": (
        ask(1),
        [replace(BIG, drained="is drained by ann: new fan"), replace(SMALL, holders={GpuId("g8"): "j"})],
        "waits for 1 cpus, 128 MiB, 1 GPU; nearest is small, which lacks 1 free GPU: g8 is used by j",
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
        replace(ask(1), min_driver="535"),
        [OLD],
        "no node with the GPUs that it asks for has driver 535 or newer; the newest is 470.82 on big",
        False,
    ),
    "driver of none": (
        replace(ask(), min_driver="535"),
        [PLAIN],
        "no node has driver 535 or newer; no node reports a driver",
        False,
    ),
    "driver, and no report yet": (
        replace(ask(1), min_driver="535"),
        [OLD, replace(PLAIN, unusable="its node monitor has not reported its GPUs yet")],
        "waits for 1 cpus, 128 MiB, 1 GPU, driver 535 or newer; nearest is big, which has driver 470.82, "
        "and 535 is the oldest that will do",
        True,
    ),
    "driver elsewhere is full": (
        replace(ask(1), min_driver="535"),
        [OLD, replace(SMALL, driver="535.54", holders={GpuId("g8"): "j"})],
        "waits for 1 cpus, 128 MiB, 1 GPU, driver 535 or newer; nearest is small, which lacks 1 free GPU: "
        "g8 is used by j",
        True,
    ),
    "driver is as new": (
        replace(ask(1), min_driver="470.9"), [OLD], "it fits now, and is about to be launched", True
    ),
    "it fits": (ask(1), [BIG], "it fits now, and is about to be launched", True),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "nodes", "summary", "can"), CASES.values(), ids=CASES)
def test_summary(asked: Ask, nodes: list[NodeView], summary: str, can: bool) -> None:
    why = explain(JOB, asked, nodes, queue=QueueView(0), now=NOW)
    assert why.summary == summary
    assert why.can_ever_run is can


def test_each_node_says_its_own() -> None:
    lost = replace(BIG, hostname="lost", unusable="the master lost this agent 5 s ago")
    why = explain(JOB, ask(2), [lost, SMALL, PLAIN], queue=QueueView(3), now=NOW)
    assert {n.hostname: n.reasons[0] for n in why.nodes} == {
        "lost": "the master lost this agent 5 s ago",
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
def test_what_an_image_needs_is_said(nodes: list[NodeView], summary: str) -> None:
    job = replace(JOB, learnt_min_driver="550", image_needs="CUDA 12.4 or newer")
    found = explain(job, replace(ask(1), min_driver=job.min_driver), nodes, queue=QueueView(0), now=NOW)
    assert found.summary == summary
    by_request = replace(job, spec=replace(job.spec, min_driver="555"))
    found = explain(by_request, replace(ask(1), min_driver="555"), nodes, queue=QueueView(0), now=NOW)
    assert "the image" not in found.summary


def test_each_node_says_its_driver() -> None:
    why = explain(JOB, replace(ask(1), min_driver="535"), [OLD, SMALL], queue=QueueView(0), now=NOW)
    assert {n.hostname: n.reasons[0] for n in why.nodes} == {
        "big": "has driver 470.82, and 535 is the oldest that will do",
        "small": "reports no NVIDIA driver, and 535 is the oldest that will do",
    }
    assert why.nearest is not None
    assert why.nearest.hostname == "big"


def test_back_off_is_said() -> None:
    job = replace(JOB, not_before=NOW + 4, message="attempt 1 of 3: exit 1")
    assert explain(job, ask(), [PLAIN], queue=QueueView(0), now=NOW).summary == (
        "waits 4.0 s before its next launch: attempt 1 of 3: exit 1"
    )


def test_a_job_that_does_not_wait_says_so() -> None:
    why = explain(replace(JOB, state=JobState.RUNNING), ask(), [], queue=QueueView(None), now=NOW)
    assert (why.summary, why.queue_position) == ("it is running", None)


def test_a_mix_of_models_never_adds_up() -> None:
    mixed: tuple[Gpu, ...] = (gpu("g0", "A"), gpu("g1", "B"))
    why = explain(JOB, ask(2, "A", "B"), [replace(BIG, gpus=mixed)], queue=QueueView(0), now=NOW)
    assert not why.can_ever_run
