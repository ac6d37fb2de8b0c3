"""What hosts lack of their plans, and what they have too much: all are asked, and nothing is changed."""

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
    """What of a host is done, in this order."""

    PACKAGES = "packages"
    PROGRAM = "program"
    FILES = "files"
    SERVICES = "services"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be looked at.

    Attributes:
        only: Parts of each host.
        downgrade: Whether an earlier release may take the place of a later one.
        hosts: Names of those to take things from; empty: all.
        gone: Names of hosts that left and never come back: they are not asked.
    """

    only: Collection[Part] = tuple(Part)
    downgrade: bool = False
    hosts: Collection[str] = ()
    gone: Collection[str] = ()

    @property
    def removes(self) -> bool:
        """Whether something may be taken away: services are stopped before their files go."""
        return {Part.FILES, Part.SERVICES} <= {*self.only}


@dataclass(frozen=True, slots=True)
class Difference:
    """What a host lacks of its plan.

    Attributes:
        plan: Of the host.
        packages: Debian packages that are not installed.
        program: Digest of the package that is not installed; "": it is.
        release: What is installed then, and in whose place, in words.
        leads: Where another release takes the place of a scheduler's that runs: whether that one leads; else None.
        users: Name and line of those that are not there.
        files: Those that are not there as they are planned.
        services: What to do, "start", "restart" or "enable", and about which.
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
        """Whether there is any."""
        return bool(self.packages or self.program or self.users or self.files or self.services)

    def lines(self) -> Iterator[str]:
        """All of it, in words."""
        if self.packages:
            yield f"install {' '.join(self.packages)}"
        if self.program:
            yield f"install {self.release}"
        yield from (f"add the user {name}" for name, _ in self.users)
        yield from (f"write {file.path}" for file in self.files)
        yield from (f"{action} {service.name}" for action, service in self.services)


def differences(cluster: Cluster, plans: Sequence[HostPlan], asked: Asked) -> list[Difference]:
    """What hosts lack, in the order in which they are done: where another release takes the place of one, schedulers
    that stand by come first, then the one that leads, then what they speak to; else as planned.

    Raises:
        Unavailable: Hosts are not reached; all of them are named.
        BadConfiguration: The plan cannot be done on one.
    """
    questions = {plan.host.name: (plan.host, survey.questions(plan, cluster.package), "") for plan in plans}
    seen = _asked(questions)
    made, digests = [], dict[tuple[Path, ...], str]()
    for plan in plans:
        one, sent = seen[plan.host.name], tuple(cluster.package.contents(plan.host).values())
        if sent not in digests:  # hosts of a kind are sent the same
            digests[sent] = digest_of(cluster.package, plan.host)
        starts = Part.SERVICES in asked.only
        survey.check(plan, one, cluster.package, starts=starts, downgrade=asked.downgrade)
        made.append(_difference(plan, one, cluster.package, digests[sent], asked.only))
    return sorted(made, key=lambda each: 2 if each.leads is None else int(each.leads))


def surplus(cluster: Cluster, plans: Sequence[HostPlan], record: Record, asked: Asked) -> list[Removal]:
    """What hosts have that is not planned any more.

    Args:
        cluster: As it is described.
        plans: Of all its hosts.
        record: Of the last apply.
        asked: What is to be looked at.

    Raises:
        Unavailable: Hosts are not reached; all of them are named.
        BadConfiguration: What they have agreed on might be lost.
    """
    named = {*asked.hosts, *asked.gone}
    wanted = removal.removals(record, cluster, plans)
    wanted = [each for each in wanted if not asked.hosts or each.host.name in named]
    if not wanted:
        return []
    removal.see_quorums(record, cluster, _running(record, cluster))
    there = [each for each in wanted if each.host.name not in asked.gone]
    remedy = "; or say --keep; or, if it never comes back, --gone"
    questions = {
        each.host.name: (each.host, survey.questions_of(each.files, each.units), remedy) for each in there
    }
    seen = _asked(questions)
    for each in there:
        if "systemd" not in seen[each.host.name].facts:
            raise BadConfiguration(f"{each.host.name}: systemd does not run there", remedy="--keep")
    gone = [replace(each, units=(), files=(), program="") for each in wanted if each.host.name in asked.gone]
    return [*(removal.still_there(each, seen[each.host.name]) for each in there), *gone]


def _running(record: Record, cluster: Cluster) -> set[tuple[str, Role]]:
    """Names of hosts that stay where others leave, with the role that runs there."""
    by_name = {host.name: host for host in cluster.hosts}
    roles: dict[str, list[Role]] = {}
    for role in (Role.ZOOKEEPER, Role.MASTER):
        gone, stay = removal.leaving(record, cluster, role)
        for name in stay if gone else ():
            roles.setdefault(name, []).append(role)
    questions = {
        name: (
            by_name[name],
            survey.questions_of((), [f"mesos-gpu-{role}.service" for role in each]),
            "",
        )
        for name, each in roles.items()
    }
    seen = _asked(questions)
    return {
        (name, role)
        for name, each in roles.items()
        for role in each
        if f"mesos-gpu-{role}.service" in seen[name].active
    }


def _asked(questions: Mapping[str, tuple[Host, bytes, str]]) -> dict[str, Survey]:
    """What hosts say, by name: of each how it is reached, what it is asked, and the remedy if it is silent.

    Raises:
        Unavailable: Hosts do not say; all of them are named.
    """

    def one(host: Host, stdin: bytes) -> Survey:
        done = host.ssh.run(survey.SCRIPT, stdin=stdin, timeout_s=_SURVEY_S)
        return survey.read(host.ssh.user, done)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {name: pool.submit(one, host, stdin) for name, (host, stdin, _) in questions.items()}
    silent = {
        name: error for name, each in futures.items() if isinstance(error := each.exception(), Unavailable)
    }
    if silent:
        what = "; ".join(f"{name}: {error.what}" for name, error in silent.items())
        remedies = dict.fromkeys(f"{error.remedy}{questions[name][2]}" for name, error in silent.items())
        raise Unavailable(f"nothing was changed: {what}", remedy="; ".join(remedies))
    return {name: each.result() for name, each in futures.items()}


def _difference(
    plan: HostPlan, seen: Survey, package: Package, digest: str, only: Collection[Part]
) -> Difference:
    another = plan.program and Part.PROGRAM in only and seen.facts.get("release") != digest
    brought = OF_DEB | OF_AGENT_DEB if another else frozenset()  # it may bring others, or take those away
    files = [file for file in plan.files if not seen.has(file) or file.path in brought]
    files = files if Part.FILES in only else []
    services = survey.actions(plan, seen, changed={file.path for file in files}, program=bool(another))
    runs = another and "mesos-gpu-scheduler.service" in seen.active
    return Difference(
        plan,
        tuple(name for name in plan.packages if name not in seen.packages) if Part.PACKAGES in only else (),
        digest if another else "",
        _words(package, seen) if another else "",
        seen.facts.get("leads") == "yes" if runs else None,
        tuple(user for user in plan.users if user[0] not in seen.users) if Part.FILES in only else (),
        tuple(files),
        tuple(services) if Part.SERVICES in only else (),
    )


def _words(package: Package, seen: Survey) -> str:
    """Which release is installed, and in whose place."""
    version, there = package.release.version if package.release else "", seen.facts.get("version")
    if not there:
        return f"mesos_gpu {version}"
    if there == version:
        return f"another build of mesos_gpu {version}"
    return f"mesos_gpu {version} in place of {there}"


def digest_of(package: Package, host: Host) -> str:
    """Names what of this package is installed on a host."""
    digest = hashlib.sha256()
    for name, path in package.contents(host).items():
        if not name.startswith("wheels/"):  # the requirements have their hashes
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
