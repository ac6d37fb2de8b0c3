"""The file that describes a cluster: what it may say, and that all that is wrong is told at once."""

import copy
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.install.cluster.description import HA, Cluster, Host, Role
from mesos_gpu.install.cluster.document import decode
from mesos_gpu.install.cluster.reading import read
from mesos_gpu.install.cluster.record import AppliedHost, Record

NOTHING = Record(Path("/nowhere"), {})
FILE = Path(__file__).parents[3] / "data/cluster/cluster.yaml"


def described(**changes: Any) -> dict[str, Any]:
    """What the file of the tests says; `changes` of hosts by name, or of the whole, as `package`."""
    made: dict[str, Any] = copy.deepcopy(yaml.safe_load(FILE.read_text()))
    for key, value in changes.items():
        if key in made["hosts"]:
            made["hosts"][key] = made["hosts"][key] | value
        else:
            made[key] = value
    return made


def problems(value: dict[str, Any]) -> dict[str, str]:
    made = decode(value, FILE.parent, NOTHING)
    assert isinstance(made, list), made
    return {each.path: each.reason for each in made}


def test_missing_files_are_told_with_what_else_is_wrong() -> None:
    wrong = described(ca="nowhere.pem", m1={"address": "10.0.0.2"})
    assert [*problems(wrong)] == ["/ca", "/hosts/m2/address"]
    malformed = described(ca="nowhere.pem", m1={"address": "10.0.0.2", "roles": ["mister"]})
    assert [*problems(malformed)] == ["/hosts/m1/roles", "/ca"], "rules between hosts need well-formed hosts"


def test_hosts_come_in_the_order_in_which_they_are_done() -> None:
    made = read(FILE, NOTHING)
    assert [host.name for host in made.hosts] == ["m3", "m1", "m2", "g1"]
    assert made.hosts[2].roles == (Role.ZOOKEEPER, Role.MASTER)
    assert made.master == "zk://10.0.0.3:2181,10.0.0.1:2181,10.0.0.2:2181/mesos"


def test_a_host_is_reached_as_all_are_but_for_what_it_says_itself() -> None:
    ssh = {host.name: host.ssh for host in read(FILE, NOTHING).hosts}
    assert (ssh["m2"].user, ssh["m2"].port, ssh["m2"].host) == ("ops", 2222, "10.0.0.2")
    assert (ssh["m1"].user, ssh["m1"].port, ssh["m1"].options) == ("root", 22, {"ProxyJump": "bastion"})


@pytest.mark.parametrize(
    ("changes", "place", "reason"),
    [
        ({"m1": {"address": "-oProxyCommand=x"}}, "/hosts/m1/address", "IPv4 address"),
        ({"m1": {"address": "10.0.0.2"}}, "/hosts/m2/address", "also the address of m1"),
        ({"m1": {"address": "127.0.0.1"}}, "/hosts/m1/address", "the other hosts reach it"),
        ({"m1": {"address": "0.0.0.0"}}, "/hosts/m1/address", "the other hosts reach it"),
        ({"m1": {"roles": ["zookeeper"]}}, "/hosts", "2 hosts with the role master; an even number"),
        ({"m1": {"roles": ["mister"]}}, "/hosts/m1/roles", 'got ["mister"]'),
        ({"m1": {"gpus": 4}}, "/hosts/m1/gpus", "role agent: remove it"),
        ({"g1": {"gpus": None}}, "/hosts/g1/gpus", "nvidia-smi -L"),
        ({"g1": {"cgroups": "v3"}}, "/hosts/g1/cgroups", "v1 or v2"),
        ({"g1": {"settings": {"PATH": "/evil"}}}, "/hosts/g1/settings/PATH", "MESOS_GPU_"),
        ({"g1": {"settings": {"MESOS_GPU_X": "it's"}}}, "/hosts/g1/settings/MESOS_GPU_X", "single quote"),
        ({"g1": {"agent_flags": {"master": "evil:5050"}}}, "/hosts/g1/agent_flags/master", "set by the plan"),
        ({"g1": {"agent_flags": {"authenticate_http_readwrite": "false"}}},
         "/hosts/g1/agent_flags/authenticate_http_readwrite", "set by the plan"),
        ({"g1": {"agent_flags": {"a b": "c"}}}, "/hosts/g1/agent_flags/a b", "lower-case letters"),
        ({"m1": {"master_flags": {"acls": ""}}}, "/hosts/m1/master_flags/acls", "set by the plan"),
        ({"m3": {"options": "--host 'x"}}, "/hosts/m3/options", "single quote"),
        ({"m3": {"options": "--socket /tmp/x"}}, "/hosts/m3/options", "--socket, which is set by the plan"),
        ({"m1": {"roles": ["zookeeper", "master", "scheduler"]}}, "/hosts/m1/options", "lack --host ADDRESS"),
        ({"m3": {"options": '"'}}, "/hosts/m3/options", "cannot be split into words"),
        ({"m1": {"ssh": {"options": {"ProxyCommand": "rm -rf /"}}}},
         "/hosts/m1/ssh/options/ProxyCommand", "~/.ssh/config"),
        ({"ssh": {"options": {"StrictHostKeyChecking": "no"}}}, "/ssh/options/StrictHostKeyChecking", "must be one of"),
        ({"ssh": {"host": "-oX"}}, "/ssh/host", "name or address"),
        ({"ssh": {"user": "a;b"}}, "/ssh/user", "name of a user"),
        ({"ssh": {"port": 0}}, "/ssh/port", "from 1 to 65535"),
        ({"ssh": {"identity": "no-such"}}, "/ssh/identity", "there is no"),
        ({"ssh": {"identity": "x" * 300}}, "/ssh/identity", "there is no"),
        ({"ssh": {"identity": "~nobody-of-that-name/key"}}, "/ssh/identity", "there is no"),
        ({"people": ["10.0.0.1/8"]}, "/people/0", "must be a network"),
        ({"people": "all"}, "/people", "must be a list"),
        ({"firewall": "yes"}, "/firewall", "true or false"),
        ({"role": "a b"}, "/role", "name of a role"),
        ({"package": {}}, "/package", "one of wheel, deb and program, got none"),
        ({"package": {"program": "mesos-gpu; rm"}}, "/package/program", "path of mesos-gpu"),
        ({"package": {"program": "/x", "wheels": "."}}, "/package/wheels", "is for a wheel"),
        ({"package": {"wheel": "cluster.yaml"}}, "/package/requirements", "requirements-run.lock"),
        ({"package": {"deb": "cluster.yaml"}}, "/package/deb", "ends in .deb"),
        ({"zookeeper_heap_mib": 1}, "/zookeeper_heap_mib", "from 64"),
        ({"hosts": {}}, "/hosts", "1 to 10000 hosts"),
        ({"hosts": {"A": {}}}, "/hosts/A", "lower-case letters"),
        ({"hosts": {"a": 1}}, "/hosts/a", "must be an object"),
        ({"hostz": {}}, "/hostz", "did you mean hosts?"),
    ],
)  # fmt: skip
def test_cluster_file_problem_names_its_field(changes: dict[str, Any], place: str, reason: str) -> None:
    assert reason in problems(described(**changes))[place]


def test_several_masters_or_schedulers_need_zookeeper() -> None:
    hosts = {
        name: {"address": f"10.0.0.{i}", "roles": ["master", "scheduler"]} for i, name in enumerate("abc", 1)
    }
    made = decode(described(hosts=hosts), FILE.parent, NOTHING)
    assert isinstance(made, list)
    assert [each.reason.split(",")[0] for each in made] == [
        "has 3 hosts with the role master", "has 3 hosts with the role scheduler", *["lack --host ADDRESS"] * 3,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("had", "wanted", "said"),
    [
        ("abc", "ab", ""),
        ("ab", "ab", ""),
        ("", "ab", "2 hosts with the role master; an even number tolerates no more failures: use 1 or 3"),
        ("a", "ab", "2 hosts"),
        ("abc", "ax", "2 hosts"),
        ("abcde", "abcd", ""),
    ],
)
def test_an_even_number_is_on_the_way_to_one_less(had: str, wanted: str, said: str) -> None:
    roles = (Role.ZOOKEEPER, Role.MASTER)
    hosts = {name: {"address": f"10.0.0.{ord(name)}", "roles": [*map(str, roles)]} for name in wanted}
    before = {name: AppliedHost(Host(name, IPv4Address("10.0.0.9"), roles)) for name in had}
    made = decode(described(hosts=hosts), FILE.parent, Record(Path("/nowhere"), before))
    assert (isinstance(made, list) and any(said in each.reason for each in made)) == bool(said), made


def test_a_scheduler_that_was_one_of_two_must_be_reached_as_before() -> None:
    hosts = {
        "m": {"address": "10.0.0.1", "roles": ["zookeeper", "master"]},
        "s": {"address": "10.0.0.2", "roles": ["scheduler"]},
    }
    had = AppliedHost(Host("s", IPv4Address("10.0.0.2"), (Role.SCHEDULER,)), (HA,))
    made = decode(described(hosts=hosts), FILE.parent, Record(Path("/nowhere"), {"s": had}))
    assert isinstance(made, list)
    assert [(each.path, each.reason.partition(",")[0]) for each in made] == [
        ("/hosts/s/options", "lack --host ADDRESS")
    ]


def test_single_host_cluster_may_be_on_loopback() -> None:
    hosts = {"a": {"address": "127.0.0.1", "roles": ["master", "agent"], "gpus": 1}}
    made = decode(described(hosts=hosts), FILE.parent, NOTHING)
    assert isinstance(made, Cluster)
    assert made.master == "127.0.0.1:5050"


def test_cluster_file_problems_come_at_once_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("package: {}\nhosts:\n  a: {address: x, roles: [master]}\n  b: {address: 10.0.0.1}\n")
    done = CliRunner().invoke(main, ["cluster", "plan", str(file)])
    assert done.exit_code == 65
    assert "line 1, /package: must have one of" in done.output
    assert "line 3, /hosts/a/address: must be the IPv4" in done.output
    assert "line 4, /hosts/b/roles: must be a list" in done.output
