"""Types of requests, with the bounds that the parsers enforce; the OpenAPI document is made from them.

In requests null means the same as an absent field, and unknown fields are refused.
"""

import re
from typing import Annotated, Final, NotRequired, TypedDict

from mesos_gpu.api.spec.job_fields import like, requested
from mesos_gpu.api.spec.schema import declare, one_of, says
from mesos_gpu.model.apps.split import Mode
from mesos_gpu.model.tenancy import MAX_S
from mesos_gpu.wire import split
from mesos_gpu.wire.mesos.operations import MAX_BY, MAX_DEADLINE_S, MAX_REASON
from mesos_gpu.wire.shares import MAX_MIB

_LINE: Final = re.compile(r"[^\x00\n]*")
_STATED: Final = re.compile(r"[^\x00\n]*[^\x00\n\s][^\x00\n]*")

_Weight = Annotated[int, says(minimum=0, maximum=split.MAX_WEIGHT)]
_Host = Annotated[str, says(pattern="^[A-Za-z0-9.-]+$", minLength=1, maxLength=253)]
_Reason = Annotated[str, like(_STATED, maxLength=MAX_REASON)]
_By = Annotated[
    str, like(_LINE, maxLength=MAX_BY, description="name of the person or program that sends the request")
]


class JobRequest(TypedDict, total=False):
    """A command, and what each of its tasks needs. Exactly one of `command` and `argv` is required, or neither with
    an `image`, whose own entrypoint then runs.
    """


declare(JobRequest, requested())


class PlanRequest(JobRequest, total=False):
    """A job request in which `command`, `argv` and `image` may all be absent."""


_Memory = Annotated[int, says(minimum=1, maximum=MAX_MIB)]


class ResizeRequest(TypedDict, total=False):
    """New shares of a running job, as a merge patch (RFC 7396): absent fields stay, null resets a field to its
    default.
    """

    gpus: Annotated[
        float,
        says(
            exclusiveMinimum=0, exclusiveMaximum=1, description="part of one GPU: of its memory and compute"
        ),
    ]
    gpu_memory_mib: _Memory | None
    gpu_compute_pct: Annotated[int, says(minimum=1, maximum=100)] | None
    gpu_memory_max_mib: _Memory | None


class KeepRequest(TypedDict, total=False):
    """Time for which, or until which, a job is protected from being ended for idle GPUs: exactly one of both."""

    for_s: Annotated[float, says(exclusiveMinimum=0, maximum=MAX_S)] | None
    until: (
        Annotated[float, says(exclusiveMinimum=0, maximum=1e11, description="seconds since the epoch")] | None
    )


class DrainRequest(TypedDict):
    """A drain of a GPU or a node. After `deadline_s` tasks that still run there are ended and queued again."""

    reason: _Reason
    by: NotRequired[_By | None]
    deadline_s: NotRequired[
        Annotated[float, says(minimum=0, maximum=MAX_DEADLINE_S, description="null: never")] | None
    ]


class ResetRequest(TypedDict):
    """A reset of a GPU."""

    reason: _Reason
    by: NotRequired[_By | None]


class ServiceRequest(TypedDict):
    """A service: apps by id with their weights, at least one of which is above 0. Labels of the apps decide what is
    left out.
    """

    apps: Annotated[dict[str, _Weight], says(minProperties=1, maxProperties=split.MAX_APPS)]
    port_index: NotRequired[Annotated[int, says(minimum=0, maximum=99, default=0)] | None]
    port: NotRequired[Annotated[int, says(minimum=1, maximum=65535)] | None]
    hosts: NotRequired[Annotated[list[_Host], says(maxItems=split.MAX_HOSTS)] | None]
    mode: NotRequired[Annotated[str, one_of(*Mode)] | None]
