"""History of each GPU, and resets of GPUs."""

from collections.abc import Iterable
from dataclasses import replace

from mesos_gpu.engine.effects import AskReset
from mesos_gpu.engine.events import ResetRequested
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.drain import Card, Reset
from mesos_gpu.model.nodes.gpu import Gpu, Health, Transition
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.gpus.history import with_changes


def record(turn: Turn, gpu_id: GpuId, changes: Iterable[Transition]) -> Card:
    """Add the changes that a GPU's history lacks; return its record."""
    old = turn.state.gpus.cards.get(gpu_id) or Card(gpu_id)
    card = with_changes(old, changes)
    if card is not old:
        turn.put_card(card)
    return card


def note(turn: Turn, gpu_id: GpuId, health: Health, words: str) -> Card:
    """Add an entry to a GPU's history that does not change its health."""
    return record(turn, gpu_id, [Transition(turn.now, health, health, words)])


def on_reported(turn: Turn, gpu: Gpu) -> None:
    """Add the health changes of a report to a GPU's history; end a reset that the report answers."""
    card = record(turn, gpu.id, gpu.history)
    if card.reset is None:
        return
    reasons = [gpu.reason, *(change.reason for change in gpu.history)]
    if any(card.reset.request in reason for reason in reasons):
        turn.put_card(replace(card, reset=None))


def on_reset_requested(turn: Turn, event: ResetRequested) -> None:
    """Request a reset of a GPU from its node; nothing is placed on the GPU until the reset is over.

    Raises:
        NotFound: No node has that GPU.
        Conflict: A task holds the GPU, no monitor runs on its node, or another reset is in progress.
    """
    node, gpu = turn.state.cluster.known_gpu(event.gpu_id)
    tenants = turn.state.tenants(gpu.id)
    if tenants:
        holders = [str(tenant.job_id or tenant.id) for tenant in tenants]
        ended = "the job has" if len(holders) == 1 else "all of them have"
        what = f"{gpu.id} is held by {', '.join(holders)}"
        raise Conflict(what, remedy=f"drain it, wait until {ended} ended, and reset it then")
    if node.monitor is None or node.lost_at is not None:
        what = f"{gpu.id} cannot be reset: no monitor runs on {node.hostname}"
        raise Conflict(what, remedy="start its agent again first; see `mesos-gpu nodes`")
    old = turn.state.gpus.cards.get(gpu.id) or Card(gpu.id)
    if old.reset is not None:
        what = f"{gpu.id} is in reset {old.reset.request} for {turn.now - old.reset.since:.0f} s already"
        raise Conflict(what, remedy="see `mesos-gpu gpu health` for its result")
    by = f" by {event.by}" if event.by else ""
    card = note(turn, gpu.id, gpu.health, f"reset {event.request} asked for{by}: {event.reason}")
    turn.put_card(replace(card, reset=Reset(event.request, event.reason, event.by, turn.now)))
    _ask(turn, gpu.id, node)


def on_tick(turn: Turn) -> None:
    """Repeat requests of resets, and give up when a node does not answer."""
    if not turn.state.gpus.resets:
        return
    for gpu_id in list(turn.state.gpus.resets):
        reset = turn.state.gpus.cards[gpu_id].reset
        assert reset is not None, "each GPU in `resets` has a reset"
        place = turn.state.cluster.place_of(gpu_id)
        if turn.now - reset.since >= turn.settings.tasks.reset_timeout_s:
            words = f"reset {reset.request}: the node did not answer within {turn.settings.tasks.reset_timeout_s:g} s"
            card = note(turn, gpu_id, place[1].health if place else Health.UNKNOWN, words)
            turn.put_card(replace(card, reset=None))
        elif place and (
            reset.sent_at is None or turn.now - reset.sent_at >= turn.settings.tasks.reset_resend_s
        ):
            _ask(turn, gpu_id, place[0])


def _ask(turn: Turn, gpu_id: GpuId, node: Node) -> None:
    """Request the reset of a GPU from the monitor of its node, if one runs."""
    card = turn.state.gpus.cards[gpu_id]
    monitor = turn.state.work.tasks.get(node.monitor) if node.monitor else None
    if card.reset is None or monitor is None or not turn.state.mesos.connected:
        return
    turn.put_card(replace(card, reset=replace(card.reset, sent_at=turn.now)))
    turn.effects.append(AskReset(node.id, monitor.executor_id, gpu_id, card.reset.request))
