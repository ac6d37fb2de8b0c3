"""`mesos-gpu cluster apply` on one host over SSH, with a master, a scheduler and an agent: a job runs there."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.simulated_gpus import simulated_gpus, write_inventory
from mesos_gpu.cli import main
from mesos_gpu.libmesos import fetch
from mesos_gpu.local.network import Network
from tests.conftest import wait_until
from tests.remote.hosts import RemoteHost, make_keys, missing, remote_host, write_file

PROGRAM = str(Path(sys.executable).with_name("mesos-gpu"))
INVENTORY = "/var/lib/mesos-gpu-inventory.json"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@pytest.fixture(scope="module")
def host(open_directory: Path) -> Iterator[RemoteHost]:
    fetch.libmesos()
    make_keys(open_directory / "keys")
    network = Network(open_directory)
    try:
        network.open()
        cache = [fetch.cache_directory()]
        with remote_host(open_directory / "keys", open_directory / "one", network.add("one"), cache) as host:
            yield host
    finally:
        network.close()


def apply(file: Path) -> str:
    """Apply a file; return the output."""
    parts = [word for part in ("program", "files", "services") for word in ("--only", part)]
    done = CliRunner().invoke(main, ["cluster", "apply", str(file), "--yes", *parts])
    assert done.exit_code == 0, done.output
    return done.output


def test_cluster_apply_makes_one_host_a_cluster_that_runs_a_job(
    host: RemoteHost, open_directory: Path
) -> None:
    inventory = open_directory / "inventory.json"
    write_inventory(inventory, simulated_gpus(1, "NVIDIA A100-SXM4-80GB", seed="one"))
    assert host.ssh.run(f"cat >{INVENTORY}", stdin=inventory.read_bytes(), timeout_s=30).code == 0
    file = open_directory / "cluster.yaml"
    settings = f"settings: {{MESOS_GPU_INVENTORY: {INVENTORY}, MESOS_GPU_ISOLATION: 'off'}}"
    more = f"roles: [master, scheduler, agent], gpus: 1, {settings}, options: '--default-user nobody'"
    write_file(host.keys, file, {"one": (host, more)})
    assert "Changed: one\nThe scheduler of one leads.\n" in apply(file)

    def asked(*words: str) -> str:
        return host.run('exec "$@"', PROGRAM, "--url", "unix:/run/mesos-gpu/api.sock", *words).output

    wait_until("its card is there", lambda: "GPU-" in asked("gpus"), 120)
    ran = asked("run", "--gpus", "1", "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; hostname -I")
    assert re.search(r"^GPU-", ran, re.MULTILINE), ran
    assert host.host.ip in ran
    assert apply(file) == "one: nothing to change\n"
