"""Table of offered nodes, kept from match to match: only agents that have changed are looked at again."""

from math import inf

from mesos_gpu.engine.gpus.gpu_status import is_closed
from mesos_gpu.engine.indexes.table import Table
from mesos_gpu.engine.match.placing import index_of
from mesos_gpu.engine.match.remains import FreeOffers, Pace
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId
from mesos_gpu.policy.cluster.node_index import NodeIndex

_NEW_REQUESTS = 100  # submitted jobs after which the mix of recent requests is computed again


class Index:
    """Book of the ledger that keeps an agent's row up to date with the rest of its offers and its launch window.

    An agent without room in its launch window is not on the table. The ledger must update `remains` and `pace` before
    this book.
    """

    def __init__(self, index: NodeIndex, remains: FreeOffers, pace: Pace) -> None:
        self._index, self._remains, self._pace = index, remains, pace

    def take(self, take: Take) -> None:
        """Update the row of an agent after an assignment."""
        self.show(take.agent_id)

    def undo(self, take: Take) -> None:
        """Update the row of an agent after an assignment was undone."""
        self.show(take.agent_id)

    def show(self, agent_id: AgentId) -> None:
        """Update the row of an agent that offers resources."""
        self._index.update(self._remains.capacity(agent_id))
        if self._pace.is_full(agent_id):
            self._index.leave(agent_id)


def table_of(state: State, settings: Settings, now: float, remains: FreeOffers, pace: Pace) -> Table:
    """Return the table of the state, brought up to date.

    Args:
        state: State of the engine; the table is a part of it that is not saved, as it follows from the rest.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        remains: Rest of the agents' offers.
        pace: Room in launch windows of agents.
    """
    table = state.cluster.table
    if table is not None and _brought_up(table, state, settings, now, remains, pace):
        return table
    open_ = [agent_id for agent_id in remains.agents if not is_closed(state, state.cluster.nodes[agent_id])]
    index = index_of(state, settings, map(remains.capacity, open_))
    table = Table(index, now, state.work.next_sequence)
    for agent_id in open_:
        if pace.is_full(agent_id):
            index.leave(agent_id)
        table.note(agent_id, _fresh_until(state, settings, agent_id))
    state.cluster.table = table
    state.cluster.touched.clear()
    return table


def _brought_up(
    table: Table, state: State, settings: Settings, now: float, remains: FreeOffers, pace: Pace
) -> bool:
    """Bring a table up to date; return False if it must be built again."""
    if any(table.at < until <= now for until in state.gpus.contested.values()):
        return False
    nodes = table.index.nodes
    again = [a for a, (_, until) in state.gpus.keeper_failures.items() if table.at < until <= now]
    again += [
        a
        for a in state.cluster.agents.backed_off
        if table.at < state.cluster.nodes[a].launch_not_before <= now
    ]
    for agent_id in sorted({*table.late(now), *again, *state.cluster.touched}):
        if (
            agent_id not in remains
            or is_closed(state, state.cluster.nodes[agent_id])
            or pace.is_full(agent_id)
        ):
            table.fresh_until.pop(agent_id, None)
            if agent_id in nodes:
                table.index.leave(agent_id)
            continue
        node = remains.capacity(agent_id)
        if not table.index.knows(node):
            return False
        if node != nodes.get(agent_id):
            table.index.update(node)
        until = _fresh_until(state, settings, agent_id)
        table.note(agent_id, until if until >= now else inf)
    state.cluster.touched.clear()
    table.at = now
    if state.work.next_sequence - table.sequence >= _NEW_REQUESTS:
        table.sequence = state.work.next_sequence
        table.index.ask_again()
    return True


def _fresh_until(state: State, settings: Settings, agent_id: AgentId) -> float:
    """Return when an agent's report becomes stale, in seconds since the epoch; infinity before the first report."""
    reported_at = state.cluster.nodes[agent_id].reported_at
    return inf if reported_at is None else reported_at + settings.programs.report_stale_s
