"""Explanation of why the jobs of a queue wait: counts by reason, and the first job in full. It changes no state."""

from collections.abc import Hashable, Sequence
from typing import Final

from mesos_gpu.engine.explain.coming import Coming
from mesos_gpu.engine.explain.hours import hours_words
from mesos_gpu.engine.explain.shares import path_share
from mesos_gpu.engine.explain.why import waits_for_turn, why_of
from mesos_gpu.engine.indexes.leaves import leaf_of
from mesos_gpu.engine.queue.forecast import Forecast
from mesos_gpu.engine.queue.secrets import problem_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.seats import Ground
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.queue_why import QueuePool, QueueWhy, WaitGroup
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.model.tenancy import Stop
from mesos_gpu.model.words import counted
from mesos_gpu.policy.tenancy.tree import Tree, lineage

_RETRY: Final = "retry"
_SECRETS: Final = "secrets"
#: Kinds of jobs that are examined for the pace of launches, on the engine's thread; others count as without
#: room.
MAX_KINDS: Final = 100


def queue_why(state: State, settings: Settings, path: str, now: float) -> QueueWhy:
    """Return why the jobs of a queue and of those below it wait.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        path: Path of the queue.
        now: Time, in seconds since the epoch.

    Raises:
        NotFound: The queue does not exist.
    """
    share, tree = path_share(state, settings, path, now), state.quota.tree
    forecast = Forecast(state, settings, now, standing_of(state, settings, now), Coming(state, settings, now))
    waiting = [job for job in forecast.jobs if path in lineage(leaf_of(tree, job))]
    held = _seated(state, tree, path, now)
    pools = [QueuePool(step, held.get(step.pool, 0)) for step in share.steps if step.path == path]
    waits = _grouped(state, settings, now, forecast, waiting)
    first = why_of(state, settings, now, waiting[0]) if waiting else None
    summary = "; ".join(
        filter(None, (_summary(tree, path, forecast, waiting, pools), hours_words(state, path, now)))
    )
    return QueueWhy(path, summary, tuple(pools), waits, first)


def _seated(state: State, tree: Tree, path: str, now: float) -> dict[str, int]:
    """Return the usage of a queue's jobs within guarantees, by pool, in thousandths of cost."""
    ground, sums = Ground(state, tree, now), dict[str, int]()
    jobs = {
        job.id: job
        for task_id in state.work.live
        if (job := state.work.holding_job(state.work.tasks[task_id])) is not None
    }
    for job in jobs.values():
        if job.seat is not None and path in lineage(leaf_of(tree, job)):
            pool, milli = ground.granted(job)
            sums[pool] = sums.get(pool, 0) + milli * job.spec.tasks
    return sums


def _grouped(
    state: State, settings: Settings, now: float, forecast: Forecast, waiting: Sequence[Job]
) -> tuple[WaitGroup, ...]:
    """Return pending jobs grouped by the reason for which they wait."""
    groups: dict[str, tuple[list[Job], str]] = {}
    paced: dict[Hashable, bool] = {}  # whether the pace of launches blocks a kind of jobs
    for job in waiting:
        reason, words = _wait_of(state, settings, now, forecast, job, paced)
        if reason == Stage.PACE.value and reason not in groups:
            words = why_of(state, settings, now, job).summary
        groups.setdefault(reason, ([], words))[0].append(job)
    return tuple(
        WaitGroup(reason, *_sums(forecast, jobs), jobs[0].id, words)
        for reason, (jobs, words) in groups.items()
    )


def _sums(forecast: Forecast, jobs: Sequence[Job]) -> tuple[int, int]:
    """Return how many jobs wait, with tasks of arrays without a job, and for how many thousandths of GPUs."""
    counts = [(forecast.stands_for(job.id), job) for job in jobs]
    return sum(n for n, _ in counts), sum(n * job.spec.gpu_milli_in_all for n, job in counts)


def _wait_of(
    state: State, settings: Settings, now: float, forecast: Forecast, job: Job, paced: dict[Hashable, bool]
) -> tuple[str, str]:
    """Return the kind of reason for which a job waits, and the reason in words.

    Args:
        paced: Results of `waits_for_turn` by kind of job, which are added.
    """
    if job.not_before > now:
        return _RETRY, f"waits {job.not_before - now:.0f} s before its next launch: {job.message}"
    if problem := problem_of(state, settings, now, job):
        return _SECRETS, problem
    wait = forecast.backlog.barriers.wait_of(job)
    if wait is not None:
        return wait.stage.value, wait.words
    kind = forecast.backlog.kind(job, forecast.backlog.request(job))
    if kind not in paced and len(paced) < MAX_KINDS:
        paced[kind] = waits_for_turn(state, settings, now, job, forecast.backlog)
    if paced.get(kind):
        return Stage.PACE.value, ""
    return (Stage.GUARANTEE if job.id in state.quota.seats_given else Stage.GPUS).value, ""


def _summary(
    tree: Tree, path: str, forecast: Forecast, waiting: Sequence[Job], pools: Sequence[QueuePool]
) -> str:
    """Return the most important facts in one sentence."""
    stopped = next((queue for queue in lineage(path) if tree.specs[queue].stop is not Stop.NONE), None)
    held = f": queue {stopped} is on hold" if stopped is not None else ""
    if not waiting:
        has = counted(number_of(sum(pool.share.held for pool in pools)), "GPU")
        return f"no job waits; {has} allocated" + (f", and no job starts{held}" if held else "")
    number, milli = _sums(forecast, waiting)
    wants, jobs = counted(number_of(milli), "GPU"), counted(number, "job")
    return f"{jobs} wait{'s' if number == 1 else ''} for {wants}{held}"
