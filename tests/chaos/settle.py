"""Quiet times: all faults are repaired, and all work must end."""

from dataclasses import replace
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.gpus.rolling import rolling
from mesos_gpu.model.apps.app import Group
from mesos_gpu.model.jobs.constraint import Operator
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import QueueSpec
from tests.chaos import queues
from tests.chaos.apps import check
from tests.chaos.documents import bookings
from tests.chaos.rules import limits, tree
from tests.chaos.rules.rollouts import aims_of, instances_of
from tests.chaos.violation import Violation
from tests.chaos.virtual import PORTS, Agent, Facts
from tests.chaos.world import CPUS, MEM_MIB, World

_ROUND_S: Final = 4.0
_PATIENCE: Final = 50
_ROLLED_OUT: Final = 200  # rounds until apps reach their targets
_QUIET: Final = 60  # rounds until all messages are delivered
_STILL: Final = 6  # rounds with matches in which nothing starts or ends
_HIGH: Final = 9  # priority that no other job has
_LOWER: Final = 2  # jobs of low priority
_MORE_A_JOB: Final = 8  # further rounds for each job that waits or runs
_MAX_SMALL: Final = 16
_OF_SMALL: Final = ("default", "small")  # queues of small jobs


def settle(world: World, *, stands: bool = False) -> None:
    """Repair all faults, deliver all messages, and then let all commands end.

    Args:
        world: Cluster with its scheduler.
        stands: Whether commands go on for some time before, so that jobs which wait for limits can be checked.

    Raises:
        Violation: Cluster and engine differ, or a job that could run does not end.
    """
    world.say("a quiet time begins")
    _mend(world)
    for _ in range(_QUIET):
        go_on(world)
        if _difference(world) == "":
            break
    else:
        raise Violation("at a quiet time, engine and world agree", _difference(world))
    if stands:
        _stand(world)
    _roll_out(world)
    _run_out(world)
    _replace_monitors(world)


def _stand(world: World) -> None:
    """Let time pass until nothing starts or ends for some rounds; then no limit may keep a job waiting without need."""
    _challenge(world)
    still = 0
    for _ in range(_QUIET):
        before = _holding(world)
        go_on(world)
        still = still + 1 if _holding(world) == before else 0
        if still == _STILL:
            limits.give_way(world.witness, world.now)
            return


def _challenge(world: World) -> None:
    """Hand in jobs of low priority in one queue, and when those run that have room one of high priority."""
    queue = queues.LEAVES[world.serial % len(queues.LEAVES)]
    for _ in range(_LOWER):
        _submit_plain(world, queue, -_HIGH)
    for _ in range(_STILL):
        go_on(world)
    _submit_plain(world, queue, _HIGH)
    world.flush()


def _submit_plain(world: World, queue: str, priority: int) -> None:
    job_id = world.new_id("h")
    world.mesos.facts[job_id] = Facts()
    spec = JobSpec(
        job_id, "true", cpus=0.1, mem_mib=32, gpus=1, priority=priority, queue=queue, preemptible=True
    )
    world.inbox.append(ev.JobSubmitted(job_id, spec))


def _holding(world: World) -> list[object]:
    """Return the tasks that hold something, with their states and notices."""
    tasks = (world.state.work.tasks[task_id] for task_id in world.state.work.live)
    return [(task.id, task.state, task.notice, task.kill_sent_at) for task in tasks]


def _replace_monitors(world: World) -> None:
    """Wait until the monitors of other releases are replaced."""
    for _ in range(_QUIET):
        if not (left := rolling(world.state, world.settings, world.now)).outdated and not left.under_way:
            return
        go_on(world)
    raise Violation("at a quiet time, each monitor is of the latest release", str(left))


_NOTHING_KNOWN: Final = Facts()  # for drafts of arrays


def could_run(world: World, job: Job) -> bool:
    """Return whether a job could run on agents without other tasks."""
    needs, spec = world.mesos.facts.get(job.id, _NOTHING_KNOWN).needs, job.spec
    if spec.gpu_milli_in_all > WHOLE * world.settings.queue.queue_limits.get(spec.queue, spec.gpus_in_all):
        return False
    for pool in limits.pools_open(world.witness, job):
        agents = [agent for agent in tree.agents_in(world.witness, pool) if _suits(agent, job, needs)]
        for model in spec.gpu_model or (None,):
            if sum(_slots(agent, spec, model) for agent in agents) >= spec.tasks:
                return True
    return False


def _slots(agent: Agent, spec: JobSpec, model: str | None) -> int:
    """Return how many tasks of a job fit on an empty agent, by GPUs, ports and constraints."""
    mib = spec.gpu_memory_mib or 0
    able = [
        gpu
        for gpu in agent.gpus
        if not spec.is_share or (gpu.sharing is not None and mib <= gpu.sharing.memory_mib)
    ]
    gpus = sum(model is None or gpu.model == model for gpu in able)
    most = len(PORTS) if spec.tasks > 1 else 1
    for constraint in spec.constraints:
        if constraint.operator is Operator.UNIQUE:
            most = 1
        elif constraint.value != agent.hostname:
            most = 0
    # Executors take resources beside their tasks.
    most = min(most, int(CPUS // (spec.cpus + 0.1)), int(MEM_MIB // (spec.mem_mib + 100)))
    return min(most, gpus // spec.gpus) if spec.gpus else most


def _suits(agent: Agent, job: Job, needs: str | None) -> bool:
    driver = agent.driver if agent.gpus else None  # without GPUs there is no monitor, and no driver is known
    if not as_new_as(driver, job.spec.min_driver) or not as_new_as(agent.driver, needs):
        return False
    return not job.learnt_min_driver or as_new_as(driver, job.learnt_min_driver)


def _mend(world: World) -> None:
    if world.pair is not None:
        world.pair.trouble((), expires=False)
    world.wake()
    world.flush()  # the latest requests of users are handled before the repair
    world.lossy = 0
    if not world.mesos.connected:
        world.connect()
    for run in world.mesos.alive():
        run.deaf = False
    for target, name in list(world.state.cluster.drains):
        world.inbox.append(ev.UndrainRequested(target, name))
    queues.resume(world)
    bookings.cancel_all(world)
    world.flush()
    for agent in list(world.mesos.agents.values()):
        world.mesos.come_back(agent)
        world.mesos.other_leaves(agent)
        for gpu in agent.gpus:
            if gpu.health is not Health.OK:
                world.mesos.set_health(agent, gpu.id, Health.OK, "repaired")


def go_on(world: World, *, end: bool = False, checks: bool = True) -> None:
    """Let all launches proceed for some seconds, deliver all messages, and offer all resources.

    Args:
        world: Cluster with its scheduler.
        end: Whether commands end.
        checks: Whether health checks of instances succeed.
    """
    mesos = world.mesos
    world.pass_time(_ROUND_S)
    for job in world.instances():
        if checks and job.state is JobState.RUNNING and not _well(world, job):
            check(world, job, True)
    for run in mesos.alive():
        if run.stage != "TASK_RUNNING" or run.to_be_killed:
            world.progress(run, 7)
        elif end and not run.lasts:
            world.progress(run, 12)
    for run in list(mesos.runs.values()):
        mesos.resend(run)
    world.inbox += mesos.mail
    mesos.mail.clear()
    world.inbox += [event for agent in mesos.agents.values() if (event := mesos.offer(agent))]
    world.flush()


def _difference(world: World) -> str:
    """Describe a difference between engine and cluster, or a pending message; empty without any."""
    state, mesos = world.state, world.mesos
    truly = {run.id: run.item.task.gpus for run in mesos.alive()}
    known = {task_id: state.work.tasks[task_id].gpus for task_id in state.work.live}
    if truly != known:
        return f"truly run {sorted(truly)}, the engine has {sorted(known)}"
    claims = {gpu: task for agent in mesos.agents.values() for gpu, task in agent.claims.items()}
    if claims != state.gpus.holders:
        return f"claimed are {claims}, the engine has {state.gpus.holders}"
    shares = {gpu: dict(each) for agent in mesos.agents.values() for gpu, each in agent.shares.items()}
    if shares != state.gpus.sharers:
        return f"shared are {shares}, the engine has {state.gpus.sharers}"
    if bare := shares.keys() - state.gpus.covers.keys():
        return f"nothing holds {sorted(bare)} in Mesos"
    doomed = [job.id for job in state.work.jobs.values() if job.kill_requested and not job.state.ended]
    evicted = [task_id for task_id in truly if task_id in world.witness.evicted]
    if doomed or evicted:
        return f"should have been ended: {[*doomed, *evicted]}"
    waiting = [run.id for run in mesos.runs.values() if run.outbox or run.stage != "TASK_RUNNING"]
    return f"still being said: {waiting}" if waiting else ""


def _well(world: World, job: Job) -> bool:
    """Return whether health and readiness checks of an instance have succeeded."""
    task = world.state.work.tasks[job.task_id] if job.task_id else None
    if task is None:
        return False
    return (
        not job.checked or world.state.apps.healths.get(task.id) is True
    ) and task.ready >= job.proves_ready


def _roll_out(world: World) -> None:
    """Wait until deployments end and apps reach their targets; then delete all apps, of which nothing may remain."""
    if not (world.instances() or world.state.apps.deployments or aims_of(world.witness.disk)):
        return
    for n in range(_ROLLED_OUT if _fit(world) else 0):
        if not (left := _unfinished(world)):
            break
        if n == _PATIENCE:  # free GPUs are reserved for a large job, and apps hold the others
            _kill_jobs(world)
        go_on(world, end=True)
    else:
        if _fit(world):
            raise Violation("every deployment ends, and apps are as wanted", left, *_about(world))
    world.inbox.append(ev.AppsChanged(world.new_id("d"), Group("/"), force=True))
    world.flush()
    for _ in range(_ROLLED_OUT):
        remains = [str(run.id) for run in world.mesos.alive() if run.job_id and run.lasts]
        if not (remains or world.instances() or world.state.apps.deployments):
            return
        go_on(world, end=True)
    words = f"{remains}, {[job.id for job in world.instances()]}, {list(world.state.apps.deployments)}"
    raise Violation("nothing remains of a deleted app", words, *remains)


def _unfinished(world: World) -> str:
    """Describe an unfinished deployment or an app that differs from its target; empty without any."""
    if world.state.apps.deployments:
        return "; ".join(f"{d.id}: {dict(d.waiting)}" for d in world.state.apps.deployments.values())
    aims, there = (
        aims_of(world.witness.disk),
        instances_of(world.witness, aims_of(world.witness.disk), world.now),
    )
    for id in {**aims, **there}:
        wanted = [(aims[id].version, True)] * aims[id].instances if id in aims else []
        actual = [(each.version, each.serves) for each in there.get(id, ()) if not each.ending]
        if actual != wanted or len(there.get(id, ())) != len(actual):
            return f"{id} has (version, serves) {actual}, wanted are {wanted}"
    return ""


def _about(world: World) -> list[str]:
    return [job.id for job in world.instances()]


def _fit(world: World) -> bool:
    """Return whether all apps fit with all instances that they may have: by ports, GPUs, hosts and queues."""
    if not all(could_run(world, job) for job in world.instances() if job.state is JobState.PENDING):
        return False
    agents = list(world.mesos.agents.values())
    gpus = ports = 0
    for aim in aims_of(world.witness.disk).values():
        app = aim.app
        gpus += app.gpus * aim.most
        ports += len(app.port_definitions or ()) * aim.most
        if app.constraints and aim.most > len(agents):
            return False
    return gpus <= sum(len(agent.gpus) for agent in agents) and ports <= len(PORTS) * len(agents)


def _run_out(world: World) -> None:
    """Let commands end while small jobs of low priority arrive, which must not keep other jobs waiting."""
    jobs, queue = {job.id for job in world.waiting_or_running()}, _queue_without_guarantee(world)
    for _ in range(_QUIET + _MORE_A_JOB * len(jobs)):
        waiting = world.waiting_or_running()
        left = [job for job in waiting if job.id in jobs and could_run(world, job)]
        if not left:
            break
        if queue is not None and len(waiting) < _MAX_SMALL:
            _submit_small(world, queue, left[0].charged_to)
        go_on(world, end=True)
    else:
        job = left[0]
        raise Violation("nothing starves", f"{job.id} is {job.state.value}: {job.message}", job.id)
    _kill_jobs(world)


def _kill_jobs(world: World) -> None:
    for array in world.state.work.arrays.values():
        if array.ended_at is None:
            world.inbox.append(ev.ArrayKillRequested(array.id))
    for job in world.waiting_or_running():
        if job.array is None:
            world.inbox.append(ev.KillRequested(job.id))
    world.flush()


def _queue_without_guarantee(world: World) -> str | None:
    """Return a queue without guarantees at any hours, or None if there is no such queue.

    Small jobs within a guarantee would rightly come before jobs that wait to borrow, without end.
    """
    document = world.witness.written
    for queue in _OF_SMALL:
        spec = document.queues.get(queue, QueueSpec())
        given = (spec.guarantee_gpus, *(entry.guarantee_gpus for entry in spec.hours))
        if not any(guarantee.milli for by_pool in given for guarantee in by_pool.values()):
            return queue
    return None


def _submit_small(world: World, queue: str, user: str) -> None:
    """Submit a job of low priority and one GPU for the user of a job that waits.

    The jobs of a user who has used less would rightly come before it, for hours.
    """
    job_id = world.new_id("s")
    world.mesos.facts[job_id] = Facts()
    spec = JobSpec(
        job_id, "true", cpus=0.1, mem_mib=32, gpus=1, priority=-_HIGH, queue=queue, user=user or None
    )
    world.inbox.append(
        ev.JobSubmitted(job_id, replace(spec, preemptible=not world.state.quota.queues.is_empty))
    )
