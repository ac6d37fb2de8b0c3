"""Types of answers about notices of a job's end, and about idle GPUs."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.model.tasks.idle import IdleState
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tenancy import IdlePolicy

_Moment = Annotated[float, says(description="seconds since the epoch")]


class Notice(TypedDict):
    """The latest notice to a job's tasks about their end."""

    reason: Annotated[str, one_of(*NoticeReason)]
    why: str
    by: Annotated[str, says(description="job for which it is preempted")] | None
    by_queue: Annotated[str, says(description="queue of that job")] | None
    at: _Moment
    until: Annotated[float, says(description="when the job is ended if it still runs")]
    recalled_at: Annotated[float, says(description="when the notice was withdrawn")] | None
    told: Annotated[bool, says(description="whether all tasks can read it")]
    warning: Annotated[
        bool, says(description="whether it is only a warning of what happens if nothing changes")
    ]


class ComingEnd(TypedDict):
    """Planned end of a running job."""

    at: Annotated[float, says(description="when the job is ended if it still runs")]
    reason: Annotated[str, one_of(*NoticeReason)]
    why: str
    then: Annotated[str, says(description="what happens to the job afterwards, in words")]


class JobIdle(TypedDict):
    """A job with idle GPUs, or that is protected from being ended for them."""

    state: Annotated[str, one_of(*IdleState)]
    since: Annotated[float, says(description="since when it is in this state, seconds since the epoch")]
    idle_s: Annotated[float, says(minimum=0, description="time for which its GPUs have been idle")]
    warn_after_s: Annotated[float, says(description="idle time after which it is warned")]
    return_after_s: Annotated[float, says(description="idle time after which it is ended")]
    policy: Annotated[str, one_of(*IdlePolicy)]
    keep_until: _Moment | None
    kept_by: str | None
