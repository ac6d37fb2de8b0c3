"""Rules of apps and deployments, checked by saved data and received messages.

Bounds hold for all that the scheduler does by itself: failures, and users who end instances, may undercut them.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Final

from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.rollout import ActionKind
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.wire.marathon.options import gpu_options
from tests.chaos.account import Account
from tests.chaos.violation import Violation
from tests.doubles.memory_store import MemoryStore

_NONE: Final = (ActionKind.START, ActionKind.STOP)
_SLOW_S: Final = 60.0  # Mesos' default of --executor_registration_timeout


@dataclass(frozen=True, slots=True)
class Aim:
    """The present target of an app."""

    app: App
    instances: int
    version: float
    chosen: frozenset[str] = frozenset()  # instances that users have chosen to end

    @property
    def least(self) -> int:
        """Least number of serving instances to which the scheduler may go down."""
        count = ceil(self.instances * self.app.upgrade_strategy.minimum_health_capacity)
        return max(0, min(count, self.instances - 1)) if self._in_place else count

    @property
    def most(self) -> int:
        """Most instances that may exist."""
        if self._in_place:
            return self.instances
        count = floor(self.instances * (1 + self.app.upgrade_strategy.maximum_over_capacity))
        return count + 1 if 0 < count == self.least else count

    @property
    def _in_place(self) -> bool:
        return gpu_options(self.app).in_place


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance that has not ended, as the scheduler should see it.

    Attributes:
        id: Id of the job that the instance is.
        version: Version of the app, in seconds since the epoch.
        counts: Whether it was not given up; None if its agent was starting tasks when it became unreachable, so that it
            may only be slow.
        ending: Whether its end was requested.
        serves: Whether it serves; None if that is not known.
    """

    id: JobId
    version: float
    counts: bool | None
    ending: bool
    serves: bool | None


def aims_of(disk: MemoryStore) -> Mapping[str, Aim]:
    """Return the target of each app.

    Until a deployment reaches an app, the target is the old definition, or the new one if instances of it run already.
    """
    versions = disk.catalog.versions
    aims = {
        app.id: Aim(app, app.instances, versions[app.id].last_config_change_at)
        for app in disk.catalog.root.all_apps()
    }
    present = {
        (job.spec.app, job.app_version)
        for job in disk.jobs.values()
        if not (job.state.ended or job.kill_requested)
    }
    for deployment in disk.deployments.values():
        affected = deployment.plan.affected
        target = {app.id: app for app in deployment.plan.target.all_apps()}
        for id in affected:
            aims.pop(id, None)
        for app in deployment.plan.original.all_apps():
            if app.id in affected:
                version = deployment.before[app.id].last_config_change_at
                later = versions[app.id].last_config_change_at if app.id in versions else version
                kept = later != version and (app.id, later) in present
                shown = replace(target[app.id], instances=app.instances) if kept else app
                aims[app.id] = Aim(shown, app.instances, later if kept else version)
        for step in deployment.plan.steps[: deployment.step + 1]:
            for action in step:
                id, count = action.app.id, 0 if action.kind in _NONE else action.app.instances
                version = versions[id].last_config_change_at if id in versions else 0.0
                aims[id] = Aim(action.app, count, version, frozenset(action.kill))
    return aims


def instances_of(account: Account, aims: Mapping[str, Aim], now: float) -> Mapping[str, list[Instance]]:
    """Return the instances of each app that have not ended."""
    by_app: dict[str, list[Instance]] = {}
    for job in account.disk.jobs.values():
        if job.app_version is not None and not job.state.ended:
            app_id = job.spec.app or ""
            by_app.setdefault(app_id, []).append(_instance(account, job, aims.get(app_id), now))
    return by_app


def _instance(account: Account, job: Job, aim: Aim | None, now: float) -> Instance:
    word = account.words.get(job.task_id) if job.task_id and job.state is not JobState.PENDING else None
    strategy = aim.app.unreachable_strategy if aim else None
    cut_s = now - word.cut_since if word and word.cut_since is not None else None
    counts: bool | None = True
    if cut_s is not None and job.kill_requested:
        counts = False
    elif cut_s is not None and strategy is not None and cut_s >= strategy.inactive_after_s:
        counts = None if cut_s < _SLOW_S and _was_starting_tasks(account, job, now - cut_s) else False
    serves: bool | None = False
    if word is not None and job.task_id is not None and word.running and cut_s is None:
        ready = not job.proves_ready or job.task_id in account.ready
        well = account.healthy.get(job.task_id) if job.checked else True
        serves = well if ready and job.task_id not in account.evicted else False
    return Instance(job.id, job.app_version or 0.0, counts, job.kill_requested, serves)


def _was_starting_tasks(account: Account, job: Job, since: float) -> bool:
    """Return whether the agent of an instance was starting tasks when it became unreachable.

    Args:
        account: Account of all that the scheduler has heard and saved.
        job: Job of the instance.
        since: Time at which the agent became unreachable, in seconds since the epoch.
    """
    tasks = account.disk.tasks
    agent_id = tasks[job.task_id].agent_id if job.task_id in tasks else None
    return any(
        since - task.launched_at < _SLOW_S or not (task.ended or account.words[task.id].placed)
        for task in tasks.values()
        if task.agent_id == agent_id and task.id in account.words
    )


@dataclass(frozen=True, slots=True)
class Scene:
    """Targets and instances of all apps before a tick."""

    aims: Mapping[str, Aim]
    instances: Mapping[str, list[Instance]]


def scene(account: Account, now: float) -> Scene:
    """Return targets and instances of all apps as of `now`, in seconds since the epoch."""
    aims = aims_of(account.disk)
    return Scene(aims, instances_of(account, aims, now))


def judge(account: Account, before: Scene, now: float) -> None:
    """Check the instances that the scheduler has started and ended in a tick.

    Raises:
        Violation: It has started or ended an instance without need.
    """
    after = instances_of(account, before.aims, now)
    for id in {**before.instances, **after}:
        aim = before.aims.get(id) or Aim(App(id), 0, 0.0)
        was = {each.id: each for each in before.instances.get(id, ())}
        now_there = {each.id: each for each in after.get(id, ())}
        new = [each for key, each in now_there.items() if key not in was]
        ended = [
            # An instance that a drain or a sick card ended at the same time no longer served.
            replace(each, serves=now_there[key].serves) if key in now_there else each
            for key, each in was.items()
            if not each.ending and (key not in now_there or now_there[key].ending)
        ]
        if new:
            _judge_new(aim, was.values(), new, now_there.values())
        if ended:
            _judge_ended(aim, ended, now_there.values())


def _judge_new(aim: Aim, was: Iterable[Instance], new: list[Instance], there: Iterable[Instance]) -> None:
    id, present = aim.app.id, sum(each.counts is True for each in was)
    if any(each.version != aim.version for each in new):
        raise Violation("what starts is of the version that is wanted", f"{new[0].id} of {id}", new[0].id)
    if present + len(new) > aim.most:
        words = f"{id} has {present}, {len(new)} more start, {aim.most} may be"
        raise Violation("no app is over its capacity", words, new[0].id)
    if (right := _right(aim, there, {True})) > aim.instances:
        words = f"{id} has {right} of {aim.instances}, with the {len(new)} that start"
        raise Violation("no app has more instances than are wanted", words, new[0].id)


def _judge_ended(aim: Aim, ended: list[Instance], there: Iterable[Instance]) -> None:
    id, there = aim.app.id, list(there)
    forced = [each for each in ended if each.id not in aim.chosen and each.counts]
    right = _right(aim, there, {True, None})
    of_use = [each for each in forced if each.version == aim.version]
    if of_use and right < aim.instances:
        words = f"{of_use[0].id}, and {id} is left with {right} of {aim.instances}"
        raise Violation("no instance that is wanted is ended", words, of_use[0].id)
    serving = sum(each.serves is True and not each.ending for each in there)
    lost = [each for each in forced if each.serves or (each.serves is None and each.version != aim.version)]
    if lost and serving < aim.least:
        words = f"{lost[0].id}, and {serving} of {id} are left that serve, {aim.least} must"
        raise Violation("enough instances serve", words, lost[0].id)


def _right(aim: Aim, there: Iterable[Instance], counts: Set[bool | None]) -> int:
    """Return how many instances have the target version and stay, of those whose `counts` is in a set."""
    return sum(each.version == aim.version and each.counts in counts and not each.ending for each in there)


def locked_once(disk: MemoryStore) -> None:
    """Check that no two deployments change one app."""
    seen: dict[str, str] = {}
    for deployment in disk.deployments.values():
        for app in deployment.plan.affected:
            if seen.setdefault(app, deployment.id) != deployment.id:
                words = f"{app}: {seen[app]} and {deployment.id}"
                raise Violation("one deployment at a time changes an app", words)
