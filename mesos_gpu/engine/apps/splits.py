"""Services that are split over apps: what users want of them, and which tasks serve."""

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import NotFound
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tasks.task import Task, TaskState


def on_split_set(turn: Turn, event: ev.SplitSet) -> None:
    """Replace it as a whole."""
    turn.put(event.split)


def on_split_dropped(turn: Turn, event: ev.SplitDropped) -> None:
    """Forget it; its apps are left as they are.

    Raises:
        NotFound: There is none of that name.
    """
    if event.name not in turn.state.apps.splits:
        raise NotFound(f"there is no service {event.name}", remedy="list them with: mesos-gpu service list")
    turn.drop(TrafficSplit, event.name)


def serving(state: State, app_id: str) -> list[Task]:
    """The tasks of an app that requests may go to: they run, are ready and healthy, and were not told to end.

    What was known of their health counts on after a restart of the scheduler, until something else is found.
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
