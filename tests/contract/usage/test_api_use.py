"""The use of cards over the interface: as hosts report it, now and of late; unknown is null."""

from typing import Any

from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.gpu_use import GpuUse, Meters, TaskUse, Work
from tests.contract.rig import Rig
from tests.doubles.builders import gpu

G0, G1 = GpuId("g0"), GpuId("g1")


def tell(rig: Rig, at: float, busy_ms: int, task: str = "") -> None:
    """A report: g0 was seen all the time up to now, g1 says nothing of itself."""
    work = Work(0.0, round(at * 1000), busy_ms)
    card = GpuUse(G0, at, Meters(memory_used_mib=512, power_mw=70123, gpu_pct=0), work, 1, 79)
    tasks = (TaskUse(TaskId(task), G0, at, 2, 300, work, at - 5.0),) if task else ()
    rig.tell(
        Inventory(
            (gpu("g0"), gpu("g1")),
            "simulated",
            "535",
            gpu_uses=(card, GpuUse(G1, at)),
            task_uses=tasks,
        )
    )


def shown(rig: Rig, path: str) -> Any:
    answer = rig.call("GET", path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_host_that_says_nothing_of_use_is_null(rig: Rig) -> None:
    rig.node()
    (card,) = shown(rig, "/v1/gpus")["gpus"]
    assert card["use"] is None
    past = shown(rig, "/v1/gpus/g0/use")
    assert (past["fine"]["step_s"], len(past["fine"]["busy_pct"]), len(past["coarse"]["busy_pct"])) == (
        10,
        90,
        288,
    )
    assert set(past["fine"]["busy_pct"]) == {None}


def test_use_of_a_card_is_what_its_host_says_or_null(rig: Rig) -> None:
    rig.node(gpus=(gpu("g0"), gpu("g1")))
    tell(rig, 1000.0, 0)
    rig.clock.time += 10.0
    tell(rig, 1010.0, 2500)
    one, other = (each["use"] for each in shown(rig, "/v1/gpus")["gpus"])
    known = {
        "memory_used_mib": 512,
        "power_mw": 70123,
        "gpu_pct": 0,
        "processes": 1,
        "xid": 79,
        "busy_pct": 25.0,
    }
    assert {name: value for name, value in one.items() if value is not None} == {**known, "at": 1010.0}
    assert {name: value for name, value in other.items() if value is not None} == {"at": 1010.0}
    past = shown(rig, "/v1/gpus/g0/use")["fine"]
    assert (past["busy_pct"][-1], past["memory_mib"][-1], past["power_w"][-1]) == (25.0, 512.0, 70.1)


def test_a_job_has_what_its_tasks_use_and_for_how_long_they_did_nothing(rig: Rig) -> None:
    rig.node(gpus=(gpu("g0"),))
    job = rig.submit(gpus=1)
    assert shown(rig, f"/v1/jobs/{job['id']}")["use"] is None
    task = f"{job['id']}.1"
    rig.status(task, "TASK_RUNNING")
    tell(rig, 1000.0, 0, task)
    rig.clock.time += 10.0
    tell(rig, 1010.0, 4000, task)
    use = {"busy_pct": 40.0, "memory_mib": 300, "processes": 2, "idle_s": 5.0}
    assert shown(rig, f"/v1/jobs/{job['id']}")["use"] == use
    assert shown(rig, f"/v1/jobs/{job['id']}/use")["fine"]["busy_pct"][-1] == 40.0
    tell(rig, 1020.0, 4000, "somebody-elses.1")
    assert shown(rig, f"/v1/jobs/{job['id']}")["use"] is None


def test_a_node_is_shown_alone_with_its_cards_tasks_and_their_use(rig: Rig) -> None:
    rig.node(gpus=(gpu("g0"), gpu("g1")))
    rig.node("b1", (gpu("g2"),))
    job = rig.submit(gpus=1, name="holder")
    tell(rig, 1000.0, 0)
    rig.clock.time += 10.0
    tell(rig, 1010.0, 2500)
    (node,) = shown(rig, "/v1/nodes/a1")["nodes"]
    assert (node["hostname"], node["gpus_total"]) == ("a1.example", 2)
    assert node in shown(rig, "/v1/nodes")["nodes"]
    assert rig.call("GET", "/v1/nodes/c1").status_code == 404
    assert [card["uuid"] for card in shown(rig, "/v1/gpus?node=a1")["gpus"]] == ["g0", "g1"]
    assert [card["uuid"] for card in shown(rig, "/v1/gpus?node=a1.example&node=b*")["gpus"]] == [
        "g0",
        "g1",
        "g2",
    ]
    assert shown(rig, "/v1/gpus?node=c1")["gpus"] == []
    hosts = {task["job_id"]: task["hostname"] for task in shown(rig, "/v1/tasks?node=b1")["tasks"]}
    assert set(hosts.values()) == {"b1.example"}
    everywhere = {task["job_id"]: task["hostname"] for task in shown(rig, "/v1/tasks")["tasks"]}
    assert everywhere[job["id"]] in ("a1.example", "b1.example")
    past = shown(rig, "/v1/nodes/a1.example/use")["fine"]
    assert (past["busy_pct"][-1], past["memory_mib"][-1]) == (25.0, 512.0), (
        "of the one card of which it is known"
    )
    assert set(shown(rig, "/v1/nodes/b1/use")["fine"]["busy_pct"]) == {None}
    assert rig.call("GET", "/v1/nodes/c1/use").status_code == 404


def test_cluster_use_shows_allocated_gpus_beside_their_utilization(rig: Rig) -> None:
    rig.node(gpus=(gpu("g0"), gpu("g1")))
    rig.status(f"{rig.submit(gpus=1)['id']}.1", "TASK_RUNNING")
    rig.clock.time = 1200.0
    tell(rig, 1200.0, 0)
    rig.clock.time = 1210.0
    tell(rig, 1210.0, 2500)
    rig.clock.time = 1230.0
    past = shown(rig, "/v1/use")
    assert (past["step_s"], past["until"], len(past["gpus_total"])) == (300, 1230.0, 288)
    latest = {name: past[name][-1] for name in ("gpus_total", "gpus_used", "busy_pct", "power_w")}
    assert latest == {"gpus_total": 2.0, "gpus_used": 1.0, "busy_pct": 25.0, "power_w": 70.0}
    assert past["busy_pct"][-2] is None
