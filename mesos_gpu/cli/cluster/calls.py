"""Requests of operators' commands: GPUs, nodes, and tasks unknown to the scheduler."""

from mesos_gpu.api.spec.shapes import Gpu, Gpus, GpuWithHistory, Node, Nodes, UnknownTask, UnknownTasks
from mesos_gpu.cli.client import Client, path_of


class OperatorCalls:
    """Requests for GPUs, nodes and unknown tasks, with an open client; they raise what `Client` raises."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def gpu(self, gpu: str) -> GpuWithHistory:
        """Return a GPU with its history; `gpu` is a UUID, the start of one, or HOST:INDEX."""
        return self._client.get(path_of("gpus", gpu), GpuWithHistory)

    def drain_gpu(self, gpu: str, reason: str, *, by: str, deadline_s: float | None) -> list[Gpu]:
        """Keep new work off a GPU, and return it; jobs that still run there after `deadline_s` are ended."""
        body = {"reason": reason, "by": by, "deadline_s": deadline_s}
        path = path_of("gpus", gpu, "drain")
        return self._client.call("POST", path, Gpus, body=body, may_repeat=True)["gpus"]

    def undrain_gpu(self, gpu: str, *, by: str) -> list[Gpu]:
        """End the drain of a GPU; return the GPU, or nothing if its node is not connected."""
        path = path_of("gpus", gpu, "drain")
        return self._client.call("DELETE", path, Gpus, {"by": by}, may_repeat=True)["gpus"]

    def reset_gpu(self, gpu: str, reason: str, *, by: str) -> GpuWithHistory:
        """Request the reset of a GPU; return before the reset is done."""
        body = {"reason": reason, "by": by}
        return self._client.call("POST", path_of("gpus", gpu, "reset"), GpuWithHistory, body=body)

    def drain_node(self, node: str, reason: str, *, by: str, deadline_s: float | None) -> list[Node]:
        """Keep new work off a host, and return its agents; jobs that still run there after `deadline_s` are ended."""
        body = {"reason": reason, "by": by, "deadline_s": deadline_s}
        path = path_of("nodes", node, "drain")
        return self._client.call("POST", path, Nodes, body=body, may_repeat=True)["nodes"]

    def undrain_node(self, node: str, *, by: str) -> list[Node]:
        """End the drain of a host, and return its agents."""
        path = path_of("nodes", node, "drain")
        return self._client.call("DELETE", path, Nodes, {"by": by}, may_repeat=True)["nodes"]

    def unknown_tasks(self) -> list[UnknownTask]:
        """Return the running tasks that are not in the scheduler's state."""
        return self._client.get(path_of("tasks", "unknown"), UnknownTasks)["tasks"]

    def adopt(self, task_id: str) -> list[UnknownTask]:
        """Adopt an unknown task for its job, and return the remaining unknown tasks."""
        path = path_of("tasks", "unknown", task_id, "adopt")
        return self._client.call("POST", path, UnknownTasks)["tasks"]

    def kill_unknown(self, task_id: str) -> list[UnknownTask]:
        """End an unknown task, and return the remaining unknown tasks."""
        path = path_of("tasks", "unknown", task_id)
        return self._client.call("DELETE", path, UnknownTasks, may_repeat=True)["tasks"]
