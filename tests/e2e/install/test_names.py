"""Secrets of `mesos-gpu install secrets` with a real master and agent that require names; executors without tokens."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.cli.client import Client
from mesos_gpu.install import agent, secrets
from mesos_gpu.local import stack as stacks
from mesos_gpu.local.secure import Secure
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.e2e.test_jobs import end_of, output_of, submit
from tests.kernel.conftest import needs

IMAGE = "small:1"
pytestmark = [
    pytest.mark.on_change("install"),
    pytest.mark.cluster,
    pytest.mark.skipif(
        bool(dockerd.missing()), reason=f"needs images, an engine and a static busybox: {dockerd.missing()}"
    ),
]


class Installed(Secure):
    """The embedded cluster's own files in the places of the installed ones, and the flags that operators are given."""

    __slots__ = ()

    def write(self) -> None:
        done = CliRunner().invoke(main, ["install", "secrets", str(self.directory)])
        assert done.exit_code == 0, done.output

    @property
    def framework(self) -> Path:
        return self.directory / "scheduler/mesos-credentials.json"

    @property
    def operator(self) -> Path:
        return self.directory / "operator/operator.json"

    def master_flags(self) -> dict[str, str]:
        (settings,) = [each.text for each in secrets.files(("*",), tokens=False) if each.is_settings]
        given = dict(line.split("=", 1) for line in shlex.split(settings))
        return {
            name.removeprefix("MESOS_").lower(): value.replace(agent.SECRETS, f"{self.directory}/master")
            for name, value in given.items()
        }

    def agent_flags(self) -> dict[str, str]:
        return {
            name: value.replace(agent.SECRETS, f"{self.directory}/agent")
            for name, value in agent.flags(agent.AgentHost("m:5050", 1, "v1")).items()
            if name in agent.AUTHENTICATION
        }

    def executor_environment(self) -> dict[str, str]:
        given = json.loads(agent.flags(agent.AgentHost("m:5050", 1, "v1"))["executor_environment_variables"])
        return {
            name: value.replace(agent.SECRETS, f"{self.directory}/agent")
            for name, value in given.items()
            if agent.SECRETS in value
        }


@pytest.fixture
def stack(open_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    needs("cgroup1")
    monkeypatch.setattr(stacks, "Secure", Installed)
    images = open_directory / "images"
    save(images, IMAGE, [busybox_layer(dockerd.busybox(), ["sh", "echo", "true"])], {"Env": ["PATH=/bin"]})
    with Stack(
        open_directory / "stack", [NodeSpec(1)], images=images, devices="mesos", secure=True
    ) as running:
        yield running


def test_secrets_that_install_writes_let_jobs_run_and_strangers_out(stack: Stack) -> None:
    with Client(stack.reach) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 1)
        job = end_of(client, submit(client, "echo $NVIDIA_VISIBLE_DEVICES", gpus=1))
        assert output_of(client, job).split() == job["gpu_ids"], job
        nested = end_of(client, submit(client, "echo in an image", image=IMAGE))
        assert (nested["state"], output_of(client, nested)) == ("finished", "in an image\n"), json.dumps(
            nested
        )
    for process in (stack.cluster.master, *stack.cluster.agents):
        assert requests.get(f"{process.url}/state", timeout=10).status_code == 401
