"""Resizing of a running task's share: request to the executor, and answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.shares.share import Share


@dataclass(frozen=True, slots=True)
class Resize:
    """Wanted share of each GPU of a task. Requests may be repeated: the highest number counts, and the answer to a
    completed request is sent again.

    Attributes:
        number: Number that grows with each request for the task, from 1; 0 only asks the executor to report the share.
        memory_mib, memory_max_mib, compute_milli: Amounts of the share, as in `Share`.
    """

    number: int
    memory_mib: int
    memory_max_mib: int
    compute_milli: int


@dataclass(frozen=True, slots=True)
class ResizeAnswer:
    """Answer of an executor to a resize request.

    Attributes:
        number: Number of the request.
        memory_mib, memory_max_mib, compute_milli: Amounts that the task has of each GPU now, changed or not.
        refused: Reason why nothing was changed, for people; "" if the request was carried out.
        used_mib: Memory that the task uses, if that is more than the requested share; else None.
        restart: Whether a restarted task could have the requested share.
    """

    number: int
    memory_mib: int
    memory_max_mib: int
    compute_milli: int
    refused: str = ""
    used_mib: int | None = None
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Resizing:
    """State of the latest resize of a task's share in the scheduler. Times are seconds since the epoch.

    Attributes:
        number: Number of the request; 0 if the executor is only asked to report the share.
        share: Wanted share of each GPU.
        before: Previous share; when a resize is undone, the share that the task may have got by it.
        since: Time of the request.
        patch: Changes of the job's request once all of its tasks are resized, by field name.
        restart: Whether the job is restarted if it cannot be resized while it runs.
        restartable: Whether the executor reports that a restart would help.
        back: Whether it undoes a resize that another task of the gang refused, or that was withdrawn.
        withdrawn: Whether it undoes a resize that was withdrawn.
        sent_at: Time of the last request to the executor; None before the first.
        answered: Whether the executor has answered.
        refused: Reason why the executor refused; "" if it did not refuse or has not answered.
        used_mib: Memory in use according to the answer, as in `ResizeAnswer`.
    """

    number: int
    share: Share
    before: Share
    since: float
    patch: Mapping[str, int | None] = field(default_factory=dict)
    restart: bool = False
    restartable: bool = False
    back: bool = False
    withdrawn: bool = False
    sent_at: float | None = None
    answered: bool = False
    refused: str = ""
    used_mib: int | None = None

    @property
    def pending(self) -> bool:
        """Whether the executor may still carry it out."""
        return not self.answered
