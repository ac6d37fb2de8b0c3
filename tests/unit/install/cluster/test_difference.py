"""What hosts lack, by what they answer: releases, machines, who may become root, and the order of an upgrade."""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from mesos_gpu.adapters.ssh.client import Done, Ssh
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.install.cluster import survey
from mesos_gpu.install.cluster.description import Cluster, Host, Package, Role
from mesos_gpu.install.cluster.difference import Asked, Difference, Part, differences, surplus
from mesos_gpu.install.cluster.kept import Kept
from mesos_gpu.install.cluster.plan import OF_DEB, HostPlan, planned
from mesos_gpu.install.cluster.record import Record
from mesos_gpu.install.cluster.release import AGENT, PROGRAM, of_deb
from mesos_gpu.install.cluster.removal import remembered
from tests.unit.install.cluster.test_release import deb

NOTHING = Record(Path("/nowhere"), {})
NOBODY = Kept(Path("/nowhere"), ("*",))
ONLY = (Part.PROGRAM, Part.SERVICES)
BASE = {
    "uid": "0",
    "debian": "/usr/bin/dpkg-query",
    "machine": "x86_64",
    "architecture": "amd64",
    "systemd": "yes",
}


class Answers(Ssh):
    """A host that answers; `script`: what its survey prints."""

    def run(
        self, script: str, arguments: Sequence[str] = (), stdin: bytes = b"", *, timeout_s: float
    ) -> Done:
        if self.host.startswith("away"):
            raise Unavailable(f"{self.host}: no route", remedy="look at it")
        return Done(0, self.host)


def saying(*lines: str, **facts: str) -> Answers:
    """A host with these facts, and further lines of its answer."""
    words = [f"{name} {value}" for name, value in {**BASE, **facts}.items()]
    return Answers("".join(f"mesos-gpu-survey\t{line}\n" for line in ["noise", *words, *lines, "end"]))


def site(
    tmp_path: Path, version: str = "2.0", architecture: str = "amd64", **hosts: tuple[Role, Ssh]
) -> Cluster:
    """Hosts with a role each, and a package for them; a master comes last, if there is none."""
    if not [role for role, _ in hosts.values() if role is Role.MASTER]:
        hosts["zz"] = (Role.MASTER, saying())
    file = deb(tmp_path / "a.deb", version=version, Architecture=architecture)
    of_agent = deb(tmp_path / "b.deb", AGENT, version)
    package = Package(deb=file, agent_deb=of_agent, release=of_deb(file, PROGRAM))
    made = [
        Host(name, IPv4Address(f"10.0.0.{i}"), (role,), ssh)
        for i, (name, (role, ssh)) in enumerate(hosts.items(), 1)
    ]
    return Cluster(tuple(made), package)


def by_name(cluster: Cluster, name: str) -> HostPlan:
    (made,) = [each for each in planned(cluster, NOBODY, NOTHING) if each.host.name == name]
    return made


def lacking(cluster: Cluster, only: Sequence[Part] = ONLY, *, downgrade: bool = False) -> list[Difference]:
    return differences(cluster, planned(cluster, NOBODY, NOTHING), Asked(only, downgrade=downgrade))


def test_a_release_that_is_there_is_named_with_the_one_that_takes_its_place(tmp_path: Path) -> None:
    cluster = site(
        tmp_path,
        new=(Role.MASTER, saying()),
        old=(Role.MASTER, saying(version="1.0", release="x")),
        same=(Role.MASTER, saying(version="2.0", release="x")),
    )
    assert [next(each.lines()) for each in lacking(cluster)] == [
        "install mesos_gpu 2.0", "install mesos_gpu 2.0 in place of 1.0", "install another build of mesos_gpu 2.0",
    ]  # fmt: skip


def test_files_of_a_package_are_written_after_it(tmp_path: Path) -> None:
    cluster = site(tmp_path, s=(Role.SCHEDULER, saying(version="1.0", release="x")))
    files = {file.path: file for file in by_name(cluster, "s").files if file.path in OF_DEB}
    assert len(files) == 4
    there = [f"file {path} {file.sha256} {file.mode:o} {file.owner}" for path, file in files.items()]
    host = replace(cluster.hosts[0], ssh=saying(*there, version="1.0", release="x"))
    cluster = replace(cluster, hosts=(host, cluster.hosts[1]))
    _, one = lacking(cluster, (Part.FILES, Part.PROGRAM))
    assert files.keys() <= {file.path for file in one.files}
    _, one = lacking(cluster, (Part.FILES,))
    assert not files.keys() & {file.path for file in one.files}


@pytest.mark.parametrize("role", [Role.MASTER, Role.AGENT, Role.SCHEDULER])
def test_a_later_release_or_another_machine_is_refused(tmp_path: Path, role: Role) -> None:
    later = site(tmp_path, a=(role, saying(version="3.0", newer="yes", release="x")))
    with pytest.raises(
        BadConfiguration, match=r"a: mesos_gpu 3\.0 is installed there, which is later than 2\.0"
    ) as caught:
        lacking(later)
    assert "--downgrade" in str(caught.value.remedy)
    assert lacking(later, downgrade=True)[0].program
    foreign = site(tmp_path, architecture="arm64", a=(role, saying()))
    with pytest.raises(BadConfiguration, match="the package is for arm64, and the host is amd64"):
        lacking(foreign)


def test_an_upgrade_begins_with_standbys_then_the_leader(tmp_path: Path) -> None:
    runs = ("active mesos-gpu-scheduler.service", "enabled mesos-gpu-scheduler.service")
    old = {"version": "1.0", "release": "x"}
    cluster = site(
        tmp_path,
        m=(Role.MASTER, saying(**old)),
        first=(Role.SCHEDULER, saying(*runs, leads="yes", **old)),
        second=(Role.SCHEDULER, saying(*runs, leads="no", **old)),
        third=(Role.SCHEDULER, saying(*runs, **old)),
        g=(Role.AGENT, saying(**old)),
    )
    assert [each.plan.host.name for each in lacking(cluster)] == ["second", "third", "first", "m", "g"]
    new = site(tmp_path, m=(Role.MASTER, saying()), s=(Role.SCHEDULER, saying()), g=(Role.AGENT, saying()))
    assert [each.plan.host.name for each in lacking(new)] == ["m", "s", "g"], "what is new comes as planned"


@pytest.mark.parametrize(
    ("code", "output", "said", "remedy"),
    [
        (
            1,
            "sudo: a password is required\n",
            "a password is required",
            "echo 'ops ALL=(root) NOPASSWD: ALL'",
        ),
        (1, "ops is not in the sudoers file.\n", "not in the sudoers file", "/etc/sudoers.d/mesos-gpu"),
        (127, "sh: 1: sudo: not found\n", "sudo: not found", "apt-get install -y sudo"),
        (2, "sh: broken\n", "survey of the host failed", "its sh must be Debian"),
    ],
)
def test_survey_says_why_a_user_may_not_become_root(code: int, output: str, said: str, remedy: str) -> None:
    with pytest.raises(Unavailable, match=said) as caught:
        survey.read("ops", Done(code, output))
    assert remedy in str(caught.value.remedy)


def test_hosts_that_left_are_asked_unless_they_are_gone(tmp_path: Path) -> None:
    before = site(tmp_path, m=(Role.MASTER, saying()), g=(Role.AGENT, Answers("away")))
    had = Record(
        Path("/nowhere"),
        {each.host.name: remembered(each, before) for each in planned(before, NOBODY, NOTHING)},
    )
    after = replace(before, hosts=before.hosts[:1])
    plans = planned(after, NOBODY, had)
    with pytest.raises(Unavailable, match="nothing was changed: g: away: no route") as caught:
        surplus(after, plans, had, Asked())
    assert "use --keep; or, if the host never comes back, --gone" in str(caught.value.remedy)
    (forgotten,) = surplus(after, plans, had, Asked(gone=["g"]))
    assert (forgotten.host.name, bool(forgotten), forgotten.is_whole) == ("g", False, True)
    assert surplus(after, plans, had, Asked(hosts=["m"])) == []
