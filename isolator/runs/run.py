"""Common interface of the ways to run a task's command. The executor decides when to act; a `Run` knows how."""

import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from isolator.confinement.enclosure import Enclosure
from isolator.gpus.ledger import Trace
from isolator.host.not_started import NotStarted
from isolator.host.sandbox import CONTAINERS, NESTED, STREAMS, Sandbox
from mesos_gpu.model.tasks.assignment import Assignment, Outcome

if TYPE_CHECKING:  # deferred: few executors need them
    from isolator.confinement.inner_calls import Inner
    from isolator.secrets.delivery import Given as Secrets
    from isolator.shares.tenancy import Given

KILLED: Final = 9


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a command: its exit status or a signal.

    Attributes:
        why: Explanation for the user.
        infrastructure: Whether the infrastructure is at fault.
        limit: Limit that the task exceeded, in words, for which processes of it were killed.
    """

    exit_status: int | None = None
    signal: int | None = None
    why: str = ""
    infrastructure: bool = False
    limit: str = ""

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it, or a command that a shell waited for."""
        return KILLED in (self.signal, (self.exit_status or 0) - 128)


@dataclass(frozen=True, slots=True)
class Launch:
    """Input of a run.

    Attributes:
        plan: Assignment of GPUs, command and settings to the task.
        task: Mesos' task id.
        own: Environment of the executor.
        enclosure: Enclosure of the task; set up before `start`.
        volume: Build of the driver volume that is leased for the task, or None.
        given: Additions for the task's share; None if it has whole GPUs, or no GPU.
        leave: Function that records a trace (something to undo after the task) in the ledger, called before it is made.
        secrets: Secrets of the task and its logins for registries; None if it has no secrets.
    """

    plan: Assignment
    task: str
    own: Mapping[str, str]
    enclosure: Enclosure
    volume: Path | None = None
    given: "Given | None" = None
    leave: Callable[[Trace], None] = lambda _: None
    secrets: "Secrets | None" = None

    @property
    def reaches_sockets(self) -> bool:
        """Whether the task may connect to abstract Unix sockets of other processes.

        By these, ranks of a gang on one host share memory of their cards (NCCL, misc/ipcsocket.cc), and so
        may a server of MPS and its clients.
        """
        share = self.plan.share
        return bool(self.plan.hosts) or (share is not None and share.method.has_domain)

    @property
    def sandbox(self) -> str:
        """The task's directory on this host."""
        return sandbox_of(self.own)


class Run(Protocol):
    """A command that is started at most once."""

    def traces(self) -> tuple[Trace, ...]:
        """Return the traces (records of things to undo) that the run leaves behind if the executor is killed."""

    def adapt(self, enclosure: Enclosure) -> Enclosure:
        """Return the enclosure as this way of running needs it.

        Raises:
            NotStarted: It cannot run in any enclosure of this host.
        """

    def start(self, launch: Launch) -> None:
        """Start the command.

        Raises:
            NotStarted, MesosGpuError, OSError: The command does not run.
        """

    def pid(self) -> int | None:
        """Return the pid of the first process as this process sees it; None if it has ended, or is not
        visible.
        """

    def inner(self) -> "Inner | None":
        """Return the inner process of the started task; None if commands join the task from outside."""

    def streams(self) -> tuple[int | None, int | None]:
        """Return the descriptors of this process for stdout and stderr; None for a file that is not open
        here.
        """

    def wait(self) -> Ended:
        """Wait until the command has ended; to be called on a thread of its own."""

    def notify(self, number: int) -> None:
        """Send a signal to those of its programs that handle it (`processes.handling`); it would end the
        others.
        """

    def terminate(self, grace_s: float) -> None:
        """Send SIGTERM (`processes.terminate`), and SIGKILL to what is left after the grace period; return
        when that is sent.
        """

    def abort(self) -> None:
        """Cut `start` short, from any thread."""

    def clear(self) -> list[int]:
        """End and remove everything of it, also if it was never started.

        Returns:
            Pids of processes that could not be killed.
        """


def given_env(launch: Launch) -> dict[str, str]:
    """Return the environment variables for the task's share."""
    return dict(launch.given.env) if launch.given is not None else {}


def secret_env(launch: Launch) -> dict[str, str]:
    """Return the environment variables with secrets."""
    return dict(launch.secrets.env) if launch.secrets is not None else {}


def given_mounts(launch: Launch) -> tuple[tuple[str, str, bool], ...]:
    """Return the mounts for the task's share (path on the host, path in the task, read-only)."""
    return launch.given.mounts if launch.given is not None else ()


def sandbox_of(env: Mapping[str, str]) -> str:
    """Return the task's directory by the agent's variables."""
    return env.get("MESOS_SANDBOX") or env.get("MESOS_DIRECTORY") or os.getcwd()


def nested_container(plan: Assignment) -> str:
    """Return the name of the nested container in which the agent runs an image; "" if it runs none."""
    return NESTED if plan.image is not None and plan.container_engine == "mesos" else ""


def below_sandbox(plan: Assignment) -> tuple[str, ...]:
    """Return the names of the path from the executor's sandbox to the task's own sandbox."""
    nested = nested_container(plan)
    return (CONTAINERS, nested) if nested else ()


def sealing_of(env: Mapping[str, str]) -> tuple[Trace, ...]:
    """Return the trace for sealing the sandbox when the task has ended; empty if this process is not root."""
    return (Trace("sandbox", sandbox_of(env)),) if os.geteuid() == 0 else ()


def of_others(sandbox: str) -> tuple[str, ...]:
    """Return the directories in the agent's work_dir with data of other tasks.

    <work_dir>/slaves/<agent>/frameworks/… has the sandboxes of all tasks (slave/paths.hpp), the others have
    tasks' metadata and files of their images.
    """
    work, below, _ = os.path.realpath(sandbox).partition("/slaves/")
    places = (f"{work}/{name}" for name in ("slaves", "meta", "provisioner"))
    return tuple(place for place in places if os.path.isdir(place)) if below else ()


def container_of(env: Mapping[str, str]) -> str:
    """Return Mesos' id of the executor's container: the last part of its sandbox (slave/paths.hpp)."""
    return os.path.basename(env.get("MESOS_DIRECTORY") or sandbox_of(env))


def identity(plan: Assignment, own: Mapping[str, str]) -> pwd.struct_passwd | None:
    """Return the user to run as, which may be the executor's own; None for the executor's if it has no
    account.

    Raises:
        NotStarted: The user does not exist on this host, or the job may not use it.
    """
    if uid := own.get("MESOS_GPU_POOL_UID"):
        from isolator.host.user_pool import account

        return account(int(uid), sandbox_of(own))
    user = plan.user
    if user is None and os.geteuid() == 0 and (why := _problem_of_root(plan, own)):
        raise NotStarted(f"the job names no user, so it would run as root; name one: {why}")
    try:
        entry = pwd.getpwuid(os.geteuid()) if user is None else pwd.getpwnam(user)
    except KeyError:
        if user is None:
            return None  # uids without an account are usual in containers
        from mesos_gpu.model.jobs.permits import HAVE_ACCOUNT  # deferred: needed only for a failed start

        raise NotStarted(f"the user {user!r} does not exist on this host; {HAVE_ACCOUNT}") from None
    if why := _problem_of_user(plan, entry, own):
        raise NotStarted(why)
    if os.geteuid() not in (0, entry.pw_uid):
        raise NotStarted(
            f"the executor runs as uid {os.geteuid()} and cannot become {user!r}; name no user, or have the operator "
            "run the agent as root"
        )
    return entry


def _problem_of_root(plan: Assignment, own: Mapping[str, str]) -> str:
    """Return why this host does not run the job as root; "" if it does."""
    setting = own.get("MESOS_GPU_ALLOW_ROOT") or "nowhere"
    if setting == "host" or (setting == "image" and plan.image is not None):
        return ""
    needed = "image or host" if plan.image is not None else "host"
    return f"this host does not run it as root; its agent's MESOS_GPU_ALLOW_ROOT is {setting}, and must be {needed}"


def _problem_of_user(plan: Assignment, entry: pwd.struct_passwd, own: Mapping[str, str]) -> str:
    """Return why a user may not run jobs on this host, whatever the scheduler decided; "" if it may.

    An executor that is not root runs all jobs as itself.
    """
    if entry.pw_uid == 0:
        return _problem_of_root(plan, own)
    if os.geteuid() != 0:
        return ""
    from mesos_gpu.adapters.accounts import account_of
    from mesos_gpu.model.jobs.users import Users

    account = account_of(entry.pw_name)
    if account is not None and account.mighty:
        return f"this host does not run jobs as {entry.pw_name}: {account.mighty}"
    try:
        users = Users.parse(own.get("MESOS_GPU_USERS", ""))
    except ValueError as error:
        return f"this host runs no job: MESOS_GPU_USERS: {error}"
    if plan.user_is_default or users.may_have(entry.pw_name, entry.pw_uid):
        return ""
    return (
        f"this host does not run jobs as {entry.pw_name} (uid {entry.pw_uid}), but as {users}; name another user, or "
        f"set MESOS_GPU_USERS={users},{entry.pw_name} on its agent"
    )


def give(sandbox: str, user: pwd.struct_passwd, *, writes: bool = True) -> None:
    """Give the job's user access to the sandbox: to make files there and to reopen /dev/stdout, or only to
    pass through it.

    Args:
        writes: Whether the user may make files.

    Raises:
        NotStarted: The directory would have to belong to the user, who could then exchange its logs while the
            agent reads them as root.
    """
    with Sandbox(sandbox) as place:
        if not place.admit(user.pw_uid, writes=writes) and writes:
            why = "its file system has no access control lists; put work_dir on ext4, xfs or btrfs"
            raise NotStarted(f"root cannot stay owner of the sandbox: {why}", Outcome(infrastructure=True))
        for name in STREAMS if writes else ():
            place.admit_to(name, user.pw_uid)
