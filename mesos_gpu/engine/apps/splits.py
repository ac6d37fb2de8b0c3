"""Services that are split over apps: their definition, and the tasks that serve them."""

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import NotFound
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tasks.task import Task, TaskState


def on_split_set(turn: Turn, event: ev.SplitSet) -> None:
    """Save a service, in place of the one with its name."""
    turn.put(event.split)


def on_split_dropped(turn: Turn, event: ev.SplitDropped) -> None:
    """Delete a service; its apps are left unchanged.

    Raises:
        NotFound: No service has that name.
    """
    if event.name not in turn.state.apps.splits:
        raise NotFound(
            f"there is no service {event.name}", remedy="list the services with: mesos-gpu service list"
        )
    turn.drop(TrafficSplit, event.name)


def serving(state: State, app_id: str) -> list[Task]:
    """Return the tasks of an app that may get requests: running, ready, healthy, and not being ended.

    After a restart of the scheduler the last known health counts until there is a new result.
    """
    tasks = []
    for id in state.apps.instances.get(app_id, ()):
        job = state.work.jobs[id]
        if job.state is not JobState.RUNNING or job.kill_requested:
            continue
        checked = job.checked or bool(job.spec.health_checks)
        tasks += [
            task
            for task in state.work.round_of(job)
            if task.state is TaskState.RUNNING
            and (task.ready or not job.proves_ready)
            and (not checked or (task.healthy is True and state.apps.healths.get(task.id) is not False))
        ]
    return tasks
