"""The executor: one for each task. Claim the GPUs, run the command, tell how it ended, let go.

It starts once for every task, so it stays lean: the standard library and plain nouns only.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from isolator.agent.agent_api import TERMINAL, Connection, Settings
from isolator.confinement.enclosure import Enclosure, undo
from isolator.confinement.enclosure import plan as enclosure_for
from isolator.devices.facts import read_inventory
from isolator.executor.upkeep import Upkeep, limit_of
from isolator.gpus import driver_volume
from isolator.gpus.ledger import Claimed, Holding, Ledger, NoneFree, Owner, Refused, Stale, Trace
from isolator.host import processes
from isolator.host.control_ports import denials
from isolator.host.not_started import NotStarted
from isolator.host.sandbox import Sandbox
from isolator.node.reaper import end
from isolator.runs.gang import Barrier, write_hostfile
from isolator.runs.host_run import HostRun
from isolator.runs.launcher import Launcher
from isolator.runs.run import Ended, Launch, Run, container_of, sandbox_of
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.wire.mesos import assignment as wire

if TYPE_CHECKING:  # their modules cost each executor what only one with health checks need pay
    from isolator.runs.fetching import Fetch
    from mesos_gpu.model.jobs.healthcheck import HealthCheck
    from mesos_gpu.policy.apps.healthcheck import TaskHealth

LOG: Final = "executor.log"  # in the sandbox: stdout and stderr belong to the task
_UNHEALTHY: Final = "unhealthy: "
LAST_S: Final = 25.0  # beyond the grace: what ending and undoing take at most, when processes hang


class Executor:
    """`Handler` of the agent's events; the task itself lives on a thread of its own."""

    def __init__(
        self, settings: Settings, ledger: Ledger, env: Mapping[str, str], launcher: Launcher
    ) -> None:
        """Nothing runs yet. `env`: the executor's environment."""
        self._ledger, self._launcher = ledger, launcher
        self._env = {name: value for name, value in env.items() if name != "MESOS_GPU_POOL_UID"}
        self._shutdown_grace_s = settings.shutdown_grace_s
        self._owner, self._container = Owner.of(os.getpid()), container_of(env)
        self._run: Run | None = None
        self._uid: tuple[Trace, ...] = ()  # of the uid that the task has of the pool
        self._fetch: Fetch | None = None  # while it is at work
        self._started = False  # whether its command runs, or has run
        self._holds = False  # whether the ledger has something of this task
        self._connection = Connection(settings, self)
        self._task_id: str | None = None
        self._assignment: Assignment | None = None
        self._denied: frozenset[int] = frozenset()  # ports that its checks do not go to, on whichever address
        self._healthy: bool | None = None  # what health checks say of the task; None: nothing, or not yet
        self._ended: str | None = None  # the terminal state that was reported
        self._worker: threading.Thread | None = None
        self._lock = threading.Lock()
        self._barrier = Barrier()
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

    def message(self, data: bytes) -> None:
        """The scheduler says when a gang's members may begin."""
        self._barrier.hear(data)

    def _want_end(self, state: str, message: str, grace_s: float) -> None:
        with self._lock:
            if not self._ending.is_set():
                self._end = (state, message, grace_s)
                self._ending.set()
        self._barrier.open()
        if not self._started:
            work: Fetch | Run | None = self._fetch or self._run
            if work is not None:
                threading.Thread(target=work.abort, daemon=True).start()

    # --- the task's thread

    def _work(self, task: Mapping[str, Any]) -> None:
        assert self._task_id is not None
        state = "TASK_FAILED"
        try:
            state, message, outcome = self._run_task(task)
        except NotStarted as error:
            message, outcome = str(error), error.outcome
            if self._ending.is_set() and self._end[0] == "TASK_KILLED":
                state = "TASK_KILLED"
        except (MesosGpuError, OSError) as error:
            # The host's fault, not the job's: it may run elsewhere.
            message, outcome = f"the host cannot run it: {error}", Outcome(infrastructure=True)
        except Exception as error:  # noqa: BLE001 - without a last word the task would stay for ever
            import traceback

            log(traceback.format_exc())
            message, outcome = f"the executor failed: {error!r}", Outcome(infrastructure=True)
        self._ended = state
        log(f"{state}: {message}")
        self._connection.update(
            self._task_id, state, message=message, data=wire.encode(outcome), healthy=self._healthy
        )

    def _run_task(self, task: Mapping[str, Any]) -> tuple[str, str, Outcome]:
        import base64

        try:
            plan = wire.decode_assignment(base64.b64decode(task.get("data", "")))
            checks = _checks_of(plan)
        except ValueError as error:
            raise NotStarted(f"not a task for this executor: {error}") from error
        self._assignment = plan
        assert self._task_id is not None
        inventory = read_inventory(self._ledger.directory) if plan.gpus or plan.image else Inventory()
        run = self._run = self._run_for(plan, inventory)
        denied = denials(self._env, plan.control_ports, plan.control_access, self._owner.boot_id)
        self._denied = frozenset(each.port for each in denied if each.address is None)
        enclosure = run.adapt(enclosure_for(self._container, plan.gpus, inventory, self._env, denied=denied))
        choose = driver_volume.awaited if plan.image else driver_volume.for_tasks
        volume = choose(self._env, inventory)
        log_limit_mib, upkeep = limit_of(self._env, plan.log_limit_mib), None
        try:
            self._claim(plan, (*enclosure.traces(), *run.traces(), *driver_volume.lease(volume)))
            if volume is not None and not volume.exists():  # it was removed before it was leased
                raise NotStarted(f"the driver volume {volume} is gone", Outcome(infrastructure=True))
            if not plan.hosts:
                self._connection.update(self._task_id, "TASK_STARTING")
            enclosure.set_up()
            self._fetch_for(plan, enclosure)
            if plan.hosts:
                self._await_others(plan)
            if self._ending.is_set():
                return "TASK_KILLED", self._end[1], Outcome()
            run.start(Launch(plan, self._task_id, self._env, enclosure, volume))
            self._started = True
            upkeep = self._keep_up(run, plan, log_limit_mib)
            self._connection.update(self._task_id, "TASK_RUNNING")
            return self._watch(run, plan, checks)
        finally:
            self._let_go(run, enclosure)
            if upkeep is not None:  # what ran is gone: nobody is in the way of its last look
                upkeep.stop()

    def _fetch_for(self, plan: Assignment, enclosure: Enclosure) -> None:
        """Into the sandbox; of an image that the agent runs into that one's, which is below."""
        if plan.fetch:
            from isolator.runs.fetching import Fetch

            assert self._task_id is not None
            self._fetch = Fetch(plan, self._task_id, self._launcher, enclosure, self._env)
            try:
                if not self._ending.is_set():
                    self._fetch.run(_nested(plan))
            finally:
                self._fetch = None
        if plan.image is not None:
            self._launcher.dismiss()

    def _await_others(self, plan: Assignment) -> None:
        """TASK_STARTING of a gang's member says that it has its place: nothing but the others keeps it."""
        assert self._task_id is not None
        write_hostfile(plan, sandbox_of(self._env))
        self._connection.update(self._task_id, "TASK_STARTING")
        self._barrier.wait()

    def _run_for(self, plan: Assignment, inventory: Inventory) -> Run:
        if plan.image is None:
            return HostRun(self._launcher)
        if plan.container_engine == "docker":
            from isolator.runs.docker_run import DockerRun

            return DockerRun(plan, inventory, self._env)
        from isolator.runs.nested_run import NestedRun

        return NestedRun(plan, self._connection, inventory, self._env)

    def _claim(self, plan: Assignment, traces: Sequence[Trace]) -> None:
        pooled = self._pooled(plan)
        if not plan.gpus and not traces and not pooled:
            return
        assert self._task_id is not None
        for _ in range(3):
            found = self._ledger.claim(
                self._task_id, plan.gpus, self._owner, container=self._container, traces=traces, **pooled
            )
            if isinstance(found, NoneFree):
                why = "every uid of MESOS_GPU_USER_POOL on this host is another's"
                raise NotStarted(why, Outcome(infrastructure=True))
            if isinstance(found, Claimed):
                self._holds = True
                if found.uid is not None:
                    self._env = {**self._env, "MESOS_GPU_POOL_UID": str(found.uid)}
                    self._uid = (_uid_trace(self._env)(found.uid),)
                return
            gpus = tuple(gpu for holding in _holdings(found) for gpu in holding.gpus if gpu in plan.gpus)
            refused = Outcome(infrastructure=True, refused_gpus=gpus)
            if isinstance(found, Refused):
                who = ", ".join(f"{gpu} by {h.task}" for h in found.held for gpu in h.gpus if gpu in gpus)
                raise NotStarted(f"claimed already: {who}", refused)
            for holding in found.dead:
                log(f"ending what is left of {holding.task}, whose executor died")
                if left := end(self._ledger, holding, timeout_s=10.0):
                    raise NotStarted(
                        f"processes {left} of the dead task {holding.task} would not die", refused
                    )
        raise NotStarted(
            "dead claims would not go away", Outcome(infrastructure=True, refused_gpus=plan.gpus)
        )

    def _pooled(self, plan: Assignment) -> dict[str, Any]:
        """What the ledger is asked for the sake of a uid; nothing: its user is one that somebody names."""
        if os.geteuid() != 0 or not (plan.user is None or plan.user_is_default):
            return {}
        if not self._env.get("MESOS_GPU_USER_POOL"):
            return {}
        from isolator.host.user_pool import candidates, pool_of

        return {"uids": candidates(pool_of(self._env)), "uid_trace": _uid_trace(self._env)}

    def _watch(self, run: Run, plan: Assignment, checks: "Sequence[HealthCheck]") -> tuple[str, str, Outcome]:
        ended: list[Ended] = []
        waiter = threading.Thread(target=self._wait_for, args=(run, ended), daemon=True)
        waiter.start()
        with self._checking(run, checks):
            in_time = self._ending.wait(plan.timeout_s)
        if not in_time:
            self._want_end(
                "TASK_FAILED", f"Ran longer than its timeout_s of {plan.timeout_s:g}", plan.kill_grace_s
            )
        state, message, grace_s = self._end
        if not state:  # the command ended by itself
            waiter.join()
            return result_of(ended[0])
        if state == "TASK_KILLED":
            assert self._task_id is not None
            self._connection.update(self._task_id, "TASK_KILLING", message=message)
        run.terminate(grace_s)
        waiter.join(10)
        how = ended[0] if ended else Ended()
        unhealthy = message.removeprefix(_UNHEALTHY) if message.startswith(_UNHEALTHY) else ""
        return state, message, Outcome(how.exit_status, how.signal, unhealthy=unhealthy)

    @contextmanager
    def _checking(self, run: Run, checks: "Sequence[HealthCheck]") -> Iterator[None]:
        """Health checks are made; afterwards nothing of them is left, and TASK_RUNNING is not said again."""
        if not checks:
            yield
            return
        from isolator.executor.checks import Checker

        assert self._task_id is not None
        checker = Checker(checks, self._task_id, run.pid(), self._hear, denied=self._denied)
        checker.start()
        try:
            yield
        finally:
            checker.stop()

    def _keep_up(self, run: Run, plan: Assignment, limit_mib: int) -> Upkeep:
        """Its logs stay within their limit, and its sandbox within what was asked for."""
        upkeep = Upkeep(
            sandbox_of(self._env),
            limit_mib=limit_mib,
            disk_mib=plan.disk_mib,
            streams=run.streams(),
            say=log,
            end=lambda why: self._want_end("TASK_FAILED", why, plan.kill_grace_s),
        )
        upkeep.start()
        return upkeep

    def _hear(self, health: "TaskHealth") -> None:
        """Each failure that counts is told: who gets it can count them, as with Mesos' own executors."""
        assert self._task_id is not None
        assert self._assignment is not None
        if health.healthy is None:
            return
        self._healthy = health.healthy
        causes = [one.last_failure_cause for one in health.healths if one.alive is False]
        self._connection.update(
            self._task_id,
            "TASK_RUNNING",
            message="; ".join(causes),
            healthy=health.healthy,
            reason="REASON_TASK_HEALTH_CHECK_STATUS_UPDATED",
        )
        if health.kill:
            self._want_end("TASK_KILLED", f"{_UNHEALTHY}{health.kill}", self._assignment.kill_grace_s)

    def _wait_for(self, run: Run, ended: list[Ended]) -> None:
        try:
            ended.append(self._explained(run.wait()))
        except (MesosGpuError, OSError) as error:
            ended.append(Ended(why=f"its end could not be seen: {error}", infrastructure=True))
        self._want_end("", "", 0.0)

    def _explained(self, ended: Ended) -> Ended:
        """With the want of memory that the kernel met in this container, unless it is known already."""
        if ended.limit or ended.infrastructure or not (ended.signal or ended.exit_status):
            return ended
        from isolator.runs.memory import lack

        asked_mib = self._assignment.mem_mib if self._assignment else 0
        return replace(ended, limit=lack(self._container, asked_mib))

    def _let_go(self, run: Run, enclosure: Enclosure) -> None:
        """End what the command left running; the claim goes last, when nothing can use the GPU any more. What cannot
        be undone now stays on record: the monitor tries again."""
        try:
            left = run.clear()
            made = (*self._uid, *enclosure.traces()) if self._holds else ()
            for trace in reversed(made):
                left += undo(trace)
            if left:
                log(f"processes {left} would not die: the claim stays until they do")
            elif self._holds:
                assert self._task_id is not None
                self._ledger.release(self._task_id, self._owner, self._container)
        except (MesosGpuError, OSError) as error:  # the command's own end is what counts
            log(f"what was made for the task could not be undone, and its claim stays: {error}")


def _uid_trace(own: Mapping[str, str]) -> Callable[[int], Trace]:
    return lambda uid: Trace("uid", f"{uid} {sandbox_of(own)}")


def _nested(plan: Assignment) -> str:
    """The container that the agent runs an image in; "": none."""
    if plan.image is None or plan.container_engine == "docker":
        return ""
    from isolator.runs.nested_run import CONTAINER

    return CONTAINER


def _checks_of(plan: Assignment) -> "Sequence[HealthCheck]":
    if not plan.checks:
        return ()
    from mesos_gpu.wire.mesos.checks import decode

    return decode(plan.checks)


def _holdings(found: Refused | Stale) -> Sequence[Holding]:
    return found.held if isinstance(found, Refused) else found.dead


def result_of(ended: Ended) -> tuple[str, str, Outcome]:
    """State, message and outcome of a command that ended by itself."""
    why = "".join(f": {text}" for text in (ended.why, ended.limit) if text)
    outcome = Outcome(exit_status=ended.exit_status, signal=ended.signal, infrastructure=ended.infrastructure)
    if ended.limit and ended.killed:
        return "TASK_FAILED", ended.limit, outcome
    if ended.signal is not None:
        name = signal.strsignal(ended.signal) or "unknown"
        return "TASK_FAILED", f"Command terminated with signal {ended.signal} ({name}){why}", outcome
    if ended.exit_status is None:
        return "TASK_FAILED", ended.why, outcome
    state = "TASK_FINISHED" if ended.exit_status == 0 else "TASK_FAILED"
    return state, f"Command exited with status {ended.exit_status}{why}", outcome


def log(text: str) -> None:
    """One line into the executor's own log."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run as an executor of Mesos: all settings are in the environment."""
    env = dict(os.environ)
    settings = Settings.from_environment(env)
    with Sandbox(sandbox_of(env)) as place:
        sys.stderr = os.fdopen(place.append(LOG), "a")  # for as long as the process lives
    processes.become_subreaper()
    launcher = Launcher.fork()
    ledger = Ledger()
    lock = ledger.lock(container_of(env))  # as long as this process lives
    executor = Executor(settings, ledger, env, launcher)
    # On a thread: a handler may run while the main thread holds a lock that `shutdown` needs.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=executor.shutdown).start())
    try:
        return executor.run()
    finally:
        os.close(lock)
