"""A real agent takes the flags that `mesos-gpu install agent` prints, and runs a job with a GPU."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.install import agent
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.e2e.test_jobs import end_of, output_of, submit

#: What a cluster on one machine decides for itself, and paths that are the host's.
OWN = {"master", "work_dir", "runtime_dir", "resources", "executor_environment_variables"}
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root and cgroup v1 controllers"),
]


@pytest.fixture(scope="module", params=agent.CGROUPS)
def client(request: pytest.FixtureRequest, open_directory: Path) -> Iterator[Client]:
    if request.param == "v1" and not Path("/sys/fs/cgroup/devices").is_dir():
        pytest.skip("no cgroup v1 hierarchy of devices at /sys/fs/cgroup")
    host = agent.AgentHost("m:5050", 2, request.param, authentication=False)
    given = agent.flags(host)
    own = json.loads(given["executor_environment_variables"])
    own.pop("PATH")
    if request.param == "v2" and Path("/sys/fs/cgroup/devices").is_dir():
        own.pop("MESOS_GPU_ISOLATION")  # as this host has it
    # No images here: the embedded agent has no store for them; and no systemd, as in most test environments.
    flags = {name: value for name, value in given.items() if name not in OWN | {"image_providers"}}
    flags |= {
        "systemd_enable_support": "false",
        "isolation": given["isolation"].replace(",docker/runtime", ""),
    }
    with (
        Stack(
            open_directory / f"stack-{request.param}", [NodeSpec(2, flags=flags)], executor_environment=own
        ) as stack,
        Client(stack.url) as client,
    ):
        wait_until("the node reports", lambda: len(client.gpus()) == 2)
        yield client


def test_agent_flags_let_a_job_run_with_its_gpu(client: Client) -> None:
    job = end_of(client, submit(client, "echo $NVIDIA_VISIBLE_DEVICES", gpus=1))
    assert (job["state"], job["exit_code"]) == ("finished", 0), job
    assert output_of(client, job).split() == job["gpu_ids"]
