"""Job arrays on real Mesos: each index once, so many at once, ranges that are killed, and a restart amid them."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.api.spec.tasks.array import Array
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import free_all
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
GPUS = 8


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    directory = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    directory.chmod(0o755)
    with Stack(directory / "cluster", [NodeSpec(GPUS)]) as stack, Client(stack.url) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == GPUS)
        yield stack
    shutil.rmtree(directory)


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        yield client
        free_all(client)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory where every user may write."""
    path = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


def submit(client: Client, name: str, array: str, command: str) -> str:
    request = {"name": name, "command": command, "array": array, "gpus": 1, "cpus": 0.05, "mem_mib": 16}
    return client.submit(request)["id"]


def noted(scratch: Path) -> str:
    """A command that notes when its task began and ended, and what it was told."""
    told = "$MESOS_GPU_ARRAY_INDEX $MESOS_GPU_ARRAY_COUNT $MESOS_GPU_ARRAY_FIRST $MESOS_GPU_ARRAY_LAST"
    begin, end = f"{scratch}/begin.$MESOS_GPU_ARRAY_INDEX.$$", f"{scratch}/end.$MESOS_GPU_ARRAY_INDEX.$$"
    return (
        f'date +%s.%N > {begin}; echo "{told} $MESOS_GPU_ARRAY_STEP" >> {begin}; sleep 1; date +%s.%N > {end}'
    )


def most_at_once(scratch: Path) -> int:
    """How many ran at one moment, by what they noted themselves."""
    moments = [(float(each.read_text().split()[0]), 1) for each in scratch.glob("begin.*")]
    moments += [(float(each.read_text()), -1) for each in scratch.glob("end.*")]
    now = most = 0
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


def of(client: Client, wanted: str) -> Array:
    return client.get(f"/v1/arrays/{wanted}", Array)


def until_ended(client: Client, id: str) -> None:
    wait_until("the array has ended", lambda: client.job(id)["ended_at"] is not None, 180)


def test_twenty_tasks_four_at_once_each_once(client: Client, scratch: Path) -> None:
    id = submit(client, "sweep", "0-19%4", noted(scratch))
    until_ended(client, id)
    assert (client.job(id)["state"], of(client, "sweep")["finished"]) == ("finished", "0-19")
    begun = sorted(int(each.name.split(".")[1]) for each in scratch.glob("begin.*"))
    assert begun == list(range(20)), "each index ran, and none twice"
    assert 2 <= most_at_once(scratch) <= 4
    (told,) = scratch.glob("begin.7.*")
    assert told.read_text().split()[1:] == ["7", "20", "0", "19", "1"]


def test_a_range_is_killed_be_it_running_or_not(client: Client) -> None:
    id = submit(client, "killed", "0-9%5", "sleep 300")
    wait_until("five run", lambda: of(client, "killed")["running"] == "0-4", 60)
    client.kill("killed.3-7")
    wait_until("they have ended", lambda: of(client, "killed")["killed"] == "3-7", 60)
    wait_until("others take their place", lambda: of(client, "killed")["running"] == "0-2,8-9", 60)
    assert client.job("killed.5")["state"] == "killed"
    client.kill(id)
    until_ended(client, id)
    assert of(client, "killed")["killed"] == "0-9"


def test_a_restart_of_the_scheduler_keeps_limit_and_indexes(
    stack: Stack, client: Client, scratch: Path
) -> None:
    gate = f"[ $MESOS_GPU_ARRAY_INDEX -lt 3 ] || while [ ! -e {scratch}/go ]; do sleep 0.05; done; "
    id = submit(client, "again", "0-9%3", gate + noted(scratch))
    wait_until("the first have ended", lambda: of(client, "again")["finished"] == "0-2", 60)
    wait_until("others take their place", lambda: of(client, "again")["running"] == "3-5", 60)
    stack.scheduler.kill()
    (scratch / "go").touch()
    wait_until("tasks end while no scheduler runs", lambda: len(list(scratch.glob("end.*"))) == 6, 60)
    stack.scheduler.start().wait()
    client.patience_s = 60.0
    until_ended(client, id)
    begun = sorted(int(each.name.split(".")[1]) for each in scratch.glob("begin.*"))
    assert begun == list(range(10))
    assert most_at_once(scratch) <= 3
    assert of(client, "again")["finished"] == "0-9"
