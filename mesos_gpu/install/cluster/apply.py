"""A plan is done: what is no longer planned is taken away, what differs is written, one host after the other, and
services start.
"""

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
_SERVICE_S: Final = 600.0  # of each
_LEADER_S: Final = 180.0
_MOVE_S: Final = 600.0  # after the deadline of a drain, for tasks to end

Told = Callable[[str, str], None]


class Failed(MesosGpuError):
    """A host on which something ended with an error; what it printed is told."""

    exit_code = 1


@dataclass(slots=True)
class Applied:
    """How far it got.

    Attributes:
        removed: Names of hosts that have nothing of ours any more.
        done: Names of hosts that are as planned now, and were not.
        same: Names of those that were.
        failed: What went wrong, by name; nothing follows on such a host.
        left: Names of hosts that are not yet as planned, for another failed before.
        leader: Name of the host whose scheduler leads, where one was started; "": none was.
    """

    removed: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    failed: dict[str, MesosGpuError] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    leader: str = ""


@dataclass(frozen=True, slots=True)
class Carrying:
    """How it is done.

    Attributes:
        cluster: As it is described.
        record: Of what hosts are given; written before anything is done to one, and after.
        told: Hears the name of a host and what is done there.
        deadline_s: How long tasks may run on where an agent leaves, before they start elsewhere.
        downgrade: Whether an earlier release may take the place of a later one.
        exact: Whether what is no longer planned has been looked for: else it stays in the record.
    """

    cluster: Cluster
    record: Record
    told: Told
    deadline_s: float = 0.0
    downgrade: bool = False
    exact: bool = True

    def out(self, wanted: Sequence[Difference], surplus: Sequence[Removal] = ()) -> Applied:
        """Take away what is too much, then do what differs. Hosts with a server of ZooKeeper, a master or a scheduler
        are done one after the other; others, agents, eight at once. After a failure no other host is begun.

        Args:
            wanted: In the order in which hosts are done.
            surplus: In the order in which it is taken away.
        """
        applied, sent = Applied(), _Sent(self.cluster.package)
        # What services read that run on is removed when they no longer do.
        late = [each for each in surplus if not each.units and not each.is_whole]
        self._remove([each for each in surplus if each not in late], applied)
        for wave in _waves(wanted):
            if applied.failed:
                applied.left += [each.plan.host.name for each in wave if each]
                continue
            for each in wave:
                self.record.add(removal.remembered(each.plan, self.cluster))
            with ThreadPoolExecutor(len(wave)) as pool:
                ends = [(each, pool.submit(self._do, each, sent)) for each in wave]
            for each, end in ends:
                error = end.exception()
                if isinstance(error, MesosGpuError):
                    applied.failed[each.plan.host.name] = error
                    continue
                end.result()
                (applied.done if each else applied.same).append(each.plan.host.name)
                if self.exact and each.plan.host.name not in {one.host.name for one in late}:
                    self.record.settle(removal.remembered(each.plan, self.cluster))
        self._remove(late, applied)
        applied.left = [name for name in dict.fromkeys(applied.left) if name not in applied.failed]
        if not applied.failed and any(_starts_scheduler(each) for each in wanted):
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
        for each in surplus:
            if each.drains:
                try:
                    if self._drain(schedulers, each.host):
                        drained.add(each.host.name)
                except MesosGpuError as error:
                    applied.failed[each.host.name] = error
        for each in surplus:
            name = each.host.name
            if applied.failed:
                applied.left.append(name)
                continue
            try:
                if name in drained:
                    self.told(name, "wait until no task runs there")
                    schedulers.await_empty(each.host, self.deadline_s + _MOVE_S)
                self._take_away(each)
                if name in drained:
                    schedulers.undrain(each.host)
            except MesosGpuError as error:
                applied.failed[name] = error
            else:
                if each.is_whole:
                    applied.removed.append(name)

    def _drain(self, schedulers: Schedulers, host: Host) -> bool:
        """Begin to drain an agent that leaves; whether there is anything to wait for."""
        if not schedulers.hosts:
            self.told(host.name, "not drained: the file has no scheduler")
            return False
        self.told(host.name, f"drain it; what runs there after {self.deadline_s:g} s starts elsewhere")
        if schedulers.drain(host, self.deadline_s):
            return True
        self.told(host.name, "not drained: the scheduler knows no such agent")
        return False

    def _take_away(self, each: Removal) -> None:
        """Stop services, remove files and the program.

        Raises:
            Failed: A script there failed.
            Unavailable: The host is no longer reached.
        """
        if each:
            lines = [*(f"unit {unit}" for unit in each.units), *(f"file {path}" for path in each.files)]
            stdin = "".join(f"{line}\n" for line in lines).encode()
            words = [each.program or "-"]
            output = self._run(each.host, "take away what is not planned", scripts.TAKE_AWAY, words, stdin,
                               _FILES_S + _SERVICE_S * len(each.units))  # fmt: skip
            for line in output.splitlines():
                if line.startswith(scripts.STAYS):
                    self.told(each.host.name, line)
        if each.remains is None:
            self.record.forget(each.host.name)
        else:
            self.record.settle(each.remains)

    def _do(self, wanted: Difference, sent: "_Sent") -> None:
        """Bring one host to its plan.

        Raises:
            Failed: A script there failed; those after it were not run.
            Unavailable: The host is no longer reached.
        """
        host, package = wanted.plan.host, self.cluster.package
        if wanted.packages:
            what = f"install {' '.join(wanted.packages)}"
            self._run(host, what, scripts.PACKAGES, wanted.packages, b"", _INSTALL_S)
        if wanted.program:
            script = scripts.WHEEL if package.wheel else scripts.DEB
            words = [wanted.program, "yes" if self.downgrade else "no"]
            self._run(host, f"install {wanted.release}", script, words, sent.to(host), _INSTALL_S)
        if wanted.files or wanted.users:
            what = f"write {counted(len(wanted.files), 'file')}"
            self._run(host, what, scripts.FILES, [], _packed(wanted), _FILES_S)
        if wanted.services:
            services = wanted.services
            words = [word for action, each in services for word in (action, each.name, each.address or "-")]
            what = ", ".join(f"{action} {each.name}" for action, each in services)
            self._run(host, what, scripts.SERVICES, words, b"", _SERVICE_S * len(services))

    def _run(
        self, host: Host, what: str, script: str, arguments: Sequence[str], stdin: bytes, timeout_s: float
    ) -> str:
        """What a script prints there.

        Raises:
            Failed: It failed.
            Unavailable: The host is no longer reached.
        """
        self.told(host.name, what)
        done = host.ssh.run(script, arguments, stdin, timeout_s=timeout_s)
        if done.code:
            raise Failed(
                f"{host.name}: could not {what} (exit status {done.code}):\n{done.output[-4000:].strip()}",
                remedy="correct what it reports there, then apply again: what is done stays done",
            )
        return done.output


class _Sent:
    """What hosts are sent of a package; made once for hosts of a kind, when the first of them is sent it."""

    def __init__(self, package: Package) -> None:
        self._package, self._lock = package, Lock()
        self._made: dict[tuple[str, ...], bytes] = {}

    def to(self, host: Host) -> bytes:
        """A tar."""
        files = self._package.contents(host)
        with self._lock:
            key = tuple(files)
            if key not in self._made:
                self._made[key] = _tar({name: path.read_bytes() for name, path in files.items()})
            return self._made[key]


def _starts_scheduler(wanted: Difference) -> bool:
    names = [service.name for action, service in wanted.services if action != "enable"]
    return Role.SCHEDULER in wanted.plan.host.roles and "mesos-gpu-scheduler.service" in names


def _waves(wanted: Iterable[Difference]) -> Iterator[list[Difference]]:
    wave: list[Difference] = []
    for each in wanted:
        alone = each.plan.host.roles != (Role.AGENT,)
        if wave and (alone or len(wave) == AT_ONCE):
            yield wave
            wave = []
        wave.append(each)
        if alone:
            yield wave
            wave = []
    if wave:
        yield wave


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
