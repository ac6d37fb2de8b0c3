"""Several tasks that start together, and jobs that make room for others: on real Mesos."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local import cluster
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import free_all
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
NODES, GPUS = 3, 4


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    directory = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    directory.chmod(0o755)
    with Stack(directory / "cluster", [NodeSpec(GPUS)] * NODES) as stack, Client(stack.url) as gang_client:
        wait_until("the nodes report", lambda: len(gang_client.gpus()) == NODES * GPUS)
        yield gang_client
    shutil.rmtree(directory)


@pytest.fixture(autouse=True)
def nothing_is_left(client: Client) -> Iterator[None]:
    yield
    free_all(client)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory where every user may write."""
    path = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


def submit(client: Client, name: str, command: str, gpus: int, **more: object) -> Job:
    job = {"name": name, "command": command, "gpus": gpus, "cpus": 0.1, "mem_mib": 32}
    return client.submit({**job, **more})


def until(client: Client, job: Job, state: str) -> Job:
    def there() -> bool:
        now = client.job(job["id"])
        assert now["state"] in (state, "pending", "starting", "running", "killing"), now["message"]
        return now["state"] == state

    wait_until(f"{job['name']} is {state}", there, 60)
    return client.job(job["id"])


def test_a_gang_of_three_by_two_over_agents(client: Client, scratch: Path) -> None:
    """Each member sees its own GPUs, and where the others are."""
    command = f'env > {scratch}/$RANK; cp "$HOSTFILE" {scratch}/hosts.$RANK; sleep 300'
    gang = until(
        client, submit(client, "train", command, 2, tasks=3, constraints=[["hostname", "UNIQUE"]]), "running"
    )
    wait_until("all have written", lambda: sum(path.stat().st_size > 0 for path in scratch.iterdir()) == 6)
    env = [dict(line.split("=", 1) for line in (scratch / str(i)).read_text().splitlines()) for i in range(3)]
    tasks = client.tasks(gang["id"])
    assert [task["rank"] for task in tasks] == [0, 1, 2]
    assert len(gang["hostnames"]) == 3
    assert len(set(gang["gpu_ids"])) == 6
    for task, own in zip(tasks, env, strict=True):
        assert own["WORLD_SIZE"] == "3"
        assert own["MASTER_ADDR"] == tasks[0]["hostname"]
        assert own["MASTER_PORT"] == str(tasks[0]["ports"][0])
        assert own["NVIDIA_VISIBLE_DEVICES"].split(",") == task["gpu_ids"]
    hosts = (scratch / "hosts.1").read_text().splitlines()
    assert hosts == [f"{task['hostname']} slots=2" for task in tasks]


def test_a_gang_waits_for_all_or_takes_nothing(client: Client) -> None:
    small = [until(client, submit(client, f"s{i}", "sleep 300", 1), "running") for i in range(3)]
    gang = submit(client, "train", "sleep 300", 4, tasks=3)
    wait_until("it is looked at", lambda: client.why(gang["id"])["tasks_fit"] == 2)
    assert client.job(gang["id"])["gpu_ids"] == []
    for job in small:
        client.kill(job["id"])
    assert len(until(client, gang, "running")["gpu_ids"]) == 12


def test_a_member_that_fails_restarts_all(client: Client, scratch: Path) -> None:
    command = (
        f"echo x >> {scratch}/$RANK; sleep 1; "
        f"if [ $RANK = 1 ] && [ $(wc -l < {scratch}/1) = 1 ]; then exit 3; fi; "
        "[ $MESOS_GPU_ATTEMPT = 2 ] || sleep 300"
    )
    gang = submit(client, "train", command, 1, tasks=3, max_attempts=2)
    done = until(client, gang, "finished")
    assert (done["attempts"], done["launches"], done["exit_code"]) == (2, 2, 0)
    assert [(scratch / str(i)).read_text() for i in range(3)] == ["x\nx\n"] * 3


def test_a_preemption_with_notice(client: Client, scratch: Path) -> None:
    """The victim hears SIGTERM, saves its work within its grace, and comes back when the other has ended."""
    saved = scratch / "saved"
    command = (
        f"trap 'echo saved >> {saved}; exit 0' TERM; if [ -e {saved} ]; then exit 0; fi; sleep 300 & wait"
    )
    low = [submit(client, f"low{i}", "sleep 300", 4, cpus=0.1) for i in range(2)]
    victim = submit(client, "victim", f'sh -c "{command}"', 4, preemptible=True, kill_grace_s=20)
    for job in (*low, victim):
        until(client, job, "running")
    urgent = submit(client, "urgent", "sleep 2", 2, priority=5)
    until(client, urgent, "running")
    assert saved.read_text() == "saved\n"
    assert [client.job(job["id"])["state"] for job in low] == ["running"] * 2, "they are not preemptible"
    task = client.tasks(victim["id"])[0]
    assert task["preempted_for"] == urgent["id"]
    until(client, urgent, "finished")
    assert until(client, victim, "finished")["attempts"] <= 1


def test_ports_of_the_host(client: Client) -> None:
    last = cluster.FIXED_PORTS[1]
    job = until(client, submit(client, "ports", "echo $PORT0 $PORT1 $HOST", 0, ports=[0, last]), "finished")
    (task,) = client.tasks(job["id"])
    told = client.logs(job["id"], stream="stdout", offset=0, length=100)["data"]
    assert told == f"{task['ports'][0]} {last} {task['hostname']}\n"
    assert task["ports"][0] != last


def test_sixteen_jobs_of_mixed_size(client: Client) -> None:
    """More than the cluster holds at once: each runs, and no GPU is ever given to two."""
    sizes = [1, 2, 4, 1, 1, 3, 2, 1, 4, 1, 2, 1, 1, 2, 3, 4]
    jobs = [submit(client, f"mixed{i}", "sleep 0.5", gpus) for i, gpus in enumerate(sizes)]
    seen: Counter[str] = Counter()

    def all_ended() -> bool:
        held = [(gpu["uuid"], gpu["job_id"]) for gpu in client.gpus() if gpu["job_id"]]
        assert len(held) == len({uuid for uuid, _ in held})
        seen.update(job_id for _, job_id in held if job_id)
        return all(client.job(job["id"])["state"] == "finished" for job in jobs)

    wait_until("all have finished", all_ended, 90)
    for job, gpus in zip(jobs, sizes, strict=True):
        assert len(client.tasks(job["id"])[0]["gpu_ids"]) == gpus
