"""Visibility of jobs: an invisible job is left out of answers; of others some fields may be hidden."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from starlette.requests import Request

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import JOB_READ, JOB_SEE, NODE_SEE, QUEUE_SEE, TASK_SEE, Right
from mesos_gpu.api.http.rights import require, rights_of
from mesos_gpu.api.sight.queues import sees_queue
from mesos_gpu.engine.reading.jobs import unknown_tasks
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.tenancy.tree import lineage
from mesos_gpu.wire.job_fields import HIDDEN, write

#: Fields of a job that are visible to all who see the job; others need the right to read it.
OPEN_FIELDS: Final = frozenset(
    {
        "name", "cpus", "cpu_limit", "mem_mib", "disk_mib", "gpus", "gpu_model", "gpu_memory_mib", "gpu_compute_pct",
        "gpu_memory_max_mib", "isolation", "compute_capability", "tasks", "user", "max_attempts", "timeout_s",
        "kill_grace_s", "on_gpu_failure", "on_member_failure", "min_driver", "placement", "priority", "preemptible",
        "queue", "app",
    }
)  # fmt: skip
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9._-]*[a-z0-9]")  # form of a job id in a sentence
MAX_JUDGED: Final = 256  # remembered decisions of a caller
_SEEN: Final = (JOB_SEE, JOB_READ, QUEUE_SEE)
_QUEUE: Final = re.compile(r"(?<=\bqueue )[^\s,;:()]+")  # form of a queue path in a sentence
#: Values in place of hidden fields, as if the submitter had not set them.
CLOSED: Final[Any] = {
    **{key: value for key, value in write(JobSpec(name="-")).items() if key not in OPEN_FIELDS},
    "message": HIDDEN,
}


def _map_texts(said: Any, told: Callable[[str], str]) -> Any:
    """Return a JSON value in which a function has changed each text."""
    if isinstance(said, dict):
        return {key: _map_texts(value, told) for key, value in said.items()}
    if isinstance(said, list):
        return [_map_texts(item, told) for item in said]
    return told(said) if isinstance(said, str) else said


def subject_of(job: Job) -> Subject:
    """Return the subject of rights for a job."""
    app = job.spec.app if job.app_version is not None else None
    return Subject(job.owner, job.spec.queue, app or "")


class Sight:
    """The jobs that a caller may see.

    A right for all jobs is checked once; another one once for each queue and app, for the caller's own jobs and for
    others, as long as the access document is the same: not for each job.

    Args:
        rights: Rights of the caller.
    """

    def __init__(self, rights: Rights) -> None:
        self.rights = rights
        self._always = frozenset(right for right in _SEEN if rights.may_always(right))
        if len(rights.judged) > MAX_JUDGED:
            rights.judged.clear()
        self._known = rights.judged
        self._unseen: set[str] | None = None

    @classmethod
    def of(cls, request: Request) -> "Sight":
        """Return the visibility of jobs for the sender of a request."""
        return cls(rights_of(request))

    @property
    def sees_all(self) -> bool:
        """Whether every job is visible."""
        return JOB_SEE in self._always

    def sees(self, job: Job) -> bool:
        """Return whether the job is visible."""
        return self._may(JOB_SEE, job)

    def reads(self, job: Job) -> bool:
        """Return whether the caller may read what the job runs."""
        return self._may(JOB_READ, job)

    def require(self, right: Right, job: Job) -> Job:
        """Require a right for a job, and return the job.

        Raises:
            Refusal: The caller lacks it.
        """
        require(self.rights, right, subject_of(job))
        return job

    def named(self, job: Job | None, word: Callable[[Job], str]) -> str | None:
        """Return a text about a job, made by `word`; a placeholder if the job is invisible, None if there is no job."""
        if job is None:
            return None
        return word(job) if self.sees(job) else HIDDEN

    def sees_task(self, jobs: Mapping[JobId, Job], task: Task) -> bool:
        """Return whether a task is visible.

        A job's task is visible with the job. An unknown task, which is kept but belongs to no job, needs the right to
        see such tasks or all jobs; others need the right to see nodes.
        """
        job = jobs.get(task.job_id) if task.job_id else None
        if job is not None:
            return self.sees(job)
        return JOB_SEE in self._always or self.rights.may(TASK_SEE if task.unknown else NODE_SEE)

    def veiled(self, view: View, said: Any) -> Any:
        """Return a text, or a JSON value with texts, with invisible queues and ids of jobs and tasks replaced."""
        if QUEUE_SEE not in self._always:
            hidden = self._hidden_queues(view)
            said = _map_texts(
                said, lambda text: _QUEUE.sub(lambda path: HIDDEN if path[0] in hidden else path[0], text)
            )
        if JOB_SEE in self._always:
            return said
        unknown_ones = () if self.rights.may(TASK_SEE) else unknown_tasks(view)
        jobs, unknown = view.jobs, {task.job_id or task.id for task in unknown_ones}
        return _map_texts(said, lambda text: _WORD.sub(lambda word: self._word(jobs, unknown, word[0]), text))

    def _hidden_queues(self, view: View) -> set[str]:
        """Return the paths of invisible queues."""
        if self._unseen is None:
            versions = view.queue_versions
            paths = versions[max(versions)].queues if versions else {}
            visible = {
                ancestor for path in paths if sees_queue(self.rights, path) for ancestor in lineage(path)
            }
            self._unseen = set(paths) - visible
        return self._unseen

    def _word(self, jobs: Mapping[JobId, Job], held: Collection[str], word: str) -> str:
        """Return a word, or a placeholder if it is the id of an invisible job or task."""
        id = word
        # A task's id is its job's id with .LAUNCH or .LAUNCH.RANK appended.
        while "." in id and id not in jobs and id not in held:
            id = id.rpartition(".")[0]
        job = jobs.get(JobId(id))
        return HIDDEN if (id in held if job is None else not self.sees(job)) else word

    def _may(self, right: Right, job: Job) -> bool:
        """Return whether the caller has a right for a job; decisions are cached."""
        if right in self._always:
            return True
        app = job.spec.app if job.app_version is not None else None
        # The owner matters only as to whether it is the caller.
        key = right, job.owner == self.rights.caller.name, job.spec.queue, app
        allowed = self._known.get(key)
        if allowed is None:
            allowed = self._known[key] = self.rights.may(right, subject_of(job))
        return allowed
