"""Trials: submission of a job on a copy of the state, to find what would become of it."""

from collections.abc import Iterator
from dataclasses import replace

from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.events import JobSubmitted
from mesos_gpu.engine.explain.trial import give_seats
from mesos_gpu.engine.queue.secrets import problem_of
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.step import step
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.fields import Gpus, Whole
from mesos_gpu.model.jobs.job import FIELDS, JobSpec
from mesos_gpu.model.jobs.why import JobPlan, Relief, Verdict, Why


def plan_job(view: View, job: JobSubmitted) -> JobPlan:
    """Submit a job on a copy of the state, and explain what it would wait for; the state stays as it is.

    Args:
        view: View of the state.
        job: The submission, under an id that no job has.

    Raises:
        NotFound, Conflict, NotAccepted, TooMuch: The submission would be refused.
    """
    trial = view.copied()
    why = _explained(trial, job)
    if not why.can_ever_run:
        return JobPlan(Verdict.NEVER, why, reliefs=tuple(_reliefs(trial, job)))
    if not _fits(trial, why):
        return JobPlan(Verdict.WAITS, why)
    return JobPlan(Verdict.FITS, why, tuple(node.hostname for node in why.nodes if node.stage is None))


def _explained(trial: View, job: JobSubmitted) -> Why:
    """Submit a job in the trial and return why it waits."""
    step(trial.state, job, trial.now, trial.settings)
    give_seats(trial.state, trial.settings, trial.now)
    return explain_job(trial, job.job_id, past_offers=True)


def _fits(trial: View, why: Why) -> bool:
    """Return whether no stage removed the last node, and no secret is known to be unreadable."""
    if not why.nodes or (why.funnel and not why.funnel[-1].left):
        return False
    job = trial.jobs.get(why.job_id)
    return job is None or not problem_of(trial.state, trial.settings, trial.now, job)


def _reliefs(trial: View, job: JobSubmitted) -> Iterator[Relief]:
    """Yield the changes of one field each by which a job could run.

    Each is submitted in the trial beside the others: whether a job can ever run depends on no other job.
    """
    spec = changed(job.spec, array=None)
    for field in FIELDS:
        value = getattr(spec, field.name)
        if not field.places or value == field.default:
            continue
        if isinstance(field.kind, Gpus | Whole) and not spec.is_share:
            if most := _most(trial, job, spec, field.name, value):
                yield Relief(field.key, most)
        elif field.key != "gpus" and _could_run(trial, job, changed(spec, **{field.name: field.standard()})):
            yield Relief(field.key, None)


def _most(trial: View, job: JobSubmitted, spec: JobSpec, name: str, value: int) -> int:
    """Return the largest value of a number, below the present one, with which the job could run, or 0."""
    able, unable = 0, value
    while unable - able > 1:
        middle = (able + unable) // 2
        if _could_run(trial, job, changed(spec, **{name: middle})):
            able = middle
        else:
            unable = middle
    return able


def _could_run(trial: View, job: JobSubmitted, spec: JobSpec) -> bool:
    """Return whether a changed request could ever run; False if its submission is refused."""
    other = replace(job, job_id=JobId(f"{job.job_id}-{trial.state.work.next_sequence}"), spec=spec)
    try:
        return _explained(trial, other).can_ever_run
    except MesosGpuError:  # the submission would be refused
        return False
