"""From a bare Debian 12 of debootstrap to a cluster that runs a job, by `mesos-gpu cluster apply` and a wheel alone."""

import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.simulated_gpus import simulated_gpus, write_inventory
from mesos_gpu.cli import main
from tests.conftest import wait_until
from tests.cuda import compiler_or_skip
from tests.e2e.install import bare
from tests.e2e.install.bare import done, indexes
from tests.remote.hosts import ROOT, Here, RemoteHost, make_keys, missing, remote_host, write_file

ADDRESS = "127.77.7.1"  # services of it meet none of this machine's
INVENTORY = "/var/lib/mesos-gpu-inventory.json"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
]


@pytest.fixture(scope="module")
def wheel(open_directory: Path) -> Path:
    compiler_or_skip()
    words = [str(ROOT / "scripts/wheel.py"), "--into", str(open_directory / "wheel"), "--host-compiler"]
    return Path(done([sys.executable, *words, "--machine", platform.machine()]).strip())


@pytest.fixture(scope="module")
def debian(open_directory: Path) -> Path:
    return bare.debian(open_directory / "debian")


@pytest.fixture(scope="module")
def host(debian: Path, open_directory: Path) -> Iterator[RemoteHost]:
    make_keys(open_directory / "keys")
    directory = open_directory / "host"
    places = indexes()[1]
    with remote_host(open_directory / "keys", directory, Here(ADDRESS), places, lower=debian) as made:
        yield made


def test_cluster_apply_makes_a_bare_debian_run_a_job(
    host: RemoteHost, wheel: Path, open_directory: Path
) -> None:
    assert host.run("command -v pip || command -v java || command -v mesos-gpu").code != 0, "it is bare"
    inventory = open_directory / "inventory.json"
    write_inventory(inventory, simulated_gpus(1, "NVIDIA A100-SXM4-80GB", seed="bare"))
    host.ssh.run(f"cat >{INVENTORY}", stdin=inventory.read_bytes(), timeout_s=30)
    file = open_directory / "cluster.yaml"
    settings = f"settings: {{MESOS_GPU_INVENTORY: {INVENTORY}, MESOS_GPU_ISOLATION: 'off'}}"
    more = (
        f"roles: [zookeeper, master, scheduler, agent], gpus: 1, {settings}, "
        f"options: '--host {ADDRESS} --default-user nobody'"
    )
    write_file(
        host.keys, file, {"one": (host, more)}, "zookeeper_heap_mib: 96\n",
        f"wheel: {wheel}, requirements: {ROOT / 'requirements-run.lock'}",
    )  # fmt: skip
    told = CliRunner().invoke(main, ["cluster", "apply", str(file), "--yes"])
    print(told.output)
    assert told.exit_code == 0, told.output
    program = ["/opt/mesos-gpu/bin/mesos-gpu", "--url", "unix:/run/mesos-gpu/api.sock"]

    def said(*words: str) -> str:
        ran = host.run('exec "$@"', *program, *words)
        assert ran.code == 0, ran.output
        print(f"# mesos-gpu {' '.join(words)}\n{ran.output}")
        return ran.output

    wait_until("its card is there", lambda: "GPU-" in said("gpus"), 180)
    assert ADDRESS in said("nodes")
    assert said("run", "--gpus", "1", "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").count("GPU-")
    again = CliRunner().invoke(main, ["cluster", "apply", str(file), "--yes"])
    assert again.output == "one: nothing to change\n"
