"""A server whose nodes come up with GPUs, and whose callers are who a header names."""

from starlette.types import Scope

from mesos_gpu.engine import events as ev
from mesos_gpu.model.access.caller import ANYBODY, Caller
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.wire.mesos import report
from tests.contract.access.rig import CALLER, ROOT, AccessRig, by_header
from tests.doubles.builders import gpu, offer


class ShareRig(AccessRig):
    """Who calls is who a header names, and without one `caller`: the command line sends none."""

    def __init__(self) -> None:
        self.caller = ANYBODY
        super().__init__()

    async def identify(self, scope: Scope) -> Caller:
        if any(name == CALLER.lower().encode() for name, _ in scope["headers"]):
            return await by_header(scope)
        return self.caller

    def node(self, agent: str, names: list[str]) -> None:
        """A node with such GPUs comes up."""
        self.daemon.put(ev.OffersArrived((offer(f"{agent}-1", agent, gpus=len(names)),)))
        monitor = self.daemon.read(lambda view: view.nodes[AgentId(agent)].monitor).result(60)
        assert monitor is not None
        data = report.encode(Inventory(tuple(map(gpu, names)), "simulated", "535"))
        self.daemon.put(
            ev.StatusArrived(Status(monitor, "TASK_RUNNING", AgentId(agent), data=data, uuid="u"))
        )
        self.daemon.put(ev.OffersArrived((offer(f"{agent}-2", agent, gpus=len(names)),)))

    def submit(self, queue: str, gpus: int, cpus: float) -> None:
        """A job for that queue."""
        body = {
            "command": "true",
            "queue": queue,
            "gpus": gpus,
            "cpus": cpus,
            "preemptible": queue != "production",
        }
        assert self.call(ROOT, "POST", "/v1/jobs", json=body).status_code == 201
