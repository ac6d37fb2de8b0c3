"""Drains of GPUs and nodes, requested and ended by operators."""

from mesos_gpu.engine.events import DrainRequested, UndrainRequested
from mesos_gpu.engine.gpus.cards import record
from mesos_gpu.engine.gpus.gpu_status import gpu_status
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.drain import Drain, Target
from mesos_gpu.model.nodes.gpu import Health, Transition
from mesos_gpu.model.nodes.node import GpuStatus


def on_drain(turn: Turn, event: DrainRequested) -> None:
    """Drain a GPU or node, or change the reason and deadline of its drain.

    Raises:
        NotFound: No node has that GPU, or no agent of that host is known.
    """
    old = turn.state.cluster.drains.get((event.target, event.name))
    if old is None:
        if event.target is Target.GPU:
            turn.state.cluster.known_gpu(GpuId(event.name))
        elif not any(node.hostname == event.name for node in turn.state.cluster.nodes.values()):
            raise NotFound(f"there is no node {event.name}", remedy="list the nodes with: mesos-gpu nodes")
    deadline_at = None if event.deadline_s is None else turn.now + event.deadline_s
    since = turn.now if old is None else old.since
    drain = Drain(event.target, event.name, event.reason, event.by, since, deadline_at)
    before = _statuses(turn, drain)
    turn.put_drain(drain)
    for status in before:
        record(turn, status.gpu.id, [Transition(turn.now, status.health, Health.DRAINED, drain.words_of_gpu)])


def on_undrain(turn: Turn, event: UndrainRequested) -> None:
    """End a drain. Jobs that were ended for it stay ended.

    Raises:
        NotFound: The GPU or node is not drained.
        Conflict: The GPU is drained with its node.
    """
    drain = turn.state.cluster.drains.get((event.target, event.name))
    if drain is None:
        place = turn.state.cluster.place_of(GpuId(event.name)) if event.target is Target.GPU else None
        if place and turn.state.cluster.drain_of(place[0].hostname):
            what = f"{event.name} is drained with its node {place[0].hostname}"
            raise Conflict(what, remedy=f"undrain the node: mesos-gpu node undrain {place[0].hostname}")
        raise NotFound(
            f"{event.name} is not drained", remedy=f"see the drains: mesos-gpu {event.target.value} list"
        )
    turn.drop_drain(drain)
    what = "its node is undrained" if event.target is Target.NODE else "undrained"
    words = what + (f" by {event.by}" if event.by else "")
    for status in _statuses(turn, drain):
        record(turn, status.gpu.id, [Transition(turn.now, Health.DRAINED, status.health, words)])


def _statuses(turn: Turn, drain: Drain) -> list[GpuStatus]:
    """Return the present status of the GPUs of a drain."""
    if drain.target is Target.GPU:
        place = turn.state.cluster.place_of(GpuId(drain.name))
        places = [] if place is None else [place]
    else:
        places = list(turn.state.cluster.placed(drain.name.__eq__).values())
    return [gpu_status(turn.state, node, gpu) for node, gpu in places]
