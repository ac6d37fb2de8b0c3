"""What must hold of the engine's effects and of its state, judged by what was truly delivered and truly happened.

The witness reads none of the engine's decisions to judge them: it keeps its own account of what the scheduler was told
and saved.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.complete import see_complete
from mesos_gpu.engine.problems import problems
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model import saves
from mesos_gpu.model.apps.catalog import AppCatalog
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState, OnGpuFailure, OnMemberFailure
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.shares.units import WHOLE, number_of
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.simulate.chaos.account import Account, Told, Word, job_of, launch_of
from mesos_gpu.simulate.chaos.rules import (
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
from mesos_gpu.simulate.chaos.violation import Violation
from mesos_gpu.simulate.chaos.virtual import TERMINAL, Facts, VirtualMesos
from mesos_gpu.wire.mesos import report
from mesos_gpu.wire.mesos.reservations import owner_of

_LIVE: Final = frozenset(("TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING"))
_CUT: Final = frozenset(("TASK_UNREACHABLE", "TASK_UNKNOWN"))
_STANDS_STILL_S: Final = 5.0  # for so long a scheduler that is well does nothing at most


class Witness(Account):
    """Takes in what the scheduler is told, and judges what it does."""

    def __init__(self, mesos: VirtualMesos, settings: Settings) -> None:
        """Nothing was said yet."""
        super().__init__(mesos, settings)
        self.books, self.uses, self.charges = books.Books(), past.Uses(), charges.Charges()
        self._heard_at = 0.0
        self._tended_at: float | None = None  # None: not since the scheduler was started

    # --- what the scheduler is told, when its batch is on disk

    def hear(self, events: Iterable[ev.Event], now: float) -> None:
        """Take a batch in that the scheduler has committed."""
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
                    self.calendar.since.clear()  # it sees, and mends, from now on
                    self.registered_at = now
                case ev.Disconnected():
                    self.held.clear()
                case _:
                    self._hear_people(event, now)
        self.note_unseen(now)
        self.void_now = {offer_id for offer_id in before if offer_id not in self.held}

    def _give_up(self, now: float) -> None:
        """What was cut off for too long stays given up, and who was kept is so no longer, though the clock was set back
        since; what is cut off is so at most since that. Drains end as soon as they would have."""
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
        """A time for which the scheduler heard nothing is none for which anything was cut off."""
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
        """The scheduler has started anew: it leaves out what has passed since the latest moment on its record, which
        may be later than what it heard last."""
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
                    self.user_killed.add(self._whose(task_id))
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
        if (
            word.ended
        ):  # if reconciliation alone said so, the engine waits for more, and may hear that it is cut off
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
            if node is not None and node.monitor == status.task_id:  # one that was given up is not believed
                self.note_followed(status.agent_id, node.hostname)
                self._hear_report(status.agent_id, status.data, now)

    def _learn(self, event: ev.StatusArrived) -> None:
        """An executor said which driver its image needs; nothing older may be chosen after that."""
        run_of = self.mesos.facts
        job_id = self._job_of(event.status.task_id)
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

    # --- what it does

    def judge(self, steps: Sequence[tuple[ev.Event, Sequence[fx.Effect]]], now: float) -> None:
        """Check the effects of the batch just heard, in their order, and commit the saves.

        Raises:
            Violation: One of them is not justified.
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
        )  # by it all follows
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
            check = _CHECKS.get(kind)
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
            raise Violation("no job is lost", f"nobody asked for the end of {job.id}", job.id)

    def _instance(self, job: Job) -> None:
        """Made and ended by the scheduler itself: `rollouts` says whether it may."""
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
        """Whether a card of one of its tasks broke, or a drain's time is over."""
        tasks = [self.disk.tasks[task_id] for task_id in self.latest(job.id)]
        gpus = {gpu_id for task in tasks for gpu_id in task.gpus}
        if job.spec.on_gpu_failure is OnGpuFailure.RESTART and not self.broken_now.isdisjoint(gpus):
            return True
        places = {(Target.NODE, task.hostname) for task in tasks} | {(Target.GPU, str(g)) for g in gpus}
        ends = [self.drained[place] for place in places if place in self.drained]
        return any(end is not None and end <= now for end in ends)

    def _launch(self, launch: fx.Launch, now: float) -> None:
        agents = {self._take(offer_id, "ACCEPT") for offer_id in launch.offer_ids}
        if len(agents) != 1 or not agents >= {item.task.agent_id for item in launch.tasks}:
            words = f"{', '.join(launch.offer_ids)} are of {sorted(agents)}"
            raise Violation("a launch uses offers of its own agent", words)
        void = any(offer_id not in self.mesos.offers for offer_id in launch.offer_ids)
        for item in launch.tasks:
            task = item.task
            if void and task.job_id is not None:
                self.dropped.add(task.job_id)
            if task.id not in self.disk.tasks:
                raise Violation("what is launched was saved", f"{task.id} was not", task.id)
            if task.id in self.words:
                raise Violation("no task id is used twice", f"{task.id} is", task.id)
            self.words[task.id] = Word()
            if task.covers is not None:
                shares.joined(self, task)
            if task.job_id is not None:
                self.launched.add(task.job_id)
                self._once(task, task.job_id, now)
                self._quota(task, task.job_id, now)
                arrays.launched(self, task, task.job_id, now)
                limits.limited(self, task, task.job_id, now)
                bookings.launched(self, task, task.job_id, now)
                self._place(item, task.job_id, now)
                gangs.bound(self, item, task.job_id, now)
                self._grant(task, now)
                if task.share is not None:
                    shares.granted(self, task, launch)
        self._within(launch)

    def _once(self, task: Task, job_id: JobId, now: float) -> None:
        """Each earlier launch of the job has really ended, or was cut off for so long that it may be given up."""
        earlier = self.launches.setdefault(job_id, [])
        for other in earlier:
            if launch_of(other) == launch_of(task.id):
                continue  # another member of the same gang
            word = self.words[other]
            run = self.mesos.runs.get(other)
            cut = self.given_up(other, now)
            members = [t for t in earlier if launch_of(t) == launch_of(other)]
            finished = all(self.words[t].ended == "TASK_FINISHED" for t in members)
            if finished and not any(self.given_up(t, now) for t in members):
                raise Violation("no job runs twice", f"{task.id} after {other} had finished", task.id, other)
            if cut or (word.ended and (run is None or not run.alive)):
                continue
            how = f"{run.stage} on {run.agent.id}" if run else "not heard of since its launch"
            raise Violation("no job runs twice", f"{task.id} while {other} is {how}", task.id, other)
        self.launches[job_id].append(task.id)
        if job_id in self.user_killed:
            raise Violation("what was killed is not launched", f"{task.id} is", task.id)

    def _quota(self, task: Task, job_id: JobId, now: float) -> None:
        """Check that a job's queue does not hold more GPUs than it may, with what this task is to have."""
        queue = self.disk.jobs[job_id].spec.queue
        limit = self.settings.queue.queue_limits.get(queue)
        if (
            limit is None or not task.gpus or queue in self.queues.queues
        ):  # then `limits` looks at what that says
            return
        mine = [task_id for i in self.launches if i in self.disk.jobs for task_id in self.latest(i)]
        tasks = [self.disk.tasks[i] for i in mine if not self.words[i].ended and not self.given_up(i, now)]
        specs = [(each, self.disk.jobs[each.job_id].spec) for each in tasks if each.job_id]
        held = sum(shares.counted_milli(self, each, spec) for each, spec in specs if spec.queue == queue)
        if held > limit * WHOLE:
            words = f"{queue} may hold {limit} GPUs, and holds {number_of(held)} with {task.id}"
            raise Violation("no queue is over its limit", words, task.id)

    def _place(self, item: fx.LaunchTask, job_id: JobId, now: float) -> None:
        task, spec = item.task, item.spec
        told = self.agents.get(task.agent_id)
        if (Target.NODE, task.hostname) in self.drained:
            raise Violation("nothing is placed on what is drained", f"{task.id} on {task.hostname}", task.id)
        source, learnt = self.learnt.get(job_id, (None, None))
        for least in (spec.min_driver if spec else None, None if source in self.evicted else learnt):
            if not as_new_as(told.driver if told else None, least):
                words = f"{task.id} needs {least}, {task.hostname} has {told.driver if told else None}"
                raise Violation("nothing is placed on too old a driver", words, task.id)
        if spec is None or len(set(task.gpus)) != spec.gpus:
            raise Violation("a launch has the GPUs it asked for", f"{task.id} has {task.gpus}", task.id)

    def _grant(self, task: Task, now: float) -> None:
        told = self.agents.get(task.agent_id)
        stale_s = self.settings.programs.report_stale_s
        for gpu_id in task.gpus:
            health = told.health.get(gpu_id) if told and now - told.at <= stale_s else None
            if health is not Health.OK:
                words = f"{task.id} got {gpu_id}, which is {health.value if health else 'not known'}"
                raise Violation("only healthy GPUs are granted", words, task.id)
            if (Target.GPU, gpu_id) in self.drained:
                raise Violation("nothing is placed on what is drained", f"{task.id} on {gpu_id}", task.id)
            self._alone(task.id, gpu_id, "is granted to")

    def _alone(self, task_id: str, gpu_id: GpuId, words: str) -> None:
        share = self.disk.tasks[TaskId(task_id)].share if task_id in self.disk.tasks else None
        for run in self.mesos.runs.values():
            if share is not None and run.item.task.share is not None:
                continue  # `shares` looks at these
            if run.alive and gpu_id in run.item.task.gpus and run.id != task_id:
                words = f"{gpu_id} {words} {task_id} while {run.id} holds it ({run.stage})"
                raise Violation("no GPU is granted twice", words, task_id, run.id)

    def _within(self, launch: fx.Launch) -> None:
        offered = [self.mesos.offers[o][1] for o in launch.offer_ids if o in self.mesos.offers]
        if len(offered) != len(launch.offer_ids):
            return  # one was rescinded meanwhile
        kept = [self.mesos.offered_kept[offer_id] for offer_id in launch.offer_ids]
        for ours, given in ((False, offered), (True, kept)):
            self._within_kind(launch, ours, given)

    @staticmethod
    def _within_kind(launch: fx.Launch, ours: bool, offered: Sequence[Mapping[str, float]]) -> None:
        """Check it for what is reserved for shared cards, or for what is not."""
        carved = [s for item in launch.tasks for s in (*item.resources, *item.executor_resources)]
        for name in ("cpus", "mem", "gpus"):
            used = sum(each.amount for each in carved if each.name == name and bool(owner_of(each)) is ours)
            more = sum(each.amount for each in launch.reserve if each.name == name)
            less = sum(each.amount for each in launch.unreserve if each.name == name)
            has = sum(amounts[name] for amounts in offered)
            if used + (less if ours else more) > has + (more if ours else less) + 1e-6:
                tasks = [item.task.id for item in launch.tasks]
                raise Violation("a launch fits its offers", f"{used} {name} of {has}", *tasks)

    def _take(self, offer_id: OfferId, what: str) -> AgentId:
        agent_id = self.held.pop(offer_id, None)
        if agent_id is None:
            raise Violation("only offers at hand are used", f"{what} of {offer_id}")
        return agent_id

    def _decline(self, decline: fx.Decline, now: float) -> None:
        if not decline.offer_ids:
            raise Violation("only offers at hand are used", "DECLINE of nothing")
        for offer_id in decline.offer_ids:
            if offer_id in self.void_now:  # given back before the scheduler heard the rest of the batch
                self.void_now.remove(offer_id)
            else:
                self._take(offer_id, "DECLINE")

    def _kill(self, kill: fx.Kill, now: float) -> None:
        task_id = kill.task_id
        word, job_id = self.words.get(task_id), self._job_of(task_id)
        if job_id in self.user_killed or task_id in self.evicted or word is None:
            return
        if word.ended in ("", "TASK_FINISHED") and not self.given_up(task_id, now):
            task = self.disk.tasks.get(task_id)
            if task is not None and task.covers is not None:
                shares.unused(self, task, task.covers)
                return
            made_by = self.settings.programs.monitor_made_by
            if task is not None and task.job_id is None and task.made_by != made_by:
                return  # a monitor of another release
            if task is not None or task_id in self.launches.get(job_id or JobId(""), ()):
                raise Violation("no kill without a reason", f"of {task_id}", task_id)

    def _acknowledge(self, ack: fx.Acknowledge, now: float) -> None:
        key = (ack.task_id, ack.uuid)
        left = self.unacknowledged.pop(key, 0) - 1
        if left < 0:
            raise Violation("only what was heard is acknowledged", f"{ack.uuid} was not", ack.task_id)
        if left:
            self.unacknowledged[key] = left

    def _ask_reset(self, ask: fx.AskReset, now: float) -> None:
        self._alone("a reset", ask.gpu_id, "is asked for")

    def _ask_resize(self, ask: fx.AskResize, now: float) -> None:
        task = self.disk.tasks[ask.task_id]
        shares.may_have(self, task, ask.resize)
        limits.resized(self, task, ask.resize, now)
        if task.job_id is not None:
            self._quota(task, task.job_id, now)

    def _give_notice(self, given: fx.GiveNotice, now: float) -> None:
        task = self.disk.tasks[given.task_id]
        saved = task.notice
        # One that is sent again may be recalled by the same step: its number is lower then.
        told = saved and replace(given.notice, why=saved.why, by=saved.by)  # a name may be veiled
        if saved is None or (told != saved and given.notice.number >= saved.number):
            raise Violation(
                "a notice is saved before it is sent", f"{given.notice}, not {task.notice}", task.id
            )

    def _start(self, start: fx.Start, now: float) -> None:
        gangs.all_placed(self, start.task_id)

    def _ignore(self, effect: fx.Effect, now: float) -> None:
        """Not judged: it takes no offer, and no GPU of a task that is known."""

    def _job_of(self, task_id: TaskId) -> JobId | None:
        job_id = self._whose(task_id)
        return job_id if job_id in self.submitted else None

    def _whose(self, task_id: TaskId) -> JobId:
        """An instance that came back is another job, whose tasks count on: only what was saved tells them apart."""
        task = self.disk.tasks.get(task_id)
        return task.job_id if task and task.job_id else job_of(task_id)

    def forget(self, state: State) -> None:
        """Drop what is known of jobs and tasks that the engine has forgotten and Mesos, too."""
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
            if self._job_of(task_id) is None:
                del self.words[task_id]

    # --- its state

    def inspect(self, state: State) -> None:
        """The whole state: sound in itself, and what is on disk.

        Raises:
            Violation: It is not.
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
            ("bookings", state.calendar.bookings, self.disk.bookings),
            ("deployments", state.apps.deployments, self.disk.deployments),
            ("apps", _by_version(state.apps.catalog), _by_version(self.disk.catalog)),
        )
        for name, here, there in pairs:
            if here != there:
                keys = [k for k in {**here, **there} if here.get(k) != there.get(k)]
                raise Violation("what is known is on disk", f"{name} differ: {keys}", *map(str, keys))


def _saved(state: State) -> Mapping[JobId, Job]:
    """The jobs that a store has: not the drafts of arrays."""
    jobs = state.work.jobs
    drafts = {job_id for drafts in state.work.members.drafts.values() for job_id in drafts}
    return {job_id: job for job_id, job in jobs.items() if job_id not in drafts} if drafts else jobs


def _heard_as(saved: Task | None, task: Task) -> Task:
    """The task as if it had been heard of when the saved one was: not all that is heard is saved."""
    return task if saved is None or saved is task else replace(task, heard_at=saved.heard_at)


def _by_version(catalog: AppCatalog) -> Mapping[Any, object]:
    return {(app.id, catalog.versions[app.id]): app for app in catalog.root.all_apps()}


_CHECKS: Final[dict[type, Callable[[Witness, Any, float], None]]] = {
    fx.Launch: Witness._launch,
    fx.Decline: Witness._decline,
    fx.Kill: Witness._kill,
    fx.Acknowledge: Witness._acknowledge,
    fx.AskReset: Witness._ask_reset,
    fx.Start: Witness._start,
    fx.AskResize: Witness._ask_resize,
    fx.GiveNotice: Witness._give_notice,
    fx.Reconcile: Witness._ignore,
    fx.ListTasks: Witness._ignore,
    fx.ReadRole: Witness._ignore,
    fx.ReadSecrets: Witness._ignore,
    fx.ForgetSecrets: Witness._ignore,
    fx.Suppress: Witness._ignore,
    fx.Revive: Witness._ignore,
    fx.Shutdown: Witness._ignore,
    fx.Disbelieve: Witness._ignore,
}
see_complete("simulate.chaos.witness._CHECKS", _CHECKS, set(fx.DONE_OUTSIDE) - {fx.Publish})
_decoded = report.decode
