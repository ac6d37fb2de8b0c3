"""Deployments: they bring apps, whose instances are jobs, from their present to their new definitions."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.apps.delays import forget_delays, launch_delay_s, was_steady
from mesos_gpu.engine.apps.history import forget_gone, moment, remember
from mesos_gpu.engine.charges import tree_of
from mesos_gpu.engine.indexes.memory import NO_FAILURES
from mesos_gpu.engine.queue.admitting import check_app, of_app
from mesos_gpu.engine.queue.quota import check_apps
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks import volumes
from mesos_gpu.engine.tasks.evictions import end_for_good
from mesos_gpu.engine.tasks.statuses import abandon
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import AppLocked, BadConfiguration, NotAccepted, NotFound
from mesos_gpu.model.apps.app import App, Group, same_but_scale
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.apps.rollout import (
    Action,
    ActionKind,
    Instance,
    InstanceState,
    NextOperations,
    Plan,
    Progress,
    Target,
)
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.saves import ForgetDeployment
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.apps.healthcheck import of_scheduler
from mesos_gpu.policy.apps.rollout import moves
from mesos_gpu.policy.apps.rollout.deadline import overdue_words, progress_after, terms_of
from mesos_gpu.policy.apps.rollout.pace import Fate, fate
from mesos_gpu.policy.apps.rollout.plan import locks, plan, rollback, smaller, versions_after, with_apps
from mesos_gpu.policy.apps.task_ids import job_id, next_job_id
from mesos_gpu.policy.apps.workload import job_of
from mesos_gpu.policy.queueing.launch_window import FIRST_SIZE
from mesos_gpu.wire.marathon.moments import stamp
from mesos_gpu.wire.marathon.options import gpu_options

#: State of an instance by that of its job; STAGING becomes STARTING with the first status update of its
#: executor.
SHOWN: Final = {
    JobState.PENDING: InstanceState.WAITING,
    JobState.STARTING: InstanceState.STAGING,
    JobState.RUNNING: InstanceState.RUNNING,
    JobState.UNREACHABLE: InstanceState.UNREACHABLE,
    JobState.KILLING: InstanceState.RUNNING,
}
_UNWANTED = "the app does not want this instance any more"
_SLOW_S: Final = 60.0  # Mesos' default of --executor_registration_timeout


def on_apps_changed(turn: Turn, event: ev.AppsChanged) -> None:
    """Begin a deployment.

    Raises:
        TooMuch: A user wants more than allowed.
        AppLocked: Another deployment of one of the apps is in progress; `force` would end it.
        BadConfiguration: Apps depend on each other in a circle, or a changed app cannot run here.
        NotAccepted: By the document of queues, instances of changed apps could never start.
    """
    root, kill = _without_chosen(turn, event)
    new_plan = plan(turn.state.apps.catalog.root, root, restarts=event.restarts, kill=kill)
    check_change(turn.state, turn.settings, turn.now, new_plan)
    present_ids = {app.id for app in turn.state.apps.catalog.root.all_apps()}
    _begin(turn, event.id, new_plan, force=event.force)
    volumes.give_up(turn, {app.id for app in new_plan.target.all_apps()} - present_ids)


def _without_chosen(turn: Turn, event: ev.AppsChanged) -> tuple[Group, Mapping[str, tuple[str, ...]]]:
    """Return the tree of apps without the instances that the user chose, and all chosen instances by app.

    Each instance reduces the size of its app once. An instance does not reduce it if it is already being killed, if an
    earlier request has chosen it and it has not ended yet, or if it was given up and has been replaced.
    """
    state, by, kill = turn.state, dict[str, int](), dict[str, tuple[str, ...]]()
    actions = (a for d in state.apps.deployments.values() for step in d.plan.steps for a in step)
    before = {id for action in actions for id in action.kill}
    apps = {app.id: app for app in event.root.all_apps()} if event.kill else {}
    for id, named in event.kill.items():
        live = [
            job_id
            for job_id in state.apps.instances.get(id, ())
            if not state.work.jobs[job_id].kill_requested
        ]
        chosen = [job_id for job_id in live if job_id in named and job_id not in before]
        kill[id] = tuple(job_id for job_id in live if job_id in named or job_id in before)
        by[id] = (
            sum(_has_its_place(turn, apps[id], state.work.jobs[job_id]) for job_id in chosen)
            if id in apps
            else 0
        )
    return smaller(event.root, by), kill


def _has_its_place(turn: Turn, app: App, job: Job) -> bool:
    """Return whether an instance still counts towards the size of its app, so that no other one replaces it."""
    instance = _instance(turn.state, job, turn.now)
    cut_off = instance.state is InstanceState.UNREACHABLE
    return not cut_off or fate(app.unreachable_strategy, instance.since, turn.now) is Fate.KEEP


def check_change(state: State, settings: Settings, now: float, made: Plan) -> None:
    """Refuse a change of apps that is beyond limits, or with apps that could never run.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        made: Steps from the present apps to the new ones.

    Raises:
        TooMuch: A user wants more than allowed.
        BadConfiguration: A changed app cannot run here.
        NotAccepted: By the document of queues, instances of changed apps could never start.
    """
    old, wrong = {app.id: app for app in state.apps.catalog.root.all_apps()}, list[tuple[str, str]]()
    check_apps(settings, old.values(), made.target.all_apps())
    for action in (action for step in made.steps for action in step if action.kind is not ActionKind.STOP):
        job = instance_of(action.app, now)
        if isinstance(job, str):
            raise BadConfiguration(f"{action.app.id}: {job}", remedy="correct the app's definition")
        before = old.get(action.app.id)
        if before is not None and {*before.persistent_volumes} != {*action.app.persistent_volumes}:
            what = f"{action.app.id}: its persistent volumes cannot change, as instances keep them"
            raise BadConfiguration(
                what, remedy="create another app with other volumes, or delete this one first"
            )
        wrong += check_app(state, settings, action.app, old.get(action.app.id), job)
    if wrong:
        raise NotAccepted(wrong, remedy="see the queues and their limits: mesos-gpu queue show")


def on_deployment_deleted(turn: Turn, event: ev.DeploymentDeleted) -> None:
    """End a deployment as it stands, or undo it by another one.

    Raises:
        NotFound: No deployment has that id.
    """
    undone = turn.state.apps.deployments.get(event.id)
    if undone is None:
        raise NotFound(f"DeploymentPlan {event.id} does not exist", remedy="see GET /v2/deployments")
    if event.force:
        _end(turn, undone.id)
    else:
        _roll_back(turn, undone, event.new_id)


def _roll_back(turn: Turn, undone: Deployment, id: str) -> None:
    """End a deployment, and begin another one with that id, which restores the apps as before it."""
    back = rollback(undone.plan, turn.state.apps.catalog.root)
    _end(turn, undone.id)
    _begin(turn, id, back, force=True, undone=undone)


def _begin(turn: Turn, id: str, made: Plan, *, force: bool, undone: Deployment | None = None) -> None:
    """Begin a deployment of a plan, after ending those that are in its way.

    Raises:
        AppLocked: Another one is in its way, and `force` is not set.
    """
    state, old = turn.state, turn.state.apps.catalog
    if not made.steps and made.original == made.target:
        return
    in_the_way = locks({d.id: d.plan.affected for d in state.apps.deployments.values()}, made.affected)
    busy = [id for id in in_the_way if not _is_over(turn, state.apps.deployments[id])]
    if busy and not force:
        raise AppLocked(tuple(busy))
    steady = dict[str, App]()
    for other in in_the_way:
        ended = state.apps.deployments[other]
        if other in busy and not ended.undoes:  # a rollback begins with the failed apps
            steady |= {app.id: app for app in ended.plan.changed_from} | dict(ended.steady)
        _end(turn, other, done=other not in busy)
    at = moment(turn)
    before = undone.before if undone else None
    versions = versions_after(made, old.versions, at=at, known=before, running=_running(state, made))
    remember(turn, made.target, dict(versions), at)
    for action in (action for step in made.steps for action in step if action.kind is ActionKind.RESTART):
        forget_delays(state, action.app.id)
    if made.steps:
        state.apps.changed_apps.update(made.affected)
        undone_id = undone.id if undone else ""
        present_ids = {app.id for app in made.changed_from}
        steady = {id: app for id, app in steady.items() if id in present_ids}
        turn.put(Deployment(id, at, made, dict(old.versions), undoes=undone_id, steady=steady))


def _running(state: State, made: Plan) -> dict[str, float]:
    """Return the version of instances that already run what their app is to run, by app; the latest of several.

    Instances of an app that is restarted are replaced nevertheless, as its definition stays.
    """
    running = {}
    for action in (action for step in made.steps for action in step if action.kind is not ActionKind.STOP):
        apps_by_version = {
            app_version.version: app_version.app
            for app_version in state.apps.app_versions.get(action.app.id, ())
        }
        alike = [
            version
            for version in _versions_that_run(state, action.app.id)
            if version in apps_by_version and same_but_scale(apps_by_version[version], action.app)
        ]
        if alike:
            running[action.app.id] = max(alike)
    return running


def _versions_that_run(state: State, app_id: str) -> set[float]:
    """Return the versions of an app's instances that were not told to end."""
    jobs = [state.work.jobs[id] for id in state.apps.instances.get(app_id, ())]
    return {job.app_version for job in jobs if job.app_version is not None and not job.kill_requested}


def _is_over(turn: Turn, deployment: Deployment) -> bool:
    """Return whether a deployment has nothing left to do, so that the next tick would end it."""
    versions = turn.state.apps.catalog.versions
    for action in (action for step in deployment.plan.steps[deployment.step :] for action in step):
        info = versions.get(action.app.id)
        aim = _Aim(action, info.last_config_change_at if info else 0.0, deployment.version)
        if action.kind is not ActionKind.START and not _next_moves(turn, aim)[2].done:
            return False
    return True


def _end(turn: Turn, id: str, *, done: bool = False) -> None:
    """End a deployment, whether it is done or not."""
    turn.state.apps.changed_apps.update(turn.state.apps.deployments.pop(id).plan.affected)
    turn.effects.append(ForgetDeployment(id, done))


# --- actions that are due now


@dataclass(frozen=True, slots=True)
class _Aim:
    """Goal of one app at this moment.

    Attributes:
        action: Step of a deployment, or the upkeep of the app.
        version: `last_config_change_at` of its definition.
        began_at: Begin of the deployment in seconds since the epoch; 0 outside of a deployment.
    """

    action: Action
    version: float
    began_at: float


@dataclass(frozen=True, slots=True)
class _Progress:
    """Progress of one app.

    Attributes:
        waiting: Reason for which nothing is done for it now; "" if something was done, None if the goal is reached.
        progress: Value of `moves.progress`.
    """

    waiting: str | None = ""
    progress: int = 0


def on_tick(turn: Turn) -> None:
    """Bring apps nearer to their goals: changed apps at once, and all apps at intervals."""
    state = turn.state
    _count_failures(turn)
    every = turn.now - state.apps.looked_at_apps >= turn.settings.tasks.apps_interval_s
    if not every and not state.apps.changed_apps:
        return
    changed, state.apps.changed_apps = state.apps.changed_apps, set()
    if every:
        state.apps.looked_at_apps = turn.now
        forget_gone(turn)
    aims = _aims(
        state, None if every else changed.union(*(d.plan.affected for d in state.apps.deployments.values()))
    )
    stands = {
        id: _advance_app(turn, aim) for id, aim in aims.items() if every or id in changed or aim.began_at
    }
    for deployment in list(state.apps.deployments.values()):
        # It stays for one tick at least, so that its requester sees it, unless the clock was set back since.
        if 0 <= deployment.version - turn.now < turn.settings.tasks.apps_interval_s:
            # The next tick goes on with it, instead of the next look at all apps.
            state.apps.changed_apps.update(deployment.plan.affected)
        else:
            _advance(turn, deployment, stands)


def _aims(state: State, wanted: Set[str] | None) -> dict[str, _Aim]:
    """Return the goals of apps.

    An app that a deployment has not reached yet keeps its present definition. If instances already run the new one,
    the app keeps these.

    Args:
        state: State of the engine.
        wanted: Ids of the apps; None for all apps.
    """
    catalog = state.apps.catalog
    aims = {
        app.id: _Aim(Action(ActionKind.SCALE, app), catalog.versions[app.id].last_config_change_at, 0.0)
        for app in catalog.root.all_apps()
        if wanted is None or app.id in wanted
    }
    for deployment in state.apps.deployments.values():
        old = {app.id: app for app in deployment.plan.original.all_apps()}
        for id in sorted(deployment.plan.affected):
            aims.pop(id, None)
            if id in old:
                aims[id] = _aim_before(state, deployment, old[id])
        for action in _reached(deployment):
            info = catalog.versions.get(action.app.id)
            version = info.last_config_change_at if info else 0.0
            aims[action.app.id] = _Aim(action, version, deployment.version)
    running = state.apps.instances.keys() if wanted is None else state.apps.instances.keys() & wanted
    for id in sorted(running - aims.keys()):  # the deployment that deletes it was ended before it was done
        aims[id] = _Aim(Action(ActionKind.STOP, App(id)), 0.0, 0.0)
    return aims


def _aim_before(state: State, deployment: Deployment, was: App) -> _Aim:
    """Return the aim of an app to which a deployment has not come yet."""
    before, after = deployment.before[was.id], state.apps.catalog.versions.get(was.id)
    version = before.last_config_change_at
    if after is None or after.last_config_change_at not in _versions_that_run(state, was.id) - {version}:
        return _Aim(Action(ActionKind.SCALE, was), version, 0.0)
    new = next(app for app in deployment.plan.target.all_apps() if app.id == was.id)
    app = replace(new, instances=was.instances)
    return _Aim(Action(ActionKind.SCALE, app), after.last_config_change_at, 0.0)


def _reached(deployment: Deployment) -> Iterator[Action]:
    """Yield the actions of all steps of a deployment up to the present one."""
    for step in deployment.plan.steps[: deployment.step + 1]:
        yield from step


def _advance(turn: Turn, deployment: Deployment, stands: Mapping[str, _Progress]) -> None:
    """Begin the next step of a deployment once the present one is done; undo the deployment if it is overdue."""
    step = deployment.plan.steps[deployment.step]
    all_of_it = [(action, stands.get(action.app.id, _Progress())) for action in step]
    left = [(action, stand) for action, stand in all_of_it if stand.waiting is not None]
    if left:
        _wait(turn, deployment, left)
    elif deployment.step + 1 < len(deployment.plan.steps):
        turn.put(replace(deployment, step=deployment.step + 1, waiting={}, progress={}))
        turn.state.apps.changed_apps.update(deployment.plan.affected)
    else:
        _end(turn, deployment.id, done=True)


def _wait(turn: Turn, deployment: Deployment, left: Sequence[tuple[Action, _Progress]]) -> None:
    """Record what a deployment waits for, and whether it is overdue.

    An overdue deployment is undone if one of its overdue apps asks for that and existed before; a rollback never is.
    """
    words, progress, reverts = dict[str, str](), dict[str, Progress](), False
    old = {app.id for app in deployment.plan.changed_from}
    for action, stand in left:
        id, reason = action.app.id, stand.waiting or ""
        terms = terms_of(gpu_options(action.app)) if action.kind is not ActionKind.STOP else None
        if terms is not None:
            since = turn.state.mesos.registered_at if turn.state.mesos.connected else turn.now
            before = deployment.progress.get(id)
            progress[id] = progress_after(before, stand.progress, terms, now=turn.now, from_s=since)
            if progress[id].overdue:
                terms = replace(terms, reverts=terms.reverts and id in old and not deployment.undoes)
                reason, reverts = overdue_words(terms, deployment.id, reason), reverts or terms.reverts
        words[id] = reason
    if (words, progress) != (deployment.waiting, deployment.progress):
        deployment = replace(deployment, waiting=words, progress=progress)
        turn.put(deployment)
    if reverts:
        _revert(turn, deployment)


def _revert(turn: Turn, deployment: Deployment) -> None:
    """Undo a deployment that is overdue, and those that it has ended before they were done."""
    original = with_apps(deployment.plan.original, deployment.steady)
    versions = {id: info for id, info in deployment.before.items() if id not in deployment.steady}
    undone = replace(deployment, plan=replace(deployment.plan, original=original), before=versions)
    _roll_back(turn, undone, str(uuid5(NAMESPACE_URL, f"{deployment.id} is undone")))


def _advance_app(turn: Turn, aim: _Aim) -> _Progress:
    """Do what brings an app nearer to its aim, and return how far it is."""
    app, state = aim.action.app, turn.state
    if aim.action.kind is ActionKind.START:
        return _Progress(None)
    _expunge(turn, app)
    target, instances, next_moves = _next_moves(turn, aim)
    if next_moves.done:
        state.apps.vacant.pop(app.id, None)
        return _Progress(None)
    return _Progress(_do(turn, aim, target, next_moves), moves.progress(target, instances))


def _next_moves(turn: Turn, aim: _Aim) -> tuple[Target, list[Instance], NextOperations]:
    """Return the target of an app, its instances, and the next moves towards the target; the state is not changed."""
    app, state = aim.action.app, turn.state
    target = moves.target(
        aim.action,
        version=aim.version,
        began_at=aim.began_at or turn.now,
        in_place=gpu_options(app).in_place or app.is_resident,
    )
    jobs = [state.work.jobs[id] for id in state.apps.instances.get(app.id, ())]
    instances = [_instance(state, job, turn.now) for job in jobs]
    return target, instances, moves.next_moves(target, instances, now=turn.now)


def _expunge(turn: Turn, app: App) -> None:
    """Give up instances that were unreachable for too long; they are replaced, and killed if they come back.

    At a time only as many are given up as the launch windows can replace, because their agent may come back before the
    others are replaced.
    """
    jobs = [turn.state.work.jobs[id] for id in turn.state.apps.instances.get(app.id, ())]
    waiting = sum(job.state is JobState.PENDING for job in jobs)
    for job in jobs:
        task = turn.state.work.tasks[job.task_id] if job.task_id else None
        if task is None or task.unreachable_since is None or job.state is not JobState.UNREACHABLE:
            continue
        since = _counts_as_cut_off(turn.state, task, task.unreachable_since, turn.now)
        if waiting < FIRST_SIZE and fate(app.unreachable_strategy, since, turn.now) is Fate.FORGET:
            waiting += 1
            away_s = turn.now - task.unreachable_since
            turn.put_job(replace(job, kill_requested=True, nameless=True))
            abandon(turn, task, f"its agent {task.hostname} was out of reach for {away_s:.0f} s")


def _counts_as_cut_off(state: State, task: Task, since: float, now: float) -> float:
    """Return the time from which an instance counts as unreachable, in seconds since the epoch; `inf` if not yet.

    An agent that was starting tasks may only be slow, so it gets the time that Mesos gives executors to register.
    """
    window = state.cluster.windows.get(task.agent_id)
    starts = task.agent_id in state.work.restless.under_way
    starts |= window is not None and since - window.latest < _SLOW_S
    return inf if starts and now - since < _SLOW_S else since


def _do(turn: Turn, aim: _Aim, target: Target, todo: NextOperations) -> str:
    """Kill and start instances; return what the app waits for then, in words."""
    app = aim.action.app
    for id in todo.kill:
        job = replace(turn.state.work.jobs[JobId(id)], nameless=True)
        end_for_good(turn, job, _UNWANTED, unlaunched=_UNWANTED)
    if not todo.launch:
        return todo.waiting
    wait_s = turn.state.apps.backoffs.get((app.id, aim.version), NO_FAILURES)[1] - turn.now
    if wait_s > 0:
        turn.state.apps.changed_apps.add(app.id)
        return f"waits {wait_s:.0f} s before its next launch: instances failed"
    spec = instance_of(app, target.version)
    if isinstance(spec, str):
        return spec  # an earlier version of this program has accepted it
    for _ in range(todo.launch):
        _start_instance(turn, app, spec, aim)
    return todo.waiting


def instance_of(app: App, version: float) -> JobSpec | str:
    """Return the job specification of an instance of an app, or the reason why it cannot run, in words."""
    return job_of(app, gpu_options(app), version=stamp(version))


def _start_instance(turn: Turn, app: App, spec: JobSpec, aim: _Aim) -> None:
    """Start an instance of an app.

    A replacement keeps its app's place in the queue, so that no later job gets its GPU.
    """
    state = turn.state
    new = state.work.next_sequence, None
    spec = of_app(tree_of(state, turn.settings), spec, app.id)
    replaces = aim.action.kind is ActionKind.RESTART or not aim.began_at
    sequence, since = state.apps.places.get(app.id, new) if replaces else new
    idle = volumes.idle_volumes(state, app.id, spec) if app.is_resident else ()
    id = volumes.successor_of(state, idle) or _restarted_id(turn, app, aim.version) or _new_id(turn, app)
    turn.put_job(
        Job(
            id,
            volumes.attach(turn, app.id, spec, id, idle) if app.is_resident else spec,
            turn.now,
            sequence,
            message="queued",
            in_line_since=since,
            app_version=aim.version,
            checked=bool(of_scheduler(app.health_checks)),
            proves_ready=bool(app.readiness_checks),
            owner=app.owner,
        )
    )


def _restarted_id(turn: Turn, app: App, version: float) -> JobId | None:
    """Return the id of an ended instance for its restart, with a higher count, as in Marathon; None without one."""
    state = turn.state
    vacant = state.apps.vacant.get(app.id, [])
    while vacant:
        job = state.work.jobs.get(vacant.pop(0))
        id = next_job_id(job.id, job.launches) if job and job.app_version == version else None
        if id is not None and id not in state.work.jobs:
            return id
    return None


def _new_id(turn: Turn, app: App) -> JobId:
    """Return a new job id that follows from the events alone, without chance."""
    state = turn.state
    seeds = (
        f"{state.mesos.framework_id}{app.id}?{number}&{turn.now}" for number in count(len(state.work.jobs))
    )
    ids = (job_id(app.id, str(uuid5(NAMESPACE_URL, seed))) for seed in seeds)
    return next(id for id in ids if id not in state.work.jobs)


def _instance(state: State, job: Job, now: float) -> Instance:
    """Return an instance as deployments see it."""
    tasks = state.work.round_of(job)
    task = tasks[0] if tasks else None
    shown, since = SHOWN[job.state], job.started_at or job.submitted_at
    if shown is InstanceState.STAGING and task is not None and task.state is not TaskState.LAUNCHED:
        shown = InstanceState.STARTING
    if shown is InstanceState.UNREACHABLE and task is not None:
        since = _counts_as_cut_off(state, task, task.unreachable_since or since, now)
    elif task is not None and task.evicted:
        shown = InstanceState.WAITING  # it is being ended here, to be placed again
    healths = _healths(state, job, task)
    return Instance(
        id=job.id,
        version=job.app_version or 0.0,
        state=shown,
        since=since,
        started_at=job.started_at,
        checked=bool(healths),
        healthy=_all_well(healths),
        ready=not job.proves_ready or (task is not None and task.ready),
        ending=job.kill_requested,
    )


def _healths(state: State, job: Job, task: Task | None) -> list[bool | None]:
    """Return the results of health checks of an instance: by its executor, by the scheduler, both or none."""
    by_executor = [task.healthy if task else None] if job.spec.health_checks else []
    by_scheduler = [state.apps.healths.get(task.id) if task else None] if job.checked else []
    return by_executor + by_scheduler


def _all_well(verdicts: list[bool | None]) -> bool | None:
    """Return False if any check failed, True if all passed, and None if some have no result or there are no checks."""
    if False in verdicts:
        return False
    return None if None in verdicts or not verdicts else True


def on_health_found(turn: Turn, event: ev.HealthFound) -> None:
    """Record health results of a task, and end an instance that failed too often.

    An instance on an unreachable agent is left alone, as it may still serve.
    """
    task = turn.state.work.tasks.get(event.task_id)
    job = turn.state.work.current(task) if task else None
    if task is None or job is None or task.ended or job.app_version is None:
        return
    turn.state.apps.healths[task.id], turn.state.apps.check_results[task.id] = event.healthy, event.healths
    # The earlier health counts until all checks have been made after a restart.
    health = event.healthy if event.healthy is not None else task.healthy
    if not job.spec.health_checks and task.healthy is not health:  # otherwise the executor's result is shown
        task = replace(task, healthy=health)
        turn.show_task(task)
    turn.state.apps.changed_apps.add(job.app_id)
    if event.kill and task.state is TaskState.RUNNING and not job.kill_requested:
        why = f"unhealthy: {event.kill}"
        turn.put_task(replace(task, unhealthy=event.kill))
        end_for_good(turn, turn.state.work.jobs[job.id], why, unlaunched=why)


def on_readiness_found(turn: Turn, event: ev.ReadinessFound) -> None:
    """Record that a task is ready; it stays so while it runs, as health checks report later failures."""
    task = turn.state.work.tasks.get(event.task_id)
    job = turn.state.work.current(task) if task else None
    if task is None or job is None or task.ended or task.ready:
        return
    turn.state.apps.readiness[task.id] = event.readiness
    turn.state.apps.changed_apps.add(job.app_id)
    if event.readiness.ready:
        turn.show_task(replace(task, ready=True))


def _count_failures(turn: Turn) -> None:
    """Delay the next launch of apps with instances that ended by themselves, longer with each one in a row."""
    state = turn.state
    ended, state.apps.ended_instances = state.apps.ended_instances, []
    apps = {app.id: app for app in state.apps.catalog.root.all_apps()} if ended else {}
    for id in ended:
        job = state.work.jobs.get(id)
        app = apps.get(job.app_id) if job else None
        if job is None or app is None:
            continue
        state.apps.changed_apps.add(app.id)
        if not job.nameless:
            state.apps.vacant.setdefault(app.id, []).append(job.id)
        if job.state is JobState.KILLED:
            continue
        steady = was_steady(job, turn.now)
        key = app.id, job.app_version or 0.0
        failures = 1 if steady else state.apps.backoffs.get(key, NO_FAILURES)[0] + 1
        state.apps.backoffs[key] = failures, turn.now + launch_delay_s(app, failures)
