"""Status of GPUs: what their node reports, overruled by drains and resets."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from mesos_gpu.engine.gpus.covers import is_free
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.node import GpuStatus, Node
from mesos_gpu.policy.explain.silence import unknown


def is_closed(state: State, node: Node) -> bool:
    """Return whether no job may start on a node: it is drained, or its programs are too old or too new."""
    return not node.wire or (bool(state.cluster.drains) and state.cluster.drain_of(node.hostname) is not None)


def gpu_status(state: State, node: Node, gpu: Gpu) -> GpuStatus:
    """Return a GPU with its effective health: drained or in a reset, whatever its node reports."""
    drain, card = state.cluster.drain_of(node.hostname, gpu.id), state.gpus.cards.get(gpu.id)
    reset = card.reset if card else None
    health, reason, since = gpu.health, gpu.reason, gpu.since
    if drain is not None:
        health, reason, since = Health.DRAINED, drain.words_of_gpu, drain.since
    elif reset is not None:
        health, reason, since = Health.DRAINED, f"in a reset: {reset.reason}", reset.since
    return GpuStatus(node, gpu, health, reason, since, drain, card)


def reported(
    state: State, settings: Settings, now: float, places: Iterable[tuple[Node, Gpu]]
) -> list[GpuStatus]:
    """Return GPUs with the health that is shown: unknown while their node does not report, unless they are drained."""
    silent: dict[AgentId, str] = {}  # reason for which a node does not report, by node
    statuses = []
    for node, gpu in places:
        if (why := silent.get(node.id)) is None:
            why = silent[node.id] = unknown(node, now, settings.programs.report_stale_s)
        status = gpu_status(state, node, gpu)
        if why and status.health is not Health.DRAINED:
            since = node.lost_at or node.reported_at or 0.0
            status = replace(status, health=Health.UNKNOWN, reason=why, since=since)
        statuses.append(status)
    return statuses


def usable(state: State, node: Node, now: float, settings: Settings) -> tuple[Gpu, ...]:
    """Return the GPUs of a node that may be granted, wholly or in part: healthy by a fresh report, not contested."""
    if not _is_fresh(node, now, settings):
        return ()
    free = [
        gpu for gpu in node.gpus if is_free(state, gpu.id) and state.gpus.contested.get(gpu.id, now) <= now
    ]
    return tuple(sound_of(state, node, free))


def well(
    state: State, node: Node, now: float, settings: Settings, chosen: Collection[GpuId]
) -> tuple[Gpu, ...]:
    """Return those of some GPUs that could be granted if no task held them."""
    if not chosen or not _is_fresh(node, now, settings):
        return ()
    return tuple(sound_of(state, node, [gpu for gpu in node.gpus if gpu.id in chosen]))


def sound_of(state: State, node: Node, gpus: Iterable[Gpu]) -> list[Gpu]:
    """Return the GPUs whose effective health is OK, faster than `gpu_status`, as each match needs a thousand nodes."""
    sound = [gpu for gpu in gpus if gpu.health is Health.OK]
    if state.cluster.drains and state.cluster.drain_of(node.hostname):
        return []
    if state.cluster.drains:
        sound = [gpu for gpu in sound if not state.cluster.drain_of(node.hostname, gpu.id)]
    return [gpu for gpu in sound if gpu.id not in state.gpus.resets] if state.gpus.resets else sound


def _is_fresh(node: Node, now: float, settings: Settings) -> bool:
    """Return whether a node has reported lately, is not lost, and has a monitor that this version can talk to."""
    return (
        node.reported_at is not None
        and now - node.reported_at <= settings.programs.report_stale_s
        and not node.lost_at
        and bool(node.wire)
    )
