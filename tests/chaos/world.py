"""The engine in a simulated cluster, with a clock that acts advance, a disk, and restarts."""

import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.saves import Save, latest_of
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.tasks.assignment import Outcome
from tests.chaos.schedulers import Pair, Sleeper, of, same
from tests.chaos.violation import Violation
from tests.chaos.virtual import FRAMEWORK, Agent, Run, VirtualMesos
from tests.chaos.witness import Witness
from tests.doubles.builders import saved_of, step_closely

START: Final = 1_000_000.0  # seconds since the epoch
DRIVERS: Final = ("470.256.02", "535.104.05", "550.54.14")
MODELS: Final = ("A100", "T4")
CPUS, MEM_MIB = 8.0, 16384.0  # resources of each agent
#: Kinds of hosts by what enforces shares: our CUDA library; also MPS, where a card has one user; nothing.
SHARINGS: Final = (
    Sharing(15000, ((Ability.SHIM, ""),)),
    Sharing(15000, ((Ability.SHIM, ""), (Ability.MPS2, ""))),
    None,
)
#: Roles of the framework, and whether the master allows reservations for them.
ROLES: Final = (("*", True), ("gpu", True), ("gpu", False))
SETTINGS: Final = Settings.of(
    "executor",
    "monitor",
    keep_ended_jobs=20,
    keep_lost_nodes_s=600.0,
    reconcile_interval_s=120.0,  # short, so that it happens in an episode
    queue_limits={"small": 2},
    max_infrastructure_failures=1000,  # no job fails by lost agents, which are frequent here
)
_INSPECT_EVERY: Final = 16  # batches
_LOOKS: Final = 3  # times that messages are collected while nothing can be saved
#: Events that the engine may refuse.
_REQUESTS: Final = (
    ev.DrainRequested,
    ev.UndrainRequested,
    ev.ResetRequested,
    ev.ResizeRequested,
    ev.ResizeWithdrawn,
    ev.AppsChanged,
    ev.DeploymentDeleted,
    ev.QueuesChanged,
    ev.JobSubmitted,
    ev.KeepAsked,
    ev.KeepWithdrawn,
    ev.BookingMade,
    ev.BookingChanged,
    ev.BookingCancelled,
)


def _agents(shape: random.Random) -> list[Agent]:
    agents = []
    for n in range(shape.randint(1, 4)):
        count, model = shape.choice((0, 1, 2, 3)) if n else shape.choice((2, 4)), shape.choice(MODELS)
        sharing = SHARINGS[(count + n) % len(SHARINGS)] if n else SHARINGS[0]
        gpus = tuple(
            Gpu(
                GpuId(f"g{n}{i}"),
                model,
                16384,
                i,
                f"0000:0{i}:00.0",
                i // 2,
                health=Health.OK,
                sharing=sharing,
            )
            for i in range(count)
        )
        free = {"cpus": CPUS, "mem": MEM_MIB, "gpus": float(count)}
        agents.append(Agent(AgentId(f"a{n}"), f"a{n}.example", gpus, shape.choice(DRIVERS), free))
    return agents


class World:
    """A simulated cluster and its scheduler: acts add events to `inbox`, and `flush` passes them to the engine.

    Args:
        shape: Seed of the number and kinds of agents.
        closely: Whether to check handlers, and the whole state after each batch instead of now and then.
        story: Whether to write a story of all events.
    """

    def __init__(self, shape: int, *, closely: bool = False, story: bool = False) -> None:
        """Start and connect the scheduler."""
        role, reserves = ROLES[shape % len(ROLES)]
        self.settings = SETTINGS.changed(role=role)
        self.now, self.clock_off_s = START, 0.0  # error of the scheduler's clock
        self.mesos = VirtualMesos(_agents(random.Random(shape)), role=role, reserves=reserves)
        self.witness = Witness(self.mesos, self.settings)
        self.state = State(started_at=self.now)
        self.inbox: list[ev.Event] = []
        self.lossy = 0  # bits of the next calls; a set bit loses a call
        self.target: str | None = None  # object of the present act, or None if its numbers choose
        self.chosen: list[str] = []  # objects that the present act has chosen
        self.serial = 0
        self.batches, self._inspect_every = 0, 1 if closely else _INSPECT_EVERY
        self._closely = closely
        self.counts: Counter[str] = Counter()  # events and calls of the engine, by name
        self.story: list[str] | None = [] if story else None
        self.pair: Pair | None = None  # both schedulers, or None if there is one
        self.mesos.now = self.now
        self.connect()

    # --- story

    def say(self, words: str) -> None:
        """Add a line to the story, if there is one."""
        if self.story is not None:
            self.story.append(f"{self.now - START:8.1f} s  {words}")

    # --- the scheduler

    def connect(self) -> None:
        """Connect the scheduler and register its framework."""
        self.mesos.connected, self.mesos.suppressed = True, False
        self.inbox.append(ev.Registered(FRAMEWORK, "http://master:5050"))
        self.flush()

    def flush(
        self, crash: str = "", full_s: float = 0.0, *, pauses: bool = False, late: bool = False
    ) -> None:
        """Run a batch of the daemon: step all events, a tick and a match, save, and call Mesos.

        Args:
            crash: "before" or "after" for a crash before or after the save; empty for none.
            full_s: Seconds for which the disk is full, so that the batch cannot be saved and events wait.
            pauses: Whether the scheduler is paused instead of crashing, if there are two.
            late: Whether calls of this batch reach Mesos after the other scheduler leads, before it subscribes.

        Raises:
            Violation: An invariant is broken.
        """
        events = [*self.inbox, ev.Tick(), ev.Match()]
        self.inbox.clear()
        steps = self._stepped(events)
        stepped_at = self.now
        if full_s:
            self._wait_for_room(full_s)
        batch, made = list(latest_of(of(steps))), self.pair.leader.local.batch + 1 if self.pair else 0
        if crash == "before":
            self.restart(self.paused(batch) if pauses else None)
            return
        leads = self.pair is None or not batch or self.pair.save(batch, self._wait_a_moment)
        if not leads and not (self.pair and self.pair.has(made)):
            self.restart()
            return
        for event, _ in steps:
            self.counts[type(event).__name__] += 1
        self._commit(steps, stepped_at)
        if crash or not leads:
            self.restart(self.paused([]) if pauses and leads else None, of(steps) if late else ())
            return
        for effect in of(steps):
            self._send(effect)

    def _stepped(self, events: Sequence[ev.Event]) -> list[tuple[ev.Event, list[fx.Effect]]]:
        steps: list[tuple[ev.Event, list[fx.Effect]]] = []
        for event in events:
            before = saved_of(self.state) if type(event) in _REQUESTS else None
            try:
                take = step_closely if self._closely else step
                effects = take(self.state, event, self.now, self.settings)
            except MesosGpuError as error:
                self.say(f"    refused: {error.what}")
                if before != saved_of(self.state):
                    raise Violation("what is refused changes nothing", f"{event}: {error.what}") from error
                continue
            except Exception as error:
                words = f"{type(error).__name__} at {type(event).__name__}: {error}"
                raise Violation("the engine never fails", words, *_about(event)) from error
            steps.append((event, effects))
        return steps

    def paused(self, batch: list[Save]) -> Sleeper:
        """Return the leader in its present state, about to save a batch."""
        assert self.pair is not None, "the act has checked"
        return Sleeper(self.pair.leader, self.state, list(self.inbox), batch or None)

    def _wait_a_moment(self) -> None:
        self._wait_for_room(1.0)

    def _wait_for_room(self, seconds: float) -> None:
        """Let time pass while the store refuses the batch; messages of Mesos wait in the inbox."""
        self.counts["NoRoom"] += 1
        for _ in range(_LOOKS):
            self.pass_time(seconds / _LOOKS)
            self.inbox += self.mesos.mail
            self.mesos.mail.clear()

    def _commit(self, steps: Sequence[tuple[ev.Event, list[fx.Effect]]], stepped_at: float) -> None:
        if self.story is not None:
            for _, effects in steps:
                self._tell(effects)
        self.witness.hear((event for event, _ in steps), stepped_at)
        self.witness.judge(steps, stepped_at)
        self.batches += 1
        if self.batches % self._inspect_every == 0:
            self.witness.inspect(self.state)
        if self.batches % 256 == 0:
            self.witness.forget(self.state)

    def _send(self, effect: fx.Effect) -> None:
        if isinstance(effect, Save | fx.Publish):
            return
        self.counts[type(effect).__name__] += 1
        self.lossy, lost = self.lossy >> 1, self.lossy & 1
        if lost:
            self.say(f"    {type(effect).__name__} is lost on its way")
        else:
            self.mesos.call(effect)

    def restart(self, sleeper: Sleeper | None = None, late: Sequence[fx.Effect] = ()) -> None:
        """Restart the scheduler from its disk, without messages that were not saved; of two, the other one leads.

        Args:
            sleeper: The former leader, if it is only paused.
            late: Calls of the former leader that reach Mesos before the new leader has subscribed.
        """
        self.now = self.mesos.now = round(self.now + 0.001, 3)
        disk = self.witness.disk.load()
        if self.pair is not None:
            leader = self.pair.pause(sleeper) if sleeper else self.pair.switch()
            same(leader, self.witness.disk)
            disk = leader.local.load()
            self.counts["Switch"] += 1
            self.say(f"{leader.name} leads")
        self.witness.inspect(restored := State.restored(self.now, disk))
        self.state = restored
        self.witness.restarted()
        for effect in late:
            self._send(effect)
        self.inbox.clear()
        self.mesos.disconnect()
        self.witness.unacknowledged.clear()
        self.witness.held.clear()
        self.witness.healthy.clear()  # health checks start again
        self.witness.watch.at = 0.0  # hours apply by the new process's clock
        self.connect()

    def wake(self) -> None:
        """Resume a paused scheduler, which must notice that it was deposed; Mesos takes no calls of it.

        Raises:
            Violation: It has written to the log.
        """
        if self.pair is not None and self.pair.sleeper is not None:
            self.say(f"{self.pair.sleeper.scheduler.name} wakes")
            self.counts["Wake"] += 1
            self.pair.wake(self._decided)

    def _decided(self, sleeper: Sleeper) -> list[Save]:
        """Return the saves of a paused scheduler for the messages that it had received."""
        effects: list[fx.Effect] = []
        for event in (*sleeper.inbox, ev.Tick(), ev.Match()):
            with contextlib.suppress(MesosGpuError):  # a refused request
                effects += step(sleeper.state, event, self.now, self.settings)
        return list(latest_of(effects))

    def be_release(self, number: int) -> None:
        """Become another release, whose monitors replace the running ones."""
        self.settings = self.settings.changed(monitor_command=f"monitor of release {number}")
        self.witness.settings = self.settings

    def _tell(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if (words := _words(effect)) is not None:
                self.say(f"    → {words}")

    # --- for acts

    def waiting_or_running(self) -> list[Job]:
        """Return the jobs that have not ended, without instances of apps."""
        return [
            job for job in self.state.work.jobs.values() if not job.state.ended and job.app_version is None
        ]

    def instances(self) -> list[Job]:
        """Return the instances of apps that have not ended."""
        return [self.state.work.jobs[job_id] for ids in self.state.apps.instances.values() for job_id in ids]

    def new_id(self, letter: str) -> JobId:
        """Return an unused id."""
        while True:  # acts with targets may have used ids
            self.serial += 1
            if (new := JobId(f"{letter}{self.serial}")) not in self.witness.submitted:
                return new

    def pass_time(self, seconds: float) -> None:
        """Advance the clock: offers expire, tasks time out, and monitors report."""
        self.now = self.mesos.now = round(self.now + seconds, 3)
        self.mesos.rescind_old()
        for run in self.mesos.alive():
            self._time_out(run)
        for agent in self.mesos.agents.values():
            if self.now >= agent.report_due:
                self.mesos.report(agent)

    def set_clock(self, by_s: float) -> None:
        """Set the clock of the scheduler's host while no time passes."""
        self.now = self.mesos.now = round(self.now + by_s, 3)
        self.clock_off_s += by_s
        for agent in self.mesos.agents.values():
            agent.hidden_until += by_s
            agent.filtered_until += by_s
            agent.report_due += by_s
        for run in self.mesos.alive():
            run.began_at = None if run.began_at is None else run.began_at + by_s
        for offer_id in self.mesos.offered_at:
            self.mesos.offered_at[offer_id] += by_s

    def _time_out(self, run: Run) -> None:
        limit_s = run.item.spec.timeout_s if run.item.spec else None
        if limit_s is not None and run.began_at is not None and self.now - run.began_at >= limit_s:
            self.say(f"{run.id} ran for {limit_s:g} s: its executor ends it")
            self.mesos.update(run, "TASK_FAILED", Outcome(signal=15))

    def progress(self, run: Run, how: int) -> str:
        """Let a launch take its next step, chosen by `how`; return its new state."""
        stage, mesos = run.stage, self.mesos
        if stage == "TASK_STAGING" and run.item.task.covers and not run.to_be_killed:
            mesos.update(run, "TASK_RUNNING")
        elif stage == "TASK_STAGING":
            if run.to_be_killed:
                mesos.update(run, "TASK_KILLED")
            elif how % 12 == 11:
                mesos.update(run, "TASK_FAILED", reason="REASON_CONTAINER_LAUNCH_FAILED")
            else:
                mesos.start(run)
        elif run.at_barrier and run.to_be_killed:
            mesos.update(run, "TASK_KILLED")
        elif run.at_barrier:
            pass  # it waits for the other members
        elif stage == "TASK_STARTING":
            run.began_at = self.now
            mesos.update(run, "TASK_RUNNING")
            if run.is_monitor:
                mesos.report(run.agent)
        elif stage == "TASK_RUNNING" and run.to_be_killed and how % 4:
            mesos.update(run, "TASK_KILLING")
        elif stage == "TASK_KILLING" and how % 4:
            mesos.update(run, "TASK_KILLED")
        elif how % 3 == 0 and (not run.lasts or how % 16 == 15):
            self._end(run, how // 3)
        return run.stage

    def _end(self, run: Run, how: int) -> None:
        match how % 8:
            case 0 | 1:
                self.mesos.update(run, "TASK_FAILED", Outcome(exit_status=1))
            case 2:
                self.mesos.update(run, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")
            case 3:
                self.mesos.update(run, "TASK_FAILED", Outcome(infrastructure=True))
            case _:
                self.mesos.update(run, "TASK_FINISHED", Outcome(exit_status=0))


def _about(event: ev.Event) -> tuple[str, ...]:
    match event:
        case ev.StatusArrived(status):
            return (status.task_id,)
        case ev.JobSubmitted(job_id) | ev.KillRequested(job_id):
            return (job_id,)
    return ()


def _words(effect: fx.Effect) -> str | None:
    match effect:
        case fx.Launch(_, tasks):
            each = (
                f"{i.task.id} on {i.task.agent_id} with {', '.join(i.task.gpus) or 'no GPU'}" for i in tasks
            )
            return f"launch of {'; '.join(each) or 'nothing'}"
        case fx.Kill(task_id):
            return f"kill {task_id}"
        case fx.Reconcile(tasks):
            return f"reconcile {', '.join(task_id for task_id, _ in tasks) or 'all'}"
        case fx.Decline(offer_ids, refuse_s):
            return f"decline {', '.join(offer_ids)} for {refuse_s:g} s"
        case fx.Start(_, _, task_id):
            return f"tell {task_id} to start"
        case fx.AskResize(_, _, task_id, resize):
            amounts = f"{resize.memory_mib} MiB and {resize.compute_milli} thousandths"
            return f"ask {task_id} to have {amounts}, request {resize.number}"
        case fx.GiveNotice(_, _, task_id, notice, left_s):
            what = f"its end in {left_s:g} s" if notice.stands else "that it may go on"
            return f"tell {task_id} of {what}, notice {notice.number}"
        case fx.AskReset(agent_id, _, gpu_id):
            return f"ask {agent_id} to reset {gpu_id}"
        case fx.AskRemoval(agent_id, _, volumes):
            return f"ask {agent_id} to remove {', '.join(volumes)}"
        case (
            fx.Suppress()
            | fx.Revive()
            | fx.ListTasks()
            | fx.ReadRole()
            | fx.ReadSecrets()
            | fx.ForgetSecrets()
        ):
            return type(effect).__name__.lower()
    return None
