"""`mesos-gpu cluster apply` on three hosts over SSH: masters elect one, an agent registers, a job runs."""

import json
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.adapters.simulated_gpus import simulated_gpus, write_inventory
from mesos_gpu.cli import main
from mesos_gpu.libmesos import fetch
from mesos_gpu.local.network import Network
from mesos_gpu.local.zookeeper import JAR
from tests.conftest import wait_until
from tests.remote.hosts import RemoteHost, make_keys, missing, remote_host, write_file

PROGRAM = str(Path(sys.executable).with_name("mesos-gpu"))
INVENTORY = "/var/lib/mesos-gpu-inventory.json"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(480),  # three servers of ZooKeeper and three masters start one after the other
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(
        not JAR.exists(), reason="needs ZooKeeper: apt-get install -y zookeeper default-jre-headless"
    ),
]


@dataclass
class Described:
    """Three hosts, and the file that describes them."""

    directory: Path
    hosts: dict[str, RemoteHost] = field(default_factory=dict)
    dry: str = ""  # what a dry run said before anything was done
    after_dry: list[str] = field(default_factory=list)  # files that there were then
    first: str = ""  # what the first apply said

    @property
    def file(self) -> Path:
        return self.directory / "cluster.yaml"

    def write(self, more: str = "", top: str = "") -> None:
        """The file; `more`: of the host b, `top`: of all."""
        agent = f"gpus: 2, settings: {{MESOS_GPU_INVENTORY: {INVENTORY}, MESOS_GPU_ISOLATION: 'off'}}"
        roles = {
            "a": "roles: [zookeeper, master, scheduler], options: '--default-user nobody'",
            "b": f"roles: [zookeeper, master]{more}",
            "c": f"roles: [zookeeper, master, agent], {agent}",
        }
        hosts = {name: (host, roles[name]) for name, host in self.hosts.items()}
        write_file(self.directory / "keys", self.file, hosts, f"zookeeper_heap_mib: 96\n{top}")

    def apply(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["cluster", "apply", str(self.file), "--yes", *words])

    def applied(self, *words: str) -> str:
        """What it says, if it succeeds; packages are not its to install, for hosts have no network."""
        parts = [word for part in ("program", "files", "services") for word in ("--only", part)]
        done = self.apply(*parts, *words)
        assert done.exit_code == 0, done.output
        return done.output

    def operator(self) -> str:
        """What proves an operator to Mesos, for curl."""
        text = (self.directory / "cluster-secrets/operator/operator.json").read_text()
        return "{principal}:{secret}".format_map(json.loads(text))

    def leader(self) -> str:
        """Name of the host of the master that leads; "": none."""
        for name, host in self.hosts.items():
            done = host.run(
                'curl -fsS -m 5 -u "$1" http://$2:5050/metrics/snapshot', self.operator(), host.host.ip
            )
            if done.code == 0 and json.loads(done.output).get("master/elected") == 1.0:
                return name
        return ""

    def mesos_gpu(self, *words: str) -> str:
        """What a command prints on the scheduler's host."""
        done = self.hosts["a"].run('exec "$@"', PROGRAM, "--url", "unix:/run/mesos-gpu/api.sock", *words)
        assert done.code == 0, done.output
        return done.output


@pytest.fixture(scope="module")
def described(open_directory: Path) -> Iterator[Described]:
    fetch.libmesos()
    made = Described(open_directory)
    make_keys(open_directory / "keys")
    network = Network(open_directory)
    with ExitStack() as stack:
        stack.callback(network.close)
        network.open()
        for name in "abc":
            host = network.add(name)
            directory = open_directory / name
            cache = [fetch.cache_directory()]
            made.hosts[name] = stack.enter_context(
                remote_host(open_directory / "keys", directory, host, cache)
            )
        inventory = open_directory / "inventory.json"
        write_inventory(inventory, simulated_gpus(2, "NVIDIA A100-SXM4-80GB", seed="applied"))
        put = made.hosts["c"].ssh.run(f"cat >{INVENTORY}", stdin=inventory.read_bytes(), timeout_s=30)
        assert put.code == 0, put
        made.write()
        dry = made.apply("--dry-run", "--only", "files", "--json")
        assert dry.exit_code == 0, dry.output
        made.dry = dry.stdout
        made.after_dry = [host.run("find /etc/mesos-gpu").output for host in made.hosts.values()]
        made.after_dry += [path.name for path in open_directory.glob("cluster-*")]
        made.first = made.applied()
        wait_until("a master leads", made.leader, 120)
        yield made


def test_a_dry_run_asks_and_changes_nothing(described: Described) -> None:
    hosts = {each["name"]: each["changes"] for each in json.loads(described.dry)["hosts"]}
    assert "write /etc/mesos-gpu/agent.env" in hosts["c"]
    assert "add the user mesos-gpu" in hosts["a"]
    assert len(described.after_dry) == 3, "no secrets are chosen"
    assert all("No such file" in each for each in described.after_dry)


def test_a_cluster_comes_up_from_its_file_and_runs_a_job(described: Described) -> None:
    assert "Changed: a, b, c" in described.first
    wait_until(
        "the agent's cards are there",
        lambda: len(json.loads(described.mesos_gpu("gpus", "--json"))) == 2,
        120,
    )
    ran = described.mesos_gpu(
        "run", "--gpus", "1", "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; hostname -I"
    )
    assert re.search(r"^GPU-", ran, re.MULTILINE), ran
    assert described.hosts["c"].host.ip in ran
    assert re.findall("nothing to change", described.applied()) == ["nothing to change"] * 3


def test_modes_and_owners_on_hosts_are_those_of_the_plan(described: Described) -> None:
    planned = CliRunner().invoke(main, ["cluster", "plan", str(described.file), "--json"])
    for host in json.loads(planned.stdout)["hosts"]:
        files = host["files"]
        seen = described.hosts[host["name"]].run(
            'stat -c "%n %a %U:%G" "$@"', *(file["path"] for file in files)
        )
        lines = [f"{file['path']} {file['mode'].lstrip('0')} {file['owner']}" for file in files]
        assert seen.output.splitlines() == lines
    assert described.hosts["b"].run("stat -c %a /etc/mesos-gpu/secrets").output == "700\n"


def test_what_masters_write_in_zookeeper_nobody_else_may_and_no_flag_tells_it(described: Described) -> None:
    name = wait_until("a master leads", described.leader, 120)
    host = described.hosts[name]
    asked = host.run('curl -fsS -u "$1" http://$2:5050/flags', described.operator(), host.host.ip)
    password = (
        (described.directory / "cluster-secrets/zookeeper/masters").read_text().strip().partition(":")[2]
    )
    assert "work_dir" in asked.output
    assert password not in asked.output
    code = (
        f"from kazoo.client import KazooClient; c = KazooClient('{host.host.ip}:2181'); c.start(30); "
        "print(sorted(str(a.id.scheme) + str(a.perms) for a in c.get_acls('/mesos')[0])); c.stop()"
    )
    wait_until(
        "everybody reads, and masters alone write",
        lambda: "['digest31', 'world1']" in host.run('exec "$@"', sys.executable, "-c", code).output,
    )


def test_only_the_host_that_the_file_changes_is_changed(described: Described) -> None:
    described.write(more=", master_flags: {offer_timeout: 10mins}")
    try:
        told = described.applied()
        assert "Changed: b\n" in told
        assert "  restart mesos-gpu-master.service\n" in told
        wait_until("a master leads", described.leader, 120)
        assert "MESOS_OFFER_TIMEOUT='10mins'" in described.hosts["b"].text("/etc/mesos-gpu/master.env")
    finally:
        described.write()
    assert "Changed: b\n" in described.applied()


def test_rules_of_the_firewall_let_in_who_is_named_and_nobody_else(described: Described) -> None:
    ports = {"a": (2181, 2182, 5050), "c": (2181, 2182, 5050, 5051)}

    def reached(name: str, port: int) -> bool:
        try:
            socket.create_connection((described.hosts[name].host.ip, port), timeout=1).close()
        except OSError:
            return False
        return True

    assert all(reached(name, port) for name, each in ports.items() for port in each if port != 2182)
    described.write(top="firewall: true\n")
    try:
        described.applied()
        assert not [(name, port) for name, each in ports.items() for port in each if reached(name, port)]
        wait_until("a master leads", described.leader, 120)
        ran = described.mesos_gpu("run", "--gpus", "1", "--", "echo", "behind it")
        assert "behind it" in ran
        peer = described.hosts["c"].host.ip
        closed = described.hosts["b"].run("bash -c ': </dev/tcp/$1/5051' bash \"$1\"", peer)
        assert closed.code == 0, "masters reach agents"
    finally:
        for host in described.hosts.values():
            host.run("nft delete table inet mesos_gpu; systemctl stop mesos-gpu-firewall.service")
        described.write()
