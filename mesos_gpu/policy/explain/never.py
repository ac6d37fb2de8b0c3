"""Reasons why a job can never run on the known nodes. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.driver import as_new_as, version_of
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.gpu_names import no_such_model
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.policy.capacity.fit import largest, room_for
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.explain.hurdles import asked_for, of_model


def could(request: Request, node: NodeCapacity) -> bool:
    """Return whether a node could run one task if it were empty and healthy."""
    return has_enough(request, node) and as_new_as(node.driver, request.min_driver)


def has_enough(request: Request, node: NodeCapacity) -> bool:
    """Return whether a node has enough GPUs for a task, whatever its driver."""
    if request.gpu.share is not None:
        return bool(node.cards(request, even_full=True))  # groups smaller than a task needs are left out
    return largest(request.gpu.by_model(node.installed)) >= request.gpu.count


def is_able(request: Request, nodes: Sequence[NodeCapacity]) -> bool:
    """Return whether nodes could hold all tasks of a job if they were empty and healthy.

    The total CPUs, memory, disk and ports of an agent are unknown, as offers have only what other frameworks leave; so
    only GPUs and drivers are compared.

    Args:
        request: Requirements of one task, with the number of tasks.
        nodes: Nodes that the job may use.
    """
    if not request.gpu.count and request.min_driver is None:
        return True
    if is_unreported(nodes):
        return True  # a report may come yet
    if not request.gpu.count or (request.tasks == 1 and request.gpu.share is None):
        return any(could(request, node) for node in nodes)
    return _room(request, nodes) >= request.tasks


def is_unreported(nodes: Sequence[NodeCapacity]) -> bool:
    """Return whether a node may have GPUs that it has not reported yet, or no node is known."""
    return not nodes or any((node.silent or node.lost) and not node.installed for node in nodes)


def _room(request: Request, nodes: Sequence[NodeCapacity]) -> int:
    """Return the most tasks that all nodes together have GPUs for, if they were empty and healthy."""
    return max(sum(rooms.values()) for rooms in empty_rooms(request, nodes))


def empty_rooms(request: Request, nodes: Sequence[NodeCapacity]) -> Iterator[Mapping[AgentId, int]]:
    """Yield for each accepted model the number of tasks that each node has GPUs for, if it were empty and healthy."""
    able = [node for node in nodes if could(request, node)]
    for variant in request.each_model():
        yield {node.agent_id: tasks_on(variant, node) for node in able}


def tasks_on(request: Request, node: NodeCapacity) -> int:
    """Return the number of tasks that a node has GPUs for, if it were empty and healthy."""
    if not request.gpu.count:
        return request.tasks
    if request.gpu.share is None:
        return sum(len(group) // request.gpu.count for group in request.gpu.by_model(node.installed))
    empty = NodeCapacity(node.agent_id, node.hostname, gpus=node.installed, driver=node.driver,
                         compute_milli=node.compute_milli, cover=NOTHING)  # fmt: skip
    return room_for(replace(request, resources=NOTHING), empty).slots


def never(job: Job, request: Request, nodes: Sequence[NodeCapacity]) -> str:
    """Return why a job for which `is_able` is false can never run."""
    if any(could(request, node) for node in nodes):
        tasks, room = request.tasks, _room(request, nodes)
        return (
            f"asks for {tasks} tasks of {asked_for(request.gpu)} each, and all nodes together have room for "
            f"{room}, even when nothing else runs there"
        )
    if any(has_enough(request, node) for node in nodes):
        return _by_driver(job, request, nodes)
    return _by_gpus(request, nodes)


def _by_gpus(request: Request, nodes: Sequence[NodeCapacity]) -> str:
    """Return why no node has the GPUs that the job requests."""
    want = request.gpu
    models = sorted({gpu.model for node in nodes for gpu in node.installed})
    if not models:
        return f"asks for {asked_for(want)}, and no node reports any"
    if not any(want.of_any_size().suited(node.installed) for node in nodes):
        return no_such_model(want.models, models)
    roomy = [gpu for node in nodes for gpu in want.of_any_capability().suited(node.installed)]
    if not roomy:
        return _by_memory(want, nodes)
    if not any(map(want.takes, roomy)):
        return _by_capability(want, roomy)
    if want.share is not None:
        return _by_shares(request, nodes)
    most_of = {node.agent_id: largest(want.by_model(node.installed)) for node in nodes}
    best = min(nodes, key=lambda node: (-most_of[node.agent_id], node.hostname))
    return (
        f"asks for {asked_for(want)}{of_model(want)}{_wanted(want)} on one node, more than any node has; "
        f"the largest is {best.hostname} with {most_of[best.agent_id]}"
    )


def _by_shares(request: Request, nodes: Sequence[NodeCapacity]) -> str:
    """List what hosts lack for a share, with one host for each different reason."""
    hosts: dict[str, list[str]] = {}
    for node in sorted(nodes, key=lambda node: node.hostname):
        for gpu in request.gpu.suited(node.installed):
            why = node.refusal(request, gpu, even_full=True) or "is the only suitable one there"
            hosts.setdefault(f"{gpu.model} {why}", []).append(node.hostname)
    reasons = [f"on {_first(dict.fromkeys(names))} {why}" for why, names in hosts.items()]
    return f"no node can give it {asked_for(request.gpu)}: {'; '.join(reasons)}"


def _first(names: Collection[str]) -> str:
    """Return the first name, and how many more there are."""
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{next(iter(names))}{more}"


def _wanted(want: GpuRequest) -> str:
    """Return the requirements on memory and compute capability as text."""
    memory = f" with {want.memory_mib} MiB" if want.memory_mib else ""
    return memory + (f" of compute capability {want.compute_capability}" if want.compute_capability else "")


def _by_memory(want: GpuRequest, nodes: Sequence[NodeCapacity]) -> str:
    """Return that no GPU has enough memory."""
    sizes = [
        (-gpu.memory_mib, node.hostname)
        for node in nodes
        for gpu in want.of_any_size().suited(node.installed)
    ]
    size, hostname = min(sizes)
    return f"no node has a GPU{of_model(want)} with {want.memory_mib} MiB; the largest has {-size}, on {hostname}"


def _by_capability(want: GpuRequest, roomy: Sequence[Gpu]) -> str:
    """Return that no GPU has the compute capability."""
    capabilities = sorted(
        {gpu.compute_capability or "" for gpu in roomy} - {""}, key=lambda v: version_of(v) or ()
    )
    newest = f"the newest is {capabilities[-1]}" if capabilities else "no node reports one"
    return f"no GPU{of_model(want)} has compute capability {want.compute_capability} or newer; {newest}"


def _by_driver(job: Job, request: Request, nodes: Sequence[NodeCapacity]) -> str:
    """Return that no node with the GPUs has a driver that is new enough."""
    best = newest_driver(request, nodes)
    newest_found = f"{best.hostname} has {best.driver}" if best.driver else "no node reports a driver"
    if is_of_image(job, request):
        return f"the image needs {job.image_needs}, driver {request.min_driver}; {newest_found}"
    kind = " with the GPUs that it asks for" if request.gpu.count else ""
    newest = f"the newest is {best.driver} on {best.hostname}" if best.driver else newest_found
    return f"no node{kind} has driver {request.min_driver} or newer; {newest}"


def is_of_image(job: Job, request: Request) -> bool:
    """Return whether the required driver is one that the job's image needs."""
    return bool(job.image_needs) and request.min_driver == job.learnt_min_driver


def newest_driver(request: Request, nodes: Sequence[NodeCapacity]) -> NodeCapacity:
    """Return the node with the newest driver among those with enough GPUs, of which there must be one."""
    enough = [node for node in nodes if has_enough(request, node)]
    return max(sorted(enough, key=lambda node: node.hostname), key=lambda node: version_of(node.driver) or ())
