"""Types of ids, so that type checkers tell a task id from an agent id."""

from typing import NewType

GpuId = NewType("GpuId", str)  # NVML UUID, "GPU-6b5f…": stable over reboots, unlike indexes
AgentId = NewType("AgentId", str)  # Mesos agent id
OfferId = NewType("OfferId", str)
JobId = NewType("JobId", str)  # given by this scheduler: "<name>-<8 hex digits>"
TaskId = NewType("TaskId", str)  # Mesos task id, "<job id>.<launch number>"; never reused
