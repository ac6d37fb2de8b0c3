"""Plans that free capacity for a request by moving jobs. They are proposals, which only an operator can carry out."""

from dataclasses import dataclass

from mesos_gpu.model.ids import AgentId, GpuId, JobId


@dataclass(frozen=True, slots=True)
class Move:
    """Move of a job: it is ended on its node and starts again on another."""

    job_id: JobId
    name: str
    source: str  # host name
    to: str  # host name
    gpus: tuple[GpuId, ...]  # GPUs on the new node
    lost_gpu_s: float  # GPUs times run time so far; 0 for a second move of a job


@dataclass(frozen=True, slots=True)
class Target:
    """Place of one task of the request after the moves."""

    agent_id: AgentId
    hostname: str
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of moves. Without targets no plan was found, and `reason` says why."""

    targets: tuple[Target, ...]  # one for each task of the request
    moves: tuple[Move, ...]  # executable one after the other in this order
    proven: bool  # whether no shorter plan exists, or without targets no plan at all
    reason: str  # for people

    @property
    def feasible(self) -> bool:
        """Whether the request fits after the moves."""
        return bool(self.targets)

    @property
    def fits(self) -> bool:
        """Whether the request fits without moves."""
        return self.feasible and not self.moves

    @property
    def lost_gpu_s(self) -> float:
        """GPU seconds of lost work of all moves, if jobs restart from the beginning."""
        return round(sum(move.lost_gpu_s for move in self.moves), 3)
