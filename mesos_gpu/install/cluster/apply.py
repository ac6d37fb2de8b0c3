"""Execution of a cluster's plan: remove what is no longer planned, write what differs host by host, start services."""

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from mesos_gpu.errors import MesosGpuError
from mesos_gpu.install.cluster import removal, scripts
from mesos_gpu.install.cluster.description import Cluster, Host, Package, Role
from mesos_gpu.install.cluster.difference import AT_ONCE, Difference
from mesos_gpu.install.cluster.record import Record
from mesos_gpu.install.cluster.removal import Removal
from mesos_gpu.install.cluster.schedulers import Schedulers
from mesos_gpu.model.words import counted

_INSTALL_S: Final = 1800.0  # a package index may be slow
_FILES_S: Final = 120.0
_SERVICE_S: Final = 600.0  # for each service
_LEADER_S: Final = 180.0
_MOVE_S: Final = 600.0  # for tasks to end after the deadline of a drain

Told = Callable[[str, str], None]


class Failed(MesosGpuError):
    """A script failed on a host; the message contains its output."""

    exit_code = 1


@dataclass(slots=True)
class Applied:
    """Progress and outcome of an apply.

    Attributes:
        removed: Names of hosts from which everything of this program was removed.
        done: Names of hosts that differed from their plan and now match it.
        same: Names of hosts that matched their plan already.
        failed: Errors by host name; nothing more is done on such a host.
        left: Names of hosts that were not changed because another host failed first.
        leader: Name of the host whose scheduler leads; "" if no scheduler was started.
    """

    removed: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    failed: dict[str, MesosGpuError] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    leader: str = ""


@dataclass(frozen=True, slots=True)
class ClusterApply:
    """Executor of the differences and removals of a cluster.

    Attributes:
        cluster: Cluster as its file describes it.
        record: Record of what hosts were given; written before and after each host is changed.
        told: Progress callback, called with a host's name and the step that begins there.
        deadline_s: Seconds that tasks may still run on an agent that leaves, before they are moved.
        downgrade: Whether an earlier release may replace a later one.
        exact: Whether unplanned files and services were looked for; if not, they stay in the record.
    """

    cluster: Cluster
    record: Record
    told: Told
    deadline_s: float = 0.0
    downgrade: bool = False
    exact: bool = True

    def out(self, wanted: Sequence[Difference], surplus: Sequence[Removal] = ()) -> Applied:
        """Remove the surplus, then bring hosts to their plans.

        Hosts with a server of ZooKeeper, a master or a scheduler are changed one after the other; hosts that are
        agents only, eight at once. After a failure no other host is begun.

        Args:
            wanted: Differences, in the order in which hosts are changed.
            surplus: Removals, in the order in which they are done.
        """
        applied, sent = Applied(), _Sent(self.cluster.package)
        # Files that running services read are removed after the services have been restarted without them.
        late = [item for item in surplus if not item.units and not item.is_whole]
        self._remove([item for item in surplus if item not in late], applied)
        for wave in _waves(wanted):
            if applied.failed:
                applied.left += [difference.plan.host.name for difference in wave if difference]
                continue
            for difference in wave:
                self.record.add(removal.remembered(difference.plan, self.cluster))
            with ThreadPoolExecutor(len(wave)) as pool:
                ends = [(difference, pool.submit(self._apply_host, difference, sent)) for difference in wave]
            for difference, end in ends:
                error = end.exception()
                if isinstance(error, MesosGpuError):
                    applied.failed[difference.plan.host.name] = error
                    continue
                end.result()
                (applied.done if difference else applied.same).append(difference.plan.host.name)
                if self.exact and difference.plan.host.name not in {item.host.name for item in late}:
                    self.record.settle(removal.remembered(difference.plan, self.cluster))
        self._remove(late, applied)
        applied.left = [name for name in dict.fromkeys(applied.left) if name not in applied.failed]
        if not applied.failed and any(_starts_scheduler(difference) for difference in wanted):
            self._await_leader(applied)
        return applied

    def _await_leader(self, applied: Applied) -> None:
        schedulers = Schedulers(self.cluster)
        try:
            applied.leader = schedulers.await_leader(_LEADER_S)
        except MesosGpuError as error:
            applied.failed["schedulers"] = error

    def _remove(self, surplus: Sequence[Removal], applied: Applied) -> None:
        """Drain all agents that leave, then do one host after the other."""
        schedulers = Schedulers(self.cluster)
        drained = set()
        for difference in surplus:
            if difference.drains:
                try:
                    if self._drain(schedulers, difference.host):
                        drained.add(difference.host.name)
                except MesosGpuError as error:
                    applied.failed[difference.host.name] = error
        for difference in surplus:
            name = difference.host.name
            if applied.failed:
                applied.left.append(name)
                continue
            try:
                if name in drained:
                    self.told(name, "wait until no task runs there")
                    schedulers.await_empty(difference.host, self.deadline_s + _MOVE_S)
                self._take_away(difference)
                if name in drained:
                    schedulers.undrain(difference.host)
            except MesosGpuError as error:
                applied.failed[name] = error
            else:
                if difference.is_whole:
                    applied.removed.append(name)

    def _drain(self, schedulers: Schedulers, host: Host) -> bool:
        """Start to drain an agent that leaves. Return whether its tasks have to be waited for."""
        if not schedulers.hosts:
            self.told(host.name, "not drained: the file has no scheduler")
            return False
        self.told(host.name, f"drain it; tasks that run after {self.deadline_s:g} s are moved")
        if schedulers.drain(host, self.deadline_s):
            return True
        self.told(host.name, "not drained: the scheduler does not know this agent")
        return False

    def _take_away(self, item: Removal) -> None:
        """Stop services of one host, remove their files and the program.

        Raises:
            Failed: A script failed on the host.
            Unavailable: The host cannot be reached.
        """
        if item:
            lines = [*(f"unit {unit}" for unit in item.units), *(f"file {path}" for path in item.files)]
            stdin = "".join(f"{line}\n" for line in lines).encode()
            words = [item.program or "-"]
            output = self._run(item.host, "remove what is not planned", scripts.TAKE_AWAY, words, stdin,
                               _FILES_S + _SERVICE_S * len(item.units))  # fmt: skip
            for line in output.splitlines():
                if line.startswith(scripts.STAYS):
                    self.told(item.host.name, line)
        if item.remains is None:
            self.record.forget(item.host.name)
        else:
            self.record.settle(item.remains)

    def _apply_host(self, difference: Difference, sent: "_Sent") -> None:
        """Bring one host to its plan.

        Raises:
            Failed: A script failed on the host; later scripts were not run.
            Unavailable: The host cannot be reached.
        """
        host, package = difference.plan.host, self.cluster.package
        if difference.packages:
            what = f"install {' '.join(difference.packages)}"
            self._run(host, what, scripts.PACKAGES, difference.packages, b"", _INSTALL_S)
        if difference.program:
            script = scripts.WHEEL if package.wheel else scripts.DEB
            words = [difference.program, "yes" if self.downgrade else "no"]
            self._run(host, f"install {difference.release}", script, words, sent.to(host), _INSTALL_S)
        if difference.files or difference.users:
            what = f"write {counted(len(difference.files), 'file')}"
            self._run(host, what, scripts.FILES, [], _packed(difference), _FILES_S)
        if difference.services:
            services = difference.services
            words = [
                word
                for action, service in services
                for word in (action, service.name, service.address or "-")
            ]
            what = ", ".join(f"{action} {service.name}" for action, service in services)
            self._run(host, what, scripts.SERVICES, words, b"", _SERVICE_S * len(services))

    def _run(
        self, host: Host, what: str, script: str, arguments: Sequence[str], stdin: bytes, timeout_s: float
    ) -> str:
        """Run a script on a host and return its output.

        Raises:
            Failed: The script failed.
            Unavailable: The host cannot be reached.
        """
        self.told(host.name, what)
        done = host.ssh.run(script, arguments, stdin, timeout_s=timeout_s)
        if done.code:
            raise Failed(
                f"{host.name}: could not {what} (exit status {done.code}):\n{done.output[-4000:].strip()}",
                remedy="fix the reported error on that host, then apply again: completed steps are not repeated",
            )
        return done.output


class _Sent:
    """Package archives to send to hosts. Hosts that need equal files share one archive, built on first use."""

    def __init__(self, package: Package) -> None:
        self._package, self._lock = package, Lock()
        self._made: dict[tuple[str, ...], bytes] = {}

    def to(self, host: Host) -> bytes:
        """Return the tar archive for a host."""
        files = self._package.contents(host)
        with self._lock:
            key = tuple(files)
            if key not in self._made:
                self._made[key] = _tar({name: path.read_bytes() for name, path in files.items()})
            return self._made[key]


def _starts_scheduler(difference: Difference) -> bool:
    names = [service.name for action, service in difference.services if action != "enable"]
    return Role.SCHEDULER in difference.plan.host.roles and "mesos-gpu-scheduler.service" in names


def _waves(differences: Iterable[Difference]) -> Iterator[list[Difference]]:
    wave: list[Difference] = []
    for difference in differences:
        alone = difference.plan.host.roles != (Role.AGENT,)
        if wave and (alone or len(wave) == AT_ONCE):
            yield wave
            wave = []
        wave.append(difference)
        if alone:
            yield wave
            wave = []
    if wave:
        yield wave


def _packed(difference: Difference) -> bytes:
    """Return the tar archive that `scripts.FILES` reads."""
    listed = [f"{i} {file.mode:o} {file.owner} {file.path}\n" for i, file in enumerate(difference.files)]
    users = [f"{name} {line}\n" for name, line in difference.users]
    texts = {"list": "".join(listed).encode(), "users": "".join(users).encode()}
    return _tar({**texts, **{str(i): file.data or b"" for i, file in enumerate(difference.files)}})


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
