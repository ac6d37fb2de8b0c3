"""How long before its end a job is told of it."""

from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.tenancy.tree import Tree, lineage


def notice_of(state: State, settings: Settings, job: Job) -> float:
    """Seconds from a notice to SIGTERM. What the job asks for, and if it asks for nothing what its queue gives; never
    more than its queue gives, where the document says that for it or a queue above."""
    given_s = _of_queue(state.tree, job.spec.queue)
    asked_s = job.spec.notice_s
    if given_s is None:
        return min(asked_s or 0.0, settings.most_notice_s)
    return given_s if asked_s is None else min(asked_s, given_s)


def lead_of(state: State, settings: Settings, job: Job) -> float:
    """Seconds from a notice until a job has ended for certain."""
    return notice_of(state, settings, job) + job.spec.kill_grace_s


def _of_queue(tree: Tree, queue: str) -> float | None:
    specs = (tree.document.queues.get(path) for path in lineage(queue))
    return next((spec.notice_s for spec in specs if spec is not None and spec.notice_s is not None), None)
