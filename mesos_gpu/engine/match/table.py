"""What is offered, kept over matches: an agent is looked at again only when something of it has changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from mesos_gpu.engine.match.placing import board_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId
from mesos_gpu.policy.capacity import NodeCapacity
from mesos_gpu.policy.cluster.board import Board

_NEW_REQUESTS = 100  # jobs submitted, after which what is asked for lately may be something else


@dataclass(slots=True)
class Table:
    """Agents with offers, as they could be used, and the arrays on which jobs are placed."""

    candidates: dict[AgentId, NodeCapacity]
    board: Board
    at: float  # when it was last brought up to date
    sequence: int  # of the next job, when the board last learnt what is asked for
    fresh_until: dict[AgentId, float] = field(default_factory=dict)  # when the report is too old


def table_of(
    state: State, settings: Settings, now: float, desks: Mapping[AgentId, Callable[[], NodeCapacity]]
) -> Table:
    """The state's table, brought up to date.

    Args:
        state: The engine's; the table is part of it, though not of what is saved: it follows from the rest.
        settings: The operator's.
        now: Seconds since the epoch.
        desks: The agents with offers, and how each of them could be used now.
    """
    table: Table | None = state.table
    if table is not None and _brought_up(table, state, settings, now, desks):
        return table
    candidates = {a: make() for a, make in desks.items() if not state.drain_of(state.nodes[a].hostname)}
    table = Table(candidates, board_of(state, settings, candidates.values()), now, state.next_sequence)
    for agent_id in candidates:
        table.fresh_until[agent_id] = _fresh_until(state, settings, agent_id)
    state.table = table
    state.touched.clear()
    return table


def _brought_up(
    table: Table,
    state: State,
    settings: Settings,
    now: float,
    desks: Mapping[AgentId, Callable[[], NodeCapacity]],
) -> bool:
    """Whether the changes since the last time could be made; else all is to be built anew."""
    if any(table.at < until <= now for until in state.contested.values()):
        return False
    gone = [agent_id for agent_id in table.candidates if agent_id not in desks]
    late = [agent_id for agent_id, until in table.fresh_until.items() if until < now]
    new = [agent_id for agent_id in desks if agent_id not in table.candidates]
    for agent_id in sorted({*gone, *late, *new, *state.touched}):
        drained = agent_id in desks and state.drain_of(state.nodes[agent_id].hostname)
        if agent_id not in desks or drained:
            table.fresh_until.pop(agent_id, None)
            if table.candidates.pop(agent_id, None) is not None:
                table.board.leave(agent_id)
            continue
        candidate = desks[agent_id]()
        if not table.board.knows(candidate):
            return False
        if candidate != table.candidates.get(agent_id):
            table.candidates[agent_id] = candidate
            table.board.update(candidate)
        until = _fresh_until(state, settings, agent_id)
        table.fresh_until[agent_id] = until if until >= now else inf
    state.touched.clear()
    table.at = now
    if state.next_sequence - table.sequence >= _NEW_REQUESTS:
        table.sequence = state.next_sequence
        table.board.ask_again()
    return True


def _fresh_until(state: State, settings: Settings, agent_id: AgentId) -> float:
    """One that has no report, or an old one, is looked at again when one comes."""
    reported_at = state.nodes[agent_id].reported_at
    return inf if reported_at is None else reported_at + settings.report_stale_s
