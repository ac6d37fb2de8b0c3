"""Search for places of all tasks of a job during one match: one assignment for each task, or none at all."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from mesos_gpu.engine.match.ledger import Ledger
from mesos_gpu.engine.match.placing import Placing
from mesos_gpu.engine.match.remains import FreeOffers, Pace
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.apps.ports import choose, enough
from mesos_gpu.policy.apps.task_ids import launch_id
from mesos_gpu.policy.capacity.fit import Chosen, room_for
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.cluster.node_index import NodeIndex

Nodes = Mapping[AgentId, NodeCapacity]
_ONE_PORT = (PortWish(None, 0, 0),)  # ports of each member of a gang


class Search:
    """Placement of jobs, one after the other. What was refused once is not searched again in the same match.

    Args:
        settings: Settings of the scheduler.
        ledger: Ledger that records assignments; the following are its books.
        remains: Rest of the offers.
        pace: Room in launch windows of agents.
        index: Index of nodes with offers, always up to date.
        placing: Choice of the best node.
        backlog: Limits and reservations, by which jobs may use nodes.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        remains: FreeOffers,
        pace: Pace,
        index: NodeIndex,
        placing: Placing,
        backlog: Backlog,
    ) -> None:
        self._settings, self._ledger, self._remains, self._pace = settings, ledger, remains, pace
        self._index, self._placing, self._backlog = index, placing, backlog
        self._nodes: Nodes = index.nodes
        self._refused: set[Hashable] = set()
        self._most: Resources | None = None  # highest amounts of any node; None if they must be computed
        self._most_gpus = 0  # GPUs of `_most`
        self._is_booked = False  # whether the job gets its booking

    def place(self, job: Job) -> list[Take] | None:
        """Take what all tasks of a job need, by rank; return None, with nothing taken, if they do not all fit."""
        # The highest amounts refuse a thousand jobs without a look at each agent.
        if self._most is None:
            self._most = self._index.most()
            self._most_gpus = self._most.gpus
        if job.spec.gpus > self._most_gpus and not job.spec.is_share:
            return None  # a quick test that refuses most jobs on a full cluster
        if not self._most.covers(footprint_of(job, self._settings).total):
            return None
        wait, booked = self._backlog.barriers.wait_of(job), self._backlog.booked.active_for(job)
        if wait is not None and not (booked and wait.stage is Stage.GUARANTEE):
            return None  # only a booking may be used without a seat
        request, outlasted = self._backlog.request(job), self._backlog.reservations.outlasted(job)
        conditions = outlasted, booked, bool(wait)
        if self._refused and self._key(job, request, conditions) in self._refused:
            return None
        full = replace(request, ports=job.spec.ports) if job.spec.ports else request
        takes = self._take_booked(job, full, outlasted) if booked else None
        if takes is None and wait is None and job.spec.booking is None:
            takes = self._take_together(job, full, outlasted)
        if takes is None:
            self._refused.add(self._key(job, request, conditions))
            self._most = None
        return takes

    def _key(self, job: Job, request: Request, how: Hashable) -> Hashable:
        """Return a key of a job; jobs with one key all have a place, or none has."""
        placing, role = self._placing, self._settings.mesos.role_for(job.spec.queue)
        kind = self._backlog.kind(job, request), placing.key(job), placing.order(job), self._may_open(job)
        return kind, job.spec.ports, how, role

    def _take_together(self, job: Job, request: Request, outlasted: Sequence[int]) -> list[Take] | None:
        """Return an assignment for each task within limits and reservations; None if not all fit."""
        offered = self._backlog.reservations.open_to(outlasted, self._offered_to(job))
        pooled = self._backlog.in_pools(job, offered)
        open_to = (self._backlog.neighbours.open_to(job, nodes) for nodes in pooled)
        return next(filter(None, (self._take_on(job, request, nodes, outlasted) for nodes in open_to)), None)

    def _take_booked(self, job: Job, request: Request, outlasted: Sequence[int]) -> list[Take] | None:
        """Return an assignment for each task on what is booked for a job; None if not all fit."""
        backlog = self._backlog
        nodes = backlog.booked_for(job, backlog.reservations.open_to(outlasted, self._offered_to(job)))
        self._is_booked = True
        try:
            return self._take_on(job, request, backlog.neighbours.open_to(job, nodes), outlasted)
        finally:
            self._is_booked = False

    def _offered_to(self, job: Job) -> Nodes:
        """Return the nodes whose offers are of the role of a job's queue."""
        if not self._settings.mesos.role_of:
            return self._nodes
        role = self._settings.mesos.role_for(job.spec.queue)
        return {
            agent_id: node for agent_id, node in self._nodes.items() if self._remains.role(agent_id) == role
        }

    def _take_on(
        self, job: Job, request: Request, nodes: Nodes, outlasted: Sequence[int]
    ) -> list[Take] | None:
        """Return an assignment for each task on some nodes; None if not all fit."""
        if job.spec.tasks == 1:
            return self._take_or_leave(job, request, nodes, outlasted)
        # All tasks of a gang get one GPU model, as the slowest GPU decides for all.
        for of_model in request.each_model():
            with self._pace.gang():
                takes = self._take_or_leave(job, of_model, nodes, outlasted)
            if takes is not None:
                self._clear({take.agent_id for take in takes if self._pace.is_full(take.agent_id)})
                return takes
        for of_model in request.each_model():
            if self._hold_for(job, of_model, nodes):
                break
        return None

    def _take_or_leave(
        self, job: Job, request: Request, nodes: Nodes, outlasted: Sequence[int]
    ) -> list[Take] | None:
        """Return assignments for all tasks of a job, or undo those that were made and return None."""
        with self._ledger.checkpoint() as trial:
            if job.spec.tasks > 1:
                takes = self._take_gang(job, request, nodes, outlasted)
            else:
                takes = self._take_one(job, request, nodes)
            if takes is not None:
                trial.keep()
        return takes

    def _rooms(self, request: Request, nodes: Nodes) -> dict[AgentId, int]:
        """Return by node the number of a gang's tasks that may start there, by the room in its launch window."""
        rooms: dict[AgentId, int] = {}
        for agent_id, node in nodes.items():
            slots, room = room_for(request, node).slots, self._pace.room(agent_id)
            if slots := slots if room is None else min(slots, room):
                rooms[agent_id] = slots
        return rooms

    def _hold_for(self, job: Job, request: Request, nodes: Nodes) -> bool:
        """Reserve agents for a gang: give them no further launch, so that it can start when their windows are empty.

        As few agents as are enough are reserved. Return False if the gang waits for something else than launch windows.
        """
        tasks = job.spec.tasks
        narrow = [node for node in self._pace.narrow(tasks) if self._backlog.nodes.serves(job, node)]
        if not narrow:
            return False
        ids = {node.id for node in narrow}
        with self._pace.gang():
            room = sum(self._rooms(request, {a: node for a, node in nodes.items() if a not in ids}).values())
        held: list[AgentId] = []
        for node in narrow:
            if room < tasks and node.id in self._remains:
                room += room_for(request, self._remains.capacity(node.id)).slots
                held.append(node.id)
        if room < tasks:
            return False
        for agent_id in held:
            self._pace.hold(agent_id)
        self._clear(held)
        return True

    def _clear(self, agents: Iterable[AgentId]) -> None:
        """Remove agents that get no further launch from the table."""
        for agent_id in agents:
            if agent_id in self._index.nodes:
                self._index.leave(agent_id)
                self._most = None

    def _take_one(self, job: Job, request: Request, nodes: Nodes) -> list[Take] | None:
        """Return the assignment of a job with one task; None if it fits nowhere."""
        if job.spec.ports:
            nodes = {a: node for a, node in nodes.items() if enough(job.spec.ports, node.ports or ())}
        for open_to in self._backlog.neighbours.by_evenness(job, nodes):
            if (chosen := self._placing.place(job, request, open_to, self._pace.busy())) is not None:
                return self._take_chosen(job, request, chosen)
        return None

    def _take_gang(
        self, job: Job, request: Request, nodes: Nodes, outlasted: Sequence[int]
    ) -> list[Take] | None:
        """Return the assignments of all tasks of a gang, by rank; None if not all fit.

        Tasks of one node, and of one group of the fabric, get successive ranks.
        """
        rooms = self._rooms(
            request, {a: node for a, node in nodes.items() if node.ports}
        )  # each task of a gang needs a port, so nodes without a free one are left out
        if sum(rooms.values()) < job.spec.tasks:
            return None  # a quick test that refuses large gangs in most matches
        keys, apart = self._placing.keys(job, request), self._placing.spreads(job)
        rooms = {agent_id: rooms[agent_id] for agent_id in self._placing.by_lot(rooms) if agent_id in keys}
        counts = self._backlog.neighbours.place(job, rooms, keys, apart=apart).counts
        takes: list[Take] = []
        by_agent = dict(zip(rooms, counts or (), strict=False))
        agents = [
            agent_id for agent_id in nodes if agent_id in by_agent
        ]  # nodes may leave the index during the loop
        for agent_id in self._backlog.neighbours.in_order(agents):
            for _ in range(by_agent[agent_id]):
                node = self._as_it_is(job, agent_id, outlasted)
                chosen = None if node is None else self._placing.place_on(job, request, node)
                taken = None if chosen is None else self._take_chosen(job, request, chosen)
                if taken is None:
                    return None
                takes += taken
        return takes or None

    def _take_chosen(self, job: Job, request: Request, chosen: Chosen) -> list[Take] | None:
        """Assign a task to a chosen node, record it in the ledger, and return the assignment as a list of one.

        Returns:
            None if the task waits: for room on a GPU that is already open to shares, or for the agent's launch window.
        """
        if chosen.opens and not self._may_open(job) and self._backlog.nodes.joins_soon(job, request):
            return None
        if not self._has_turn(chosen):
            return None
        take = self._assignment(job, request, chosen)
        self._ledger.take(take)
        return [take]

    def _as_it_is(self, job: Job, agent_id: AgentId, outlasted: Sequence[int]) -> NodeCapacity | None:
        """Return a node as the next task of a gang may use it, beside the tasks that were placed before."""
        if agent_id not in self._nodes:
            return None
        nodes = self._backlog.reservations.open_to(outlasted, {agent_id: self._nodes[agent_id]})
        return (self._backlog.booked.only(job, nodes) if self._is_booked else nodes).get(agent_id)

    def _has_turn(self, chosen: Chosen) -> bool:
        """Return whether the agent's launch window has room for a task and its cover tasks, or is empty.

        If not, the agent gets no further launch until it has room.
        """
        agent_id, room = chosen.agent_id, self._pace.room(chosen.agent_id)
        if room is None or 1 + len(chosen.opens) <= room or not self._pace.under_way(agent_id):
            return True
        self._pace.hold(agent_id)
        self._clear((agent_id,))
        return False

    def _may_open(self, job: Job) -> bool:
        """Return whether a job need not wait for an offer of an open shared GPU before another one is opened."""
        return not job.spec.is_share or self._placing.spreads(job) or not self._backlog.nodes.is_new(job)

    def _assignment(self, job: Job, request: Request, chosen: Chosen) -> Take:
        """Return the assignment of a task to a chosen node, with its ports.

        Raises:
            ValueError: The agent does not offer the ports of the job.
        """
        offered = self._remains.ports(chosen.agent_id)
        wishes = _ONE_PORT if job.spec.tasks > 1 else job.spec.ports
        ports = choose(
            wishes, offered, task_id_of(job), self._backlog.nodes.ports_in_use_lately(chosen.agent_id)
        )
        if ports is None:
            raise ValueError(f"agent {chosen.agent_id} does not offer the ports of job {job.id}")
        needs = footprint_of(job, self._settings)
        return Take(
            agent_id=chosen.agent_id,
            job=job,
            request=request,
            task=needs.task,
            executor=needs.executor,
            gpus=chosen.gpus,
            share=chosen.share,
            opens=chosen.opens,
            ports=ports.taken,
            numbers=ports.numbers,
        )


def task_id_of(job: Job, rank: int = 0) -> TaskId:
    """Return the id of a task of the next launch of a job. Mesos must never see an id twice."""
    number = job.launches + 1
    return launch_id(job.id, number) if job.spec.tasks == 1 else TaskId(f"{job.id}.{number}.{rank}")
