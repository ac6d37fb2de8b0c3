"""Ways to run a task's command: what they share. The executor decides when; a `Run` knows how."""

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

if TYPE_CHECKING:  # few executors need them
    from isolator.confinement.inner_calls import Inner
    from isolator.secrets.delivery import Given as Secrets
    from isolator.shares.tenancy import Given

KILLED: Final = 9


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: by itself with a status, or by a signal. `why`: more for the user. `limit`: of what it had
    more than it asked for, in words; processes of it were killed for that."""

    exit_status: int | None = None
    signal: int | None = None
    why: str = ""
    infrastructure: bool = False
    limit: str = ""

    @property
    def killed(self) -> bool:
        """Whether by SIGKILL, or as a shell says that of the command that it waited for."""
        return KILLED in (self.signal, (self.exit_status or 0) - 128)


@dataclass(frozen=True, slots=True)
class Launch:
    """All that a run needs to know.

    Attributes:
        plan: What to run.
        task: Mesos' task id.
        own: The executor's environment.
        enclosure: What the task may use; set up before `start`.
        volume: The build of the driver volume that is leased for it; None: there is none.
        given: What it gets for the sake of its share; None: it has whole GPUs, or none.
        leave: Writes down what is made for it during the start, before that is made.
        secrets: Its secrets, and its logins for registries; None: it has none.
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
        """Whether it may connect to abstract Unix sockets of others: by these, ranks of a gang on one host hand each
        other memory of their cards (NCCL, misc/ipcsocket.cc), and so may a server of MPS and its clients."""
        share = self.plan.share
        return bool(self.plan.hosts) or (share is not None and share.method.has_domain)

    @property
    def sandbox(self) -> str:
        """The task's directory on this host."""
        return sandbox_of(self.own)


class Run(Protocol):
    """A command, started at most once."""

    def traces(self) -> tuple[Trace, ...]:
        """What it may leave behind if the executor is killed."""

    def adapt(self, enclosure: Enclosure) -> Enclosure:
        """The enclosure as this way of running needs it.

        Raises:
            NotStarted: It cannot run in any.
        """

    def start(self, launch: Launch) -> None:
        """Start the command.

        Raises:
            NotStarted, MesosGpuError, OSError: It does not run.
        """

    def pid(self) -> int | None:
        """The first process, as this one sees it, once it is started; None: it has ended, or cannot be seen."""

    def inner(self) -> "Inner | None":
        """Return the inner process of the started task; None if commands join the task from outside."""

    def streams(self) -> tuple[int | None, int | None]:
        """Which of this process' files its output goes to, stdout first; None: to one that is not open here."""

    def wait(self) -> Ended:
        """Wait until the command has ended; on a thread of its own."""

    def notify(self, number: int) -> None:
        """Send a signal to those of its programs that handle it (`processes.handling`); others would be ended by it."""

    def terminate(self, grace_s: float) -> None:
        """SIGTERM as `processes.terminate` sends it, SIGKILL to what is left after the grace; returns when that is
        sent."""

    def abort(self) -> None:
        """The end is wanted while `start` is at work: let it come to an end soon. From any thread."""

    def clear(self) -> list[int]:
        """End and remove everything of it, also if it was never started.

        Returns:
            Processes that would not die.
        """


def given_env(launch: Launch) -> dict[str, str]:
    """What a task's environment must say for the sake of its share."""
    return dict(launch.given.env) if launch.given is not None else {}


def secret_env(launch: Launch) -> dict[str, str]:
    """What a task's environment has of its secrets."""
    return dict(launch.secrets.env) if launch.secrets is not None else {}


def given_mounts(launch: Launch) -> tuple[tuple[str, str, bool], ...]:
    """What a task must see for the sake of its share: path on the host, path that it sees, whether it only reads."""
    return launch.given.mounts if launch.given is not None else ()


def sandbox_of(env: Mapping[str, str]) -> str:
    """The task's directory, as the agent says it."""
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
    """Directories in the agent's work_dir, which is not given to executors: <work_dir>/slaves/<agent>/frameworks/… has
    everybody's sandboxes (slave/paths.hpp), the others what is kept of tasks, and the files of their images."""
    work, below, _ = os.path.realpath(sandbox).partition("/slaves/")
    places = (f"{work}/{name}" for name in ("slaves", "meta", "provisioner"))
    return tuple(place for place in places if os.path.isdir(place)) if below else ()


def container_of(env: Mapping[str, str]) -> str:
    """Mesos' id of the executor's container: the last part of its sandbox (slave/paths.hpp)."""
    return os.path.basename(env.get("MESOS_DIRECTORY") or sandbox_of(env))


def identity(plan: Assignment, own: Mapping[str, str]) -> pwd.struct_passwd | None:
    """The user to run as, which may be the executor's own; None: the executor's, and it has no name.

    Raises:
        NotStarted: There is no such user here, or the job may not run as it.
    """
    if uid := own.get("MESOS_GPU_POOL_UID"):
        from isolator.host.user_pool import account

        return account(int(uid), sandbox_of(own))
    user = plan.user
    if user is None and os.geteuid() == 0 and (why := _problem_of_root(plan, own)):
        raise NotStarted(f"the job names no user, and would run as root; name one: {why}")
    try:
        entry = pwd.getpwuid(os.geteuid()) if user is None else pwd.getpwnam(user)
    except KeyError:
        if user is None:
            return None  # a uid without an account: usual in containers
        from mesos_gpu.model.jobs.permits import HAVE_ACCOUNT  # of a failed start alone

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
    said = own.get("MESOS_GPU_ALLOW_ROOT") or "nowhere"
    if said == "host" or (said == "image" and plan.image is not None):
        return ""
    needed = "image or host" if plan.image is not None else "host"
    return (
        f"this host does not run it as root; its agent's MESOS_GPU_ALLOW_ROOT is {said}, and must be {needed}"
    )


def _problem_of_user(plan: Assignment, entry: pwd.struct_passwd, own: Mapping[str, str]) -> str:
    """Why a user may not run jobs on this host, whatever the scheduler thinks; "": it may.

    An executor that is not root runs all as itself.
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
    """Let the job's user into the sandbox: to make files of its own there and to reopen /dev/stdout, or only to pass
    to what is below it.

    Raises:
        NotStarted: The directory would have to become the user's, who could then exchange its logs while the agent
            reads them as root.
    """
    with Sandbox(sandbox) as place:
        if not place.admit(user.pw_uid, writes=writes) and writes:
            why = "its file system has no access control lists; put work_dir on ext4, xfs or btrfs"
            raise NotStarted(f"root cannot stay owner of the sandbox: {why}", Outcome(infrastructure=True))
        for name in STREAMS if writes else ():
            place.admit_to(name, user.pw_uid)
