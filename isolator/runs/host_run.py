"""Run of a command on the host's file system, as a process tree below the executor."""

import binascii
import errno
import os
import pwd
import signal
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from isolator.confinement.apart import apart_of
from isolator.confinement.enclosure import Enclosure
from isolator.confinement.inner import is_inner
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
    from isolator.host.programs_of_tasks import Start
    from isolator.runs.memory import Watch

TMP: Final = "MESOS_GPU_TMP"
NOT_FOUND, NOT_EXECUTED = 127, 126  # exit statuses of shells and of env(1) (POSIX, 2.8.2)
_SHELLS: Final = ("/bin/sh", "sh", "/bin/bash", "bash")


class HostRun:
    """`Run` by the launcher that was forked for the task.

    Args:
        launcher: Process that becomes the task.
    """

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self._inner: Inner | None = None
        self._memory: Watch | None = None
        self._started: Order | None = None  # order of the task, once it is started
        self._turn = threading.Lock()  # serializes `inner`, which several channels may call at once

    def traces(self) -> tuple[Trace, ...]:
        """Return no traces besides the enclosure's: mounts and processes end with the container."""
        return ()

    def adapt(self, enclosure: Enclosure) -> Enclosure:
        """Return the enclosure unchanged."""
        return enclosure

    def start(self, launch: Launch) -> None:
        """Start the command, as `Run.start`; returns when the command's program is executed."""
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
            # first, as the user must reach what is mounted from the sandbox
            user=_change(user, launch.sandbox),
            mounts=mounts[0],
            identities=mounts[1],
            given=(*given_mounts(launch), *_over(launch)),
            private_mib=plan.mem_mib if _has_own_tmp(launch.own) else None,
            hidden=of_others(launch.sandbox),
            domain=apart.domain,
            sockets=not launch.reaches_sockets,
            filter=apart.program.hex(),
            secret=launch.secrets is not None,
            secret_files=secret_files(launch),
            inner=True,
        )
        try:
            self.launcher.start(_with_volume(confined(order, launch.enclosure), launch))
        except LaunchFailed as error:
            raise _explained(error, argv[0], launch.sandbox, order) from error
        self.watch(launch)
        path = {name: value for name, value in order.env.items() if name == "PATH"}
        self._started = replace(order, env=path, secret_files=())

    def watch(self, launch: Launch) -> None:
        """Watch for a lack of memory, where the kernel ends one process only, and then end all processes of
        the task.
        """
        if (memory := launch.enclosure.limits.watched) is not None:
            from isolator.runs.memory import Watch

            self._memory = Watch(memory, lambda: self.terminate(0.0))

    def pid(self) -> int:
        """Return the pid of the first process, as `Run.pid`."""
        return self.launcher.pid

    def inner(self) -> "Inner | None":
        """Return the inner process; see `Run.inner`."""
        from isolator.confinement.inner_calls import Inner

        with self._turn:
            if self._inner is None:
                self._inner = Inner(self.launcher.inner)
        return self._inner

    def streams(self) -> tuple[int | None, int | None]:
        """Return the files of the output, as `Run.streams`."""
        return (1, 2)

    def wait(self) -> Ended:
        """Wait for the end of the command, as `Run.wait`."""
        code = self.launcher.wait()
        if code < 0:
            return Ended(signal=-code)
        if code not in (NOT_FOUND, NOT_EXECUTED) or self._started is None:
            return Ended(exit_status=code)
        return Ended(exit_status=code, why=_why(code, self._started))

    def notify(self, number: int) -> None:
        """Signal the command's processes, as `Run.notify`."""
        processes.send(processes.handling(self._tree(), number), number)

    def terminate(self, grace_s: float) -> None:
        """End the command, as `Run.terminate`; processes that it leaves behind have the grace period, too."""
        if grace_s > 0:
            processes.terminate(self._tree, self.launcher.pid, grace_s, self._has_ended)
        processes.send(_below(processes.children_of_tasks()), signal.SIGKILL)

    def _tree(self) -> list[int]:
        """Return the task's processes, adopted ones included, without those of commands beside the task."""
        processes.reap(keep=self.launcher.pid, of_tasks=True)  # `wait` reaps that one
        return _below(pid for pid in processes.children_of_tasks() if not is_inner(pid))

    def _has_ended(self) -> bool:
        return not any(map(processes.is_alive, self._tree()))

    def abort(self) -> None:
        """Do nothing: the start of a command takes milliseconds."""

    def clear(self) -> list[int]:
        """Kill what is left, as `Run.clear`."""
        if self._memory is not None:
            self._memory.close()
        return processes.kill_descendants()


def _below(tops: Iterable[int]) -> list[int]:
    return [process for pid in tops for process in (pid, *processes.descendants(pid))]


def _has_own_tmp(own: Mapping[str, str]) -> bool:
    """Return whether tasks have a /tmp of their own, by MESOS_GPU_TMP: private (default) or host."""
    how = own.get(TMP) or "private"
    if how not in ("private", "host"):
        raise BadConfiguration(f"{TMP} is {how!r}", remedy="set it to private or host")
    return how == "private"


def _change(user: pwd.struct_passwd | None, sandbox: str) -> tuple[int, int, tuple[int, ...]] | None:
    """Let the user into the sandbox; return the ids to change to, or None if the executor runs as that user."""
    if user is None or user.pw_uid == os.geteuid():
        return None
    give(sandbox, user)
    return user.pw_uid, user.pw_gid, tuple(os.getgrouplist(user.pw_name, user.pw_gid))


def _mounts(
    launch: Launch, user: pwd.struct_passwd | None
) -> tuple[tuple[tuple[str, str, bool], ...], tuple[tuple[int, int], ...]]:
    """Return `Order.mounts` and `Order.identities`."""
    requested = launch.plan.mounts
    if not requested:
        return (), ()
    if not launch.enclosure.isolated or launch.enclosure.cgroup is None:
        raise NotStarted("paths of the host can be mounted only with isolation, which is off on this host")
    if user is None:
        raise NotStarted("a volume needs a user with an account on this host; name one")
    from isolator.runs.host_paths import granted, in_host

    given = granted(requested, launch.own, user)
    return in_host(given, launch.sandbox), tuple(mount.identity for mount in given)


def secret_files(launch: Launch) -> tuple[tuple[str, str], ...]:
    """Return `Order.secret_files`.

    Raises:
        NotStarted: This host cannot show files to this task alone.
    """
    files = launch.secrets.files if launch.secrets is not None else {}
    if files and not launch.enclosure.isolated:
        raise NotStarted("secrets can be files only with isolation, which is off on this host; use variables")
    return tuple((path, binascii.b2a_base64(value, newline=False).decode()) for path, value in files.items())


def _over(launch: Launch) -> list[tuple[str, str, bool]]:
    """Return the bind mounts over the host's own files for the task's share, where the host has these files."""
    over = launch.given.over if launch.given is not None else ()
    real = ((source, os.path.realpath(target)) for source, target in over)
    return [(source, target, True) for source, target in real if os.path.isfile(target)]


def confined(order: Order, enclosure: Enclosure) -> Order:
    """Return the order with what enforces the enclosure on its task."""
    if not enclosure.isolated or enclosure.cgroup is None:
        return order
    fence = enclosure.fence
    return replace(
        order,
        processes=enclosure.limits.user_processes,
        cgroups=enclosure.joins(),
        denied=fence.probes() if fence is not None else (),
        nodes=tuple((d.path, str(enclosure.node(d))) for d in (*enclosure.devices, *enclosure.extra)),
        refused=str(enclosure.refused),
    )


def _with_volume(order: Order, launch: Launch) -> Order:
    """Return the order with the driver volume's libraries in place of the host's.

    After an upgrade the host's are of another driver than the kernel module that the task keeps in use.
    Without a view of its own a task has the host's.

    Raises:
        NotStarted: The task has a share, and would not see the files that enforce it.
    """
    if order.nodes is None and order.given:
        why = "a share of a GPU can be enforced only with isolation, which is off on this host"
        raise NotStarted(why, Outcome(infrastructure=True, refused_gpus=launch.plan.gpus))
    if launch.volume is None or order.nodes is None:
        return order
    config = ImageConfig(env=order.env)
    data = data_of(launch.volume)
    paths = container_environment(config, compat=False, first=launch.plan.share is not None, data=data)
    return replace(order, volume=str(launch.volume), env={**order.env, **paths})


def _explained(error: LaunchFailed, program: str, sandbox: str, order: Order) -> NotStarted | MesosGpuError:
    """Return the error for a step of the launch that failed."""
    if error.step == "exec":
        from isolator.host.programs_of_tasks import words_of  # deferred: needed only for a failed start

        status = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTED
        words = words_of(error.errno, _start_of(order))
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


def _why(status: int, order: Order) -> str:
    """Return which program of its command a task could not execute; "" if none is found."""
    from isolator.host.programs_of_tasks import words_of_exit

    shell = len(order.argv) > 2 and order.argv[0] in _SHELLS and order.argv[1] == "-c"
    return words_of_exit(status, order.argv[2] if shell else None, _start_of(order))


def _start_of(order: Order) -> "Start":
    from isolator.devices.view import PRIVATE, writable_by_all
    from isolator.host.programs_of_tasks import Start

    private = (
        (*PRIVATE, *writable_by_all()) if order.nodes is not None and order.private_mib is not None else ()
    )
    user = order.user or (os.geteuid(), os.getegid(), tuple(os.getgroups()))
    return Start(order.argv[0], order.cwd, order.env, user, private)
