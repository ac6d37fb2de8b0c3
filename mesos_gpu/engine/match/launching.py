"""Launches of what a match has assigned: tasks of node monitors and of jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.effects import LaunchTask
from mesos_gpu.engine.match.covering import open_cards
from mesos_gpu.engine.match.ledger import Ledger
from mesos_gpu.engine.match.remains import FreeOffers, Launches, Pace
from mesos_gpu.engine.match.search import task_id_of
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.tasks.unknown import MONITOR
from mesos_gpu.engine.tasks.volumes import bind
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.arrays.array import environment as indexed
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.apps.healthcheck import of_scheduler
from mesos_gpu.policy.apps.task_env import launch_env
from mesos_gpu.policy.tasks.gang import environment, environment_alone
from mesos_gpu.policy.tenancy.las import at_launch


def launch_monitors(turn: Turn, ledger: Ledger, remains: FreeOffers, launches: Launches, pace: Pace) -> None:
    """Start a monitor on each agent that offers enough, has GPUs or may get secrets or volumes, and lacks one."""
    for agent_id in remains.in_order(turn.state.cluster.agents.unwatched):
        node = turn.state.cluster.nodes[agent_id]
        if turn.now >= node.monitor_not_before and _has_room_for_monitor(turn, node, remains, pace):
            _launch_monitor(turn, node, ledger, remains, launches)


def _has_room_for_monitor(turn: Turn, node: Node, remains: FreeOffers, pace: Pace) -> bool:
    """Return whether a node needs a monitor and its offers have room for it."""
    settings, left = turn.settings, remains.resources(node.id)
    needs_monitor = settings.secret_store.secrets or turn.state.work.volumes
    if node.inventory is None and not left.gpus and not needs_monitor:
        return False
    return left.covers(settings.programs.monitor) and not pace.is_full(node.id)


def _launch_monitor(turn: Turn, node: Node, ledger: Ledger, remains: FreeOffers, launches: Launches) -> None:
    """Launch a node monitor on the offers of an agent."""
    settings = turn.settings
    turn.state.cluster.monitors += 1
    # The start time of this scheduler makes the id new even if the count begins at 0 again.
    since = round(turn.state.started_at * 1000)
    task_id = TaskId(f"{MONITOR}{node.id}.{since}.{turn.state.cluster.monitors}")
    # Mesos requires resources of a task as well as of its executor (master/validation.cpp): each gets a half.
    own, executor = settings.programs.monitor.halves()
    take = Take(node.id, task=own, executor=executor)
    ledger.take(take)
    task = Task(
        id=task_id,
        agent_id=node.id,
        executor_id=task_id,
        job_id=None,
        state=TaskState.LAUNCHED,
        launched_at=turn.now,
        hostname=node.hostname,
        agent_url=node.agent_url,
        sealed=settings.programs.sealed,
        made_by=settings.programs.monitor_made_by,
    )
    turn.put_task(task)
    turn.put_node(replace(node, monitor=task_id, monitor_launches=node.monitor_launches + 1))
    carved = remains.carved(take)
    launches.fill(take, LaunchTask(task, None, carved.task, carved.executor))


def launch(
    turn: Turn,
    job: Job,
    takes: Sequence[Take],
    remains: FreeOffers,
    launches: Launches,
    seat: GuaranteedAdmission | None = None,
) -> None:
    """Create a task for each assignment of a job, by rank, and launch them.

    Args:
        takes: Assignments of its tasks.
        remains: Rest of the offers, with what each assignment got.
        launches: Launches of the match, which are filled.
        seat: Seat of the job; None if it borrows, or without a tree of queues.
    """
    tasks = [_task(turn, job, rank, take) for rank, take in enumerate(takes)]
    for task in tasks:
        turn.put_task(task)
    turn.state.match.drawn += len(tasks)
    turn.put_job(
        changed(
            job,
            state=JobState.STARTING,
            task_id=tasks[0].id,
            launches=job.launches + 1,
            started_at=None,
            seat=seat,
            served=at_launch(job, turn.now),
            message=f"launched on {', '.join(dict.fromkeys(task.hostname for task in tasks))}",
        )
    )
    spec = bind(turn, job, tasks[0].hostname)
    opened = open_cards(turn, takes, remains)
    array = turn.state.work.arrays.get(job.array) if job.array is not None else None
    hosts = tuple(task.hostname for task in tasks) if job.spec.tasks > 1 else ()
    for take, task in zip(takes, tasks, strict=True):
        carved = remains.carved(take)
        item = LaunchTask(
            task, spec, carved.task, carved.executor, app_version=job.app_version, owner=job.owner,
            ports=take.ports, env=_env(job, array, task, take, tasks), hosts=hosts,
            wire=turn.state.cluster.nodes[take.agent_id].wire, listens=_listens(turn, job, task),
            image_secret=turn.state.quota.tree.image_secret_of(job.spec) or "",
        )  # fmt: skip
        launches.fill(take, *opened.get(take, ()), item)


def _listens(turn: Turn, job: Job, task: Task) -> tuple[int, ...]:
    """Return the ports of an app's instance that are checked or exported, which its executor must therefore watch."""
    if job.app_version is None:
        return ()
    versions = turn.state.apps.app_versions.get(job.spec.app or "", ())
    app = next((version.app for version in versions if version.version == job.app_version), None)
    checks = of_scheduler(app.health_checks) if app is not None else ()
    return tuple(dict.fromkeys((*task.ports, *(check.port for check in checks if check.port is not None))))


def _env(
    job: Job, array: JobArray | None, task: Task, take: Take, members: Sequence[Task]
) -> Mapping[str, str]:
    """Return the environment variables of a task for its ports, its gang and its array."""
    of_array = {} if array is None or job.index is None else indexed(array, job.index)
    if job.spec.tasks > 1:
        hosts, ports = [member.hostname for member in members], [member.ports[0] for member in members]
        gang = environment(task.rank, hosts, ports, gpus=len(task.gpus), own=job.spec.env)
        return {**of_array, **gang}
    spec = job.spec
    launch_variables = launch_env(
        spec.ports, spec.env, task_id=task.id, host=task.hostname, ports=take.numbers
    )
    if job.app_version is not None:
        return of_array | launch_variables  # libraries of servers may take RANK for a distributed job
    return (
        of_array
        | launch_variables
        | environment_alone(gpus=len(task.gpus), own={*spec.env, *(secret.name for secret in spec.secrets)})
    )


def _task(turn: Turn, job: Job, rank: int, take: Take) -> Task:
    """Return a new task of a job's next launch."""
    node, task_id = turn.state.cluster.nodes[take.agent_id], task_id_of(job, rank)
    return Task(
        id=task_id,
        agent_id=node.id,
        executor_id=task_id,
        job_id=job.id,
        state=TaskState.LAUNCHED,
        launched_at=turn.now,
        attempt=job.attempts + 1,
        gpus=take.gpus,
        share=take.share,
        hostname=node.hostname,
        agent_url=node.agent_url,
        launch=job.launches + 1 if job.spec.tasks > 1 else 0,
        rank=rank,
        ports=tuple(port for port in take.numbers if port is not None),
        sealed=turn.settings.programs.sealed,
    )
