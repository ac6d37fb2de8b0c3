"""Limits of queues, gangs and victims of preemption on nodes with several GPUs, as clients see them."""

from collections import Counter
from collections.abc import Iterator

import pytest

from mesos_gpu.api.spec.cluster.line import Queue
from mesos_gpu.local.stack import NodeSpec
from tests.conftest import wait_until
from tests.contract.decisions.site import Site, site_of

GPUS = 4


@pytest.fixture
def site() -> Iterator[Site]:
    with site_of([NodeSpec(GPUS)] * 3, queue_limits={"lab": 1}) as site:
        yield site


def test_queue_limit_holds_on_a_free_cluster(site: Site) -> None:
    one, two = site.submit("one", 1, queue="lab"), site.submit("two", 1, queue="lab")
    site.running(one)
    other = site.submit("other", 1)
    site.running(other)
    assert site.states(two) == ["pending"]
    why = site.client.why(two)
    assert why["summary"] == "waits for its queue: queue lab may hold 1 GPU, and holds 1"
    assert why["can_ever_run"]
    (lab,) = (queue for queue in site.client.get("/v1/queue", Queue)["queues"] if queue["name"] == "lab")
    assert (lab["limit_gpus"], lab["used_gpus"], lab["waiting"]) == (1, 1, 1)
    site.kill(one)
    site.running(two)


def test_gang_waits_for_room_for_all_members_and_holds_none(site: Site) -> None:
    small = []
    for _ in range(3):  # one node is full but for one
        small.append(site.submit("small", 1))
        site.running(small[-1])
    gang = site.submit("train", 4, tasks=3)
    wait_until("the gang is looked at", lambda: site.client.why(gang)["tasks_fit"] == 2)
    assert site.client.job(gang)["gpu_ids"] == []
    site.kill(*small)
    site.running(gang)
    assert len(site.client.job(gang)["gpu_ids"]) == 12


def test_preemption_ends_the_preemptible_job_alone_and_restarts_it(site: Site) -> None:
    low = [site.submit("low", 4) for _ in range(2)]
    victim = site.submit("victim", 4, preemptible=True, kill_grace_s=20)
    site.running(*low, victim)
    urgent = site.submit("urgent", 2, priority=5)
    site.go_on(5)
    site.running(urgent)
    assert site.states(*low, victim) == ["running", "running", "pending"]
    (task,) = site.client.tasks(victim)
    assert task["preempted_for"] == urgent
    assert (task["state"], task["ended_as"]) == ("lost", "preempted")
    site.end(urgent)
    site.go_on(2)
    site.running(victim)
    assert site.client.job(victim)["attempts"] == 0


def test_jobs_of_mixed_size_share_no_gpu_and_all_run(site: Site) -> None:
    sizes = [1, 2, 4, 1, 1, 3, 2, 4, 2, 3]
    jobs = [site.submit(f"mixed{number}", gpus) for number, gpus in enumerate(sizes)]
    waiting = set(jobs)
    while waiting:
        running = wait_until(
            "a job runs", lambda: [job for job in waiting if site.states(job) == ["running"]]
        )
        held = [(gpu["uuid"], gpu["job_id"]) for gpu in site.client.gpus() if gpu["job_id"]]
        assert len(held) == len({uuid for uuid, _ in held})
        gpus_of = Counter(job for _, job in held)
        assert all(gpus_of[job] == sizes[jobs.index(job)] for job in running)
        site.end(running[0])
        waiting.remove(running[0])
