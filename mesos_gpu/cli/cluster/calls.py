"""Requests of operators as Python calls: GPUs, nodes, and tasks that the scheduler's state does not have."""

from mesos_gpu.api.spec.shapes import Gpu, Gpus, GpuWithHistory, Node, Nodes, UnknownTask, UnknownTasks
from mesos_gpu.cli.client import Client, path_of


class OperatorCalls:
    """GPUs, nodes and unknown tasks of a scheduler. Each call raises what `Client` does."""

    def __init__(self, client: Client) -> None:
        """Use a client that the caller closes."""
        self._client = client

    def gpu(self, gpu: str) -> GpuWithHistory:
        """Return a GPU with its history; `gpu` is a UUID, the start of one, or HOST:INDEX."""
        return self._client.get(path_of("gpus", gpu), GpuWithHistory)

    def drain_gpu(self, gpu: str, reason: str, *, by: str, deadline_s: float | None) -> list[Gpu]:
        """Keep new work off a GPU, and return it; what runs there is ended after `deadline_s`."""
        body = {"reason": reason, "by": by, "deadline_s": deadline_s}
        path = path_of("gpus", gpu, "drain")
        return self._client.call("POST", path, Gpus, body=body, may_repeat=True)["gpus"]

    def undrain_gpu(self, gpu: str, *, by: str) -> list[Gpu]:
        """End the drain of a GPU, and return the GPU, or nothing if its node is away."""
        path = path_of("gpus", gpu, "drain")
        return self._client.call("DELETE", path, Gpus, {"by": by}, may_repeat=True)["gpus"]

    def reset_gpu(self, gpu: str, reason: str, *, by: str) -> GpuWithHistory:
        """Ask its node to reset a GPU; this returns before the reset is done."""
        body = {"reason": reason, "by": by}
        return self._client.call("POST", path_of("gpus", gpu, "reset"), GpuWithHistory, body=body)

    def drain_node(self, node: str, reason: str, *, by: str, deadline_s: float | None) -> list[Node]:
        """Keep new work off a host, and return its agents; what runs there is ended after `deadline_s`."""
        body = {"reason": reason, "by": by, "deadline_s": deadline_s}
        path = path_of("nodes", node, "drain")
        return self._client.call("POST", path, Nodes, body=body, may_repeat=True)["nodes"]

    def undrain_node(self, node: str, *, by: str) -> list[Node]:
        """End the drain of a host, and return its agents."""
        path = path_of("nodes", node, "drain")
        return self._client.call("DELETE", path, Nodes, {"by": by}, may_repeat=True)["nodes"]

    def unknown_tasks(self) -> list[UnknownTask]:
        """Return the tasks that the scheduler's state does not have."""
        return self._client.get(path_of("tasks", "unknown"), UnknownTasks)["tasks"]

    def adopt(self, task_id: str) -> list[UnknownTask]:
        """Give an unknown task to its job, and return the unknown tasks that are left."""
        path = path_of("tasks", "unknown", task_id, "adopt")
        return self._client.call("POST", path, UnknownTasks)["tasks"]

    def kill_unknown(self, task_id: str) -> list[UnknownTask]:
        """End an unknown task, and return the unknown tasks that are held."""
        path = path_of("tasks", "unknown", task_id)
        return self._client.call("DELETE", path, UnknownTasks, may_repeat=True)["tasks"]
