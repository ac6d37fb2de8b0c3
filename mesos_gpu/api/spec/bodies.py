"""What /v1 takes, as types: api/openapi.py prints them, with the bounds that the parsers of wire keep to.

In requests null is as if the field were absent, and what is not known is refused.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, Required, TypedDict

from mesos_gpu.api.spec.schema import Says, one_of, says
from mesos_gpu.model.apps.split import Mode
from mesos_gpu.model.jobs.constraint import Operator
from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, Engine, OnGpuFailure, OnMemberFailure, Placement
from mesos_gpu.model.jobs.permits import Control
from mesos_gpu.model.nodes.driver import MINIMUM
from mesos_gpu.model.nodes.gpu import CAPABILITY
from mesos_gpu.wire import split
from mesos_gpu.wire.constraints import LONGEST_WORD, MOST_CONSTRAINTS
from mesos_gpu.wire.jobs import (
    BOUNDS,
    CHECK_BOUNDS,
    ENV_KEY,
    LABEL_KEY,
    MOST_ARTIFACTS,
    MOST_CHECKS,
    MOST_PORTS,
    NAME,
    PROTOCOLS,
    USER,
)
from mesos_gpu.wire.mesos.operations import LONGEST_BY, LONGEST_REASON, MOST_DEADLINE_S
from mesos_gpu.wire.mounts import FORM as MOUNT_FORM
from mesos_gpu.wire.mounts import MOST as MOST_MOUNTS
from mesos_gpu.wire.mounts import SHAPE as MOUNT_SHAPE


def _like(pattern: re.Pattern[str], **more: Any) -> Says:
    return says(pattern=f"^(?:{pattern.pattern})$", **more)


def _of(key: str, bounds: Mapping[str, tuple[float, float]] = BOUNDS) -> Says:
    least, most = bounds[key]
    return says(minimum=least, maximum=most)


_TEXT: Final = re.compile(r"[^\x00]*")
_WORD: Final = re.compile(r"[^\x00]+")
_PATH: Final = re.compile(r"/[^\x00]*")
_COMMAND: Final = re.compile(r"[^\x00]*[^\x00\s][^\x00]*")
_LINE: Final = re.compile(r"[^\x00\n]*")
_STATED: Final = re.compile(r"[^\x00\n]*[^\x00\n\s][^\x00\n]*")
_UNIQUE: Final = says(uniqueItems=True)
_OPERATORS: Final = ", ".join(Operator.__members__)

_Text = Annotated[str, _like(_TEXT)]
_Command = Annotated[str, _like(_COMMAND, description="for /bin/sh -c")]
_Model = Annotated[str, _like(_COMMAND)]
_Weight = Annotated[int, says(minimum=0, maximum=split.MOST_WEIGHT)]
_Host = Annotated[str, says(pattern="^[A-Za-z0-9.-]+$", minLength=1, maxLength=253)]
_Uri = Annotated[str, _like(_WORD)]
_Mount = Annotated[str, _like(MOUNT_SHAPE, description=MOUNT_FORM)]
_Port = Annotated[int, says(minimum=0, maximum=65535)]
_Word = Annotated[str, says(maxLength=LONGEST_WORD)] | float
_Constraint = Annotated[
    list[_Word],
    says(minItems=2, maxItems=3, description=f"field, operator ({_OPERATORS}), and what it compares with"),
]
_Reason = Annotated[str, _like(_STATED, maxLength=LONGEST_REASON)]
_By = Annotated[str, _like(_LINE, maxLength=LONGEST_BY, description="who asks")]


class HealthCheckRequest(TypedDict, total=False):
    """A check beside the task. COMMAND has a command; MESOS_HTTP(S) a path; all but COMMAND a port, which is needed
    unless the job has one of its own. Times are whole seconds."""

    protocol: Required[Annotated[str, one_of(*PROTOCOLS)]]
    command: _Command | None
    path: Annotated[str, _like(_PATH)] | None
    port: Annotated[int, _of("port", CHECK_BOUNDS)] | None
    grace_period_s: Annotated[int, _of("grace_period_s", CHECK_BOUNDS), says(default=300)] | None
    interval_s: Annotated[int, _of("interval_s", CHECK_BOUNDS), says(default=60)] | None
    timeout_s: Annotated[int, _of("timeout_s", CHECK_BOUNDS), says(default=20)] | None
    max_consecutive_failures: (
        Annotated[int, _of("max_consecutive_failures", CHECK_BOUNDS), says(default=3)] | None
    )
    delay_s: Annotated[int, _of("delay_s", CHECK_BOUNDS), says(default=15)] | None


class ArtifactRequest(TypedDict):
    """One file that is fetched into the sandbox before the command starts."""

    uri: _Uri
    extract: NotRequired[Annotated[bool, says(default=True)] | None]
    executable: NotRequired[Annotated[bool, says(default=False)] | None]
    cache: NotRequired[Annotated[bool, says(default=False)] | None]
    dest_path: NotRequired[Annotated[str, _like(_WORD, description="below the sandbox")] | None]


class JobRequest(TypedDict, total=False):
    """One command and what each of its tasks needs: exactly one of `command` and `argv`, or neither and an `image`,
    whose own entrypoint then runs."""

    name: Annotated[str, _like(NAME, description="default: from the command")] | None
    command: _Command | None
    argv: Annotated[list[_Text], says(minItems=1, description="the first not empty")] | None
    args: Annotated[list[_Text], says(description="for the entrypoint of an image")] | None
    cpus: Annotated[float, _of("cpus"), says(default=1)] | None
    mem_mib: Annotated[int, _of("mem_mib"), says(default=128)] | None
    disk_mib: Annotated[int, _of("disk_mib"), says(default=0, description="for the sandbox")] | None
    gpus: Annotated[int, _of("gpus"), says(default=0)] | None
    gpu_model: _Model | Annotated[list[_Model], says(description="ordered fallbacks"), _UNIQUE] | None
    gpu_memory_mib: Annotated[int, _of("mem_mib"), says(description="what each GPU has at least")] | None
    compute_capability: Annotated[str, _like(CAPABILITY, description="the oldest that will do")] | None
    tasks: (
        Annotated[int, _of("tasks"), says(default=1), says(description="all start at once or none does")]
        | None
    )
    on_member_failure: Annotated[str, one_of(*OnMemberFailure), says(default="restart")] | None
    preemptible: Annotated[bool, says(default=False)] | None
    env: dict[Annotated[str, _like(ENV_KEY)], _Text] | None
    user: Annotated[str, _like(USER)] | None
    labels: dict[Annotated[str, _like(LABEL_KEY)], _Text] | None
    max_attempts: Annotated[int, _of("max_attempts"), says(default=1)] | None
    timeout_s: Annotated[float, says(exclusiveMinimum=0, maximum=BOUNDS["timeout_s"][1])] | None
    kill_grace_s: Annotated[float, _of("kill_grace_s"), says(default=5)] | None
    image: Annotated[str, says(description="[registry[:port]/]path[:tag][@digest]")] | None
    container_engine: Annotated[str, one_of(*Engine), says(description="only with an image")] | None
    pull: Annotated[bool, says(default=False, description="fetch the image at each launch")] | None
    control_access: (
        Annotated[list[Annotated[str, one_of(*Control)]], says(description="as the operator allows")] | None
    )
    on_gpu_failure: Annotated[str, one_of(*OnGpuFailure), says(default="restart")] | None
    min_driver: Annotated[str, _like(MINIMUM, description="the oldest NVIDIA driver")] | None
    placement: Annotated[str, one_of(*Placement)] | None
    priority: (
        Annotated[int, _of("priority"), says(default=0), says(description="higher is served first")] | None
    )
    queue: Annotated[str, _like(NAME), says(default=DEFAULT_QUEUE)] | None
    app: Annotated[str, _like(NAME, description="the jobs that constraints compare")] | None
    constraints: Annotated[list[_Constraint], says(maxItems=MOST_CONSTRAINTS)] | None
    near: Annotated[str, _like(NAME, description="an app on whose nodes it must run")] | None
    away: Annotated[str, _like(NAME, description="an app on whose nodes it must not run")] | None
    health_checks: Annotated[list[HealthCheckRequest], says(maxItems=MOST_CHECKS)] | None
    fetch: Annotated[list[_Uri | ArtifactRequest], says(maxItems=MOST_ARTIFACTS)] | None
    volumes: Annotated[list[_Mount], says(maxItems=MOST_MOUNTS)] | None
    ports: Annotated[list[_Port], says(maxItems=MOST_PORTS, description="of the host; 0: any")] | None


class PlanRequest(JobRequest, total=False):
    """A job request, of which `command`, `argv` and `image` may all be absent."""


class DrainRequest(TypedDict):
    """Why a GPU or a node is taken out. After `deadline_s` what still runs there is ended and queued again."""

    reason: _Reason
    by: NotRequired[_By | None]
    deadline_s: NotRequired[
        Annotated[float, says(minimum=0, maximum=MOST_DEADLINE_S, description="null: never")] | None
    ]


class ResetRequest(TypedDict):
    """Why a GPU is reset."""

    reason: _Reason
    by: NotRequired[_By | None]


class ServiceRequest(TypedDict):
    """Apps by id and their weights, of which one at least is above 0. What is left open labels of the apps say."""

    apps: Annotated[dict[str, _Weight], says(minProperties=1, maxProperties=split.MOST_APPS)]
    port_index: NotRequired[Annotated[int, says(minimum=0, maximum=99, default=0)] | None]
    port: NotRequired[Annotated[int, says(minimum=1, maximum=65535)] | None]
    hosts: NotRequired[Annotated[list[_Host], says(maxItems=split.MOST_HOSTS)] | None]
    mode: NotRequired[Annotated[str, one_of(*Mode)] | None]
