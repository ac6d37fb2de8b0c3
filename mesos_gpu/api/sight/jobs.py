"""What somebody may see of jobs: those that may not be seen are not there, of others some fields are hidden."""

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

#: Fields of a job that all see who see the job; each other one is hidden from who may not read it.
OPEN_FIELDS: Final = frozenset(
    {
        "name", "cpus", "cpu_limit", "mem_mib", "disk_mib", "gpus", "gpu_model", "gpu_memory_mib", "gpu_compute_pct",
        "gpu_memory_max_mib", "isolation", "compute_capability", "tasks", "user", "max_attempts", "timeout_s",
        "kill_grace_s", "on_gpu_failure", "on_member_failure", "min_driver", "placement", "priority", "preemptible",
        "queue", "app",
    }
)  # fmt: skip
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9._-]*[a-z0-9]")  # as which the id of a job stands in a sentence
MAX_JUDGED: Final = 256  # that are remembered of a caller
_SEEN: Final = (JOB_SEE, JOB_READ, QUEUE_SEE)
_QUEUE: Final = re.compile(r"(?<=\bqueue )[^\s,;:()]+")  # as which the path of one stands in a sentence
#: What stands in the place of hidden fields: as if they had not been asked for.
CLOSED: Final[Any] = {
    **{key: value for key, value in write(JobSpec(name="-")).items() if key not in OPEN_FIELDS},
    "message": HIDDEN,
}


def _in_texts(said: Any, told: Callable[[str], str]) -> Any:
    """A JSON value with each of its texts as it is told."""
    if isinstance(said, dict):
        return {key: _in_texts(each, told) for key, each in said.items()}
    if isinstance(said, list):
        return [_in_texts(each, told) for each in said]
    return told(said) if isinstance(said, str) else said


def subject_of(job: Job) -> Subject:
    """What rights for a job are asked for."""
    app = job.spec.app if job.app_version is not None else None
    return Subject(job.owner, job.spec.queue, app or "")


class Sight:
    """What one request's caller may see. A right for all is asked for once, another one once for each queue and app, of
    the caller's own jobs and of others, by one version of the document: not for each job."""

    def __init__(self, rights: Rights) -> None:
        """See what these rights allow."""
        self.rights = rights
        self._always = frozenset(right for right in _SEEN if rights.may_always(right))
        if len(rights.judged) > MAX_JUDGED:
            rights.judged.clear()
        self._known = rights.judged
        self._unseen: set[str] | None = None

    @classmethod
    def of(cls, request: Request) -> "Sight":
        """What the sender of a request sees."""
        return cls(rights_of(request))

    @property
    def sees_all(self) -> bool:
        """Whether every job is there."""
        return JOB_SEE in self._always

    def sees(self, job: Job) -> bool:
        """Whether the job is there at all."""
        return self._may(JOB_SEE, job)

    def reads(self, job: Job) -> bool:
        """Whether it sees what the job runs."""
        return self._may(JOB_READ, job)

    def require(self, right: Right, job: Job) -> Job:
        """Let pass who may do that with the job.

        Raises:
            Refusal: He may not.
        """
        require(self.rights, right, subject_of(job))
        return job

    def named(self, job: Job | None, word: Callable[[Job], str]) -> str | None:
        """A word that tells of a job, for who may see it."""
        if job is None:
            return None
        return word(job) if self.sees(job) else HIDDEN

    def sees_task(self, jobs: Mapping[JobId, Job], task: Task) -> bool:
        """Whether a task is there: a job's as the job; one that is held because nothing is known of it to who sees such
        tasks, or all jobs; others to who sees nodes."""
        job = jobs.get(task.job_id) if task.job_id else None
        if job is not None:
            return self.sees(job)
        return JOB_SEE in self._always or self.rights.may(TASK_SEE if task.unknown else NODE_SEE)

    def veiled(self, view: View, said: Any) -> Any:
        """A text, or a JSON value with texts, without the queues and the ids of jobs and tasks that it does not see."""
        if QUEUE_SEE not in self._always:
            hidden = self._hidden_queues(view)
            said = _in_texts(
                said, lambda text: _QUEUE.sub(lambda path: HIDDEN if path[0] in hidden else path[0], text)
            )
        if JOB_SEE in self._always:
            return said
        held = () if self.rights.may(TASK_SEE) else unknown_tasks(view)
        jobs, unknown = view.jobs, {task.job_id or task.id for task in held}
        return _in_texts(said, lambda text: _WORD.sub(lambda word: self._word(jobs, unknown, word[0]), text))

    def _hidden_queues(self, view: View) -> set[str]:
        """Paths of queues that it does not see."""
        if self._unseen is None:
            versions = view.queue_versions
            paths = versions[max(versions)].queues if versions else {}
            seen = {each for path in paths if sees_queue(self.rights, path) for each in lineage(path)}
            self._unseen = set(paths) - seen
        return self._unseen

    def _word(self, jobs: Mapping[JobId, Job], held: Collection[str], word: str) -> str:
        id = word
        # The id of a task is its job's with .LAUNCH or .LAUNCH.RANK behind it.
        while "." in id and id not in jobs and id not in held:
            id = id.rpartition(".")[0]
        job = jobs.get(JobId(id))
        return HIDDEN if (id in held if job is None else not self.sees(job)) else word

    def _may(self, right: Right, job: Job) -> bool:
        if right in self._always:
            return True
        app = job.spec.app if job.app_version is not None else None
        # Of its owner it matters only whether that is the caller.
        key = right, job.owner == self.rights.caller.name, job.spec.queue, app
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self.rights.may(right, subject_of(job))
        return known
