"""Why a job waits, as data."""

from dataclasses import dataclass

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.job import JobState
from mesos_gpu.model.queue import Estimate


@dataclass(frozen=True, slots=True)
class NodeReasons:
    """What keeps a job off one node; no reasons: it would fit there."""

    hostname: str
    agent_id: AgentId
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nearest:
    """The node that lacks least, and what."""

    hostname: str
    missing: str


@dataclass(frozen=True, slots=True)
class Why:
    """The answer to "why does it not run"."""

    job_id: JobId
    state: JobState
    summary: str  # one sentence
    queue_position: int | None  # from 0; None: not pending
    can_ever_run: bool
    nodes: tuple[NodeReasons, ...] = ()
    nearest: Nearest | None = None
    estimate: Estimate | None = None  # None: not pending
