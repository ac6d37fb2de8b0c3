"""A command on the host's file system: a process tree below the executor."""

import binascii
import errno
import os
import pwd
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from isolator.confinement.apart import apart_of
from isolator.confinement.enclosure import Enclosure
from isolator.gpus.ledger import Trace
from isolator.host import processes
from isolator.host.not_started import NotStarted
from isolator.runs.environment import task_environment
from isolator.runs.launcher import Launcher, LaunchFailed, Order
from isolator.runs.run import Ended, Launch, give, given_env, given_mounts, identity, of_others, secret_env
from mesos_gpu.errors import BadConfiguration, MesosGpuError
from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.policy.gpus.volume_paths import container_environment
from volumes.keys import data_of

if TYPE_CHECKING:  # imported at run time only by executors that start commands beside their task
    from isolator.confinement.inner_calls import Inner

TMP: Final = "MESOS_GPU_TMP"
_POLL_S: Final = 0.02


class HostRun:
    """`Run` by the launcher that was forked for it."""

    def __init__(self, launcher: Launcher) -> None:
        """Nothing runs yet."""
        self._launcher = launcher
        self._inner: Inner | None = None
        self._turn = threading.Lock()  # serializes `inner`, which several channels may call at once

    def traces(self) -> tuple[Trace, ...]:
        """None but the enclosure's traces: mounts and processes go with the container."""
        return ()

    def adapt(self, enclosure: Enclosure) -> Enclosure:
        """Keep the enclosure as it is: a process of the host needs nothing else."""
        return enclosure

    def start(self, launch: Launch) -> None:
        """Start the command, as `Run.start` says; returns when the command's program is executed."""
        plan = launch.plan
        argv = ("/bin/sh", "-c", plan.command) if plan.command is not None else plan.argv
        if not argv:
            raise NotStarted("the task has neither a command nor an argv")
        user = identity(plan, launch.own)
        apart, mounts = apart_of(launch.own), _mounts(launch, user)
        named = {"USER": user.pw_name, "LOGNAME": user.pw_name} if user else {}
        order = Order(
            argv=argv,
            env={
                **task_environment(launch.own, launch.task, plan, named),
                **given_env(launch),
                **secret_env(launch),
            },
            cwd=launch.sandbox,
            user=_change(user, launch.sandbox),  # first: its user must reach what is mounted from the sandbox
            mounts=mounts[0],
            identities=mounts[1],
            given=(*given_mounts(launch), *_over(launch)),
            private_mib=plan.mem_mib if _has_own_tmp(launch.own) else None,
            hidden=of_others(launch.sandbox),
            domain=apart.domain,
            sockets=not launch.reaches_sockets,
            filter=apart.program.hex(),
            secret=launch.secrets is not None,
            secret_files=_secret_files(launch),
            inner=True,
        )
        try:
            self._launcher.start(_with_volume(_confined(order, launch.enclosure), launch))
        except LaunchFailed as error:
            raise _explained(error, argv[0], launch.sandbox, order) from error

    def pid(self) -> int:
        """Give the first process, as `Run.pid` says."""
        return self._launcher.pid

    def inner(self) -> "Inner":
        """Return the inner process; see `Run.inner`."""
        from isolator.confinement.inner_calls import Inner

        with self._turn:
            if self._inner is None:
                self._inner = Inner(self._launcher.inner)
        return self._inner

    def streams(self) -> tuple[int | None, int | None]:
        """Give the files of the output, as `Run.streams` says."""
        return (1, 2)

    def wait(self) -> Ended:
        """Wait for the end of the command, as `Run.wait` says."""
        code = self._launcher.wait()
        return Ended(exit_status=code) if code >= 0 else Ended(signal=-code)

    def notify(self, number: int) -> None:
        """Signal the command's processes, as `Run.notify` says."""
        processes.send(processes.handling(processes.descendants(os.getpid()), number), number)

    def terminate(self, grace_s: float) -> None:
        """End the command, as `Run.terminate` says; children of the command have the grace, too."""
        deadline = time.monotonic() + grace_s
        if grace_s > 0:
            processes.send(processes.descendants(os.getpid()), signal.SIGTERM)
        while processes.descendants(os.getpid()) and time.monotonic() < deadline:
            processes.reap(keep=self._launcher.pid)  # `wait` has that one
            time.sleep(_POLL_S)
        processes.send(processes.descendants(os.getpid()), signal.SIGKILL)

    def abort(self) -> None:
        """Do nothing: the start of a command takes milliseconds."""

    def clear(self) -> list[int]:
        """Kill what is left, as `Run.clear` says."""
        return processes.kill_descendants()


def _has_own_tmp(own: Mapping[str, str]) -> bool:
    """The operator's word, private unless it is host."""
    how = own.get(TMP) or "private"
    if how not in ("private", "host"):
        raise BadConfiguration(f"{TMP} is {how!r}", remedy="set it to private or host")
    return how == "private"


def _change(user: pwd.struct_passwd | None, sandbox: str) -> tuple[int, int, tuple[int, ...]] | None:
    if user is None or user.pw_uid == os.geteuid():
        return None
    give(sandbox, user)
    return user.pw_uid, user.pw_gid, tuple(os.getgrouplist(user.pw_name, user.pw_gid))


def _mounts(
    launch: Launch, user: pwd.struct_passwd | None
) -> tuple[tuple[tuple[str, str, bool], ...], tuple[tuple[int, int], ...]]:
    """Return `Order.mounts` and `Order.identities`."""
    asked = launch.plan.mounts
    if not asked:
        return (), ()
    if not launch.enclosure.isolated or launch.enclosure.cgroup is None:
        raise NotStarted("paths of the host are mounted in isolation only, and this host's is off")
    if user is None:
        raise NotStarted("a volume needs a user with an account on this host; name one")
    from isolator.runs.host_paths import granted, in_host

    given = granted(asked, launch.own, user)
    return in_host(given, launch.sandbox), tuple(each.identity for each in given)


def _secret_files(launch: Launch) -> tuple[tuple[str, str], ...]:
    files = launch.secrets.files if launch.secrets is not None else {}
    if files and not launch.enclosure.isolated:
        raise NotStarted("secrets are files in isolation only, and this host's is off; ask for variables")
    return tuple((path, binascii.b2a_base64(value, newline=False).decode()) for path, value in files.items())


def _over(launch: Launch) -> list[tuple[str, str, bool]]:
    """What stands in the place of the host's own files, for the sake of its share; of those that the host has."""
    over = launch.given.over if launch.given is not None else ()
    real = ((source, os.path.realpath(target)) for source, target in over)
    return [(source, target, True) for source, target in real if os.path.isfile(target)]


def _confined(order: Order, enclosure: Enclosure) -> Order:
    if not enclosure.isolated or enclosure.cgroup is None:
        return order
    fence, pids = enclosure.fence, enclosure.pids
    return replace(
        order,
        processes=pids.most if pids is not None and pids.cgroup is None else 0,
        cgroups=enclosure.joins(),
        denied=fence.probes() if fence is not None else (),
        nodes=tuple((d.path, str(enclosure.node(d))) for d in (*enclosure.devices, *enclosure.extra)),
        refused=str(enclosure.refused),
    )


def _with_volume(order: Order, launch: Launch) -> Order:
    """The volume's libraries stand where the host's would: those are of another driver after an upgrade, while this
    task keeps the kernel's in use. Without a view of its own a task has the host's.

    Raises:
        NotStarted: It has a share, and would not see what keeps it to that.
    """
    if order.nodes is None and order.given:
        why = "what keeps it to its share of a GPU is seen in isolation only, and this host's is off"
        raise NotStarted(why, Outcome(infrastructure=True, refused_gpus=launch.plan.gpus))
    if launch.volume is None or order.nodes is None:
        return order
    config = ImageConfig(env=order.env)
    data = data_of(launch.volume)
    paths = container_environment(config, compat=False, first=launch.plan.share is not None, data=data)
    return replace(order, volume=str(launch.volume), env={**order.env, **paths})


def _explained(error: LaunchFailed, program: str, sandbox: str, order: Order) -> NotStarted | MesosGpuError:
    if error.step == "exec":
        from isolator.devices.view import PRIVATE  # of a failed start alone
        from isolator.host.programs_of_tasks import Start, words_of

        # What a shell answers: 127 not found, 126 not executable (POSIX, 2.8.2).
        status = 127 if error.errno == errno.ENOENT else 126
        user = order.user or (os.geteuid(), os.getegid(), tuple(os.getgroups()))
        words = words_of(error.errno, Start(program, sandbox, order.env, user, PRIVATE))
        return NotStarted(f"cannot start {program!r}: {error.strerror}{words}", Outcome(exit_status=status))
    if error.step == "mounts":
        return NotStarted(f"a volume cannot be mounted: {error.strerror}")
    if error.step == "links":
        return NotStarted(f"a secret's file cannot be shown in the sandbox: {error.strerror}")
    if error.step == "cwd":
        why = f"the sandbox {sandbox} cannot be entered: {error.strerror}"
        return NotStarted(why, Outcome(infrastructure=True))
    return MesosGpuError(
        f"the task cannot be isolated ({error.step}): {error.strerror}",
        remedy="run mesos-gpu doctor on this host",
    )
