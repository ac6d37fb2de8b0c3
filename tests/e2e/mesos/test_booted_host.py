"""`mesos-gpu cluster apply` by a user with sudo on a host whose first process is a real systemd: services are enabled,
start, and are there again after a power cut; systemd's journal tells of them.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.adapters.simulated_gpus import simulated_gpus, write_inventory
from mesos_gpu.cli import main
from mesos_gpu.libmesos import fetch
from mesos_gpu.local.network import Network
from tests.conftest import wait_until
from tests.remote.booted import Booted, booted_host, missing
from tests.remote.hosts import let_in, make_keys, write_file

PROGRAM = str(Path(sys.executable).with_name("mesos-gpu"))
INVENTORY = "/var/lib/mesos-gpu-inventory.json"
UNITS = ("mesos-gpu-master", "mesos-gpu-scheduler", "mesos-gpu-agent")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@dataclass
class Site:
    """The host, and the file that describes it."""

    host: Booted
    file: Path

    def apply(self, *words: str) -> Result:
        parts = [word for part in ("program", "files", "services") for word in ("--only", part)]
        return CliRunner().invoke(main, ["cluster", "apply", str(self.file), "--yes", *parts, *words])

    def mesos_gpu(self, *words: str) -> str:
        """Run a command on the host; return its output."""
        done = self.host.run('exec "$@"', PROGRAM, "--url", "unix:/run/mesos-gpu/api.sock", *words)
        assert done.code == 0, done.output
        return done.output

    def run_a_job(self, text: str) -> None:
        wait_until("its card is there", lambda: "GPU-" in self._asked("gpus"), 180)
        assert text in self.mesos_gpu("run", "--gpus", "1", "--", "echo", text)

    def _asked(self, *words: str) -> str:
        return self.host.run('exec "$@"', PROGRAM, "--url", "unix:/run/mesos-gpu/api.sock", *words).output


@pytest.fixture(scope="module")
def site(open_directory: Path) -> Iterator[Site]:
    fetch.libmesos()
    make_keys(open_directory / "keys")
    network = Network(open_directory)
    try:
        network.open()
        cache = [fetch.cache_directory()]
        with booted_host(open_directory / "keys", open_directory / "one", network.add("one"), cache) as host:
            inventory = open_directory / "inventory.json"
            write_inventory(inventory, simulated_gpus(1, "NVIDIA A100-SXM4-80GB", seed="booted"))
            assert host.ssh.run(f"cat >{INVENTORY}", stdin=inventory.read_bytes(), timeout_s=30).code == 0
            own = "/etc/systemd/system/mesos-gpu-scheduler.service.d"  # the Python of the tests may be in a home
            script = f"mkdir -p {own}; printf '[Service]\\nProtectHome=no\\n' >{own}/home.conf"
            assert host.run(script).code == 0
            made = Site(host, open_directory / "cluster.yaml")
            settings = f"settings: {{MESOS_GPU_INVENTORY: {INVENTORY}, MESOS_GPU_ISOLATION: 'off'}}"
            more = (
                f"roles: [master, scheduler, agent], ssh: {{user: ops}}, gpus: 1, {settings}, "
                "options: '--default-user nobody'"
            )
            write_file(host.keys, made.file, {"one": (host, more)})
            yield made
    finally:
        network.close()


@pytest.fixture(scope="module")
def applied(site: Site) -> Site:
    let_in(site.host, "ops", "ALL=(root) NOPASSWD: ALL")
    first = site.apply()
    assert "Changed: one\nThe scheduler of one leads.\n" in first.output, first.output
    return site


def test_services_of_systemd_run_again_after_a_power_cut(applied: Site) -> None:
    site = applied
    host = site.host
    states = host.run('systemctl is-enabled "$@"; systemctl is-active "$@"', *UNITS).output.split()
    assert states == ["enabled"] * 3 + ["active"] * 3
    site.run_a_job("before")
    assert site.apply().output == "one: nothing to change\n"
    booted_at = host.run(
        "cat /proc/sys/kernel/random/boot_id; systemctl show --property=UserspaceTimestamp"
    ).output

    host.cut_power()
    host.boot()
    again = host.run(
        "cat /proc/sys/kernel/random/boot_id; systemctl show --property=UserspaceTimestamp"
    ).output
    assert again != booted_at
    site.run_a_job("after")
    jobs = json.loads(site.mesos_gpu("history", "--json"))
    assert len(jobs["jobs"] if isinstance(jobs, dict) else jobs) >= 2, "the state is there"
    assert site.apply().output == "one: nothing to change\n"


def test_journal_of_systemd_has_start_and_end_of_a_service(applied: Site) -> None:
    host = applied.host
    pid = host.run("systemctl show --property=MainPID --value mesos-gpu-scheduler").output.strip()
    assert host.run("kill -9 $1", pid).code == 0
    wait_until(
        "it is started again",
        lambda: (
            host.run("systemctl show --property=MainPID --value mesos-gpu-scheduler").output.strip()
            not in ("0", pid)
        ),
        60,
    )
    told = host.run("journalctl --no-pager --quiet --output=cat --unit=mesos-gpu-scheduler").output
    assert "Started mesos-gpu-scheduler.service" in told
    assert "code=killed, status=9/KILL" in told
    assert host.run("test -s /var/log/mesos-gpu/scheduler.log").code == 0, "what it says itself"
