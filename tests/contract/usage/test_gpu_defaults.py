"""Amounts and models of GPU jobs over the REST interface: defaults by the node, and names as people write them."""

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.engine import events as ev
from tests.contract.rig import Rig
from tests.doubles.builders import gpu, offer

CARD = "NVIDIA A100-SXM4-80GB"
CARDS = tuple(gpu(f"g{number}", CARD) for number in range(4))


def test_gpu_job_gets_default_amounts_that_are_shown_everywhere(rig: Rig) -> None:
    rig.node("a1", CARDS)  # with 8 CPUs and 16 GiB
    job = rig.submit(gpus=1)
    assert job["cpus"] == 1.7
    assert 3500 < job["mem_mib"] < 3686
    shown = rig.call("GET", f"/v1/jobs/{job['id']}").json()
    assert (shown["cpus"], shown["mem_mib"]) == (job["cpus"], job["mem_mib"])
    waits = rig.submit(gpus=8)
    assert (waits["cpus"], waits["mem_mib"]) == (1, 128), "no node has as many"
    small = rig.submit(gpus=3, mem_mib=64)
    assert (small["cpus"], small["mem_mib"]) == (5.3, 64)
    assert [rig.submit()[key] for key in ("cpus", "mem_mib")] == [1, 128]


def test_plan_for_a_gpu_job_has_its_default_amounts(rig: Rig) -> None:
    rig.node("a1", CARDS)
    rig.submit(name="holder", gpus=1, mem_mib=12_000)
    rig.status(f"{rig.call('GET', '/v1/jobs').json()['jobs'][0]['id']}.1", "TASK_RUNNING")
    rig.daemon.put(ev.OffersArrived((offer("o3", "a1", cpus=6, mem=4000, gpus=3),)))
    fits = [
        rig.call("POST", "/v1/plan/defrag", json={"gpus": 2, **more}).json()["fits"]
        for more in ({}, {"mem_mib": 128})
    ]
    assert fits == [False, True]


@pytest.mark.parametrize("name", ["A100", "a100-80gb", CARD])
def test_job_runs_on_the_card_that_a_short_name_means(rig: Rig, name: str) -> None:
    rig.node("a1", (gpu("g9", "Tesla T4"),))
    rig.node("a2", CARDS[:1])
    job = rig.submit(gpus=1, gpu_model=name)
    shown = rig.call("GET", f"/v1/jobs/{job['id']}").json()
    assert (shown["gpu_ids"], shown["hostname"]) == (["g0"], "a2.example")
    assert shown["gpu_model"] == [name], "as it was asked for"


def test_gang_gets_cards_of_one_model_of_those_that_a_name_means(rig: Rig) -> None:
    rig.node("a1", (gpu("g7", "A100-SXM4-40GB"), gpu("g8", CARD)))
    rig.node("a2", CARDS[:1])
    job = rig.submit(gpus=1, tasks=2, gpu_model="A100", mem_mib=64, cpus=0.5)
    shown = rig.call("GET", f"/v1/jobs/{job['id']}").json()
    assert sorted(shown["gpu_ids"]) == ["g0", "g8"]


def test_model_that_no_node_has_is_told_when_a_job_is_submitted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.node("a1", CARDS)
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    words = ["run", "--detach", "--gpus", "1", "--gpu-model", "A1000", "--", "true"]
    done = CliRunner().invoke(main, words, prog_name="mesos-gpu")
    meant = f"no node has a GPU of model A1000; did you mean {CARD}?"
    assert done.exit_code == 0
    assert meant in " ".join(done.stderr.split())
    why = rig.call("GET", f"/v1/why/{done.stdout.strip()}").json()
    assert (why["can_ever_run"], why["summary"]) == (False, meant)


def test_costs_and_pools_go_by_short_names(rig: Rig) -> None:
    rig.node("a1", CARDS)
    pools = {"big": {"models": ["a100"]}, "other": {"models": ["A100-80GB"]}}
    document = {"version": 0, "queues": {"q": {"guarantee_gpus": {"other": 24}, "pools": ["other"]}}}
    document |= {"pools": pools, "gpu_cost": {"A100": 4, "A100-80GB": 6}}
    assert rig.call("PUT", "/v1/queues", json=document).status_code == 200
    wrong = {**document, "version": 1, "gpu_cost": {"A100-80GB": 6, "a100-sxm4": 4, "A10": 2}}
    problems = rig.call("PUT", "/v1/queues", json=wrong).json()["error"]["problems"]
    assert [(each["path"], each["reason"]) for each in problems] == [
        ("/gpu_cost/A10", f"no node has a GPU of model A10; did you mean {CARD}?"),
        (
            "/gpu_cost/A100-80GB",
            f"A100-80GB and a100-sxm4 both mean {CARD}: leave one out, or name the card in full",
        ),
    ]
