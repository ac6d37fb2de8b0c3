"""Names of things, as types: a task id is not an agent id."""

from typing import NewType

GpuId = NewType("GpuId", str)  # NVML UUID, "GPU-6b5f…": stable over reboots; indexes are not
AgentId = NewType("AgentId", str)  # Mesos agent id
OfferId = NewType("OfferId", str)
JobId = NewType("JobId", str)  # ours: "<name>-<8 hex digits>"
TaskId = NewType("TaskId", str)  # Mesos task id, "<job id>.<launch number>"; never used twice
