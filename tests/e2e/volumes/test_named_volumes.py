"""Named volumes of jobs on real Mesos: data that outlives jobs, preemption and the scheduler, until it is removed."""

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.api.spec.tasks.volumes import NamedVolume, NamedVolumes
from mesos_gpu.cli.client import Client, Refused
from mesos_gpu.cli.cluster.calls import OperatorCalls
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, command, end_all
from tests.conftest import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="volumes are mounted by root"),
]
#: Adds a line to the volume, and says all lines that are there.
ADDS = "date +%s%N >> data/log; wc -l < data/log"


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    reports = ("--report-interval", "0.5")
    with Stack(open_directory / "stack", [NodeSpec(2)] * 2, scheduler_arguments=reports) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 4) as client:
        yield client
        end_all(client)
        for volume in listed(client):
            if not volume["removing"]:
                client.call("DELETE", f"/v1/volumes/{volume['name']}", NamedVolume, {"user": volume["owner"]})
        wait_until("all volumes are removed", lambda: listed(client) == [], 60)
        assert directories(stack) == []


def listed(client: Client) -> list[NamedVolume]:
    return client.call("GET", "/v1/volumes", NamedVolumes)["volumes"]


def directories(stack: Stack) -> list[Path]:
    return [each for number in (1, 2) for each in stack.persistent(number).iterdir()]


def submit(client: Client, line: str, **fields: Any) -> Job:
    volume = {"name": "data", "path": "data", **({"size": "20MiB"} if not listed(client) else {})}
    request = {"command": line, "cpus": 0.1, "mem_mib": 32, "kill_grace_s": 0.1, "volumes": [volume]}
    return client.submit({**request, **fields})


def ended(client: Client, job: Job) -> Job:
    wait_until("it has ended", lambda: client.job(job["id"])["ended_at"], 60)
    return client.job(job["id"])


def output(client: Client, job: Job) -> str:
    return client.logs(job["id"], stream="stdout", offset=0, length=65536)["data"]


def running(client: Client, job: Job) -> Job:
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running", 60)
    return client.job(job["id"])


def test_data_of_a_job_is_there_for_the_next_until_it_is_removed(client: Client, stack: Stack) -> None:
    first = ended(client, submit(client, ADDS))
    assert (first["state"], output(client, first)) == ("finished", "1\n")
    again = {"name": "data", "path": "kept/here"}
    share = ended(
        client, submit(client, "cat kept/here/log; echo $MESOS_SANDBOX", gpus=0.25, volumes=[again])
    )
    assert (share["state"], share["hostnames"]) == ("finished", first["hostnames"])
    assert output(client, share).splitlines()[1] != ""
    reads = submit(client, "touch data/x; sleep 600", volumes=[{**again, "path": "data", "read_only": True}])
    assert running(client, reads)["hostnames"] == first["hostnames"]
    with pytest.raises(Refused) as refused:
        client.call("DELETE", "/v1/volumes/data", NamedVolume)
    assert reads["id"] in refused.value.what
    (volume,) = json.loads(command("--url", stack.url, "storage", "list", "--json").stdout)
    assert (volume["name"], volume["hostname"], volume["jobs"]) == (
        "data",
        *first["hostnames"],
        [reads["id"]],
    )
    (directory,) = directories(stack)
    assert sorted(each.name for each in directory.iterdir()) == ["log"], "it cannot write"
    client.kill(reads["id"])
    ended(client, reads)
    gone = command("--url", stack.url, "storage", "remove", "data", "--yes")
    assert gone.returncode == 0, gone.stderr
    wait_until("its directory is removed", lambda: directories(stack) == [], 60)


def test_preempted_job_finds_its_data_again(client: Client) -> None:
    holder = running(client, client.submit({"command": "sleep 600", "gpus": 2, "cpus": 0.1, "mem_mib": 32}))
    victim = submit(
        client, f"{ADDS}; while [ $(wc -l < data/log) = 1 ]; do sleep 0.2; done", gpus=2, preemptible=True
    )
    host = running(client, victim)["hostnames"]
    assert host != holder["hostnames"]
    high = client.submit({"command": "sleep 1", "gpus": 2, "cpus": 0.1, "mem_mib": 32, "priority": 9})
    assert ended(client, high)["hostnames"] == host
    after = ended(client, victim)
    assert (after["state"], after["hostnames"], after["launches"], after["stopped"]) == (
        "finished",
        host,
        2,
        1,
    )
    assert output(client, after) == "2\n"


def test_array_adds_to_one_volume_on_one_host(client: Client) -> None:
    array = submit(client, "echo $MESOS_GPU_ARRAY_INDEX >> data/log", array="0-3", name="adds")
    wait_until("all have ended", lambda: client.job(array["id"])["ended_at"], 60)
    job = ended(client, submit(client, "sort data/log"))
    assert output(client, job).split() == ["0", "1", "2", "3"]


def test_volume_outlives_a_scheduler_that_is_killed(client: Client, stack: Stack) -> None:
    first = ended(client, submit(client, ADDS))
    stack.scheduler.kill()
    stack.scheduler.start().wait()
    again = ended(client, submit(client, ADDS))
    assert (output(client, again), again["hostnames"]) == ("2\n", first["hostnames"])


def test_job_waits_for_the_drained_host_of_its_volume(client: Client) -> None:
    (host,) = ended(client, submit(client, ADDS))["hostnames"]
    operator = OperatorCalls(client)
    operator.drain_node(host, "disk", by="ann", deadline_s=None)
    waits = submit(client, ADDS)
    wait_until(
        "it is looked at", lambda: f"its persistent volume data is on {host}" in str(client.why(waits["id"]))
    )
    assert client.job(waits["id"])["state"] == "pending"
    operator.undrain_node(host, by="ann")
    assert output(client, ended(client, waits)) == "2\n"


def test_job_that_fills_its_volume_fails_and_the_data_stays(client: Client, stack: Stack) -> None:
    job = ended(client, submit(client, "head -c 30M /dev/zero > data/big; exec sleep 600"))
    assert job["state"] == "failed"
    assert "in the persistent volume data of 20 MiB" in job["message"]
    (directory,) = directories(stack)
    assert (directory / "big").stat().st_size == 30 << 20


def test_link_in_the_sandbox_leads_no_volume_elsewhere(client: Client, open_directory: Path) -> None:
    outside = open_directory / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    with tarfile.open(open_directory / "links.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("data")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        archive.addfile(link)
    job = ended(client, submit(client, ADDS, fetch=[str(open_directory / "links.tar.gz")]))
    assert job["state"] == "failed", output(client, job)
    assert not any(outside.iterdir())
