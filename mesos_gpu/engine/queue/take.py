"""What a match takes of an agent's offers for one task."""

from dataclasses import dataclass

from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import NOTHING, Resources
from mesos_gpu.model.shares.share import Share
from mesos_gpu.policy.capacity.request import Request


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """What one task and its executor take of an agent's offers. No two are the same.

    Attributes:
        agent_id: Whose offers.
        job: The task's; None: it is a node monitor.
        request: What the job's task and its executor need together; None: only where it goes counts.
        task: What is the task's of that.
        executor: What is its executor's.
        gpus: Those that the task gets.
        share: What it gets of each of them; None: all of it.
        opens: Those of them that no task holds in Mesos for their shares yet: one is launched with it.
        covers: A shared card without such a task: one is launched, and nothing else.
        ports: Of the host, each once, with the kind of resource that it is.
        numbers: Of each port that the job asks for, in its order, the host's; None: the port has none there.
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
