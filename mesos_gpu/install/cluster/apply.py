"""A plan is done: hosts say what they have, what differs is written, one host after the other, and services start."""

import hashlib
import io
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from mesos_gpu.adapters.ssh.client import Done
from mesos_gpu.errors import MesosGpuError, Unavailable
from mesos_gpu.install.cluster import scripts, survey
from mesos_gpu.install.cluster.description import Cluster, Package, Role
from mesos_gpu.install.cluster.plan import HostPlan, PlannedFile, Service
from mesos_gpu.install.cluster.survey import Survey
from mesos_gpu.model.words import counted

_SURVEY_S: Final = 60.0
_INSTALL_S: Final = 1800.0  # a package index may be slow
_FILES_S: Final = 120.0
_SERVICE_S: Final = 600.0  # of each
_AT_ONCE: Final = 8  # hosts


class Part(StrEnum):
    """What of a host is done, in this order."""

    PACKAGES = "packages"
    PROGRAM = "program"
    FILES = "files"
    SERVICES = "services"


class Remote(Protocol):
    """A host that scripts are run on as root."""

    def run(
        self, script: str, arguments: Sequence[str] = (), stdin: bytes = b"", *, timeout_s: float
    ) -> Done:
        """Run one; raises Unavailable where the host is not reached."""


class Failed(MesosGpuError):
    """A host on which something ended with an error; what it printed is told."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Difference:
    """What a host lacks of its plan.

    Attributes:
        plan: Of the host.
        packages: Debian packages that are not installed.
        program: Digest of the package that is not installed; "": it is.
        users: Name and line of those that are not there.
        files: Those that are not there as they are planned.
        services: What to do, "start", "restart" or "enable", and about which.
    """

    plan: HostPlan
    packages: tuple[str, ...] = ()
    program: str = ""
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
            yield "install mesos_gpu"
        yield from (f"add the user {name}" for name, _ in self.users)
        yield from (f"write {file.path}" for file in self.files)
        yield from (f"{action} {service.name}" for action, service in self.services)


@dataclass(slots=True)
class Applied:
    """How far it got.

    Attributes:
        done: Names of hosts that are as planned now, and were not.
        same: Names of those that were.
        failed: What went wrong, by name; nothing follows on such a host.
        left: Names of hosts that nothing was done on, for another failed before.
    """

    done: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    failed: dict[str, MesosGpuError] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def differences(
    cluster: Cluster, plans: Sequence[HostPlan], only: Collection[Part] = tuple(Part)
) -> list[Difference]:
    """What hosts lack. All are asked before this returns, and nothing is changed.

    Args:
        cluster: As it is described.
        plans: Of the hosts to ask.
        only: What of each is looked at.

    Raises:
        Unavailable: Hosts are not reached; all of them are named.
        BadConfiguration: The plan cannot be done on one.
    """
    digest = digest_of(cluster.package)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = [(plan, pool.submit(_asked, cluster, plan)) for plan in plans]
    if silent := [
        (plan.host.name, error) for plan, each in asked if isinstance(error := each.exception(), Unavailable)
    ]:
        what = "; ".join(f"{name}: {error.what}" for name, error in silent)
        raise Unavailable(f"nothing was changed: {what}", remedy=silent[0][1].remedy)
    made = []
    for plan, each in asked:
        seen, program = each.result(), cluster.package.program if _runs(plan) else ""
        survey.check(plan, seen, program, starts=Part.SERVICES in only)
        made.append(_difference(plan, seen, digest, only))
    return made


def _runs(plan: HostPlan) -> bool:
    return bool({*plan.host.roles} - {Role.ZOOKEEPER})


def _asked(cluster: Cluster, plan: HostPlan) -> Survey:
    asked = survey.questions(plan, cluster.package.command)
    done = plan.host.ssh.run(survey.SCRIPT, stdin=asked, timeout_s=_SURVEY_S)
    return survey.read(plan.host.name, done)


def _difference(plan: HostPlan, seen: Survey, digest: str, only: Collection[Part]) -> Difference:
    files = tuple(file for file in plan.files if not seen.has(file)) if Part.FILES in only else ()
    another = plan.program and Part.PROGRAM in only and seen.facts.get("release") != digest
    changed = {file.path for file in files}
    services = survey.actions(plan, seen, changed=changed, program=bool(another))
    return Difference(
        plan,
        tuple(name for name in plan.packages if name not in seen.packages) if Part.PACKAGES in only else (),
        digest if another else "",
        tuple(user for user in plan.users if user[0] not in seen.users) if Part.FILES in only else (),
        files,
        tuple(services) if Part.SERVICES in only else (),
    )


def carry_out(cluster: Cluster, wanted: Sequence[Difference], told: Callable[[str, str], None]) -> Applied:
    """Do what differs. Hosts with a server of ZooKeeper, a master or a scheduler are done one after the other; others,
    agents, eight at once. After a failure no other host is begun.

    Args:
        cluster: As it is described.
        wanted: In the order in which hosts are done.
        told: Hears the name of a host and what is done there.
    """
    applied = Applied()
    sent = _payload(cluster.package)
    for wave in _waves(wanted):
        if applied.failed:
            applied.left += [each.plan.host.name for each in wave if each]
            continue
        with ThreadPoolExecutor(len(wave)) as pool:
            ends = [(each, pool.submit(_done, cluster.package, each, sent, told)) for each in wave]
        for each, end in ends:
            error = end.exception()
            if isinstance(error, MesosGpuError):
                applied.failed[each.plan.host.name] = error
            else:
                end.result()
                (applied.done if each else applied.same).append(each.plan.host.name)
    return applied


def _waves(wanted: Iterable[Difference]) -> Iterator[list[Difference]]:
    wave: list[Difference] = []
    for each in wanted:
        alone = each.plan.host.roles != (Role.AGENT,)
        if wave and (alone or len(wave) == _AT_ONCE):
            yield wave
            wave = []
        wave.append(each)
        if alone:
            yield wave
            wave = []
    if wave:
        yield wave


def _done(
    package: Package, wanted: Difference, sent: Callable[[], bytes], told: Callable[[str, str], None]
) -> None:
    """Bring one host to its plan.

    Raises:
        Failed: A script there failed; those after it were not run.
        Unavailable: The host is no longer reached.
    """
    name = wanted.plan.host.name

    def run(what: str, script: str, arguments: Sequence[str], stdin: bytes, timeout_s: float) -> None:
        told(name, what)
        done = wanted.plan.host.ssh.run(script, arguments, stdin, timeout_s=timeout_s)
        if done.code:
            raise Failed(
                f"{name}: could not {what} (exit status {done.code}):\n{done.output[-4000:].strip()}",
                remedy="mend what it says there, then apply again: what is done stays done",
            )

    if wanted.packages:
        run(f"install {' '.join(wanted.packages)}", scripts.PACKAGES, wanted.packages, b"", _INSTALL_S)
    if wanted.program:
        script = scripts.WHEEL if package.wheel else scripts.DEB
        run("install mesos_gpu", script, [wanted.program], sent(), _INSTALL_S)
    if wanted.files or wanted.users:
        run(f"write {counted(len(wanted.files), 'file')}", scripts.FILES, [], _packed(wanted), _FILES_S)
    if wanted.services:
        words = [
            word for action, each in wanted.services for word in (action, each.name, each.address or "-")
        ]
        what = ", ".join(f"{action} {each.name}" for action, each in wanted.services)
        run(what, scripts.SERVICES, words, b"", _SERVICE_S * len(wanted.services))


def _packed(wanted: Difference) -> bytes:
    """The tar that `scripts.FILES` reads."""
    listed = [f"{i} {file.mode:o} {file.owner} {file.path}\n" for i, file in enumerate(wanted.files)]
    users = [f"{name} {line}\n" for name, line in wanted.users]
    texts = {"list": "".join(listed).encode(), "users": "".join(users).encode()}
    return _tar({**texts, **{str(i): file.data or b"" for i, file in enumerate(wanted.files)}})


def _tar(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def _contents(package: Package) -> dict[str, Path]:
    """What is sent to hosts, by its name there."""
    if package.deb:
        return {"mesos-gpu.deb": package.deb}
    if not package.wheel or not package.requirements:
        return {}
    more = sorted(package.wheels.glob("*.whl")) if package.wheels else []
    return {
        package.wheel.name: package.wheel,
        "requirements.txt": package.requirements,
        **{f"wheels/{path.name}": path for path in more},
    }


def digest_of(package: Package) -> str:
    """Names what of this package is installed on hosts."""
    digest = hashlib.sha256()
    for name, path in _contents(package).items():
        if not name.startswith("wheels/"):  # the requirements have their hashes
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _payload(package: Package) -> Callable[[], bytes]:
    """What scripts read that install this package; made once, when it is first asked for."""
    made: list[bytes] = []

    def sent() -> bytes:
        if not made:
            contents = {name: path.read_bytes() for name, path in _contents(package).items()}
            made.append(contents["mesos-gpu.deb"] if package.deb else _tar(contents))
        return made[0]

    return sent
