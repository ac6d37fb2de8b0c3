"""The environment of a task. Pure."""

from collections.abc import Mapping

from mesos_gpu.model.assignment import Assignment

#: Of the executor's own: a task must not speak for it, nor find the host's ledger.
_SECRET = ("MESOS_EXECUTOR_AUTHENTICATION_TOKEN", "MESOS_GPU_NODE_DIR", "MESOS_GPU_ALLOW_ROOT")
_SECRET_PREFIXES = ("LIBPROCESS_",)


def task_environment(
    own: Mapping[str, str], task_id: str, assignment: Assignment, user: Mapping[str, str]
) -> dict[str, str]:
    """What the command gets.

    Args:
        own: The executor's environment, from the agent.
        task_id: Mesos' task id.
        assignment: The launch. Its `env` overrides all but MESOS_* and the two variables that choose GPUs.
        user: HOME, USER and LOGNAME of the user that the command runs as.
    """
    kept = {k: v for k, v in own.items() if k not in _SECRET and not k.startswith(_SECRET_PREFIXES)}
    asked = {k: v for k, v in assignment.env.items() if not k.startswith("MESOS_")}
    gpus = ",".join(assignment.gpus)
    return {
        **kept,
        **user,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **asked,
        "MESOS_TASK_ID": task_id,
        "MESOS_GPU_JOB_ID": assignment.job_id,
        "MESOS_GPU_ATTEMPT": str(assignment.attempt),
        # What a user sets here would be a way to another tenant's GPU.
        "NVIDIA_VISIBLE_DEVICES": gpus or "void",
        "CUDA_VISIBLE_DEVICES": gpus,
    }
