"""The environment of a task. Pure."""

from collections.abc import Mapping

from isolator.host.sandbox import CHECKPOINT, NOTICE
from isolator.runs.gang import hostfile_in
from isolator.runs.run import sandbox_of
from mesos_gpu.adapters.tls.variables import VARIABLES
from mesos_gpu.model.tasks.assignment import Assignment

#: Of the executor's own: a task must not speak for it, find its agent, nor the host's ledger.
_SECRET = (
    "MESOS_EXECUTOR_AUTHENTICATION_TOKEN",
    "MESOS_AGENT_ENDPOINT",
    "MESOS_DOMAIN_SOCKET",
    "MESOS_SLAVE_ID",
    "MESOS_SLAVE_PID",
    "MESOS_GPU_NODE_DIR",
    "MESOS_GPU_ALLOW_ROOT",
    "MESOS_GPU_USERS",
    "MESOS_GPU_USER_POOL",
    "MESOS_GPU_POOL_UID",
    "MESOS_GPU_AGENT_CREDENTIALS",
    "MESOS_GPU_CONTROL_PORTS",
    "MESOS_GPU_SCHEDULER_CACERT",
    *VARIABLES,
)
_OF_MESOS = ("MESOS_FRAMEWORK_ID", "MESOS_EXECUTOR_ID", "MESOS_ALLOCATION_ROLE")
#: Whatever the agent was started with: the same command finds the same programs on every host.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OF_ARRAY = "MESOS_GPU_ARRAY_"  # says which task of a job array it is; nothing of ours reads it
_SECRET_PREFIXES = ("LIBPROCESS_",)


def task_environment(
    own: Mapping[str, str], task_id: str, assignment: Assignment, user: Mapping[str, str]
) -> dict[str, str]:
    """What the command gets, but for what keeps it to a share.

    Args:
        own: The executor's environment, from the agent.
        task_id: Mesos' task id.
        assignment: The launch. Its `env` overrides all but MESOS_* and the two variables that choose GPUs; what says
            which task of a job array it is comes that way, too.
        user: USER and LOGNAME of the user that the command runs as.
    """
    kept = {k: v for k, v in own.items() if k not in _SECRET and not k.startswith(_SECRET_PREFIXES)}
    # HOME: an account's directory is another host's on each host, and often none. Python's output comes as it is said.
    usual = {"HOME": sandbox_of(own), "PATH": PATH, "PYTHONUNBUFFERED": "1"}
    hostfile = {"HOSTFILE": hostfile_in(sandbox_of(own))} if assignment.hosts else {}
    return {**kept, **usual, **user, **_of_job(task_id, assignment), **hostfile, **told_in(sandbox_of(own))}


def told_in(sandbox: str) -> dict[str, str]:
    """Where a task reads its notice, and where it tells of checkpoints; `sandbox`: as it sees it."""
    return {"MESOS_GPU_NOTICE": f"{sandbox}/{NOTICE}", "MESOS_GPU_CHECKPOINT": f"{sandbox}/{CHECKPOINT}"}


def image_environment(own: Mapping[str, str], task_id: str, assignment: Assignment) -> dict[str, str]:
    """What the command gets on top of its image's own: of the host only what Mesos says of the task.

    Args:
        own, task_id, assignment: As of `task_environment`.
    """
    kept = {k: own[k] for k in _OF_MESOS if k in own}
    return {**kept, **_of_job(task_id, assignment)}


def _of_job(task_id: str, assignment: Assignment) -> dict[str, str]:
    asked = {k: v for k, v in assignment.env.items() if not k.startswith("MESOS_") or k.startswith(_OF_ARRAY)}
    gpus = ",".join(assignment.gpus)
    if assignment.share is not None:
        from isolator.shares.variables import kept, visible

        asked, gpus = kept(asked), visible(assignment.share, assignment.gpus)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **asked,
        "MESOS_TASK_ID": task_id,
        "MESOS_GPU_JOB_ID": assignment.job_id,
        "MESOS_GPU_ATTEMPT": str(assignment.attempt),
        # What a user sets here would be a way to another tenant's GPU.
        "NVIDIA_VISIBLE_DEVICES": gpus or "void",
        "CUDA_VISIBLE_DEVICES": gpus,
    }
