"""Readers of jobs, arrays and tasks."""

from collections.abc import Callable, Mapping, Sequence

from mesos_gpu.engine.explain import ending
from mesos_gpu.engine.explain.arrays import running_in, why_in_array
from mesos_gpu.engine.explain.coming import Coming
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.match.moves import problem_of
from mesos_gpu.engine.queue.forecast import Forecast
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.tenancy import idle
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.model.arrays.array import ArrayCounts, JobArray
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.jobs.queue import QueueUse, Waiting
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.tasks.idle import Idleness
from mesos_gpu.model.tasks.notice import ComingEnd
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import Idle
from mesos_gpu.policy.room.defrag import Problem


def unknown_tasks(view: View) -> Sequence[Task]:
    """Return the tasks that wait for an operator's decision."""
    return [view.state.work.tasks[task_id] for task_id in view.state.work.unknown]


def tasks_of(view: View, job_id: JobId) -> Sequence[Task]:
    """Return all launches of a job, oldest first."""
    return view.state.work.tasks_of(job_id)


def round_of(view: View, job: Job) -> Sequence[Task]:
    """Return the tasks of a job's latest launch, by rank."""
    return view.state.work.round_of(job)


def idle_of(view: View, job: Job) -> tuple[Idleness, Idle] | None:
    """Return how idle a job is and the rules for it; None if it is not idle and not protected from being ended."""
    return idle.idle_of(view.state, job, view.now)


def coming_end(view: View, job: Job) -> ComingEnd | None:
    """Return the first known end of a job that runs, or None if no end is known."""
    return ending.coming_end(view.state, view.now, job)


def made_room_for(view: View, job_id: JobId) -> Sequence[JobId]:
    """Return the jobs that were ended, or will be ended, to make room for a job, as far as they are remembered."""
    tasks = view.state.work.tasks
    victims = (tasks.get(task_id) for task_id in view.state.work.made_room.get(job_id, ()))
    ids = {task.job_id for task in victims if task is not None and task.preempted_for == job_id}
    return sorted(victim_id for victim_id in ids if victim_id is not None)


def explain_job(view: View, job_id: JobId, *, past_offers: bool = False) -> Why:
    """Return why a job waits.

    Args:
        view: View of the state.
        job_id: Id of a job, or of a task of an array.
        past_offers: Whether an agent that offers nothing now is judged by its latest offer.

    Raises:
        NotFound: There is no such job.
    """
    context, job = (view.state, view.settings, view.now), view.jobs.get(job_id)
    if job is None:
        return why_in_array(*context, job_id, past_offers=past_offers)
    return why_of(*context, job, past_offers=past_offers)


def counts_of(view: View, array: JobArray) -> ArrayCounts:
    """Return the number of tasks of an array in each state."""
    return view.state.work.members.counts(array, running_in(view.state, array))


def unmade_tasks(view: View, array: JobArray | None = None) -> int:
    """Return the number of waiting tasks of an array, or of all arrays, that have no job yet."""
    unmade = view.state.work.members.unmade
    return sum(unmade.values()) if array is None else unmade.get(array.id, 0)


def _forecast(view: View) -> Forecast:
    """Return the forecast of all pending jobs."""
    context = view.state, view.settings, view.now
    return Forecast(*context, standing_of(*context), Coming(*context))


def waiting_jobs(view: View, most: int, sees: Callable[[Job], bool] = lambda _: True) -> Sequence[Waiting]:
    """Return pending jobs in the order in which they are tried.

    Args:
        view: View of the state.
        most: Largest number of jobs.
        sees: Function that returns whether to include a job.
    """
    return _forecast(view).waiting(most, sees)


def wait_reasons(view: View, most: int) -> Mapping[str, int]:
    """Return the number of jobs by the reason why they wait, of the first `most` pending jobs."""
    return _forecast(view).reasons(most)


def queue_uses(view: View) -> Sequence[QueueUse]:
    """Return all queues that have a limit or a pending job."""
    return _forecast(view).queues()


def defrag_problem(view: View, wanted: Job | JobSpec) -> Problem:
    """Return the input of a plan that makes room for a job, also for a request that was not submitted."""
    if isinstance(wanted, JobSpec):
        wanted = Job(JobId("plan"), wanted, view.now, view.state.work.next_sequence)
    return problem_of(view.state, view.settings, view.now, wanted)
