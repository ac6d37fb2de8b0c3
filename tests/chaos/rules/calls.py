"""Rules for the scheduler's calls to Mesos and executors, checked by the account."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.complete import see_complete
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.shares.units import WHOLE, number_of
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.mesos.reservations import owner_of
from tests.chaos.account import Account, Word, launch_of
from tests.chaos.rules import arrays, bookings, gangs, limits, shares
from tests.chaos.violation import Violation


def _launch(account: Account, launch: fx.Launch, now: float) -> None:
    agents = {_take(account, offer_id, "ACCEPT") for offer_id in launch.offer_ids}
    if len(agents) != 1 or not agents >= {item.task.agent_id for item in launch.tasks}:
        words = f"{', '.join(launch.offer_ids)} are of {sorted(agents)}"
        raise Violation("a launch uses offers of its own agent", words)
    void = any(offer_id not in account.mesos.offers for offer_id in launch.offer_ids)
    for item in launch.tasks:
        task = item.task
        if void and task.job_id is not None:
            account.dropped.add(task.job_id)
        if task.id not in account.disk.tasks:
            raise Violation("what is launched was saved", f"{task.id} was not", task.id)
        if task.id in account.words:
            raise Violation("no task id is used twice", f"{task.id} is", task.id)
        account.words[task.id] = Word()
        if task.covers is not None:
            shares.joined(account, task)
        if task.job_id is not None:
            account.launched.add(task.job_id)
            _once(account, task, task.job_id, now)
            _quota(account, task, task.job_id, now)
            arrays.launched(account, task, task.job_id, now)
            limits.limited(account, task, task.job_id, now)
            bookings.launched(account, task, task.job_id, now)
            _place(account, item, task.job_id, now)
            gangs.bound(account, item, task.job_id, now)
            _grant(account, task, now)
            if task.share is not None:
                shares.granted(account, task, launch)
    _within(account, launch)


def _once(account: Account, task: Task, job_id: JobId, now: float) -> None:
    """Check that each earlier launch of a job has ended, or was unreachable so long that it may be given up."""
    earlier = account.launches.setdefault(job_id, [])
    for other in earlier:
        if launch_of(other) == launch_of(task.id):
            continue  # another member of the same gang
        word = account.words[other]
        run = account.mesos.runs.get(other)
        cut = account.given_up(other, now)
        members = [t for t in earlier if launch_of(t) == launch_of(other)]
        finished = all(account.words[t].ended == "TASK_FINISHED" for t in members)
        if finished and not any(account.given_up(t, now) for t in members):
            raise Violation("no job runs twice", f"{task.id} after {other} had finished", task.id, other)
        if cut or (word.ended and (run is None or not run.alive)):
            continue
        how = f"{run.stage} on {run.agent.id}" if run else "not heard of since its launch"
        raise Violation("no job runs twice", f"{task.id} while {other} is {how}", task.id, other)
    account.launches[job_id].append(task.id)
    if job_id in account.user_killed:
        raise Violation("what was killed is not launched", f"{task.id} is", task.id)


def _quota(account: Account, task: Task, job_id: JobId, now: float) -> None:
    """Check that the queue of a job keeps its limit with the GPUs of a task."""
    queue = account.disk.jobs[job_id].spec.queue
    limit = account.settings.queue.queue_limits.get(queue)
    if (
        limit is None or not task.gpus or queue in account.queues.queues
    ):  # rules in `limits` check queues of the document
        return
    mine = [task_id for i in account.launches if i in account.disk.jobs for task_id in account.latest(i)]
    tasks = [
        account.disk.tasks[i] for i in mine if not account.words[i].ended and not account.given_up(i, now)
    ]
    specs = [(each, account.disk.jobs[each.job_id].spec) for each in tasks if each.job_id]
    held = sum(shares.counted_milli(account, each, spec) for each, spec in specs if spec.queue == queue)
    if held > limit * WHOLE:
        words = f"{queue} may hold {limit} GPUs, and holds {number_of(held)} with {task.id}"
        raise Violation("no queue is over its limit", words, task.id)


def _place(account: Account, item: fx.LaunchTask, job_id: JobId, now: float) -> None:
    task, spec = item.task, item.spec
    told = account.agents.get(task.agent_id)
    if (Target.NODE, task.hostname) in account.drained:
        raise Violation("nothing is placed on what is drained", f"{task.id} on {task.hostname}", task.id)
    source, learnt = account.learnt.get(job_id, (None, None))
    for least in (spec.min_driver if spec else None, None if source in account.evicted else learnt):
        if not as_new_as(told.driver if told else None, least):
            words = f"{task.id} needs {least}, {task.hostname} has {told.driver if told else None}"
            raise Violation("nothing is placed on too old a driver", words, task.id)
    if spec is None or len(set(task.gpus)) != spec.gpus:
        raise Violation("a launch has the GPUs it asked for", f"{task.id} has {task.gpus}", task.id)


def _grant(account: Account, task: Task, now: float) -> None:
    told = account.agents.get(task.agent_id)
    stale_s = account.settings.programs.report_stale_s
    for gpu_id in task.gpus:
        health = told.health.get(gpu_id) if told and now - told.at <= stale_s else None
        if health is not Health.OK:
            words = f"{task.id} got {gpu_id}, which is {health.value if health else 'not known'}"
            raise Violation("only healthy GPUs are granted", words, task.id)
        if (Target.GPU, gpu_id) in account.drained:
            raise Violation("nothing is placed on what is drained", f"{task.id} on {gpu_id}", task.id)
        _alone(account, task.id, gpu_id, "is granted to")


def _alone(account: Account, task_id: str, gpu_id: GpuId, words: str) -> None:
    share = account.disk.tasks[TaskId(task_id)].share if task_id in account.disk.tasks else None
    for run in account.mesos.runs.values():
        if share is not None and run.item.task.share is not None:
            continue  # rules in `shares` check these
        if run.alive and gpu_id in run.item.task.gpus and run.id != task_id:
            words = f"{gpu_id} {words} {task_id} while {run.id} holds it ({run.stage})"
            raise Violation("no GPU is granted twice", words, task_id, run.id)


def _within(account: Account, launch: fx.Launch) -> None:
    offered = [account.mesos.offers[o][1] for o in launch.offer_ids if o in account.mesos.offers]
    if len(offered) != len(launch.offer_ids):
        return  # an offer was rescinded meanwhile
    kept = [account.mesos.offered_kept[offer_id] for offer_id in launch.offer_ids]
    for ours, given in ((False, offered), (True, kept)):
        _within_kind(launch, ours, given)


def _within_kind(launch: fx.Launch, ours: bool, offered: Sequence[Mapping[str, float]]) -> None:
    """Check that a launch fits reserved or unreserved amounts of its offers."""
    carved = [s for item in launch.tasks for s in (*item.resources, *item.executor_resources)]
    for name in ("cpus", "mem", "gpus"):
        used = sum(each.amount for each in carved if each.name == name and bool(owner_of(each)) is ours)
        more = sum(each.amount for each in launch.reserve if each.name == name)
        less = sum(each.amount for each in launch.unreserve if each.name == name)
        has = sum(amounts[name] for amounts in offered)
        if used + (less if ours else more) > has + (more if ours else less) + 1e-6:
            tasks = [item.task.id for item in launch.tasks]
            raise Violation("a launch fits its offers", f"{used} {name} of {has}", *tasks)


def _take(account: Account, offer_id: OfferId, what: str) -> AgentId:
    agent_id = account.held.pop(offer_id, None)
    if agent_id is None:
        raise Violation("only offers at hand are used", f"{what} of {offer_id}")
    return agent_id


def _decline(account: Account, decline: fx.Decline, now: float) -> None:
    if not decline.offer_ids:
        raise Violation("only offers at hand are used", "DECLINE of nothing")
    for offer_id in decline.offer_ids:
        if offer_id in account.void_now:  # void before the scheduler has received the rest of the batch
            account.void_now.remove(offer_id)
        else:
            _take(account, offer_id, "DECLINE")


def _kill(account: Account, kill: fx.Kill, now: float) -> None:
    task_id = kill.task_id
    word, job_id = account.words.get(task_id), account.job_of(task_id)
    if job_id in account.user_killed or task_id in account.evicted or word is None:
        return
    if word.ended in ("", "TASK_FINISHED") and not account.given_up(task_id, now):
        task = account.disk.tasks.get(task_id)
        if task is not None and task.covers is not None:
            shares.unused(account, task, task.covers)
            return
        made_by = account.settings.programs.monitor_made_by
        if task is not None and task.job_id is None and task.made_by != made_by:
            return  # a monitor of another release
        if task is not None or task_id in account.launches.get(job_id or JobId(""), ()):
            raise Violation("no kill without a reason", f"of {task_id}", task_id)


def _acknowledge(account: Account, ack: fx.Acknowledge, now: float) -> None:
    key = (ack.task_id, ack.uuid)
    left = account.unacknowledged.pop(key, 0) - 1
    if left < 0:
        raise Violation("only what was heard is acknowledged", f"{ack.uuid} was not", ack.task_id)
    if left:
        account.unacknowledged[key] = left


def _ask_reset(account: Account, ask: fx.AskReset, now: float) -> None:
    _alone(account, "a reset", ask.gpu_id, "is asked for")


def _ask_resize(account: Account, ask: fx.AskResize, now: float) -> None:
    task = account.disk.tasks[ask.task_id]
    shares.may_have(account, task, ask.resize)
    limits.resized(account, task, ask.resize, now)
    if task.job_id is not None:
        _quota(account, task, task.job_id, now)


def _give_notice(account: Account, given: fx.GiveNotice, now: float) -> None:
    task = account.disk.tasks[given.task_id]
    saved = task.notice
    # A repeated notice may be recalled by the same step, and then has a lower number.
    told = saved and replace(given.notice, why=saved.why, by=saved.by)  # the sent notice may hide a name
    if saved is None or (told != saved and given.notice.number >= saved.number):
        raise Violation("a notice is saved before it is sent", f"{given.notice}, not {task.notice}", task.id)


def _start(account: Account, start: fx.Start, now: float) -> None:
    gangs.all_placed(account, start.task_id)


def _ignore(account: Account, effect: fx.Effect, now: float) -> None:
    """Accept a call that takes no offer and no GPU."""


CHECKS: Final[dict[type, Callable[[Account, Any, float], None]]] = {
    fx.Launch: _launch,
    fx.Decline: _decline,
    fx.Kill: _kill,
    fx.Acknowledge: _acknowledge,
    fx.AskReset: _ask_reset,
    fx.Start: _start,
    fx.AskResize: _ask_resize,
    fx.GiveNotice: _give_notice,
    fx.AskRemoval: _ignore,
    fx.Reconcile: _ignore,
    fx.ListTasks: _ignore,
    fx.ReadRole: _ignore,
    fx.ReadSecrets: _ignore,
    fx.ForgetSecrets: _ignore,
    fx.Suppress: _ignore,
    fx.Revive: _ignore,
    fx.Shutdown: _ignore,
    fx.Disbelieve: _ignore,
}
see_complete("chaos.rules.calls.CHECKS", CHECKS, set(fx.DONE_OUTSIDE) - {fx.Publish})
