"""Why a job can never run on the nodes that there are. Pure."""

from collections.abc import Sequence

from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.driver import as_new_as, version_of
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.policy.cluster.placement import Ask
from mesos_gpu.policy.explain.estimate import gpus_of
from mesos_gpu.policy.explain.hurdles import NodeView, groups, large, most, of_model, one_model, suited


def could(ask: Ask, node: NodeView) -> bool:
    """Whether the node would do for one task if it were empty and well."""
    return has_enough(ask, node) and as_new_as(node.driver, ask.min_driver)


def has_enough(ask: Ask, node: NodeView) -> bool:
    """The same, whatever its driver."""
    return len(most(suited(ask, node.gpus))) >= ask.gpus


def is_able(ask: Ask, nodes: Sequence[NodeView], tasks: int) -> bool:
    """Whether the nodes could hold all tasks if they were empty and well; `nodes`: those that it may go to.

    What an agent has of cpus, memory, disk and ports in all is not known: only offers say, and others hold the rest.
    """
    if not ask.gpus and ask.min_driver is None:
        return True
    if not nodes or any((node.silent or node.lost) and not node.gpus for node in nodes):
        return True  # a report may come yet
    if not ask.gpus:
        return any(could(ask, node) for node in nodes)
    return _room(ask, nodes) >= tasks


def _room(ask: Ask, nodes: Sequence[NodeView]) -> int:
    able = [node for node in nodes if could(ask, node)]
    return max(
        sum(len(group) // ask.gpus for node in able for group in suited(one, node.gpus))
        for one in one_model(ask)
    )


def never(job: Job, ask: Ask, nodes: Sequence[NodeView]) -> str:
    """The reason that rules it out, for a job that `is_able` says no of."""
    if any(could(ask, node) for node in nodes):
        tasks, room = job.spec.tasks, _room(ask, nodes)
        return (
            f"asks for {tasks} tasks of {gpus_of(ask.gpus)} each, and all nodes together have room for {room}, "
            f"even when nothing else runs there"
        )
    if any(has_enough(ask, node) for node in nodes):
        return _by_driver(job, ask, nodes)
    return _by_gpus(ask, nodes)


def _by_gpus(ask: Ask, nodes: Sequence[NodeView]) -> str:
    models = sorted({gpu.model for node in nodes for gpu in node.gpus})
    if not models:
        return f"asks for {gpus_of(ask.gpus)}, and no node reports any"
    fit = [gpu for node in nodes for group in groups(ask, node.gpus) for gpu in group]
    if not fit:
        return f"no node has a GPU of model {' or '.join(ask.models)}; there are {', '.join(models)}"
    roomy = large(ask, [fit])[0]
    if not roomy:
        return _by_memory(ask, nodes)
    if not any(map(ask.takes, roomy)):
        return _by_capability(ask, roomy)
    best = min(nodes, key=lambda node: (-len(most(suited(ask, node.gpus))), node.hostname))
    return (
        f"asks for {gpus_of(ask.gpus)}{of_model(ask)}{_wanted(ask)} on one node, more than any node has; "
        f"the largest is {best.hostname} with {len(most(suited(ask, best.gpus)))}"
    )


def _wanted(ask: Ask) -> str:
    memory = f" with {ask.gpu_memory_mib} MiB" if ask.gpu_memory_mib else ""
    return memory + (f" of compute capability {ask.compute_capability}" if ask.compute_capability else "")


def _by_memory(ask: Ask, nodes: Sequence[NodeView]) -> str:
    sizes = [
        (-gpu.memory_mib, node.hostname)
        for node in nodes
        for group in groups(ask, node.gpus)
        for gpu in group
    ]
    size, hostname = min(sizes)
    return f"no node has a GPU{of_model(ask)} with {ask.gpu_memory_mib} MiB; the largest has {-size}, on {hostname}"


def _by_capability(ask: Ask, roomy: Sequence[Gpu]) -> str:
    known = sorted({gpu.compute_capability or "" for gpu in roomy} - {""}, key=lambda v: version_of(v) or ())
    newest = f"the newest is {known[-1]}" if known else "no node reports one"
    return f"no GPU{of_model(ask)} has compute capability {ask.compute_capability} or newer; {newest}"


def _by_driver(job: Job, ask: Ask, nodes: Sequence[NodeView]) -> str:
    best = newest_driver(ask, nodes)
    has = f"{best.hostname} has {best.driver}" if best.driver else "no node reports a driver"
    if is_of_image(job, ask):
        return f"the image needs {job.image_needs}, driver {ask.min_driver}; {has}"
    kind = " with the GPUs that it asks for" if ask.gpus else ""
    newest = f"the newest is {best.driver} on {best.hostname}" if best.driver else has
    return f"no node{kind} has driver {ask.min_driver} or newer; {newest}"


def is_of_image(job: Job, ask: Ask) -> bool:
    """Whether it is the job's image that needs that driver."""
    return bool(job.image_needs) and ask.min_driver == job.learnt_min_driver


def newest_driver(ask: Ask, nodes: Sequence[NodeView]) -> NodeView:
    """The nearest miss of those that fail for their driver alone; there is at least one."""
    enough = [node for node in nodes if has_enough(ask, node)]
    return max(sorted(enough, key=lambda node: node.hostname), key=lambda node: version_of(node.driver) or ())
