"""Types of answers about what a job is told of its end, and about its idle GPUs."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.model.tasks.idle import IdleState
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tenancy import IdlePolicy

_Moment = Annotated[float, says(description="seconds since the epoch")]


class Notice(TypedDict):
    """What a job's tasks were told of their end the last time."""

    reason: Annotated[str, one_of(*NoticeReason)]
    why: str
    by: Annotated[str, says(description="the job that it makes room for")] | None
    by_queue: Annotated[str, says(description="the queue of that job")] | None
    at: _Moment
    until: Annotated[float, says(description="when it is ended if it still runs")]
    recalled_at: Annotated[float, says(description="when it was called off")] | None
    told: Annotated[bool, says(description="whether all its tasks can read it")]
    warning: Annotated[bool, says(description="whether it only says what comes if nothing changes")]


class ComingEnd(TypedDict):
    """Known end of a job that runs."""

    at: Annotated[float, says(description="when it is ended if it still runs")]
    reason: Annotated[str, one_of(*NoticeReason)]
    why: str
    then: Annotated[str, says(description="what becomes of the job, in words")]


class JobIdle(TypedDict):
    """A job whose GPUs do nothing, or that somebody keeps from being ended for that."""

    state: Annotated[str, one_of(*IdleState)]
    since: Annotated[float, says(description="seconds since the epoch: since when it is in that state")]
    idle_s: Annotated[float, says(minimum=0, description="how long its GPUs did nothing")]
    warn_after_s: Annotated[float, says(description="of that, then it is warned")]
    return_after_s: Annotated[float, says(description="of that, then it is ended")]
    policy: Annotated[str, one_of(*IdlePolicy)]
    keep_until: _Moment | None
    kept_by: str | None
