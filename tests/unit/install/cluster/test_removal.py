"""What leaves the file: what is taken away, what is remembered of it, and that no quorum is lost by it."""

import json
import stat
from collections.abc import Collection
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from mesos_gpu.adapters.ssh.client import Ssh
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.install.cluster import record
from mesos_gpu.install.cluster.description import HA, Cluster, Host, Package, Role
from mesos_gpu.install.cluster.kept import Kept
from mesos_gpu.install.cluster.plan import HostPlan, planned
from mesos_gpu.install.cluster.record import AppliedHost, Record
from mesos_gpu.install.cluster.removal import remembered, removals, see_quorums, still_there
from mesos_gpu.install.cluster.survey import Survey

ZOOKEEPER, MASTER, SCHEDULER, AGENT = Role
NOTHING = Record(Path("/nowhere"), {})


def cluster(**roles: Collection[Role]) -> Cluster:
    """Hosts by name, with what they do."""
    order = {name: tuple(role for role in Role if role in each) for name, each in roles.items()}
    hosts = [Host(name, IPv4Address(f"10.0.0.{i}"), each) for i, (name, each) in enumerate(order.items(), 1)]
    hosts.sort(key=lambda host: [*Role].index(host.roles[0]))
    return Cluster(tuple(hosts), Package(program="/x"))


def plans(described: Cluster, before: Record) -> list[HostPlan]:
    return planned(described, Kept(Path("/nowhere"), ("*",)), before, executor=b"pyz")


def applied(described: Cluster, directory: Path = Path("/nowhere")) -> Record:
    """What an apply of it leaves."""
    empty = record.read(directory)
    made = {each.host.name: remembered(each, described) for each in plans(described, empty)}
    return Record(directory / record.NAME, made)


def test_a_host_that_left_loses_all_that_it_was_given_and_an_agent_goes_first() -> None:
    had = applied(cluster(m=[MASTER], g=[AGENT], s=[SCHEDULER], t=[SCHEDULER], u=[SCHEDULER]))
    described = cluster(m=[MASTER], s=[SCHEDULER], t=[SCHEDULER])
    taken = removals(had, described, plans(described, had))
    assert [(each.host.name, each.is_whole, each.drains) for each in taken] == [
        ("g", True, True),
        ("u", True, False),
    ]
    assert "/usr/lib/mesos-gpu/mesos-gpu-executor.pyz" in taken[0].files
    assert {*taken[0].files} == {*had.hosts["g"].files}
    assert [*taken[0].lines()][:2] == [
        "drain it: its tasks are moved",
        "stop and disable mesos-gpu-agent.service",
    ]


def test_a_role_less_leaves_what_the_other_roles_need() -> None:
    had = applied(cluster(m=[MASTER, AGENT], s=[SCHEDULER]))
    described = cluster(m=[MASTER], s=[SCHEDULER])
    (taken,) = removals(had, described, plans(described, had))
    assert (taken.is_whole, taken.units) == (False, ("mesos-gpu-agent.service",))
    assert not [path for path in taken.files if "master" in path and "agent-of-master" not in path]
    assert "/etc/mesos-gpu/firewall.nft" not in taken.files
    assert taken.remains == remembered(plans(described, had)[0], described)


def test_removal_is_empty_where_the_file_is_unchanged() -> None:
    described = cluster(m=[MASTER, AGENT], s=[SCHEDULER])
    had = applied(described)
    assert removals(had, described, plans(described, had)) == []


def test_removal_leaves_files_that_packages_bring() -> None:
    ways = {
        "wheel": Package(wheel=Path("w"), requirements=Path("r")),
        "deb": Package(deb=Path("d"), agent_deb=Path("a")),
    }
    by_way = {
        name: replace(cluster(m=[MASTER, SCHEDULER], g=[AGENT]), package=each) for name, each in ways.items()
    }
    assert removals(applied(by_way["wheel"]), by_way["deb"], plans(by_way["deb"], NOTHING)) == []
    (taken,) = removals(applied(by_way["deb"]), by_way["wheel"], plans(by_way["wheel"], NOTHING))
    assert (taken.units, taken.files) == ((), ("/etc/systemd/system/mesos-gpu-agent.service",))


def test_removal_leaves_out_what_the_host_no_longer_has() -> None:
    had = applied(cluster(m=[MASTER], g=[AGENT]))
    described = cluster(m=[MASTER])
    (taken,) = removals(had, described, plans(described, had))
    assert not still_there(taken, Survey())
    stopped = still_there(taken, Survey(files={"/etc/mesos-gpu/agent.env": ("", "", "")}))
    assert (stopped.units, stopped.files) == (taken.units, ("/etc/mesos-gpu/agent.env",)), "stopped by hand"
    assert still_there(taken, Survey(enabled={"mesos-gpu-agent.service"})).units == taken.units


def five(names: str, role: Role) -> Cluster:
    return cluster(**{name: [role, MASTER] for name in names})


@pytest.mark.parametrize("role", [ZOOKEEPER, MASTER])
@pytest.mark.parametrize(
    ("before", "after", "down", "said"),
    [
        ("abc", "abx", "", None),
        ("abc", "a", "", "2 hosts of 3 with the role"),
        ("abc", "ade", "", "2 of them must stay"),
        ("abc", "abx", "b", "does not run on b"),
        ("abcde", "abc", "", None),
        ("abcde", "abf", "", "3 of them must stay"),
        ("a", "b", "", "1 host of 1"),
        ("abc", "ab", "", None),
        ("abc", "ab", "a", "does not run on a"),
        ("ab", "a", "", None),
        ("ab", "a", "a", "does not run on a"),
        ("ab", "x", "", "2 hosts of 2"),
        ("abcd", "ab", "", None),
        ("abcd", "a", "", "2 of them must stay"),
        ("a", "abc", "", None),
        ("abc", "abcde", "a", None),
    ],
)
def test_a_quorum_keeps_what_it_has_agreed_on(
    role: Role, before: str, after: str, down: str, said: str | None
) -> None:
    had, described = applied(five(before, ZOOKEEPER)), five(after, ZOOKEEPER)
    running = {(name, each) for name in after for each in Role if (name, each) != (down, role)}
    if said is None:
        see_quorums(had, described, running)
        return
    with pytest.raises(BadConfiguration, match=said):
        see_quorums(had, described, running)


def test_a_scheduler_that_moves_would_leave_its_state_behind() -> None:
    had = applied(cluster(m=[MASTER], s=[SCHEDULER]))
    with pytest.raises(BadConfiguration, match="state is on s, which would leave") as caught:
        see_quorums(had, cluster(m=[MASTER], t=[SCHEDULER]), set())
    assert "docs/high-availability.md" in str(caught.value.remedy)
    see_quorums(had, cluster(m=[MASTER]), set())


def test_a_scheduler_that_is_the_last_of_two_goes_on_with_their_log() -> None:
    """Alone it would write what the other one, when it comes back, does not know that it lacks."""
    both = cluster(m=[ZOOKEEPER, MASTER], s=[SCHEDULER], t=[SCHEDULER])
    one = cluster(m=[ZOOKEEPER, MASTER], s=[SCHEDULER])
    had = applied(both)
    for _ in range(2):  # the next apply, too
        _, plan = plans(one, had)
        assert HA in [file.path for file in plan.files]
        had = Record(Path("/nowhere"), {each.host.name: remembered(each, one) for each in plans(one, had)})
    _, plan = plans(one, applied(one))
    assert HA not in [file.path for file in plan.files], "it was always alone"


def test_masters_are_started_anew_where_one_of_two_may_be_the_last() -> None:
    """An election, which both have to write down, brings both up to date."""

    def settings(names: str) -> set[bytes | None]:
        made = plans(five(names, ZOOKEEPER), applied(five("abc", ZOOKEEPER)))
        return {file.data for each in made for file in each.files if file.path == "/etc/mesos-gpu/master.env"}

    assert all(
        each and each.endswith(b"\n# until one more leaves: 10.0.0.1, 10.0.0.2\n") for each in settings("ab")
    )
    assert not any(each and b"#" in each for each in settings("abc"))


def test_servers_of_zookeeper_keep_their_numbers_and_new_ones_come_last() -> None:
    had = applied(five("bcd", ZOOKEEPER))
    described = five("acd", ZOOKEEPER)
    made = plans(described, had)
    assert [(each.host.name, each.number) for each in made] == [("c", 2), ("d", 3), ("a", 1)]
    (text,) = {file.data for each in made for file in each.files if file.path.endswith("zoo.cfg")}
    assert text is not None
    assert f"server.2={made[0].host.address}:2182".encode() in text


def test_a_record_comes_back_as_it_was_for_its_owner_alone(tmp_path: Path) -> None:
    made = applied(cluster(m=[MASTER], g=[AGENT]), tmp_path)
    ssh = Ssh("h", "ops", 2222, tmp_path / "id", tmp_path / "known", {"ProxyJump": "bastion"})
    for each in made.hosts.values():
        made.add(replace(each, host=replace(each.host, ssh=ssh), number=3, program="deb"))
    again = record.read(tmp_path)
    assert again.hosts == made.hosts
    assert stat.S_IMODE((tmp_path / record.NAME).stat().st_mode) == 0o600
    again.forget("g")
    assert [*record.read(tmp_path).hosts] == ["m"]
    assert [path.name for path in tmp_path.iterdir()] == [record.NAME]


def test_record_adds_planned_files_to_those_of_a_host(tmp_path: Path) -> None:
    host = Host("a", IPv4Address("10.0.0.1"), (AGENT,))
    made = Record(
        tmp_path / record.NAME, {"a": AppliedHost(host, ("/etc/mesos-gpu/x",), ("mesos-gpu-agent.service",))}
    )
    made.add(AppliedHost(replace(host, roles=(MASTER,)), ("/etc/mesos-gpu/y",)))
    assert made.hosts["a"].files == ("/etc/mesos-gpu/x", "/etc/mesos-gpu/y")
    assert made.hosts["a"].host.roles == (MASTER, AGENT)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"files": ["/etc/passwd"]}, "/etc/passwd is not a file of this program"),
        ({"files": ["/etc/mesos-gpu/../passwd"]}, "is not a file of this program"),
        ({"units": ["ssh.service"]}, "ssh.service is not a service of this program"),
        ({"roles": ["king"]}, "king"),
        ({"address": 1}, "address"),
    ],
)
def test_a_record_names_nothing_of_others(tmp_path: Path, change: dict[str, object], said: str) -> None:
    made = applied(cluster(m=[MASTER]), tmp_path)
    made.add(replace(made.hosts["m"], number=1))
    file = tmp_path / record.NAME
    document = json.loads(file.read_text())
    document["hosts"]["m"] |= change
    file.write_text(json.dumps(document))
    with pytest.raises(BadConfiguration, match=said):
        record.read(tmp_path)


def test_a_record_that_others_could_have_changed_is_refused(tmp_path: Path) -> None:
    made = applied(cluster(m=[MASTER]), tmp_path)
    made.add(replace(made.hosts["m"], number=1))
    (tmp_path / record.NAME).chmod(0o666)
    with pytest.raises(BadConfiguration, match="others may have"):
        record.read(tmp_path)
