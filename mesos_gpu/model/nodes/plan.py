"""A plan that makes room for a request by moving jobs. Nobody carries it out but an operator."""

from dataclasses import dataclass

from mesos_gpu.model.ids import AgentId, GpuId, JobId


@dataclass(frozen=True, slots=True)
class Move:
    """A job is ended on its node, and starts again on another."""

    job_id: JobId
    name: str
    source: str  # host name
    to: str  # host name
    gpus: tuple[GpuId, ...]  # there
    lost_gpu_s: float  # its GPUs times its run time so far; 0 when it moves a second time


@dataclass(frozen=True, slots=True)
class Target:
    """Where a task of the request has room after the moves."""

    agent_id: AgentId
    hostname: str
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of moves. Without targets there is none, and `reason` says why."""

    targets: tuple[Target, ...]  # one for each task of the request
    moves: tuple[Move, ...]  # they can be done one after the other, in this order
    proven: bool  # no shorter plan exists; without targets: no plan at all
    reason: str  # for people

    @property
    def feasible(self) -> bool:
        """Whether the request has room after the moves."""
        return bool(self.targets)

    @property
    def fits(self) -> bool:
        """Whether it has room now."""
        return self.feasible and not self.moves

    @property
    def lost_gpu_s(self) -> float:
        """GPU-seconds of work that are lost in all, if jobs start anew."""
        return round(sum(move.lost_gpu_s for move in self.moves), 3)
