"""Shared GPUs over the REST interface: who has which share, what is left, who guarantees it, and the metrics of it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.cluster.calls import OperatorCalls
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.task import Task, TaskState
from tests.contract.rig import Rig
from tests.doubles.builders import gpu

CARD = replace(gpu("GPU-1"), sharing=Sharing(80000, ((Ability.SHIM, ""),)))
QUARTER = Share(250, 20000, 20000, Method.SHIM_WINDOWS)
BURSTS = Share(300, 20480, 40960, Method.SHIM_MPS2, domain="ann")


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.node(gpus=(CARD, gpu("GPU-2")))
    yield rig
    rig.close()


def hold(rig: Rig, name: str, share: Share | None = None, card: Gpu = CARD, *, covers: bool = False) -> None:
    """A task runs on the card; one that covers it is of no job."""
    job_id = None if covers else JobId(name.rpartition(".")[0])
    task = Task(TaskId(name), AgentId("a1"), name, job_id, TaskState.RUNNING, 1.0)
    task = replace(task, covers=card.id) if covers else replace(task, gpus=(card.id,), share=share)
    rig.daemon.read(lambda view: view.state.set_task(task)).result(60)


def cards(rig: Rig) -> dict[str, dict[str, Any]]:
    return {card["uuid"]: card for card in rig.call("GET", "/v1/gpus").json()["gpus"]}


def test_a_card_lists_its_shares_and_what_is_left(rig: Rig) -> None:
    hold(rig, "cover.1", covers=True)
    hold(rig, "a.1", QUARTER)
    card = cards(rig)["GPU-1"]
    assert card["shares"] == [
        {
            "task_id": "a.1", "job_id": None, "job_name": None, "memory_mib": 20000, "memory_max_mib": 20000,
            "compute_pct": 25.0, "method": "shim+windows", "instance": None,
            "guarantee": {"memory": "cooperative", "compute": "cooperative", "faults": "contained"},
            "used": None,
        }
    ]  # fmt: skip
    assert card["sharing"] == {
        "state": "covered", "task_id": "cover.1", "memory_mib": 80000, "free_memory_mib": 60000,
        "free_compute_pct": 75.0, "method": "shim+windows", "domain": None,
    }  # fmt: skip
    assert (card["task_id"], card["job_id"]) == (None, None), "no task holds all of it"
    whole = cards(rig)["GPU-2"]
    assert (whole["shares"], whole["sharing"]) == ([], None)
    with Client(rig.url) as client:
        assert OperatorCalls(client).gpu("GPU-1")["shares"][0]["compute_pct"] == 25


def test_a_card_says_how_it_stands_in_mesos(rig: Rig) -> None:
    rig.daemon.put(ev.OfferRescinded(OfferId("a1-2")))  # or the card would be covered at once
    hold(rig, "a.1", BURSTS)
    sharing = cards(rig)["GPU-1"]["sharing"]
    assert (sharing["state"], sharing["task_id"], sharing["domain"]) == ("uncovered", None, "ann")
    hold(rig, "cover.1", covers=True)
    assert cards(rig)["GPU-1"]["sharing"]["state"] == "covered"
    hold(rig, "cover.2", card=gpu("GPU-2"), covers=True)
    sharing = cards(rig)["GPU-2"]["sharing"]
    assert (sharing["state"], sharing["free_compute_pct"]) == ("open", 100.0)
    assert (sharing["memory_mib"], sharing["free_memory_mib"], sharing["method"]) == (None, None, None)


def test_more_granted_than_there_is_leaves_nothing_and_no_less(rig: Rig) -> None:
    hold(rig, "a.1", replace(QUARTER, memory_mib=60000, compute_milli=700))
    hold(rig, "b.1", replace(QUARTER, memory_mib=60000, compute_milli=700))
    sharing = cards(rig)["GPU-1"]["sharing"]
    assert (sharing["free_memory_mib"], sharing["free_compute_pct"]) == (0, 0.0)


def test_a_shared_card_is_used_once(rig: Rig) -> None:
    for name in ("a.1", "b.1", "c.1"):
        hold(rig, name, QUARTER)
    (node,) = rig.call("GET", "/v1/nodes").json()["nodes"]
    status = rig.call("GET", "/v1/status").json()
    assert (node["gpus_used"], status["gpus_used"], status["gpus_total"]) == (1, 1, 2)


def test_metrics_tell_shares_from_each_other(rig: Rig) -> None:
    hold(rig, "cover.1", covers=True)
    hold(rig, "a.1", QUARTER)
    hold(rig, "b.1", BURSTS)
    lines = rig.call("GET", "/metrics/prometheus").text.splitlines()
    card, one, two = (
        '{uuid="GPU-1",agent="a1.example"}',
        '{uuid="GPU-1",task="a.1",job="a"}',
        '{uuid="GPU-1",task="b.1",job="b"}',
    )
    guaranteed = 'method="shim+mps2",memory="cooperative",compute="cooperative",faults="user"'
    assert {
        "mesos_gpu_gpus_used 1",
        "mesos_gpu_gpus_shared 1",
        "mesos_gpu_gpus_uncovered 0",
        f"mesos_gpu_gpu_shares{card} 2",
        f"mesos_gpu_gpu_granted_memory_mib{card} 40480",
        f"mesos_gpu_gpu_granted_compute_pct{card} 55",
        f"mesos_gpu_share_memory_mib{one} 20000",
        f"mesos_gpu_share_compute_pct{two} 30",
        f'mesos_gpu_share_info{{uuid="GPU-1",task="b.1",job="b",{guaranteed}}} 1',
    } <= set(lines)
    assert len(lines) == len(set(lines)), "no series twice"


def test_a_share_ends_with_its_task(rig: Rig) -> None:
    hold(rig, "a.1", QUARTER)
    rig.status("a.1", "TASK_FAILED")
    card = cards(rig)["GPU-1"]
    assert (card["shares"], card["sharing"]) == ([], None)
    assert "mesos_gpu_share_info{" not in rig.call("GET", "/metrics/prometheus").text


def test_a_job_tells_its_share_and_the_guarantee(rig: Rig) -> None:
    job = rig.submit(gpus=0)
    assert job["share"] is None
    task_id = rig.call("GET", f"/v1/jobs/{job['id']}").json()["task_id"]

    def grant(view: Any) -> None:
        state = view.state
        state.set_task(replace(state.work.tasks[TaskId(task_id)], gpus=(GpuId("GPU-1"),), share=BURSTS))

    rig.daemon.read(grant).result(60)
    share = rig.call("GET", f"/v1/jobs/{job['id']}").json()["share"]
    assert (share["memory_mib"], share["memory_max_mib"], share["compute_pct"]) == (20480, 40960, 30.0)
    assert share["guarantee"] == {"memory": "cooperative", "compute": "cooperative", "faults": "user"}
    (card,) = [card for card in cards(rig).values() if card["uuid"] == "GPU-1"]
    assert card["shares"][0]["job_id"] == job["id"]


def test_share_shows_its_limits_and_measured_use(rig: Rig) -> None:
    job = rig.submit(gpus=0)
    task_id = TaskId(rig.call("GET", f"/v1/jobs/{job['id']}").json()["task_id"])

    def grant(view: Any) -> None:
        state = view.state
        state.set_task(replace(state.work.tasks[task_id], gpus=(CARD.id,), share=QUARTER))

    rig.daemon.read(grant).result(60)
    use = ShareUse(task_id, CARD.id, 18000, 19500, 240, 3, 7, 1, "process 7 has loaded /x/libcuda.so.1")
    stranger = ShareUse(TaskId("nobody.1"), CARD.id, 1)
    rig.tell(Inventory((CARD, gpu("GPU-2")), "simulated", uses=(use, stranger)))
    shown = {
        "memory_mib": 18000, "most_memory_mib": 19500, "compute_pct": 24.0, "refused": 3, "windows_missed": 7,
        "problem": "process 7 has loaded /x/libcuda.so.1",
    }  # fmt: skip
    assert cards(rig)["GPU-1"]["shares"][0]["used"] == shown
    told = rig.call("GET", f"/v1/jobs/{job['id']}").json()["share_uses"]
    assert told == [{**shown, "gpu_id": "GPU-1", "task_id": task_id}]
    lines = set(rig.call("GET", "/metrics/prometheus").text.splitlines())
    labels = f'{{uuid="GPU-1",task="{task_id}",job="{job["id"]}"}}'
    assert {
        f"mesos_gpu_share_used_memory_mib{labels} 18000",
        f"mesos_gpu_share_most_memory_mib{labels} 19500",
        f"mesos_gpu_share_used_compute_pct{labels} 24",
        f"mesos_gpu_share_refused_allocations_total{labels} 3",
        f"mesos_gpu_share_missed_windows_total{labels} 7",
        f"mesos_gpu_share_over{labels} 1",
    } <= lines
    rig.tell(Inventory((CARD, gpu("GPU-2")), "simulated"))  # an older monitor
    assert cards(rig)["GPU-1"]["shares"][0]["used"] is None
    assert "mesos_gpu_share_used_memory_mib{" not in rig.call("GET", "/metrics/prometheus").text
