"""Environment of a task, by an allow list of the agent's variables. Pure.

A task gets only those variables of the agent's environment that this module names, and those that the operator names in
MESOS_GPU_TASK_ENVIRONMENT. Secrets of the agent, such as proxy passwords or cloud keys, do not reach tasks.
"""

from collections.abc import Mapping
from typing import Final

from isolator.host.sandbox import CHECKPOINT, NOTICE
from isolator.runs.gang import hostfile_in
from isolator.runs.run import sandbox_of
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.tasks.assignment import Assignment

#: Setting: names of further variables of the agent that tasks get, separated by commas.
PASSED: Final = "MESOS_GPU_TASK_ENVIRONMENT"
#: Variables of Mesos that describe the task. None of them lets a task act as its executor or find its agent.
_OF_MESOS: Final = ("MESOS_FRAMEWORK_ID", "MESOS_EXECUTOR_ID", "MESOS_ALLOCATION_ROLE")
_OF_SANDBOX: Final = ("MESOS_SANDBOX", "MESOS_DIRECTORY", "MESOS_CONTAINER_IP")
#: Language and time zone of the host, only for tasks on the host's file system.
_OF_HOST: Final = ("LANG", "LANGUAGE", "TZ")  # and LC_*
_NEVER_PASSED: Final = ("MESOS_", "LIBPROCESS_", "CUDA_VISIBLE_", "NVIDIA_VISIBLE_")
#: PATH of tasks, whatever the agent's: the same command finds the same programs on every host.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# prefix of variables that identify a task of a job array; no code of ours reads them
_OF_ARRAY = "MESOS_GPU_ARRAY_"


def task_environment(
    own: Mapping[str, str], task_id: str, assignment: Assignment, user: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a command on the host's file system, without the variables of GPU sharing.

    Args:
        own: The executor's environment, from the agent.
        task_id: Mesos' task id.
        assignment: The launch. Its `env` overrides all but MESOS_* and the two variables that choose GPUs; variables
            that identify a task of a job array come from it, too.
        user: USER and LOGNAME of the user that the command runs as.

    Raises:
        BadConfiguration: `MESOS_GPU_TASK_ENVIRONMENT` is not a list of names that tasks may get.
    """
    names = (*_OF_MESOS, *_OF_SANDBOX, *_OF_HOST)
    kept = {k: v for k, v in own.items() if k in names or k.startswith("LC_")}
    # HOME is the sandbox, as home directories differ between hosts, and often do not exist. PYTHONUNBUFFERED:
    # so that Python's output appears at once.
    usual = {"HOME": sandbox_of(own), "PATH": PATH, "PYTHONUNBUFFERED": "1"}
    hostfile = {"HOSTFILE": hostfile_in(sandbox_of(own))} if assignment.hosts else {}
    job = _job_variables(task_id, assignment)
    return {**kept, **usual, **_passed(own), **user, **job, **hostfile, **told_in(sandbox_of(own))}


def told_in(sandbox: str) -> dict[str, str]:
    """Return the variables with the paths of the task's notice and checkpoint file.

    Args:
        sandbox: Path of the sandbox as the task sees it.
    """
    return {"MESOS_GPU_NOTICE": f"{sandbox}/{NOTICE}", "MESOS_GPU_CHECKPOINT": f"{sandbox}/{CHECKPOINT}"}


def image_environment(own: Mapping[str, str], task_id: str, assignment: Assignment) -> dict[str, str]:
    """Return the environment of a command in an image, without the variables of the image.

    Args:
        own, task_id, assignment: See `task_environment`.

    Raises:
        BadConfiguration: See `task_environment`.
    """
    kept = {k: own[k] for k in _OF_MESOS if k in own}
    return {**kept, **_passed(own), **_job_variables(task_id, assignment)}


def _passed(own: Mapping[str, str]) -> dict[str, str]:
    names = [name for name in map(str.strip, own.get(PASSED, "").split(",")) if name]
    for name in names:
        if not (name.isascii() and name.isidentifier()) or name.startswith(_NEVER_PASSED):
            raise BadConfiguration(
                f"{PASSED} names {name!r}, which tasks cannot get from the agent",
                remedy="list names of variables, such as http_proxy,NO_PROXY; none of them may begin with "
                + ", ".join(_NEVER_PASSED),
            )
    return {name: own[name] for name in names if name in own}


def _job_variables(task_id: str, assignment: Assignment) -> dict[str, str]:
    """Return the variables of a task from its job and its GPUs."""
    env = {k: v for k, v in assignment.env.items() if not k.startswith("MESOS_") or k.startswith(_OF_ARRAY)}
    gpus = ",".join(assignment.gpus)
    if assignment.share is not None:
        from isolator.shares.variables import kept, visible

        env, gpus = kept(env), visible(assignment.share, assignment.gpus)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **env,
        "MESOS_TASK_ID": task_id,
        "MESOS_GPU_JOB_ID": assignment.job_id,
        "MESOS_GPU_ATTEMPT": str(assignment.attempt),
        # These override the job's, which could name another tenant's GPU.
        "NVIDIA_VISIBLE_DEVICES": gpus or "void",
        "CUDA_VISIBLE_DEVICES": gpus,
    }
