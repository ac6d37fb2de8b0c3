"""The judge of the engine's effects and state.

It uses none of the engine's decisions: it keeps its own account of messages that the scheduler has received, and of the
data that it has saved.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model import saves
from mesos_gpu.model.apps.catalog import AppCatalog
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job, JobState, OnGpuFailure, OnMemberFailure
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.mesos import report
from tests.chaos.account import Account, Told, Word
from tests.chaos.rules import (
    arrays,
    bookings,
    books,
    charges,
    gangs,
    idle,
    limits,
    past,
    recalls,
    rollouts,
    shares,
    stops,
)
from tests.chaos.rules.calls import CHECKS
from tests.chaos.violation import Violation
from tests.chaos.virtual import TERMINAL, Facts, VirtualMesos
from tests.doubles.problems import problems

_LIVE: Final = frozenset(("TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING"))
_CUT: Final = frozenset(("TASK_UNREACHABLE", "TASK_UNKNOWN"))
_STANDS_STILL_S: Final = 5.0  # longest time in which a healthy scheduler does nothing


class Witness(Account):
    """An account that receives all messages of a scheduler, and checks all of its effects."""

    def __init__(self, mesos: VirtualMesos, settings: Settings) -> None:
        """Begin without any messages."""
        super().__init__(mesos, settings)
        self.books, self.uses, self.charges = books.Books(), past.Uses(), charges.Charges()
        self._heard_at = 0.0
        self._tended_at: float | None = None  # None until the first batch after a start

    # --- messages of a saved batch

    def hear(self, events: Iterable[ev.Event], now: float) -> None:
        """Take over the messages of a batch that the scheduler has committed."""
        self.broken_now.clear()
        self.ended_now.clear()
        before = dict(self.held)
        self._give_up(now)
        told = [event for event in events if not isinstance(event, ev.Tick | ev.Match)]
        self.calendar.alone = len(told) == 1
        for event in told:
            match event:
                case ev.StatusArrived():
                    self._hear_status(event, now)
                case ev.OffersArrived(offers):
                    self.held.update((offer.id, offer.agent_id) for offer in offers)
                case ev.OfferRescinded(offer_id):
                    self.held.pop(offer_id, None)
                case ev.AgentLost(agent_id):
                    for offer_id in [o for o, a in self.held.items() if a == agent_id]:
                        del self.held[offer_id]
                case ev.Registered():
                    self.held.clear()
                    self.calendar.since.clear()  # the scheduler notices and corrects faults from now on
                    self.registered_at = now
                case ev.Disconnected():
                    self.held.clear()
                case _:
                    self._hear_people(event, now)
        self.note_unseen(now)
        self.void_now = {offer_id for offer_id in before if offer_id not in self.held}

    def _give_up(self, now: float) -> None:
        """Adjust all times to the present time, which may be earlier if the clock was set back.

        Launches that were unreachable too long stay given up, and ended keeps stay ended; other launches are
        unreachable since now at most. Deadlines of drains stay as far away as they were.
        """
        self._leave_out(now)
        before, last, self._heard_at = self.queues, self._heard_at, now
        self.idling.kept = {job_id: until for job_id, until in self.idling.kept.items() if until > last}
        self.registered_at = min(self.registered_at, now)
        if self.watch.see(now):
            self.hours_change |= self.queues is not before
        for place, ends_at in self.drained.items() if now < last else ():
            self.drained[place] = None if ends_at is None else ends_at - (last - now)
        for told in self.agents.values() if now < last else ():
            told.at = min(told.at, now)
        for task_id, word in self.words.items() if now < last else ():
            word.given_up |= not word.ended and self.given_up(task_id, last)
            if word.cut_since is not None:
                word.cut_since = min(word.cut_since, now)

    def _leave_out(self, now: float) -> None:
        """Leave out a time without messages when computing how long launches were unreachable."""
        before = now if self._tended_at is None else self._tended_at
        gap_s = now - before
        for task_id, word in self.words.items() if gap_s > _STANDS_STILL_S else ():
            if word.cut_since is not None:
                word.given_up |= not word.ended and self.given_up(task_id, before)
                word.cut_since = min(word.cut_since + gap_s, now)
        tend_s = self.settings.tasks.tend_interval_s
        if self._tended_at is None or gap_s >= tend_s or gap_s < -_STANDS_STILL_S:
            self._tended_at = now

    def restarted(self) -> None:
        """Note a restart: the scheduler leaves out the time since its latest record, which may be later than its last
        message."""
        self._tended_at = None

    def _hear_people(self, event: ev.Event, now: float) -> None:
        match event:
            case ev.DrainRequested(target, name, _, _, deadline_s):
                self.drained[target, name] = None if deadline_s is None else now + deadline_s
            case ev.UndrainRequested(target, name):
                self.drained.pop((target, name), None)
            case ev.JobSubmitted(job_id, spec) if spec.array is not None:
                arrays.submitted(self, job_id, spec.array)
            case ev.ArrayKillRequested(array_id, indexes):
                arrays.killed(self, array_id, indexes)
            case ev.JobSubmitted(job_id):
                self.submitted.add(job_id)
            case ev.KillRequested(job_id):
                self.user_killed.add(job_id)
            case ev.ResizeRequested(job_id, _, True):
                self.may_restart.update(self.latest(job_id))
            case ev.HealthFound(task_id, healthy, kill):
                self.healthy[task_id] = healthy
                if kill:
                    self.user_killed.add(self.whose(task_id))
            case ev.ReadinessFound(task_id, readiness) if readiness.ready:
                self.ready.add(task_id)
            case _:
                bookings.hear(self, event)
                idle.asked(self, event, now)

    def _hear_status(self, event: ev.StatusArrived, now: float) -> None:
        status = event.status
        if status.uuid is not None:
            key = (status.task_id, status.uuid)
            self.unacknowledged[key] = self.unacknowledged.get(key, 0) + 1
        word = self.words.setdefault(status.task_id, Word())
        if word.ended:
            # If only reconciliation reported the end, the engine waits for more, and the launch may become unreachable.
            if status.state in _CUT and word.cut_since is None:
                word.cut_since = now
            return
        timeout_s = self.settings.mesos.unreachable_timeout_s
        long = word.cut_since is not None and now - word.cut_since >= timeout_s
        word.given_up = word.given_up or long
        if status.state in TERMINAL:
            word.ended = status.state
            self.ended_now.add(status.task_id)
            if not word.given_up:
                self._learn(event)
        elif status.state in _CUT and word.cut_since is None:
            word.cut_since = now
        elif status.state in _LIVE:
            word.cut_since = None
            word.running = word.running or status.state == "TASK_RUNNING"
        word.placed |= status.state in ("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
        if status.data and status.state == "TASK_RUNNING" and status.agent_id:
            node = self.disk.nodes.get(status.agent_id)
            if (
                node is not None and node.monitor == status.task_id
            ):  # the engine ignores monitors that were given up
                self.note_followed(status.agent_id, node.hostname)
                self._hear_report(status.agent_id, status.data, now)

    def _learn(self, event: ev.StatusArrived) -> None:
        """Record the driver that an executor reports as needed; no older one may be chosen after that."""
        run_of = self.mesos.facts
        job_id = self.job_of(event.status.task_id)
        if job_id and b'"min_driver":"' in event.status.data and job_id in run_of:
            self.learnt[job_id] = (event.status.task_id, run_of[job_id].needs or "")

    def _hear_report(self, agent_id: AgentId, data: bytes, now: float) -> None:
        try:
            inventory = _decoded(data)
        except ValueError:
            self.agents.pop(agent_id, None)
            return
        self.agents[agent_id] = Told(
            {gpu.id: gpu.health for gpu in inventory.gpus}, inventory.driver_version, now
        )
        idle.hear(self, inventory.task_uses, now)
        self.broken_now.update(gpu.id for gpu in inventory.gpus if gpu.health.broken)

    # --- effects

    def judge(self, steps: Sequence[tuple[ev.Event, Sequence[fx.Effect]]], now: float) -> None:
        """Check the effects of a batch in their order, and commit the saves.

        Raises:
            Violation: An effect is not justified.
        """
        for event, effects in steps:
            before = rollouts.scene(self, now) if isinstance(event, ev.Tick) else None
            self._take_in(effects, now)
            if before is not None:
                rollouts.judge(self, before, now)
        rollouts.locked_once(self.disk)
        gangs.whole(self, self.launched)
        gangs.kept(self, self.launched)
        stops.room_is_made(self, self.takers, now)
        limits.lent_by_launches(self, self.launched, now)
        stops.freed_is_kept(self, self.launched, now)
        bookings.kept(self, self.launched, now)
        charges.note(self, self.charges, now)
        books.affordable(self, self.launched, now)
        self.takers.clear()
        if self.seats_change or (self.hours_change and self.mesos.connected):
            limits.seated(self)
            self.seats_change = self.hours_change = False
        self.launched.clear()
        self.dropped.clear()
        every = [effect for _, effects in steps for effect in effects]
        books.follow(self, self.books, every, now)
        past.follow(self, self.uses, every, now)
        for key, times in self.unacknowledged.items():
            raise Violation("every update is acknowledged", f"{key[1]} was not, {times} times", key[0])

    def _take_in(self, effects: Sequence[fx.Effect], now: float) -> None:
        self.disk.save(
            effect for effect in effects if isinstance(effect, saves.SaveQueues)
        )  # first: all rules depend on it
        charges.follow(self, self.charges, effects, now)
        bookings.follow(self, effects, now)
        for effect in effects:
            kind = type(effect)
            if kind is fx.Publish:
                continue
            if kind is saves.SaveJob:
                self._job(effect.job)  # type: ignore[union-attr]
            elif kind is saves.SaveTask:
                self._task(effect.task, now)  # type: ignore[union-attr]
            check = CHECKS.get(kind)
            if check is not None:
                check(self, effect, now)
            elif isinstance(effect, saves.Save):
                self.disk.save((effect,))

    def _job(self, job: Job) -> None:
        if job.app_version is not None:
            self._instance(job)
        facts = self.mesos.facts.setdefault(job.id, Facts()) if job.array else self.mesos.facts[job.id]
        arrays.ended(self, job)
        old = self.disk.jobs.get(job.id)
        self.seats_change |= job.seat is not None and (old is None or old.seat != job.seat)
        if old is not None and old.state.ended:
            raise Violation("an ended job stays so", f"{job.id} was {old.state.value}", job.id)
        if job.attempts > facts.failed + facts.finished:
            words = (
                f"{job.id} counts {job.attempts} attempts; {facts.failed} failed, {facts.finished} finished"
            )
            raise Violation("only its own ends use up a job's attempts", words, job.id)
        ended = [self.words[task_id].ended for task_id in self.latest(job.id)]
        if job.state is JobState.FINISHED and not (ended and all(word == "TASK_FINISHED" for word in ended)):
            raise Violation("no job is lost", f"{job.id} is called finished, but never did", job.id)
        gave_up = job.infrastructure_failures > self.settings.tasks.max_infrastructure_failures
        strict = job.spec.tasks > 1 and job.spec.on_member_failure is OnMemberFailure.FAIL
        if job.state is JobState.FAILED and not (job.attempts >= job.spec.max_attempts or gave_up or strict):
            words = f"{job.id} failed after {job.attempts} attempts"
            raise Violation("no job is lost", words, job.id)
        asked = job.id in self.user_killed or idle.returned(self, job) or bookings.over(self, job)
        if job.state is JobState.KILLED and not asked:
            raise Violation("no job is lost", f"no user requested the end of {job.id}", job.id)

    def _instance(self, job: Job) -> None:
        """Record an instance, which the scheduler starts and ends by itself; rules in `rollouts` check it."""
        self.mesos.facts.setdefault(job.id, Facts())
        self.submitted.add(job.id)
        if job.kill_requested:
            self.user_killed.add(job.id)

    def _task(self, task: Task, now: float) -> None:
        idle.told(self, task, now)
        bookings.told(self, task, now)
        recalls.judge(self, task, now)
        if (taker := stops.stopped(self, task, now)) is not None:
            self.takers.add(taker)
        if not task.evicted or task.id in self.evicted:
            return
        self.evicted.add(task.id)
        job = self.disk.jobs.get(task.job_id) if task.job_id else None
        if job is not None and task.id in self.may_restart:
            return
        if job is None or not (self._out_of_order(job, now) or gangs.justified(self, task, job, now)):
            raise Violation("nothing is ended without a reason", f"{task.id}: {task.evicted}", task.id)

    def _out_of_order(self, job: Job, now: float) -> bool:
        """Return whether a card of a job has broken, or the deadline of a drain has passed."""
        tasks = [self.disk.tasks[task_id] for task_id in self.latest(job.id)]
        gpus = {gpu_id for task in tasks for gpu_id in task.gpus}
        if job.spec.on_gpu_failure is OnGpuFailure.RESTART and not self.broken_now.isdisjoint(gpus):
            return True
        places = {(Target.NODE, task.hostname) for task in tasks} | {(Target.GPU, str(g)) for g in gpus}
        ends = [self.drained[place] for place in places if place in self.drained]
        return any(end is not None and end <= now for end in ends)

    def forget(self, state: State) -> None:
        """Forget jobs and tasks that both the engine and Mesos have forgotten."""
        for job_id in [j for j in self.mesos.facts if j in self.submitted and j not in state.work.jobs]:
            tasks = self.launches.get(job_id, ())
            if any(task_id in self.mesos.runs for task_id in tasks):
                continue
            for task_id in tasks:
                self.words.pop(task_id, None)
                self.evicted.discard(task_id)
                self.may_restart.discard(task_id)
                self.asked.pop(task_id, None)
                self.ready.discard(task_id)
                self.healthy.pop(task_id, None)
            self.launches.pop(job_id, None)
            self.learnt.pop(job_id, None)
        for task_id in [t for t in self.words if t not in state.work.tasks and t not in self.mesos.runs]:
            if self.job_of(task_id) is None:
                del self.words[task_id]

    # --- state

    def inspect(self, state: State) -> None:
        """Check the invariants of the whole state, and that it equals the saved data.

        Raises:
            Violation: An invariant does not hold, or the state differs from the saved data.
        """
        for problem in problems(state):
            raise Violation("the state is sound", problem)
        shares.counted(self)
        books.paid(self, self.books)
        saved = self.disk.tasks
        tasks = {task_id: _heard_as(saved.get(task_id), task) for task_id, task in state.work.tasks.items()}
        pairs: tuple[tuple[str, Mapping[Any, object], Mapping[Any, object]], ...] = (
            ("jobs", _saved(state), self.disk.jobs),
            ("arrays", state.work.arrays, self.disk.arrays),
            ("tasks", tasks, saved),
            ("nodes", state.cluster.nodes, self.disk.nodes),
            ("drains", state.cluster.drains, self.disk.drains),
            ("cards", state.gpus.cards, self.disk.cards),
            ("volumes", state.work.volumes, self.disk.volumes),
            ("bookings", state.calendar.bookings, self.disk.bookings),
            ("deployments", state.apps.deployments, self.disk.deployments),
            ("apps", _by_version(state.apps.catalog), _by_version(self.disk.catalog)),
        )
        for name, here, there in pairs:
            if here != there:
                keys = [k for k in {**here, **there} if here.get(k) != there.get(k)]
                raise Violation("what is known is on disk", f"{name} differ: {keys}", *map(str, keys))


def _saved(state: State) -> Mapping[JobId, Job]:
    """Return the jobs that are saved: all but drafts of arrays."""
    jobs = state.work.jobs
    drafts = {job_id for drafts in state.work.members.drafts.values() for job_id in drafts}
    return {job_id: job for job_id, job in jobs.items() if job_id not in drafts} if drafts else jobs


def _heard_as(saved: Task | None, task: Task) -> Task:
    """Return a task with the `heard_at` of the saved one, which is not saved each time."""
    return task if saved is None or saved is task else replace(task, heard_at=saved.heard_at)


def _by_version(catalog: AppCatalog) -> Mapping[Any, object]:
    return {(app.id, catalog.versions[app.id]): app for app in catalog.root.all_apps()}


_decoded = report.decode
