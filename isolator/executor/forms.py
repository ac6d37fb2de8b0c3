"""Choice of the way in which a task is run, by what its job requests and its host supports."""

from collections.abc import Mapping
from dataclasses import replace

from isolator.agent.agent_api import Connection
from isolator.confinement.enclosure import Enclosure
from isolator.runs.host_run import HostRun
from isolator.runs.launcher import Launcher
from isolator.runs.run import Run
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.assignment import Assignment


def settle(plan: Assignment, enclosure: Enclosure) -> Assignment:
    """Return the launch with the engine that runs its image on this host.

    Mesos' containerizer isolates an image by the cgroup that the agent gives to the executor. The executor
    runs the image itself where the agent gives no cgroup that controls devices, as with cgroups of version 2
    only, and for images with a login, which the agent would write to its disk and show in its state.
    """
    if plan.image is None or plan.container_engine != "mesos" or not enclosure.isolated:
        return plan
    is_given = enclosure.cgroup is not None and not enclosure.cgroup.own
    return plan if is_given and not plan.image_secret else replace(plan, container_engine="own")


def run_for(
    plan: Assignment,
    launcher: Launcher,
    connection: Connection,
    inventory: Inventory,
    own: Mapping[str, str],
) -> Run:
    """Return the run of a settled launch, not started yet.

    Args:
        plan: Launch of the task.
        launcher: Process that becomes a task which the executor runs itself.
        connection: Connection to the agent.
        inventory: Cards of this host.
        own: Environment of the executor.
    """
    if plan.image is None:
        return HostRun(launcher)
    if plan.container_engine == "docker":
        from isolator.runs.docker_run import DockerRun

        return DockerRun(plan, inventory, own)
    if plan.container_engine == "own":
        from isolator.runs.own_run import OwnRun

        return OwnRun(plan, launcher, inventory, own)
    from isolator.runs.nested_run import NestedRun

    return NestedRun(plan, connection, inventory, own)
