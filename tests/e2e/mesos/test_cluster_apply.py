"""`mesos-gpu cluster apply` on three hosts over SSH: masters elect one, schedulers likewise, an agent registers, a job
runs; a failure in the middle is reported, and the next run goes on.
"""

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
from tests.certificates import Authority, Made
from tests.conftest import wait_until
from tests.remote.hosts import RemoteHost, let_in, make_keys, missing, remote_host, write_file
from tests.starts.needs import ZOOKEEPER

PROGRAM = str(Path(sys.executable).with_name("mesos-gpu"))
INVENTORY = "/var/lib/mesos-gpu-inventory.json"
pytestmark = [
    pytest.mark.on_change("install"),
    pytest.mark.cluster,
    pytest.mark.timeout(900),  # three servers of ZooKeeper and three masters start one after the other
    pytest.mark.skipif(bool(missing()), reason=missing()),
    ZOOKEEPER,
]


@dataclass
class Described:
    """Three hosts, and the file that describes them."""

    directory: Path
    authority: Authority
    hosts: dict[str, RemoteHost] = field(default_factory=dict)
    certificates: dict[str, Made] = field(default_factory=dict)
    dry: str = ""  # what a dry run said before anything was done
    after_dry: list[str] = field(default_factory=list)  # files that there were then
    first: str = ""  # what the first apply said

    @property
    def file(self) -> Path:
        return self.directory / "cluster.yaml"

    def write(self, more: str = "", top: str = "", agent: bool = True, user: str = "ops") -> None:
        """The file; `more`: of the host b, `top`: of all, `agent`: whether c is one, `user`: who comes to b."""
        of_agent = (
            f"agent], gpus: 2, settings: {{MESOS_GPU_INVENTORY: {INVENTORY}, MESOS_GPU_ISOLATION: 'off'}}"
        )
        roles = {
            "a": f"roles: [zookeeper, master, scheduler], {self.of_scheduler('a')}",
            "b": f"roles: [zookeeper, master, scheduler], ssh: {{user: {user}}}, {self.of_scheduler('b')}{more}",
            "c": f"roles: [zookeeper, master, {of_agent if agent else ']'}",
        }
        hosts = {name: (host, roles[name]) for name, host in self.hosts.items()}
        top = f"zookeeper_heap_mib: 96\nca: {self.authority.cert}\n{top}"
        write_file(self.directory / "keys", self.file, hosts, top)

    def of_scheduler(self, name: str) -> str:
        made = self.certificates[name]
        options = f"--host {self.hosts[name].host.ip} --default-user nobody"
        return f"options: '{options}', tls: {{cert: {made.cert}, key: {made.key}}}"

    def apply(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["cluster", "apply", str(self.file), "--yes", *words])

    def applied(self, *words: str) -> str:
        """Apply the file without packages, for hosts have no network; return the output."""
        parts = [word for part in ("program", "files", "services") for word in ("--only", part)]
        done = self.apply(*parts, *words)
        assert done.exit_code == 0, done.output
        return done.output

    def operator(self) -> str:
        """Return the credentials of an operator for curl."""
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
        """Run a command on the scheduler's host; return its output."""
        done = self.hosts["a"].run('exec "$@"', PROGRAM, "--url", "unix:/run/mesos-gpu/api.sock", *words)
        assert done.code == 0, done.output
        return done.output


@pytest.fixture(scope="module")
def described(open_directory: Path) -> Iterator[Described]:
    fetch.libmesos()
    (open_directory / "ca").mkdir()
    made = Described(open_directory, Authority(open_directory / "ca"))
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
            made.certificates[name] = made.authority.server(name, host.ip)
        let_in(made.hosts["b"], "ops", "ALL=(root) NOPASSWD: ALL")
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


def test_cluster_apply_dry_run_asks_and_changes_nothing(described: Described) -> None:
    hosts = {each["name"]: each["changes"] for each in json.loads(described.dry)["hosts"]}
    assert "write /etc/mesos-gpu/agent.env" in hosts["c"]
    assert "add the user mesos-gpu" in hosts["a"]
    assert len(described.after_dry) == 3, "no secrets are chosen"
    assert all("No such file" in each for each in described.after_dry)


def test_cluster_apply_starts_a_cluster_that_runs_a_job(described: Described) -> None:
    assert "Changed: a, b, c" in described.first
    assert re.search(r"^The scheduler of [ab] leads\.$", described.first, re.MULTILINE), described.first
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


def test_cluster_apply_gives_files_the_modes_and_owners_of_the_plan(described: Described) -> None:
    planned = CliRunner().invoke(main, ["cluster", "plan", str(described.file), "--json"])
    for host in json.loads(planned.stdout)["hosts"]:
        files = host["files"]
        seen = described.hosts[host["name"]].run(
            'stat -c "%n %a %U:%G" "$@"', *(file["path"] for file in files)
        )
        lines = [f"{file['path']} {file['mode'].lstrip('0')} {file['owner']}" for file in files]
        assert seen.output.splitlines() == lines
    assert described.hosts["b"].run("stat -c %a /etc/mesos-gpu/secrets").output == "700\n"


def test_zookeeper_of_masters_is_written_by_masters_alone_and_no_flag_has_its_password(
    described: Described,
) -> None:
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


def test_cluster_apply_changes_only_hosts_that_the_file_changes(described: Described) -> None:
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


@pytest.mark.long
def test_firewall_rules_let_in_named_addresses_alone(described: Described) -> None:
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


def test_cluster_apply_names_a_host_that_fails_and_goes_on_next_time(described: Described) -> None:
    """Three change, and the second has a full disk: the first is done, the third is not begun."""
    described.write()
    described.applied()
    described.write(top="people: [192.0.2.0/24]\n")
    full = "mount -t tmpfs -o size=4k,mode=1777 none /var/tmp"
    before = described.hosts["b"].text("/etc/mesos-gpu/firewall.nft")
    assert described.hosts["b"].run(full).code == 0
    try:
        told = described.apply("--only", "files", "--only", "services")
        assert told.exit_code == 1
        assert "Changed: a\n" in told.output
        assert "b: could not write" in told.output
        assert "No space left on device" in told.output
        assert "Not done yet: c\n" in told.output
        assert described.hosts["b"].text("/etc/mesos-gpu/firewall.nft") == before
        left = described.hosts["b"].run(
            "find /etc/mesos-gpu /var/tmp -name '*mesos-gpu-new' -o -name 'mesos-gpu-cluster-*'"
        )
        assert left.output == ""
    finally:
        described.hosts["b"].run("umount --lazy /var/tmp")
    assert "Changed: b, c\n" in described.applied()
    described.write()
    described.applied()


def test_cluster_apply_changes_nothing_while_a_host_is_away(described: Described) -> None:
    described.write(top="people: [192.0.2.0/24]\n", user="nobody-of-ours")
    told = described.apply("--only", "files", "--only", "services")
    described.write()
    assert told.exit_code == 69
    assert "nothing was changed: b: " in told.output
    assert "authorize the key of `identity`, or of the SSH agent, for nobody-of-ours" in told.output
    assert "nothing to change" in described.applied("--host", "a")


@pytest.mark.parametrize("rule", ["", "ALL=(root) /usr/bin/true"])
def test_cluster_apply_names_the_remedy_for_a_user_without_sudo(described: Described, rule: str) -> None:
    user = "limited" if rule else "nobody-special"
    let_in(described.hosts["b"], user, rule)
    described.write(top="people: [192.0.2.0/24]\n", user=user)
    told = described.apply("--only", "files", "--only", "services")
    described.write()
    assert told.exit_code == 69, told.output
    assert f"nothing was changed: b: {user} may not become root by sudo without a password: " in told.output
    assert f"echo '{user} ALL=(root) NOPASSWD: ALL' > /etc/sudoers.d/mesos-gpu" in told.output
    assert "nothing to change" in described.applied("--host", "a")


@pytest.mark.long
def test_cluster_apply_drains_an_agent_that_leaves_and_removes_all_of_it(described: Described) -> None:
    """The host stays, with what the master there needs. A job that ran there waits, and runs when the agent is back."""
    wait_until(
        "its cards are there", lambda: len(json.loads(described.mesos_gpu("gpus", "--json"))) == 2, 120
    )
    job = described.mesos_gpu(
        "run", "--detach", "--gpus", "1", "--name", "moved", "--", "sleep", "3600"
    ).split()[0]
    wait_until("it runs", lambda: "running" in described.mesos_gpu("ps", "--json"), 60)
    described.write(agent=False)
    dry = described.apply("--only", "files", "--only", "services", "--dry-run")
    assert "c (" in dry.output
    assert "has parts that are no longer in the file\n  drain it: its tasks are moved\n" in dry.output
    kept = described.applied("--keep")
    assert "stop and disable" not in kept
    assert described.hosts["c"].run("systemctl is-active mesos-gpu-agent.service").code == 0

    told = described.applied("--deadline", "0")
    host = described.hosts["c"]
    assert "c: wait until no task runs there" in told
    assert host.run("systemctl is-active mesos-gpu-agent.service").code != 0
    assert host.run("systemctl is-enabled mesos-gpu-agent.service").code != 0
    assert host.run("systemctl is-active mesos-gpu-master.service").code == 0
    places = "/etc /usr/lib/systemd/system /usr/lib/tmpfiles.d /usr/lib/mesos-gpu /var/log/mesos-gpu"
    ours = host.run(f"find {places} -name '*agent*' -path '*mesos-gpu*'")
    assert [line for line in ours.output.splitlines() if line.startswith("/")] == []
    assert host.run("pgrep -f '[m]esos-gpu-executor.pyz'").code != 0, "nothing that it started runs on"
    assert "stays: /var/lib/mesos" in told
    shown = json.loads(described.mesos_gpu("show", job, "--json"))
    assert shown["state"] in ("pending", "waiting"), shown
    assert described.applied().count("nothing to change") == 3

    described.write()
    assert "Changed: a, b, c\n" in described.applied(), "rules of firewalls name it, too"
    wait_until(
        "it runs again",
        lambda: json.loads(described.mesos_gpu("show", job, "--json"))["state"] == "running",
        180,
    )
    described.mesos_gpu("kill", job)


@pytest.mark.long
def test_cluster_apply_keeps_masters_that_a_quorum_needs(described: Described) -> None:
    described.write()
    text = described.file.read_text()
    described.file.write_text(
        "".join(line for line in text.splitlines(True) if not line.startswith(("  b:", "  c:")))
    )
    try:
        told = described.apply("--only", "files", "--only", "services")
        assert told.exit_code == 78, told.output
        assert (
            "2 hosts of 3 with the role zookeeper would leave at once (b, c), and 2 of them must stay"
            in told.output
        )
        assert "let at most 1 host leave, apply, and then the next" in told.output
    finally:
        described.file.write_text(text)
    assert described.applied().count("nothing to change") == 3
