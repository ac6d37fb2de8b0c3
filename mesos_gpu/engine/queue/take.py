"""Assignment of a part of an agent's offers to one task, as a match makes it."""

from dataclasses import dataclass

from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import NOTHING, Resources
from mesos_gpu.model.shares.share import Share
from mesos_gpu.policy.capacity.request import Request


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """Assignment: what one task and its executor take of an agent's offers. Each is equal only to itself.

    Attributes:
        agent_id: Agent of the offers.
        job: Job of the task; None for a node monitor.
        request: Needs of the task with its executor; None if only the node counts.
        task: Resources of the task.
        executor: Resources of its executor.
        gpus: GPUs of the task.
        share: Share of each of these GPUs; None for whole GPUs.
        opens: GPUs among them without a cover task; one is launched with the task.
        covers: GPU for which a cover task is launched, and nothing else; None for other tasks.
        ports: Ports of the host, each once, with the kind of resource.
        numbers: Host port of each port that the job asks for, in its order; None where the port has no host port.
    """

    agent_id: AgentId
    job: Job | None = None
    request: Request | None = None
    task: Resources = NOTHING
    executor: Resources = NOTHING
    gpus: tuple[GpuId, ...] = ()
    share: Share | None = None
    opens: tuple[GpuId, ...] = ()
    covers: GpuId | None = None
    ports: tuple[PortRange, ...] = ()
    numbers: tuple[int | None, ...] = ()
