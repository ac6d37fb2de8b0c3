"""Books of a match's ledger: rest of offers, launches from them, and room in launch windows of agents."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.effects import Launch, LaunchTask
from mesos_gpu.engine.gpus import covers
from mesos_gpu.engine.gpus.gpu_status import usable
from mesos_gpu.engine.gpus.role import is_of
from mesos_gpu.engine.gpus.unreserving import may_unreserve
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, OfferId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer, PortRange, Scalar, carve, carve_most, resources_of
from mesos_gpu.model.resources import NOTHING, Resources
from mesos_gpu.policy.apps.ports import without
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.queueing.launch_window import FIRST_SIZE
from mesos_gpu.policy.sharing.parts import GpuPart, unshared
from mesos_gpu.wire.mesos.reservations import is_ours, reserved, summed

Scalars = tuple[Scalar, ...]
FEW: Final = 8  # an agent with fewer launches in progress is as good a choice as one with none
#: Resource that operators may let agents offer, in MiB, so that Mesos shows its use.
GPU_MEMORY: Final = "gpu_mem"


@dataclass(slots=True)
class _Agent:
    """Offers of an agent, and what is left of them.

    Attributes:
        node: Node of the agent.
        offers: Offers of one role.
        scalars: Unreserved resources that are left.
        ports: Ports that are left.
        role: Role of the offers.
        aside: Resources offered to other roles, which this match does not use.
        reserved: Resources reserved for shared GPUs, which only cover tasks get until they are unreserved.
        reserve: Resources that this match reserves for its cover tasks.
        keeper: Whether a keeper runs that cover tasks can join; None if not looked up yet.
        gpus: Free GPUs; None if not looked up yet.
        parts: Free parts of shared GPUs, looked up with `gpus`.
    """

    node: Node
    offers: list[Offer]
    scalars: Scalars
    ports: tuple[PortRange, ...]
    role: str
    aside: Scalars = ()
    reserved: Scalars = ()
    reserve: Scalars = ()
    keeper: bool | None = None
    gpus: tuple[Gpu, ...] | None = None
    parts: tuple[GpuPart, ...] = ()

    def copy(self) -> "_Agent":
        """Return a shallow copy, which is enough as no value of an agent is changed in place."""
        return changed(self)


@dataclass(frozen=True, slots=True)
class AssignedResources:
    """Resources that an assignment got of the offers of its agent.

    Attributes:
        task: Resources of the task.
        executor: Resources of its executor.
        covers: Resources of each cover task that is launched with it.
        keeper: Resources of the keeper (executor of cover tasks); empty if it runs, or if another launch starts it.
        keeper_role: Role that the keeper names; "" for the default role of the framework.
    """

    task: Scalars
    executor: Scalars
    covers: tuple[Scalars, ...]
    keeper: Scalars
    keeper_role: str = ""


class FreeOffers:
    """Free offers: what is left of each agent's offers during a match (scalars, ports, GPUs).

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time of the match, in seconds since the epoch.
    """

    def __init__(self, state: State, settings: Settings, now: float) -> None:
        self._state, self._settings, self._now = state, settings, now
        self._known = state.cluster.agents
        self._agents: dict[AgentId, _Agent] = {}  # agents that were looked at
        self._carved: dict[Take, AssignedResources] = {}
        self._before: dict[Take, _Agent] = {}

    def _agent(self, agent_id: AgentId) -> _Agent:
        """Return the rest of an agent's offers, read on the first call: a launch needs one agent of ten thousand."""
        agent = self._agents.get(agent_id)
        if agent is None:
            offers = [held.offer for held in self._known.offers[agent_id].values()]
            agent = self._agents[agent_id] = self._offered(self._state.cluster.nodes[agent_id], offers)
        return agent

    def _offered(self, node: Node, offers: list[Offer]) -> _Agent:
        """Return the offers of an agent of one role, with what is reserved set apart."""
        settings = self._settings
        role, used = settings.mesos.role, offers
        if settings.mesos.role_of:
            role = self._role(node, offers)
            used = [offer for offer in offers if is_of(settings, offer, role)]
        first, *more = used
        agent = _Agent(node, used, first.resources, first.ports, role)
        for offer in more:
            agent.scalars += offer.resources
            agent.ports += offer.ports
        if len(used) < len(offers):
            aside = [offer for offer in offers if not is_of(settings, offer, role)]
            agent.aside = tuple([scalar for offer in aside for scalar in offer.resources])
        if not settings.mesos.reserves or node.id not in self._known.reserved:  # nothing is reserved
            return agent
        agent.reserved = tuple(
            [scalar for scalar in agent.scalars if is_ours(scalar, self._state.mesos.framework_id)]
        )
        agent.scalars = tuple([scalar for scalar in agent.scalars if scalar not in agent.reserved])
        return agent

    def _role(self, node: Node, offers: list[Offer]) -> str:
        """Return the role whose offers of an agent are used, as one ACCEPT may not mix roles.

        The oldest offer decides, so each role has its turn once earlier offers are used or given back. On an agent
        without a monitor the default role comes first.
        """
        default = self._settings.mesos.role
        if node.monitor is None and any(is_of(self._settings, offer, default) for offer in offers):
            return default
        return offers[0].role or default

    def role(self, agent_id: AgentId) -> str:
        """Return the role of the used offers of an agent."""
        return self._agent(agent_id).role

    def __iter__(self) -> Iterator[AgentId]:
        """Iterate over the agents with offers, in the order of their oldest offers."""
        return iter(self.in_order(self._known.offers))

    def __contains__(self, agent_id: AgentId) -> bool:
        return agent_id in self._known.offers

    def in_order(self, agents: Iterable[AgentId]) -> list[AgentId]:
        """Select the agents that offer something, in the order of their oldest offers."""
        return self._known.in_order(agents)

    @property
    def agents(self) -> Collection[AgentId]:
        """Agents with offers, in any order."""
        return self._known.offers.keys()

    @property
    def reserving(self) -> Collection[AgentId]:
        """Agents whose offers have resources that are reserved for shared GPUs."""
        return self._known.reserved.keys() if self._settings.mesos.reserves else ()

    def offer_ids(self, agent_id: AgentId) -> tuple[OfferId, ...]:
        """Return the ids of the used offers of an agent."""
        return tuple(offer.id for offer in self._agent(agent_id).offers)

    def ports(self, agent_id: AgentId) -> tuple[PortRange, ...]:
        """Return the free ports of an agent."""
        return self._agent(agent_id).ports

    def resources(self, agent_id: AgentId) -> Resources:
        """Return the free unreserved resources of an agent; `NOTHING` without offers."""
        return resources_of(self._agent(agent_id).scalars) if agent_id in self else NOTHING

    def coming(self, agent_id: AgentId) -> Resources:
        """Return all offered resources of an agent, with reserved ones and those of other roles, which become free."""
        if agent_id not in self:
            return NOTHING
        return self.for_covers(agent_id) + resources_of(self._agent(agent_id).aside)

    def for_covers(self, agent_id: AgentId) -> Resources:
        """Return the resources that cover tasks may take of an agent: free and reserved ones."""
        agent = self._agent(agent_id)
        return resources_of((*agent.reserved, *agent.scalars))

    def reservations(self, agent_id: AgentId) -> tuple[Scalars, Scalars]:
        """Return the resources to reserve, and the reserved ones to unreserve because nothing needs them any more.

        After a (re)registration an offer may come before the status update that a cover task has ended, so nothing is
        unreserved before reconciliation is done.
        """
        agent = self._agent(agent_id)
        if not agent.reserve and not agent.reserved:
            return (), ()
        is_reconciled = self._state.mesos.reconciliation is None and not self._state.mesos.doubtful
        unreserve = summed(agent.reserved) if is_reconciled else ()
        again = may_unreserve(self._state, agent_id, unreserve, self._now)
        return summed(agent.reserve), unreserve if again else ()

    def capacity(self, agent_id: AgentId) -> NodeCapacity:
        """Return the free capacity of an agent at this moment, for placement."""
        agent, settings = self._agent(agent_id), self._settings
        gpus = self._gpus(agent)
        return NodeCapacity(
            agent.node.id,
            agent.node.hostname,
            resources_of(agent.scalars),
            gpus,
            parts=agent.parts,
            compute_milli=covers.compute_milli(settings),
            cover=covers.cost_of_cover(self._state, settings, agent_id, self._now),
            keeper=NOTHING if self._has_keeper(agent) else settings.programs.keeper,
            ports=agent.ports,
            installed=agent.node.gpus,
            driver=agent.node.driver_version,
        )

    def _gpus(self, agent: _Agent) -> tuple[Gpu, ...]:
        """Return the free GPUs of an agent, looked up when needed: most matches of a thousand agents place nothing."""
        if agent.gpus is None:
            agent.gpus = usable(self._state, agent.node, self._now, self._settings)
            ids = {gpu.id for gpu in agent.gpus} if self._state.gpus.covers else ()
            parts = covers.open_parts(self._state, agent.node, self._settings)
            agent.parts = tuple([part for part in parts if part.gpu_id in ids])
        return agent.gpus

    def _has_keeper(self, agent: _Agent) -> bool:
        """Return whether cover tasks of an agent can join a running keeper."""
        if agent.keeper is None:
            agent.keeper = covers.keeper_of(self._state, agent.node.id, self._label(agent)) is not None
        return agent.keeper

    def keeper_role(self, agent_id: AgentId) -> str:
        """Return the role that a keeper must name for cover tasks of an agent to join it; "" for the default role."""
        return self._label(self._agent(agent_id))

    def _label(self, agent: _Agent) -> str:
        """Return the role that a keeper on these offers names; "" for the default role."""
        return "" if agent.role == self._settings.mesos.role else agent.role

    def carved(self, take: Take) -> AssignedResources:
        """Return the resources that an assignment got."""
        return self._carved[take]

    # --- a book

    def take(self, take: Take) -> None:
        """Take an assignment out of the offers of its agent.

        Raises:
            ValueError: The offers have too little left.
        """
        agent = self._agent(take.agent_id)
        self._gpus(agent)
        before = agent.copy()
        try:
            self._carved[take] = self._carve(agent, take)
        except ValueError:
            self._agents[take.agent_id] = before
            raise
        self._before[take] = before
        agent.ports = without(take.ports, agent.ports) if take.ports else agent.ports
        if take.share is None and take.gpus:
            agent.gpus = tuple([gpu for gpu in self._gpus(agent) if gpu.id not in take.gpus])
        elif take.share is not None:
            agent.parts = self._less(agent, take)

    def _carve(self, agent: _Agent, take: Take) -> AssignedResources:
        """Return the resources of an assignment, and remove them from those that are left."""
        task, left = carve(agent.scalars, take.task)
        executor, agent.scalars = carve(left, take.executor)
        if take.share is not None:
            memory, agent.scalars = carve_most(
                agent.scalars, GPU_MEMORY, take.share.memory_mib * len(take.gpus)
            )
            task += memory
        cards = take.opens or ((take.covers,) if take.covers else ())
        if not cards:
            return AssignedResources(tuple(task), tuple(executor), (), ())
        keeper = () if self._has_keeper(agent) else self._for_covers(agent, self._settings.programs.keeper)
        each = tuple([self._for_covers(agent, self._settings.programs.cover) for _ in cards])
        agent.keeper = True
        return AssignedResources(tuple(task), tuple(executor), each, keeper, self._label(agent))

    def _for_covers(self, agent: _Agent, need: Resources) -> Scalars:
        """Take resources for a cover task or keeper: reserved ones first, then free ones, which become reserved."""
        settings = self._settings
        reserves = agent.role != "*" and self._now >= self._state.mesos.reserve_from
        kept, left_reserved = carve(agent.reserved, need.least(resources_of(agent.reserved)))
        rest = need - resources_of(kept)
        fresh, left = carve(agent.scalars, rest)
        if reserves:
            by = agent.role, settings.mesos.principal, self._state.mesos.framework_id or ""
            held = [reserved(scalar, *by) for scalar in fresh]
            agent.reserve += tuple([new for new, old in zip(held, fresh, strict=True) if new != old])
            fresh = held
        agent.scalars, agent.reserved = left, left_reserved
        return (*kept, *fresh)

    def _less(self, agent: _Agent, take: Take) -> tuple[GpuPart, ...]:
        """Return the free parts of shared GPUs after an assignment, with GPUs that it opens."""
        assert take.share is not None, "whole cards have no parts"
        milli = covers.compute_milli(self._settings)
        parts = {part.gpu_id: part for part in agent.parts}
        parts |= {gpu.id: unshared(gpu, milli) for gpu in self._gpus(agent) if gpu.id in take.opens}
        return tuple([part.less(take.share) if part.gpu_id in take.gpus else part for part in parts.values()])

    def undo(self, take: Take) -> None:
        """Restore the offers of the agent to those before the latest assignment."""
        del self._carved[take]
        self._agents[take.agent_id] = self._before.pop(take)


class Launches:
    """Launches of a match by agent: an entry for each assignment, filled once its task is created."""

    def __init__(self) -> None:
        self._entries: dict[AgentId, dict[Take, tuple[LaunchTask, ...]]] = {}

    def fill(self, take: Take, *items: LaunchTask) -> None:
        """Put launches into the entry of an assignment."""
        assert not self._entries[take.agent_id][take], f"{items[0].task.id} has no entry of its own"
        self._entries[take.agent_id][take] = items

    def effects(self, remains: FreeOffers) -> Iterator[Launch]:
        """Yield the launches of each agent, in the order of their oldest offers.

        An agent without launches is yielded if something is to be unreserved.
        """
        for agent_id in remains.in_order({*self._entries, *remains.reserving}):
            entries = self._entries.get(agent_id, {})
            reserve, unreserve = remains.reservations(agent_id)
            if entries or unreserve:
                assert all(entries.values()), f"an assignment on {agent_id} has no launch"
                items = tuple(item for entry in entries.values() for item in entry)
                yield Launch(remains.offer_ids(agent_id), items, reserve, unreserve)

    # --- a book of the ledger

    def take(self, take: Take) -> None:
        """Add an empty entry for an assignment."""
        self._entries.setdefault(take.agent_id, {})[take] = ()

    def undo(self, take: Take) -> None:
        """Remove the entry of an assignment."""
        del self._entries[take.agent_id][take]


class Pace:
    """Launches in progress on each agent during a match, and the room for more in its launch window.

    The members of a gang start together. An agent without launches in progress takes any number of members, so that a
    gang larger than the window can start when the window is empty.

    Args:
        state: State of the engine.
        now: Time of the match, in seconds since the epoch.
    """

    def __init__(self, state: State, now: float) -> None:
        self._state, self._now = state, now
        self._under_way: dict[AgentId, int] = {}  # launches in progress of agents looked at so far
        # Agents without launches in progress before a gang; None while no gang is placed.
        self._empty: set[AgentId] | None = None
        self._held: set[AgentId] = set()  # agents reserved for a gang
        self._busy: dict[AgentId, int] | None = None  # cached result of `busy`

    def under_way(self, agent_id: AgentId) -> int:
        """Return the number of launches in progress on an agent, including those of this match."""
        count = self._under_way.get(agent_id)
        if count is None:
            count = self._under_way[agent_id] = len(self._state.work.restless.under_way.get(agent_id, ()))
        return count

    def room(self, agent_id: AgentId) -> int | None:
        """Return the number of further launches that an agent may have now; None if there is no limit."""
        count, node = self.under_way(agent_id), self._state.cluster.nodes[agent_id]
        if agent_id in self._held or node.launch_not_before > self._now:
            return 0
        if self._empty is not None and (not count or agent_id in self._empty):
            self._empty.add(agent_id)
            return None
        window = self._state.cluster.windows.get(agent_id)
        return max(int(FIRST_SIZE if window is None else window.size) - count, 0)

    def is_full(self, agent_id: AgentId) -> bool:
        """Return whether an agent gets no further launch now."""
        return self.room(agent_id) == 0

    @contextmanager
    def gang(self) -> Iterator[None]:
        """Within the block, let agents without launches in progress take any number of tasks of one gang."""
        self._empty = set()
        try:
            yield
        finally:
            self._empty = None

    def narrow(self, tasks: int) -> list[Node]:
        """Return the agents whose launch windows have no room for `tasks` more, ordered by launches in progress."""
        agents = {**self._state.work.restless.under_way, **self._under_way}
        counts = {
            agent_id: self.under_way(agent_id) for agent_id in agents if agent_id in self._state.cluster.nodes
        }
        narrow = [a for a, count in counts.items() if count and (self.room(a) or 0) < tasks]
        nodes = [self._state.cluster.nodes[agent_id] for agent_id in sorted(narrow, key=counts.__getitem__)]
        return [node for node in nodes if node.launch_not_before <= self._now]

    def hold(self, agent_id: AgentId) -> None:
        """Give an agent no further launch in this match, so that its window empties and a gang can start there."""
        self._held.add(agent_id)
        self._state.cluster.touched.add(agent_id)

    def busy(self) -> Mapping[AgentId, int]:
        """Return the launches in progress divided by `FEW`, rounded down, of agents where this is at least 1."""
        if self._busy is None:
            every = self._state.work.restless.under_way.items()
            counts = {agent_id: len(tasks) for agent_id, tasks in every if len(tasks) >= FEW}
            counts |= {agent_id: count for agent_id, count in self._under_way.items() if count >= FEW}
            self._busy = {agent_id: count // FEW for agent_id, count in counts.items()}
        return self._busy

    # --- a book

    def take(self, take: Take) -> None:
        """Add the launches of a placement; each cover task that opens a shared GPU is one more launch."""
        self._count(take, 1)

    def undo(self, take: Take) -> None:
        """Subtract the launches of a placement."""
        self._count(take, -1)

    def _count(self, take: Take, sign: int) -> None:
        """Add the launches of a placement (sign 1), or subtract them (-1)."""
        count = self.under_way(take.agent_id) + sign * (1 + len(take.opens))
        self._under_way[take.agent_id] = count
        if self._busy is not None and count >= FEW:
            self._busy[take.agent_id] = count // FEW
        elif self._busy is not None:
            self._busy.pop(take.agent_id, None)
