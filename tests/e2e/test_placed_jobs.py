"""Jobs over three nodes of real Mesos: attributes and zones of its offers, gangs, ports, arrays, a job that needs a
whole node.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.api.spec.cluster.line import Queue
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.api.spec.tasks.array import Array
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, free_all
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
NODES = (
    NodeSpec(2, attributes={"rack": "1.50"}, zone="east"),
    NodeSpec(2, attributes={"rack": "2"}, zone="east"),
    NodeSpec(2, attributes={"rack": "2"}, zone="west"),
)


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", NODES) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 6) as client:
        yield client
        free_all(client)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Return a directory where every user may write."""
    path = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


def submit(client: Client, name: str, command: str, gpus: int, **more: object) -> Job:
    request = {"name": name, "command": command, "gpus": gpus, "cpus": 0.1, "mem_mib": 32}
    return client.submit({**request, "kill_grace_s": 0.1, **more})


def states(client: Client, *jobs: Job) -> list[str]:
    return [client.job(job["id"])["state"] for job in jobs]


def until(client: Client, job: Job, state: str) -> Job:
    def there() -> bool:
        now = client.job(job["id"])
        assert now["state"] == state or not ended(now), now["message"]
        return now["state"] == state

    wait_until(f"{job['name']} is {state}", there, 60)
    return client.job(job["id"])


def test_nodes_show_attributes_and_zones_as_mesos_has_them(client: Client) -> None:
    places = {n["hostname"]: (n["attributes"]["rack"], n["region"], n["zone"]) for n in client.nodes()}
    assert places == {
        "127.0.0.11": ("1.5", "local", "east"),
        "127.0.0.12": ("2", "local", "east"),
        "127.0.0.13": ("2", "local", "west"),
    }


def test_constraints_on_attributes_and_zones_choose_the_node(client: Client) -> None:
    first = submit(
        client, "first", "true", 0, constraints=[["rack", "IS", "1.500"], ["@zone", "LIKE", "e.+"]]
    )
    west = submit(client, "west", "true", 1, constraints=[["@zone", "IS", "west"]])
    assert until(client, first, "finished")["hostname"] == "127.0.0.11"
    assert until(client, west, "finished")["hostname"] == "127.0.0.13"


def test_gang_of_one_rack_finds_the_rack_that_has_room_for_it(client: Client) -> None:
    gang = submit(client, "racked", "sleep 300", 2, tasks=2, constraints=[["rack", "CLUSTER"]])
    assert set(until(client, gang, "running")["hostnames"]) == {"127.0.0.12", "127.0.0.13"}


def test_gang_starts_on_as_few_nodes_as_fit(client: Client) -> None:
    for host in ("127.0.0.11", "127.0.0.12"):
        before = submit(client, "before", "sleep 300", 1, constraints=[["hostname", "IS", host]])
        until(client, before, "running")
    gang = submit(client, "train", "sleep 300", 1, tasks=2)
    assert set(until(client, gang, "running")["hostnames"]) == {"127.0.0.13"}


def test_gang_members_see_their_own_gpus_and_where_the_others_are(client: Client, scratch: Path) -> None:
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


def test_gang_restarts_all_members_when_one_fails(client: Client, scratch: Path) -> None:
    command = (
        f"echo x >> {scratch}/$RANK; "
        f"if [ $RANK = 1 ] && [ $(wc -l < {scratch}/1) = 1 ]; then "
        f"until [ -e {scratch}/0 ]; do sleep 0.1; done; exit 3; fi; "
        "[ $MESOS_GPU_ATTEMPT = 2 ] || sleep 300"
    )
    gang = submit(client, "train", command, 1, tasks=2, max_attempts=2)
    done = until(client, gang, "finished")
    assert (done["attempts"], done["launches"], done["exit_code"]) == (2, 2, 0)
    assert [(scratch / str(i)).read_text() for i in range(2)] == ["x\nx\n"] * 2


def test_jobs_that_ask_for_all_cpus_of_their_nodes_run_beside_the_monitors(client: Client) -> None:
    half = NodeSpec().cpus / 2
    jobs = [submit(client, "half", "sleep 600", 1, cpus=half) for _ in range(2 * len(NODES))]
    wait_until("all run", lambda: states(client, *jobs) == ["running"] * len(jobs))
    wait_until(
        "what is left was offered", lambda: all(node["cpus_free"] is not None for node in client.nodes())
    )
    for node in client.nodes():
        assert (node["cpus_total"], node["mem_mib_total"]) == (NodeSpec().cpus, NodeSpec().mem_mib)
        assert node["cpus_free"] is not None
        assert 0 <= node["cpus_free"] < 1


def test_ports_of_the_host_are_given_to_the_task(stack: Stack, client: Client) -> None:
    last = stack.cluster.fixed_ports[1]
    job = until(client, submit(client, "ports", "echo $PORT0 $PORT1 $HOST", 0, ports=[0, last]), "finished")
    (task,) = client.tasks(job["id"])
    told = client.logs(job["id"], stream="stdout", offset=0, length=100)["data"]
    assert told == f"{task['ports'][0]} {last} {task['hostname']}\n"
    assert task["ports"][0] != last


def test_queue_gives_a_large_job_its_node_under_a_stream_of_small_ones(client: Client) -> None:
    """Offers of Mesos lag behind the ends of tasks: a GPU that is free is not offered at once."""
    fill = [submit(client, "fill", "sleep 600", 1) for _ in range(6)]
    wait_until("all run", lambda: states(client, *fill) == ["running"] * 6)
    big = submit(client, "big", "sleep 600", 2)
    small = [submit(client, "small", "true", 1) for _ in range(2)]
    waiting = client.get("/v1/queue", Queue)["jobs"]
    assert [job["id"] for job in waiting] == [job["id"] for job in (big, *small)]
    kept = waiting[0]["reservation"]
    assert kept is not None
    there = [job for job in fill if client.job(job["id"])["hostname"] == kept["hostname"]]
    assert len(there) == 2
    for job in there:  # one by one, with small jobs waiting for each GPU
        client.kill(job["id"])
        until(client, job, "killed")
    until(client, big, "running")
    assert states(client, *small) == ["pending"] * 2
    client.kill(big["id"])
    for each in small:
        until(client, each, "finished")


def test_array_keeps_limit_and_indexes_over_a_restart_of_the_scheduler(
    stack: Stack, client: Client, scratch: Path
) -> None:
    gate = f"[ $MESOS_GPU_ARRAY_INDEX -lt 2 ] || while [ ! -e {scratch}/go ]; do sleep 0.05; done; "
    id = submit(client, "again", gate + noted(scratch), 1, array="0-5%2")["id"]

    def array() -> Array:
        return client.get("/v1/arrays/again", Array)

    wait_until("the first have ended", lambda: array()["finished"] == "0-1", 60)
    wait_until("others take their place", lambda: array()["running"] == "2-3", 60)
    stack.scheduler.kill()
    (scratch / "go").touch()
    wait_until("tasks end while no scheduler runs", lambda: len(list(scratch.glob("end.*"))) == 4, 60)
    stack.scheduler.start().wait()
    client.patience_s = 60.0
    wait_until("the array has ended", lambda: client.job(id)["ended_at"] is not None, 120)
    begun = sorted(int(each.name.split(".")[1]) for each in scratch.glob("begin.*"))
    assert begun == list(range(6)), "each index ran, and none twice"
    assert max_at_once(scratch) <= 2
    (told,) = scratch.glob("begin.3.*")
    assert told.read_text().split()[1:] == ["3", "6", "0", "5", "1"]
    assert (client.job(id)["state"], array()["finished"]) == ("finished", "0-5")


def noted(scratch: Path) -> str:
    """Return a command that notes its begin, its end, and its variables of the array."""
    told = "$MESOS_GPU_ARRAY_INDEX $MESOS_GPU_ARRAY_COUNT $MESOS_GPU_ARRAY_FIRST $MESOS_GPU_ARRAY_LAST"
    begin, end = f"{scratch}/begin.$MESOS_GPU_ARRAY_INDEX.$$", f"{scratch}/end.$MESOS_GPU_ARRAY_INDEX.$$"
    return f'date +%s.%N > {begin}; echo "{told} $MESOS_GPU_ARRAY_STEP" >> {begin}; date +%s.%N > {end}'


def max_at_once(scratch: Path) -> int:
    """Return how many tasks ran at one moment, by what they noted themselves."""
    moments = [(float(each.read_text().split()[0]), 1) for each in scratch.glob("begin.*")]
    moments += [(float(each.read_text()), -1) for each in scratch.glob("end.*")]
    now = most = 0
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most
