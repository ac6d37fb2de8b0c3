"""Comparison of hosts with their plans: what they lack, and what they have too much. Hosts are only read."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.install.cluster import removal, survey
from mesos_gpu.install.cluster.description import Cluster, Host, Package, Role
from mesos_gpu.install.cluster.plan import OF_AGENT_DEB, OF_DEB, HostPlan, PlannedFile, Service
from mesos_gpu.install.cluster.record import Record
from mesos_gpu.install.cluster.removal import Removal
from mesos_gpu.install.cluster.survey import Survey

AT_ONCE: Final = 8  # hosts
_SURVEY_S: Final = 60.0


class Part(StrEnum):
    """Part of the installation of a host, in the order in which parts are done."""

    PACKAGES = "packages"
    PROGRAM = "program"
    FILES = "files"
    SERVICES = "services"


@dataclass(frozen=True, slots=True)
class Asked:
    """Scope of a comparison.

    Attributes:
        only: Parts of each host that are compared.
        downgrade: Whether an earlier release may replace a later one.
        hosts: Names of hosts from which surplus is removed; empty for all hosts.
        gone: Names of hosts that left for good; no connection to them is attempted.
    """

    only: Collection[Part] = tuple(Part)
    downgrade: bool = False
    hosts: Collection[str] = ()
    gone: Collection[str] = ()

    @property
    def removes(self) -> bool:
        """Whether surplus may be removed: services are stopped before their files go, so both parts are needed."""
        return {Part.FILES, Part.SERVICES} <= {*self.only}


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between a host and its plan.

    Attributes:
        plan: Plan of the host.
        packages: Debian packages that are missing.
        program: Digest of the package to install; "" if it is installed.
        release: Description of the release to install and of the one that it replaces.
        leads: Whether the scheduler there leads, if it runs and its release is replaced; else None.
        users: Missing users, each with its line of sysusers.d(5).
        files: Files that are missing or differ.
        services: Pairs of an action ("start", "restart" or "enable") and a service.
    """

    plan: HostPlan
    packages: tuple[str, ...] = ()
    program: str = ""
    release: str = ""
    leads: bool | None = None
    users: tuple[tuple[str, str], ...] = ()
    files: tuple[PlannedFile, ...] = ()
    services: tuple[tuple[str, Service], ...] = ()

    def __bool__(self) -> bool:
        """Return whether the host differs from its plan."""
        return bool(self.packages or self.program or self.users or self.files or self.services)

    def lines(self) -> Iterator[str]:
        """Yield a description of each change."""
        if self.packages:
            yield f"install {' '.join(self.packages)}"
        if self.program:
            yield f"install {self.release}"
        yield from (f"add the user {name}" for name, _ in self.users)
        yield from (f"write {file.path}" for file in self.files)
        yield from (f"{action} {service.name}" for action, service in self.services)


def differences(cluster: Cluster, plans: Sequence[HostPlan], asked: Asked) -> list[Difference]:
    """Return the differences of all hosts, in the order in which hosts are changed.

    Where a running scheduler gets another release, standby schedulers come first, then the leader, then the other
    hosts; otherwise hosts are in the order of the plans.

    Raises:
        Unavailable: Some hosts cannot be reached; the message names all of them.
        BadConfiguration: The plan cannot be carried out on a host.
    """
    questions = {plan.host.name: (plan.host, survey.questions(plan, cluster.package), "") for plan in plans}
    seen = _survey_hosts(questions)
    differences, digests = [], dict[tuple[Path, ...], str]()
    for plan in plans:
        host_survey, sent = seen[plan.host.name], tuple(cluster.package.contents(plan.host).values())
        if sent not in digests:  # hosts that get equal files share one digest
            digests[sent] = digest_of(cluster.package, plan.host)
        starts = Part.SERVICES in asked.only
        survey.check(plan, host_survey, cluster.package, starts=starts, downgrade=asked.downgrade)
        differences.append(_difference(plan, host_survey, cluster.package, digests[sent], asked.only))
    return sorted(
        differences, key=lambda difference: 2 if difference.leads is None else int(difference.leads)
    )


def surplus(cluster: Cluster, plans: Sequence[HostPlan], record: Record, asked: Asked) -> list[Removal]:
    """Return the items that hosts have but no plan contains any more.

    Args:
        cluster: Cluster as its file describes it.
        plans: Plans of all its hosts.
        record: Record of the last apply.
        asked: Scope of the comparison.

    Raises:
        Unavailable: Some hosts cannot be reached; the message names all of them.
        BadConfiguration: The removal could lose state that masters, ZooKeeper servers or schedulers agreed on.
    """
    named = {*asked.hosts, *asked.gone}
    removals = removal.removals(record, cluster, plans)
    removals = [item for item in removals if not asked.hosts or item.host.name in named]
    if not removals:
        return []
    removal.see_quorums(record, cluster, _running(record, cluster))
    there = [item for item in removals if item.host.name not in asked.gone]
    remedy = "; or use --keep; or, if the host never comes back, --gone"
    questions = {
        item.host.name: (item.host, survey.questions_of(item.files, item.units), remedy) for item in there
    }
    seen = _survey_hosts(questions)
    for item in there:
        if "systemd" not in seen[item.host.name].facts:
            raise BadConfiguration(f"{item.host.name}: systemd is not running on this host", remedy="--keep")
    gone = [
        replace(item, units=(), files=(), program="") for item in removals if item.host.name in asked.gone
    ]
    return [
        *(removal.still_there(item, seen[item.host.name]) for item in there),
        *gone,
    ]


def _running(record: Record, cluster: Cluster) -> set[tuple[str, Role]]:
    """Return (host name, role) for each ZooKeeper server and master that stays where others leave, and is running."""
    by_name = {host.name: host for host in cluster.hosts}
    roles: dict[str, list[Role]] = {}
    for role in (Role.ZOOKEEPER, Role.MASTER):
        gone, stay = removal.leaving(record, cluster, role)
        for name in stay if gone else ():
            roles.setdefault(name, []).append(role)
    questions = {
        name: (
            by_name[name],
            survey.questions_of((), [f"mesos-gpu-{role}.service" for role in host_roles]),
            "",
        )
        for name, host_roles in roles.items()
    }
    seen = _survey_hosts(questions)
    return {
        (name, role)
        for name, host_roles in roles.items()
        for role in host_roles
        if f"mesos-gpu-{role}.service" in seen[name].active
    }


def _survey_hosts(questions: Mapping[str, tuple[Host, bytes, str]]) -> dict[str, Survey]:
    """Survey hosts in parallel.

    Args:
        questions: Host by host name, with the input of `survey.SCRIPT`, and a remedy for it being unreachable.

    Raises:
        Unavailable: Some hosts did not answer; the message names all of them.
    """

    def survey_host(host: Host, stdin: bytes) -> Survey:
        done = host.ssh.run(survey.SCRIPT, stdin=stdin, timeout_s=_SURVEY_S)
        return survey.read(host.ssh.user, done)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {
            name: pool.submit(survey_host, host, stdin) for name, (host, stdin, _) in questions.items()
        }
    silent = {
        name: error
        for name, future in futures.items()
        if isinstance(error := future.exception(), Unavailable)
    }
    if silent:
        what = "; ".join(f"{name}: {error.what}" for name, error in silent.items())
        remedies = dict.fromkeys(f"{error.remedy}{questions[name][2]}" for name, error in silent.items())
        raise Unavailable(f"nothing was changed: {what}", remedy="; ".join(remedies))
    return {name: future.result() for name, future in futures.items()}


def _difference(
    plan: HostPlan, seen: Survey, package: Package, digest: str, only: Collection[Part]
) -> Difference:
    """Compare the state of a host with its plan."""
    replaces = plan.program and Part.PROGRAM in only and seen.facts.get("release") != digest
    # Installing packages may replace or remove these files.
    brought = OF_DEB | OF_AGENT_DEB if replaces else frozenset()
    files = [file for file in plan.files if not seen.has(file) or file.path in brought]
    files = files if Part.FILES in only else []
    services = survey.actions(plan, seen, changed={file.path for file in files}, program=bool(replaces))
    runs = replaces and "mesos-gpu-scheduler.service" in seen.active
    return Difference(
        plan,
        tuple(name for name in plan.packages if name not in seen.packages) if Part.PACKAGES in only else (),
        digest if replaces else "",
        _describe_release(package, seen) if replaces else "",
        seen.facts.get("leads") == "yes" if runs else None,
        tuple(user for user in plan.users if user[0] not in seen.users) if Part.FILES in only else (),
        tuple(files),
        tuple(services) if Part.SERVICES in only else (),
    )


def _describe_release(package: Package, seen: Survey) -> str:
    """Describe the release to install, and the one that it replaces."""
    version, there = package.release.version if package.release else "", seen.facts.get("version")
    if not there:
        return f"mesos_gpu {version}"
    if there == version:
        return f"another build of mesos_gpu {version}"
    return f"mesos_gpu {version} in place of {there}"


def digest_of(package: Package, host: Host) -> str:
    """Return a digest that identifies the files of this package for a host."""
    digest = hashlib.sha256()
    for name, path in package.contents(host).items():
        if not name.startswith("wheels/"):  # the requirements file has their hashes
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
