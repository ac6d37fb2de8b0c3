"""The executor: one for each task. Claim the GPUs, run the command, tell how it ended, let go.

It starts once for every task, so it stays lean: the standard library and plain nouns only.
"""

import contextlib
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from isolator import processes
from isolator.agent_api import TERMINAL, Connection, Settings
from isolator.environment import task_environment
from isolator.ledger import Claimed, Ledger, Owner, Refused, Stale
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.assignment import Assignment, Outcome
from mesos_gpu.wire import assignment as wire

LOG: Final = "executor.log"  # in the sandbox: stdout and stderr belong to the task
LAST_S: Final = 25.0  # beyond the grace: what `_terminate` and `_let_go` take at most, when processes hang


class NotStarted(Exception):
    """The command cannot run; `outcome` says whose fault that is."""

    def __init__(self, why: str, outcome: Outcome | None = None) -> None:
        """`why` is for the user."""
        super().__init__(why)
        self.outcome = outcome or Outcome()


class Executor:
    """`Handler` of the agent's events; the task itself lives on a thread of its own."""

    def __init__(self, settings: Settings, ledger: Ledger, env: Mapping[str, str]) -> None:
        """Nothing runs yet. `env`: the executor's environment."""
        self._ledger, self._env, self._shutdown_grace_s = ledger, env, settings.shutdown_grace_s
        self._owner = Owner.of(os.getpid())
        self._connection = Connection(settings, self)
        self._task_id: str | None = None
        self._assignment: Assignment | None = None
        self._ended: str | None = None  # the terminal state that was reported
        self._worker: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ending = threading.Event()  # somebody wants the end; `_end` is set before it, once
        self._end: tuple[str, str, float] = ("", "", 0.0)  # state, message, grace

    def run(self) -> int:
        """Until the last update is acknowledged, or the agent is gone and the task is ended; the exit code."""
        try:
            return self._connection.run()
        finally:
            self._want_end("TASK_KILLED", "the executor ended", 0.0)
            if self._worker is not None:
                self._worker.join(self._end[2] + LAST_S)
            processes.kill_descendants()

    # --- events of the agent

    def launch(self, task: Mapping[str, Any]) -> None:
        """Start working on the one task."""
        if self._task_id is not None:
            self._connection.update(task["task_id"]["value"], "TASK_FAILED", message="one executor, one task")
            return
        self._task_id = str(task["task_id"]["value"])
        self._worker = threading.Thread(target=self._work, args=(task,), daemon=True)
        self._worker.start()

    def kill(self, task_id: str, grace_s: float | None) -> None:
        """SIGTERM to the whole tree, SIGKILL after the grace."""
        if task_id == self._task_id:
            own_s = self._assignment.kill_grace_s if self._assignment else 0.0
            self._want_end("TASK_KILLED", "killed on request", own_s if grace_s is None else grace_s)

    def shutdown(self) -> None:
        """The agent wants the executor to go: within its grace period, or it will kill it."""
        if self._task_id is None or self._ended:
            self._connection.finish()
        self._want_end(
            "TASK_KILLED", "the agent shut the executor down", max(self._shutdown_grace_s - 1.0, 0.0)
        )

    def acknowledged(self, task_id: str, state: str) -> None:
        """After the last word there is nothing more to do."""
        if task_id == self._task_id and state in TERMINAL:
            self._connection.finish()

    def _want_end(self, state: str, message: str, grace_s: float) -> None:
        with self._lock:
            if not self._ending.is_set():
                self._end = (state, message, grace_s)
                self._ending.set()

    # --- the task's thread

    def _work(self, task: Mapping[str, Any]) -> None:
        assert self._task_id is not None
        state = "TASK_FAILED"
        try:
            state, message, outcome = self._run_task(task)
        except NotStarted as error:
            message, outcome = str(error), error.outcome
        except (MesosGpuError, OSError) as error:
            # The host's fault, not the job's: it may run elsewhere.
            message, outcome = f"the host cannot run it: {error}", Outcome(infrastructure=True)
        except Exception as error:  # noqa: BLE001 - without a last word the task would stay for ever
            import traceback

            log(traceback.format_exc())
            message, outcome = f"the executor failed: {error!r}", Outcome(infrastructure=True)
        self._ended = state
        log(f"{state}: {message}")
        self._connection.update(self._task_id, state, message=message, data=wire.encode(outcome))

    def _run_task(self, task: Mapping[str, Any]) -> tuple[str, str, Outcome]:
        import base64

        try:
            plan = wire.decode_assignment(base64.b64decode(task.get("data", "")))
        except ValueError as error:
            raise NotStarted(f"not a task for this executor: {error}") from error
        self._assignment = plan
        assert self._task_id is not None
        self._claim(plan)
        try:
            self._connection.update(self._task_id, "TASK_STARTING")
            if self._ending.is_set():
                return "TASK_KILLED", self._end[1], Outcome()
            process = start(plan, self._task_id, self._env)
            self._connection.update(self._task_id, "TASK_RUNNING")
            return self._watch(process, plan)
        finally:
            self._let_go()

    def _claim(self, plan: Assignment) -> None:
        if not plan.gpus:
            return
        assert self._task_id is not None
        for _ in range(3):
            found = self._ledger.claim(self._task_id, plan.gpus, self._owner)
            if isinstance(found, Claimed):
                return
            if isinstance(found, Refused):
                who = ", ".join(f"{claim.gpu} by {claim.task}" for claim in found.held)
                refused = Outcome(infrastructure=True, refused_gpus=tuple(c.gpu for c in found.held))
                raise NotStarted(f"claimed already: {who}", refused)
            self._end_dead(found)
        raise NotStarted(
            "dead claims would not go away", Outcome(infrastructure=True, refused_gpus=plan.gpus)
        )

    def _end_dead(self, stale: Stale) -> None:
        for task in {claim.task for claim in stale.dead}:
            log(f"ending what is left of {task}, whose executor died")
            left = processes.kill_leftovers(task)
            if left:
                gpus = tuple(claim.gpu for claim in stale.dead)
                why = f"processes {left} of the dead task {task} would not die"
                raise NotStarted(why, Outcome(infrastructure=True, refused_gpus=gpus))
        self._ledger.drop(stale.dead)

    def _watch(self, process: "subprocess.Popen[bytes]", plan: Assignment) -> tuple[str, str, Outcome]:
        waiter = threading.Thread(target=self._wait_for, args=(process,), daemon=True)
        waiter.start()
        if not self._ending.wait(plan.timeout_s):
            self._want_end(
                "TASK_FAILED", f"Ran longer than its timeout_s of {plan.timeout_s:g}", plan.kill_grace_s
            )
        state, message, grace_s = self._end
        if not state:  # the command ended by itself
            waiter.join()
            return result_of(process.returncode)
        if state == "TASK_KILLED":
            assert self._task_id is not None
            self._connection.update(self._task_id, "TASK_KILLING", message=message)
        self._terminate(waiter, grace_s)
        code = process.returncode
        signalled = -code if code is not None and code < 0 else None
        return state, message, Outcome(exit_status=None if signalled else code, signal=signalled)

    def _wait_for(self, process: "subprocess.Popen[bytes]") -> None:
        process.wait()
        self._want_end("", "", 0.0)

    def _terminate(self, waiter: threading.Thread, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        if grace_s > 0:
            processes.send(processes.descendants(os.getpid()), signal.SIGTERM)
            waiter.join(grace_s)
        while processes.descendants(os.getpid()) and time.monotonic() < deadline:
            processes.reap()  # children of the command have their grace, too
            time.sleep(0.02)
        processes.send(processes.descendants(os.getpid()), signal.SIGKILL)
        waiter.join(10)

    def _let_go(self) -> None:
        """End what the command left running; the claim goes last, when nothing can use the GPU any more."""
        left = processes.kill_descendants()
        if left:
            log(f"processes {left} would not die: the claim stays until they do")
            return
        if self._assignment is not None and self._assignment.gpus:
            assert self._task_id is not None
            self._ledger.release(self._task_id, self._owner)


def result_of(returncode: int) -> tuple[str, str, Outcome]:
    """State, message and outcome of a command that ended by itself; `returncode` as subprocess has it."""
    if returncode < 0:
        name = signal.strsignal(-returncode) or "unknown"
        return (
            "TASK_FAILED",
            f"Command terminated with signal {-returncode} ({name})",
            Outcome(signal=-returncode),
        )
    state = "TASK_FINISHED" if returncode == 0 else "TASK_FAILED"
    return state, f"Command exited with status {returncode}", Outcome(exit_status=returncode)


def start(plan: Assignment, task_id: str, own: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start the command in the sandbox, in a session of its own, as the job's user.

    Args:
        plan: What to run.
        task_id: Mesos' task id.
        own: The executor's environment.

    Raises:
        NotStarted: The user does not exist or is not allowed, or the command is not there.
    """
    argv = ["/bin/sh", "-c", plan.command] if plan.command is not None else list(plan.argv)
    if not argv:
        raise NotStarted("the task has neither a command nor an argv")
    sandbox = sandbox_of(own)
    identity = _identity(plan.user, allow_root=own.get("MESOS_GPU_ALLOW_ROOT") == "1")
    user: dict[str, str] = {}
    change: dict[str, Any] = {}
    if identity is not None:
        user = {"HOME": identity.pw_dir, "USER": identity.pw_name, "LOGNAME": identity.pw_name}
        if identity.pw_uid != os.geteuid():
            _give(sandbox, identity)
            groups = os.getgrouplist(identity.pw_name, identity.pw_gid)
            change = {"user": identity.pw_uid, "group": identity.pw_gid, "extra_groups": groups}
    try:
        return subprocess.Popen(
            argv,
            env=task_environment(own, task_id, plan, user),
            cwd=sandbox,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            umask=0o022,
            **change,
        )
    except (OSError, ValueError) as error:
        raise _not_started(error, argv[0], sandbox) from error


def _not_started(error: OSError | ValueError, program: str, sandbox: str) -> NotStarted:
    why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    if isinstance(error, OSError) and error.filename == sandbox:
        return NotStarted(f"the sandbox {sandbox} cannot be entered: {why}", Outcome(infrastructure=True))
    # What a shell answers: 127 not found, 126 not executable (POSIX, 2.8.2).
    status = 127 if isinstance(error, FileNotFoundError) else 126
    return NotStarted(f"cannot start {program!r}: {why}", Outcome(exit_status=status))


def _identity(user: str | None, *, allow_root: bool) -> pwd.struct_passwd | None:
    """The user to run as, which may be the executor's own; None: the executor's, and it has no name."""
    if user is None and os.geteuid() == 0 and not allow_root:
        raise NotStarted(
            "the job names no user, and would run as root; name one, or set MESOS_GPU_ALLOW_ROOT=1"
        )
    try:
        found = pwd.getpwuid(os.geteuid()) if user is None else pwd.getpwnam(user)
    except KeyError:
        if user is None:
            return None  # a uid without an account: usual in containers
        raise NotStarted(f"the user {user!r} does not exist on this host") from None
    if found.pw_uid == 0 and not allow_root:
        raise NotStarted(
            "this host does not run jobs as root; set MESOS_GPU_ALLOW_ROOT=1 on its agent to allow it"
        )
    if os.geteuid() not in (0, found.pw_uid):
        raise NotStarted(f"the executor runs as uid {os.geteuid()} and cannot become {user!r}")
    return found


def _give(sandbox: str, identity: pwd.struct_passwd) -> None:
    """The sandbox and its streams to the job's user, so that it can write and reopen /dev/stdout."""
    for path in (sandbox, f"{sandbox}/stdout", f"{sandbox}/stderr"):
        with contextlib.suppress(FileNotFoundError):
            os.chown(path, identity.pw_uid, identity.pw_gid, follow_symlinks=False)


def sandbox_of(env: Mapping[str, str]) -> str:
    """The task's directory, as the agent says it (in an image: where it is mounted)."""
    return env.get("MESOS_SANDBOX") or env.get("MESOS_DIRECTORY") or os.getcwd()


def log(text: str) -> None:
    """One line into the executor's own log."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run as an executor of Mesos: all settings are in the environment."""
    env = dict(os.environ)
    settings = Settings.from_environment(env)
    sys.stderr = open(os.path.join(sandbox_of(env), LOG), "a")  # noqa: SIM115 - for as long as the process lives
    processes.become_subreaper()
    executor = Executor(settings, Ledger(), env)
    # On a thread: a handler may run while the main thread holds a lock that `shutdown` needs.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=executor.shutdown).start())
    return executor.run()
