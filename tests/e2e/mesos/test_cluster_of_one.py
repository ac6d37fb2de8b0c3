"""`mesos-gpu cluster apply` on one host over SSH, with a master, a scheduler and an agent: a job runs there."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.simulated_gpus import simulated_gpus, write_inventory
from mesos_gpu.cli import main
from mesos_gpu.libmesos import fetch
from mesos_gpu.local.network import Network
from tests.remote.hosts import RemoteHost, make_keys, missing, remote_host, write_file

PROGRAM = str(Path(sys.executable).with_name("mesos-gpu"))
INVENTORY = "/var/lib/mesos-gpu-inventory.json"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@dataclass(frozen=True)
class Site:
    """The host, and the file that describes it."""

    host: RemoteHost
    file: Path

    def apply(self) -> str:
        """Apply the file; return the output."""
        parts = [word for part in ("program", "files", "services") for word in ("--only", part)]
        done = CliRunner().invoke(main, ["cluster", "apply", str(self.file), "--yes", *parts])
        assert done.exit_code == 0, done.output
        return done.output


@pytest.fixture(scope="module")
def site(open_directory: Path) -> Iterator[Site]:
    """Start a host that the file makes a cluster, and apply the file."""
    fetch.libmesos()
    make_keys(open_directory / "keys")
    network = Network(open_directory)
    try:
        network.open()
        cache = [fetch.cache_directory()]
        with remote_host(open_directory / "keys", open_directory / "one", network.add("one"), cache) as host:
            inventory = open_directory / "inventory.json"
            write_inventory(inventory, simulated_gpus(1, "NVIDIA A100-SXM4-80GB", seed="one"))
            put = host.ssh.run(f"cat >{INVENTORY}", stdin=inventory.read_bytes(), timeout_s=30)
            assert put.code == 0, put
            made = Site(host, open_directory / "cluster.yaml")
            settings = f"settings: {{MESOS_GPU_INVENTORY: {INVENTORY}, MESOS_GPU_ISOLATION: 'off'}}"
            roles = "roles: [master, scheduler, agent]"
            more = f"{roles}, gpus: 1, {settings}, options: '--default-user nobody'"
            write_file(host.keys, made.file, {"one": (host, more)})
            assert "Changed: one\nThe scheduler of one leads.\n" in made.apply()
            yield made
    finally:
        network.close()


def test_cluster_apply_makes_one_host_a_cluster_that_runs_a_job(site: Site) -> None:
    command = ("sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; hostname -I")
    url = ("--url", "unix:/run/mesos-gpu/api.sock")
    ran = site.host.run('exec "$@"', PROGRAM, *url, "run", "--gpus", "1", "--", *command)
    assert ran.code == 0, ran
    assert re.search(r"^GPU-", ran.output, re.MULTILINE), ran
    assert site.host.host.ip in ran.output


def test_cluster_apply_finds_nothing_to_change_on_the_host_the_second_time(site: Site) -> None:
    assert site.apply() == "one: nothing to change\n"
