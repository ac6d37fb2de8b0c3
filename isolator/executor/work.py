"""Slow steps in the life of the executor's task: claim and enclosure, fetch, start, end, undo.

The table (`isolator.executor.life`) decides when a step comes. Each runs on a thread of its own and posts its
result as an event. `prepare`, `fetch`, `start` with `watch`, and `undo` follow one upon the other.
"""

import contextlib
import os
import threading
from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from isolator.agent.agent_api import Connection
from isolator.confinement.enclosure import SEAL_S, Enclosure, seal, seal_soon, undo
from isolator.confinement.enclosure import plan as enclosure_for
from isolator.confinement.limits import Amounts
from isolator.devices.facts import read_inventory
from isolator.executor.checkpoints import Checkpoints
from isolator.executor.forms import run_for, settle
from isolator.executor.life import Event, Kind, Terms
from isolator.executor.upkeep import Upkeep, limit_of, volumes_of
from isolator.executor.verdicts import failure, log, say_of_share, verdict_of
from isolator.gpus import driver_volume
from isolator.gpus.ledger import LAST, Claimed, Holding, Ledger, NoneFree, Owner, Refused, Stale, Trace
from isolator.host.control_ports import denials, metadata_denials
from isolator.host.not_started import NotStarted
from isolator.host.port_ranges import each_of, grant_of, of_task, unbindable
from isolator.runs.gang import with_port, write_hostfile
from isolator.runs.launcher import Launcher
from isolator.runs.run import (
    Ended,
    Launch,
    Run,
    below_sandbox,
    container_of,
    nested_container,
    sandbox_of,
    sealing_of,
)
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.wire.mesos import assignment as wire

if TYPE_CHECKING:  # deferred: few tasks need these modules, and each import slows the start
    from isolator.confinement.listeners import Listeners
    from isolator.executor.checks import Checker
    from isolator.executor.listening import Watch as PortWatch
    from isolator.executor.mps_watch import Watch as MpsWatch
    from isolator.executor.notices import Notices
    from isolator.runs.fetching import Fetch
    from isolator.shares.enforcing import Enforcing
    from mesos_gpu.model.jobs.healthcheck import HealthCheck
    from mesos_gpu.policy.apps.healthcheck import TaskHealth

SESSIONS: Final = 16  # most sessions (exec, attach) at once beside the task's own command
DEAD_S: Final = 10.0  # time limit for killing the remains of a dead executor's task


class Prepared(NamedTuple):
    """Result of `Work.prepare`.

    Attributes:
        checks: Health checks, and the check whose result is only shown.
        denied: Ports that checks must not reach, at any address.
        log_limit_mib: MiB that each log may keep; 0 for no limit.
        fetch: Download of files; None if there are none.
    """

    launch: Launch
    run: Run
    checks: "tuple[Sequence[HealthCheck], Sequence[HealthCheck]]"
    denied: frozenset[int]
    log_limit_mib: int
    fetch: "Fetch | None"


class Work:
    """Steps of the one task of an executor.

    Args:
        task: TaskInfo of Mesos.
        env: Environment of the executor.
        ledger: The ledger of this host.
        launcher: Process that becomes the task, or fetches for it.
        connection: Connection to the agent, which runs images.
        post: Function that gets the events of a step, on any thread.
    """

    def __init__(
        self,
        task: Mapping[str, Any],
        env: Mapping[str, str],
        *,
        ledger: Ledger,
        launcher: Launcher,
        connection: Connection,
        post: Callable[[Event], None],
    ) -> None:
        self._task_id, self._data, self._task = str(task["task_id"]["value"]), task.get("data", ""), task
        self._env = {name: value for name, value in env.items() if name != "MESOS_GPU_POOL_UID"}
        self._owner, self._container = Owner.of(os.getpid()), container_of(env)
        self._ledger, self._launcher, self._connection, self._post = ledger, launcher, connection, post
        self._run: Run | None = None
        self._enforcing: Enforcing | None = None  # of a share
        # traces to undo before the release; None without a claim
        self._claimed: tuple[Trace, ...] | None = None
        # Whether the claim is released except for the trace of the sandbox; and whether it is released with
        # that.
        self._is_released = self._is_dropped = False
        self._prepared: Prepared | None = None
        self._share_turn = threading.Lock()  # held during a resize or the release of the share
        self._upkeep: Upkeep | None = None
        self._notices: Notices | None = None  # set at the first notice
        self._notices_turn = threading.Lock()
        self._checkpoints: Checkpoints | None = None
        self._sessions = threading.BoundedSemaphore(SESSIONS)
        self._listens: tuple[int, ...] = ()  # ports of the host to watch for listeners
        self._ports: PortWatch | None = None  # watch of these ports while the task runs
        self._mps: MpsWatch | None = None  # set for shares whose compute is limited by MPS

    # --- until it can be started

    def prepare(self) -> None:
        """Claim what the task is granted, and set up its enclosure.

        Posts CLAIMED if more than a process is to be made, unless the task is of a gang; then SET_UP if files
        are to be fetched, else READY or IN_PLACE.

        Raises:
            NotStarted: The task cannot run on this host, or on any.
            MesosGpuError, OSError: This host is not fit for the task.
        """
        plan, checks = _decoded(self._data)
        self._listens = plan.listens
        if plan.secrets or plan.image_secret:
            from isolator.secrets.delivery import see_sealed

            see_sealed(plan)
        inventory = self._inventory(plan)
        grant = grant_of(self._env, sandbox_of(self._env), self._task)
        plan = with_port(plan, self._task_id, grant.allows)
        denied = (
            *denials(self._env, plan.control_ports, plan.control_access, self._owner.boot_id),
            *metadata_denials(self._env),
        )
        enclosure = enclosure_for(
            self._container,
            plan.gpus,
            inventory,
            self._env,
            denied=denied,
            grant=grant,
            # the device nodes of an instance are known once it exists
            share=None if _makes_instance(plan) else plan.share,
            amounts=Amounts(plan.mem_mib, plan.cpus, plan.cpu_limit or 0.0),
        )
        plan = settle(plan, enclosure)
        run = run_for(plan, self._launcher, self._connection, inventory, self._env)
        enclosure = run.adapt(enclosure)
        if taken := unbindable(each_of(of_task(self._task))):
            from isolator.executor.taken_ports import vacate

            vacate(taken, self._env, self._ledger, self._container)
        self._run, self._enforcing = run, self._enforcing_of(plan, inventory)
        volume, log_limit_mib = self._volume(plan, inventory), limit_of(self._env, plan.log_limit_mib)
        given = None
        # Undone in reverse order: the sandbox is sealed even if another task keeps its image from being
        # removed.
        others = (*run.traces(), *sealing_of(self._env), *driver_volume.lease(volume))
        with self._claim(plan, enclosure.traces(), others):
            if volume is not None and not volume.exists():  # removed before the lease was written
                raise NotStarted(f"the driver volume {volume} is gone", Outcome(infrastructure=True))
            if not plan.hosts and (plan.image or plan.fetch or plan.upload or self._enforcing is not None):
                self._post(Event(Kind.CLAIMED))
            enclosure = self._with_instance(plan, enclosure, inventory)
            enclosure.set_up()
            if (memory := enclosure.limits.memory) is not None and memory.version == "cgroup1":
                from isolator.confinement.memory_events import note_lacks

                note_lacks(memory)
            if self._enforcing is not None:
                given = self._enforcing.make(enclosure.joins(), volume)
        launch = Launch(plan, self._task_id, self._env, enclosure, volume, given, self._leave)
        ports = frozenset(each.port for each in denied if each.port is not None and each.address is None)
        self._prepared = Prepared(launch, run, checks, ports, log_limit_mib, self._fetch_of(launch))
        if self._prepared.fetch is not None:
            self._post(Event(Kind.SET_UP))
        else:
            self._make_ready(plan)

    def _inventory(self, plan: Assignment) -> Inventory:
        if not plan.gpus and not plan.image:
            return Inventory()
        return read_inventory(self._ledger.directory, shares=plan.share is not None)

    def _volume(self, plan: Assignment, inventory: Inventory) -> Path | None:
        """Return the build of the driver volume for the task; for an image, wait for it."""
        if self._enforcing is not None and (build := self._enforcing.volume()) is not None:
            return build
        return (driver_volume.awaited if plan.image else driver_volume.for_tasks)(self._env, inventory)

    def _with_instance(self, plan: Assignment, enclosure: Enclosure, inventory: Inventory) -> Enclosure:
        """Make the MIG instance of the share, if one is to be made; return the enclosure with its device
        nodes.
        """
        if self._enforcing is None or not _makes_instance(plan):
            return enclosure
        from isolator.shares.driver.instances import with_instance

        inventory = with_instance(inventory, plan.gpus[0], self._enforcing.divide())
        again = enclosure_for(self._container, plan.gpus, inventory, self._env, share=plan.share)
        return replace(enclosure, devices=again.devices)

    def _fetch_of(self, launch: Launch) -> "Fetch | None":
        if not (launch.plan.fetch or launch.plan.upload):
            return None
        from isolator.runs.fetching import Fetch

        return Fetch(launch.plan, self._task_id, self._launcher, launch.enclosure, self._env)

    def fetch(self) -> None:
        """Fetch files into the sandbox, for an image run by the agent into the image's own below. Posts READY
        or IN_PLACE.

        Raises:
            NotStarted, MesosGpuError, OSError: As for `Fetch.run`.
        """
        plan, fetch = self._ready.launch.plan, self._ready.fetch
        assert fetch is not None
        fetch.run(nested_container(plan))
        self._make_ready(plan)

    def abort_fetch(self) -> None:
        """Cut `fetch` short."""
        if self._ready.fetch is not None:
            self._ready.fetch.abort()

    def _make_ready(self, plan: Assignment) -> None:
        """Report that the task can start, or that it waits for its gang."""
        if plan.image is not None and plan.container_engine != "own":
            self._launcher.dismiss()
        timeout_s = None if plan.timeout_s is None else float(plan.timeout_s)
        terms = Terms(kill_grace_s=float(plan.kill_grace_s), timeout_s=timeout_s)
        if plan.hosts:
            write_hostfile(plan, sandbox_of(self._env))
        self._post(Event(Kind.IN_PLACE if plan.hosts else Kind.READY, terms=terms))

    @property
    def _ready(self) -> Prepared:
        assert self._prepared is not None
        return self._prepared

    def _claim(
        self, plan: Assignment, made: tuple[Trace, ...], others: tuple[Trace, ...]
    ) -> contextlib.ExitStack:
        """Write the claim with all traces of the task.

        With a share, the turn of the cards is held until the returned context is left.

        Args:
            made: Traces that this object undoes, last first.
            others: Traces that the run undoes.

        Raises:
            NotStarted: The claim is refused.
        """
        share = None
        if self._enforcing is not None:
            made, share = (*made, *self._enforcing.traces()), self._enforcing.claim()
        pooled, traces = self._pooled(plan), (*made, *others)
        if not plan.gpus and not traces and not pooled:
            return contextlib.ExitStack()
        for _ in range(3):
            with contextlib.ExitStack() as turn:
                if self._enforcing is not None:
                    turn.enter_context(self._enforcing.turn())
                answer = self._ledger.claim(
                    self._task_id,
                    plan.gpus,
                    self._owner,
                    container=self._container,
                    traces=traces,
                    share=share,
                    **pooled,
                )
                if isinstance(answer, NoneFree):
                    why = "all uids of MESOS_GPU_USER_POOL on this host are in use"
                    raise NotStarted(why, Outcome(infrastructure=True))
                if isinstance(answer, Claimed):
                    self._claimed = made
                    if answer.uid is not None:
                        self._env = {**self._env, "MESOS_GPU_POOL_UID": str(answer.uid)}
                        self._claimed = (_uid_trace(self._env)(answer.uid), *made)
                    return turn.pop_all()
            self._end_dead(plan, answer)
        refused = Outcome(infrastructure=True, refused_gpus=plan.gpus)
        raise NotStarted("claims of dead tasks could not be removed", refused)

    def _leave(self, trace: Trace) -> None:
        self._ledger.leave(self._task_id, self._owner, trace)
        self._claimed = (trace, *(self._claimed or ()))

    def _end_dead(self, plan: Assignment, answer: Refused | Stale) -> None:
        """End tasks of dead executors that are in the way, so that the claim can be tried again.

        Raises:
            NotStarted: A living task holds a GPU, or processes of a dead one cannot be killed.
        """
        holdings = answer.held if isinstance(answer, Refused) else answer.dead
        held = {gpu for holding in holdings for gpu in holding.gpus} or set(plan.gpus)
        refused = Outcome(infrastructure=True, refused_gpus=tuple(gpu for gpu in plan.gpus if gpu in held))
        if isinstance(answer, Refused):
            holder_text = ", ".join(
                f"{gpu} by {h.task}" for h in answer.held for gpu in h.gpus if gpu in plan.gpus
            )
            raise NotStarted(f"claimed already: {answer.why or holder_text}", refused)
        from isolator.node.reaper import end

        for holding in answer.dead:
            log(f"ending the remains of {holding.task}, whose executor died")
            if left := end(self._ledger, holding, timeout_s=DEAD_S):
                raise NotStarted(
                    f"processes {left} of the dead task {holding.task} could not be killed", refused
                )
        if answer.cards:
            from isolator.shares import card

            card.clear(self._ledger, plan.gpus)

    def _enforcing_of(self, plan: Assignment, inventory: Inventory) -> "Enforcing | None":
        if plan.share is None:
            return None
        from isolator.shares.enforcing import enforcing_of

        return enforcing_of(plan, self._task_id, self._container, self._ledger, inventory, self._env)

    def _pooled(self, plan: Assignment) -> dict[str, Any]:
        """Return the arguments of a claim that needs a uid of the pool; none if the job names its user, other
        than the scheduler's default, or this host has no pool.
        """
        is_named = plan.user is not None and not plan.user_is_default
        if os.geteuid() != 0 or is_named or not self._env.get("MESOS_GPU_USER_POOL"):
            return {}
        from isolator.host.user_pool import candidates, pool_of

        return {"uids": candidates(pool_of(self._env)), "uid_trace": _uid_trace(self._env)}

    # --- while it runs

    def start(self) -> None:
        """Start the command, and the upkeep of its output and disk. Posts STARTED.

        Raises:
            NotStarted, MesosGpuError, OSError: As for `Run.start`.
        """
        launch, run = self._ready.launch, self._ready.run
        if launch.plan.share is not None:
            say_of_share(launch, run)
        self._checkpoints = Checkpoints(launch.sandbox, below_sandbox(launch.plan), log)
        # made before the task can replace the files of its output
        self._upkeep = self._upkeep_of(launch, run)
        run.start(self._with_secrets(launch))
        self._upkeep.start()
        self._watch_mps(run, float(launch.plan.kill_grace_s))
        self._post(Event(Kind.STARTED))
        if self._listens:
            from isolator.executor.listening import Watch

            self._ports = Watch(self._listeners_of(run.pid()), self._listens)

    def _upkeep_of(self, launch: Launch, run: Run) -> Upkeep:
        try:
            return Upkeep(
                launch.sandbox,
                limit_mib=self._ready.log_limit_mib,
                disk_mib=launch.plan.disk_mib,
                volumes=volumes_of(launch.own, launch.plan.mounts),
                streams=run.streams(),
                say=log,
                end=lambda why: self._post(Event(Kind.OVER_DISK, message=why)),
                more=self._look_around,
            )
        except OSError as error:
            why = f"the sandbox {launch.sandbox} cannot be entered: {error.strerror}"
            raise NotStarted(why, Outcome(infrastructure=True)) from error

    def _with_secrets(self, launch: Launch) -> Launch:
        """Return the launch with the opened secrets, for its run only: this object never keeps them."""
        if not (launch.plan.secrets or launch.plan.image_secret):
            return launch
        from isolator.secrets.delivery import opened

        return replace(launch, secrets=opened(launch.plan, launch.task, self._env, self._ledger.directory))

    def _watch_mps(self, run: Run, grace_s: float) -> None:
        """Start the watch of the MPS daemon, if the share uses one."""
        if self._enforcing is None or not self._enforcing.tenancy.share.method.has_domain:
            return
        if self._enforcing.tenancy.simulated:
            return
        from isolator.executor.mps_watch import watch_of

        def evict() -> None:
            watch.drain(grace_s)
            run.terminate(grace_s)

        self._mps = watch = watch_of(self._enforcing.tenancy, self._ledger, evict, log)
        watch.start()

    def abort_start(self) -> None:
        """Cut `start` short."""
        self._ready.run.abort()

    def watch(self) -> None:
        """Wait until the command has ended. Posts CHECKS_READY if it has checks, and ENDED.

        Raises:
            MesosGpuError, OSError: The checks cannot be made.
        """
        (checks, shown), run = self._ready.checks, self._ready.run
        if checks or shown:
            from isolator.executor.checks import Checker

            pid, denied, inner = run.pid(), self._ready.denied, run.inner()
            of_task = (checks, self._task_id, pid, self._hear, self._listeners_of(pid))
            checker = Checker(*of_task, denied=denied, inner=inner, shown=shown, post=self._post)
            self._post(Event(Kind.CHECKS_READY, payload=checker))
        try:
            ended = self._explained(run.wait())
        except (MesosGpuError, OSError) as error:
            ended = Ended(why=f"the end of the task could not be observed: {error}", infrastructure=True)
        self._look_for_checkpoint(last=True)
        self._post(Event(Kind.ENDED, verdict=verdict_of(ended)))

    def _listeners_of(self, pid: int | None) -> "Listeners":
        from isolator.confinement.listeners import listeners_of

        return listeners_of(pid, self._env, self._ready.launch.plan.bindings)

    def _hear(self, health: "TaskHealth") -> None:
        """Report the health, with each failure that counts, so that receivers can count them as with Mesos'
        own executors.
        """
        if health.healthy is None:
            return
        causes = [
            health_of_check.last_failure_cause
            for health_of_check in health.healths
            if health_of_check.alive is False
        ]
        self._post(Event(Kind.HEALTH, message="; ".join(causes), healthy=health.healthy))
        if health.kill:
            self._post(Event(Kind.UNHEALTHY, message=health.kill))

    def _explained(self, ended: Ended) -> Ended:
        """Return the end with the part that the task's MPS daemon, or a lack of memory, had in it."""
        if self._mps is not None:
            ended = self._mps.explained(ended)
        if ended.limit or ended.infrastructure or not (ended.signal or ended.exit_status):
            return ended
        from isolator.runs.memory import explained

        launch = self._ready.launch
        return explained(ended, launch.enclosure.limits.memory, launch.plan.mem_mib)

    def resize(self, data: bytes) -> None:
        """Change the task's share, as a scheduler message requests. Posts RESIZED whatever the result; the
        task runs on.
        """
        from isolator.shares.resizing import answer_to

        with self._share_turn:
            answered = answer_to(data, self._enforcing, self._owner)
        if answered is None:
            log(f"ignored a message of the scheduler that is not valid: {data[:200]!r}")
            return
        log(answered.words)
        self._post(Event(Kind.RESIZED, message=answered.words, payload=answered.data))

    def notice(self, data: bytes) -> None:
        """Write a scheduler's notice of its end for the task. Posts NOTICED if the task can read it."""
        from isolator.executor.notices import Notices

        launch, run = self._ready.launch, self._ready.run
        with self._notices_turn:
            if self._notices is None:
                self._notices = Notices(launch.sandbox, below_sandbox(launch.plan), run.notify)
            answered = self._notices.hear(data)
        log(answered.words)
        if answered.data:
            self._post(Event(Kind.NOTICED, message=answered.words, payload=answered.data))

    def open_channel(self, data: bytes) -> None:
        """Run the session that waits at the scheduler, beside the task's command, to its end."""
        from isolator.session.opening import open_session

        launch, run = self._ready.launch, self._ready.run
        try:
            secret, task = launch.plan.secret, self._task_id
            log(open_session(data, secret, task, run.pid(), self._sessions, run.inner()))
        except Exception as error:  # noqa: BLE001 - no error of a session is a reason to end the task
            log(f"a session was not opened: {failure(error).message}")

    def introduction(self) -> dict[str, object]:
        """Return additional fields of the first update: no port of the task is proved yet."""
        return {"listening": {"ports": [], "problem": ""}} if self._listens else {}

    def _look_around(self) -> None:
        self._look_for_checkpoint()
        if self._ports is not None and (seen := self._ports.look()) is not None:
            self._post(seen)

    def _look_for_checkpoint(self, *, last: bool = False) -> None:
        """Post CHECKPOINT if the task has reported one."""
        assert self._checkpoints is not None
        ago_s = self._checkpoints.look(last=last)
        if ago_s is not None:
            from mesos_gpu.wire.mesos.notice import encode_checkpoint

            words = f"the task reports a checkpoint of {ago_s:.1f} s ago"
            self._post(Event(Kind.CHECKPOINT, message=words, payload=encode_checkpoint(ago_s)))

    # --- its end

    def terminate(self, grace_s: float, checker: "Checker | None") -> None:
        """End the checks, then the command. Posts TERMINATED.

        Raises:
            MesosGpuError, OSError: The engine or agent that runs the command cannot be reached.
        """
        if checker is not None:
            checker.stop()
        if self._mps is not None:
            self._mps.drain(grace_s)
        self._ready.run.terminate(grace_s)
        self._post(Event(Kind.TERMINATED))

    def undo(self, checker: "Checker | None") -> None:
        """Kill what the command left running, and undo what was made for the task. Posts UNDONE.

        The claim is released last, when nothing can use the GPU any more. What cannot be undone now stays in
        the ledger: the monitor tries again.
        """
        verdict = None
        try:
            if checker is not None:
                checker.stop()
            if self._mps is not None:
                self._mps.stop()
                self._mps.drain(0.0)  # what the command left running is killed next
            self._let_go()
            if self._upkeep is not None:  # after the end of all processes, which could disturb its last look
                self._upkeep.stop()
            if self._ports is not None:
                self._ports.close()
        except Exception as error:  # noqa: BLE001 - without this event the task would never end
            verdict = failure(error)
        self._post(Event(Kind.UNDONE, verdict=verdict))

    def seal(self) -> None:
        """Seal the sandbox when no step is at work any more; if that fails, the node monitor seals it later."""
        if self._claimed is None:
            return
        try:
            for trace in sealing_of(self._env):
                if not (self._is_dropped and seal_soon(trace.what)):
                    seal(trace.what, SEAL_S, self._ledger, log)
            for trace in self._last():
                undo(trace)
            if self._is_released:
                self._drop()
        except (MesosGpuError, OSError) as error:
            log(f"the sandbox cannot be sealed: {error}; the node monitor tries again")

    def _let_go(self) -> None:
        """Undo the task's traces, then release its claim; on an error the claim stays."""
        try:
            left = self._run.clear() if self._run is not None else []
            for trace in reversed(self._claimed or ()):
                left += undo(trace)
            if left:
                log(f"processes {left} could not be killed: the claim stays until they end")
            elif self._claimed is not None:
                self._release()
        except (MesosGpuError, OSError) as error:  # not an error of the task: the command's own end counts
            log(
                f"the task's host state could not be undone, so its claim stays (the node monitor tries again): {error}"
            )

    def _release(self) -> None:
        """Release the claim; with the sandbox sealed in the same step if that is quick."""
        if self._enforcing is not None:
            with self._share_turn:
                self._enforcing.let_go(self._owner)
        elif not self._last() and all(seal_soon(trace.what) for trace in sealing_of(self._env)):
            self._drop()
            return
        else:
            self._ledger.release(self._task_id, self._owner, self._container)
        self._is_released = True

    def _drop(self) -> None:
        self._ledger.drop(Holding(self._task_id, self._owner, (), self._container))
        self._is_released, self._is_dropped = False, True

    def _last(self) -> tuple[Trace, ...]:
        """Return the traces of the run that are undone after the seal of the sandbox."""
        made = self._run.traces() if self._run is not None else ()
        return tuple(trace for trace in made if trace.kind in LAST)


def _makes_instance(plan: Assignment) -> bool:
    """Return whether the task is granted a MIG instance that is yet to be made, "PROFILE@START"."""
    return plan.share is not None and "@" in plan.share.instance


def _decoded(data: str) -> "tuple[Assignment, tuple[Sequence[HealthCheck], Sequence[HealthCheck]]]":
    """Decode the assignment and its checks from the TaskInfo's data."""
    try:
        plan = wire.decode_assignment(a2b_base64(data))
        if not (plan.checks or plan.check):
            return plan, ((), ())
        from mesos_gpu.wire.mesos.checks import decode

        return plan, (decode(plan.checks), decode(plan.check))
    except wire.OtherWire as error:
        raise NotStarted(str(error), Outcome(infrastructure=True)) from error
    except ValueError as error:
        raise NotStarted(f"not a task for this executor: {error}") from error


def _uid_trace(own: Mapping[str, str]) -> Callable[[int], Trace]:
    return lambda uid: Trace("uid", f"{uid} {sandbox_of(own)}")
