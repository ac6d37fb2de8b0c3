"""Offers: held, matched with what waits, given back."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mesos_gpu.engine.effects import Decline, Launch, LaunchTask, Revive, Suppress
from mesos_gpu.engine.gpus.gpu_status import usable
from mesos_gpu.engine.match.placing import Placing
from mesos_gpu.engine.match.preemption import possible, preempt
from mesos_gpu.engine.match.table import table_of
from mesos_gpu.engine.match.together import Tables, place_together
from mesos_gpu.engine.queue.line import Line, request_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import (
    Offer,
    PortRange,
    Scalar,
    carve,
    resources_of,
    take_port,
)
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.apps.ports import choose, enough
from mesos_gpu.policy.apps.task_env import launch_env
from mesos_gpu.policy.apps.task_ids import launch_id
from mesos_gpu.policy.capacity import Chosen, NodeCapacity, Request
from mesos_gpu.policy.tasks.gang import environment


@dataclass(slots=True)
class _Desk:
    """One agent's offers on the table, and what is to be launched from them."""

    node: Node
    offers: list[Offer]
    left: tuple[Scalar, ...]
    usable: Callable[[], Iterable[Gpu]]
    ports: tuple[PortRange, ...] = ()
    launches: list[LaunchTask] = field(default_factory=list)
    _free: list[Gpu] | None = None

    @property
    def free(self) -> list[Gpu]:
        """Looked up when it is asked for: most matches of a thousand agents place nothing."""
        if self._free is None:
            self._free = list(self.usable())
        return self._free

    def capacity(self) -> NodeCapacity:
        return NodeCapacity(
            self.node.id,
            self.node.hostname,
            resources_of(self.left),
            tuple(self.free),
            ports=self.ports,
            installed=self.node.gpus,
            driver=self.node.driver_version,
        )

    def take_port(self) -> PortRange:
        taken, self.ports = take_port(self.ports)
        return taken

    def launch(
        self,
        task: Task,
        spec: JobSpec | None,
        need: Resources,
        executor: Resources,
        place: "_Place | None" = None,
        app_version: float | None = None,
    ) -> None:
        taken, left = carve(self.left, need)
        own, self.left = carve(left, executor)
        held = set(task.gpus)
        self._free = [gpu for gpu in self.free if gpu.id not in held] if held else self._free
        found = LaunchTask(task, spec, tuple(taken), tuple(own), app_version=app_version)
        if place is not None:
            found = replace(found, ports=place.ports, env=place.env, hosts=place.hosts)
        self.launches.append(found)


@dataclass(frozen=True, slots=True)
class _Place:
    """What a launch gets of its host beside its resources."""

    ports: tuple[PortRange, ...] = ()
    numbers: tuple[int, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()  # of the members of its gang


def on_offers(turn: Turn, offers: Iterable[Offer]) -> None:
    """Hold them, and note their agents."""
    for offer in offers:
        turn.state.hold_offer(offer)
        node = turn.state.nodes.get(offer.agent_id)
        new = Node(
            id=offer.agent_id,
            hostname=offer.hostname,
            agent_url=offer.agent_url,
            attributes=offer.attributes,
            region=offer.region,
            zone=offer.zone,
        )
        if node is not None:
            new = replace(
                node,
                hostname=offer.hostname,
                agent_url=offer.agent_url,
                attributes=offer.attributes,
                region=offer.region,
                zone=offer.zone,
                lost_at=None,
            )
        if new != node:
            turn.put_node(new)


def wants_offers(turn: Turn) -> bool:
    """Whether anything waits that an offer could serve."""
    if turn.state.queue:
        return True
    return any(_lacks_monitor(node) for node in turn.state.nodes.values())


def _lacks_monitor(node: Node) -> bool:
    known = node.inventory is not None or node.monitor_launches > 0
    return known and node.monitor is None and node.lost_at is None


def match(turn: Turn) -> None:
    """Launch what fits; then hold, give back, ask for or suppress offers as it is needed."""
    if not turn.state.connected:
        return
    desks = _desks(turn)
    for desk in desks.values():
        _launch_monitor(turn, desk)
    if _is_due(turn) and not turn.state.doubtful:
        turn.state.unmatched, turn.state.matched_at = _launch_jobs(turn, desks), turn.now
    for desk in desks.values():
        if desk.launches:
            used = tuple(offer.id for offer in desk.offers)
            turn.effects.append(Launch(used, tuple(desk.launches)))
            for offer_id in used:
                turn.state.unused.pop(turn.state.offers[offer_id].agent_id, None)
                turn.state.drop_offer(offer_id)
    _balance(turn)


def _is_due(turn: Turn) -> bool:
    """Whether a job may start that could not start at the last match."""
    state, last = turn.state, turn.state.matched_at
    if state.unmatched or turn.now - last >= turn.settings.match_interval_s:
        return True
    ends = (*state.contested.values(), *(state.jobs[job_id].not_before for _, job_id in state.queue))
    return any(last < end <= turn.now for end in ends)


def _desks(turn: Turn) -> dict[AgentId, _Desk]:
    desks: dict[AgentId, _Desk] = {}
    for offer in turn.state.offers.values():
        desk = desks.get(offer.agent_id)
        if desk is None:
            node = turn.state.nodes[offer.agent_id]
            free = partial(usable, turn.state, node, turn.now, turn.settings)
            desks[offer.agent_id] = _Desk(node, [offer], offer.resources, free, offer.ports)
        else:
            desk.offers.append(offer)
            desk.left += offer.resources
            desk.ports += offer.ports
    return desks


def _launch_monitor(turn: Turn, desk: _Desk) -> None:
    node, settings = turn.state.nodes[desk.node.id], turn.settings
    if node.monitor is not None or turn.now < node.monitor_not_before:
        return
    left = resources_of(desk.left)
    if (node.inventory is None and not left.gpus) or not left.covers(settings.monitor):
        return
    number = node.monitor_launches + 1
    # The start of this scheduler makes the id new even if the store lost the count.
    task_id = TaskId(f"gpu-monitor.{node.id}.{int(turn.state.started_at)}.{number}")
    task = Task(
        id=task_id,
        agent_id=node.id,
        executor_id=task_id,
        job_id=None,
        state=TaskState.LAUNCHED,
        launched_at=turn.now,
        hostname=node.hostname,
        agent_url=node.agent_url,
        sealed=settings.sealed,
    )
    turn.put_task(task)
    turn.put_node(replace(node, monitor=task_id, monitor_launches=number))
    # An executor needs resources of its own (master/validation.cpp), and so does a task: halves.
    desk.launch(task, None, *settings.monitor.halves())


def _launch_jobs(turn: Turn, desks: dict[AgentId, _Desk]) -> bool:
    """Whether a match that follows at once may launch more."""
    if not turn.state.queue:
        return False
    ways = {agent_id: desk.capacity for agent_id, desk in desks.items()}
    table, may_preempt = table_of(turn.state, turn.settings, turn.now, ways), possible(turn)
    candidates = table.candidates
    if not candidates and not may_preempt:
        return False
    line = Line(
        turn.state,
        turn.settings,
        turn.now,
        lambda agent_id: resources_of(desks[agent_id].left if agent_id in desks else ()),
    )
    placing = Placing(turn.state, turn.settings, table.board)
    refused: set[Hashable] = set()
    blocked: list[Job] = []
    most: Resources | None = None  # what no candidate exceeds; None: to be found anew
    running = {turn.state.tasks[task_id].job_id for task_id in turn.state.unknown}  # though not by our state
    for job in line.jobs():
        if job.not_before > turn.now or job.id in running:
            continue
        most = most or _most(candidates.values())
        chosen: Sequence[Chosen] | None = None
        if most.covers(job.spec.resources) and not line.over_limit(job):
            request, barred = request_of(job, turn.settings), line.outlasted(job)
            asked = line.kind(job, request), job.spec.ports, barred, placing.key(job)
            if asked not in refused:
                free = line.neighbours.open_to(job, line.open_to(barred, candidates))
                chosen = _places(job, request, free, placing, line, candidates)
                if chosen is None:
                    refused.add(asked)
                    most = None
        if chosen is None:
            line.block(job)
            blocked.append(job)
            continue
        for task in _launch_job(turn, job, desks, chosen):
            line.launched(job, request, task)
            candidates[task.agent_id] = desks[task.agent_id].capacity()
            placing.launched(job, candidates[task.agent_id])
    if may_preempt and blocked:
        preempt(turn, line, blocked)
    return line.neighbours.verdicts.is_behind


def _places(
    job: Job,
    request: Request,
    open_to: Mapping[AgentId, NodeCapacity],
    placing: Placing,
    line: Line,
    candidates: Mapping[AgentId, NodeCapacity],
) -> Sequence[Chosen] | None:
    """Where its tasks go; None: they do not fit."""
    if job.spec.tasks > 1:
        return place_together(job, request, Tables(placing, line.neighbours, candidates, open_to))
    if job.spec.ports:
        request = replace(request, ports=job.spec.ports)
        open_to = {a: found for a, found in open_to.items() if enough(job.spec.ports, found.ports or ())}
    chosen = placing.place(job, request, open_to)
    return None if chosen is None else (chosen,)


def _most(nodes: Iterable[NodeCapacity]) -> Resources:
    """The most of each amount on any: a thousand jobs can be refused by it without a look at each agent."""
    nodes = list(nodes)
    gpus = max((min(node.free.gpus, len(node.gpus)) for node in nodes), default=0)
    return Resources.largest(node.free for node in nodes).with_gpus(gpus)


def _launch_job(turn: Turn, job: Job, desks: Mapping[AgentId, _Desk], chosen: Sequence[Chosen]) -> list[Task]:
    number, settings, spec = job.launches + 1, turn.settings, job.spec
    there = [desks[found.agent_id] for found in chosen]
    ids = [task_id_of(job.id, number, i if spec.tasks > 1 else None) for i in range(spec.tasks)]
    places = _gang(there) if spec.tasks > 1 else [_place(spec, ids[0], there[0])]
    tasks = [
        _task(turn, job, ids[rank], rank, desk, found.gpus, place)
        for rank, (desk, found, place) in enumerate(zip(there, chosen, places, strict=True))
    ]
    for task in tasks:
        turn.put_task(task)
    turn.state.drawn += len(tasks)
    turn.put_job(
        replace(
            job,
            state=JobState.STARTING,
            task_id=tasks[0].id,
            launches=number,
            started_at=None,
            room_made_at=None,
            message=f"launched on {', '.join(dict.fromkeys(task.hostname for task in tasks))}",
        )
    )
    for desk, task, place in zip(there, tasks, places, strict=True):
        desk.launch(task, spec, spec.resources, settings.executor, place, job.app_version)
    return tasks


def _place(spec: JobSpec, task_id: TaskId, desk: _Desk) -> _Place:
    found = choose(spec.ports, desk.ports, task_id)
    if found is None:
        raise ValueError(f"{desk.node.hostname} does not offer the ports of {task_id}")
    desk.ports = found.left
    host = desk.node.hostname
    env = launch_env(spec.ports, spec.env, task_id=task_id, host=host, ports=found.numbers)
    return _Place(found.taken, tuple(port for port in found.numbers if port is not None), env)


def _gang(desks: Sequence[_Desk]) -> list[_Place]:
    """By rank: each member's port, and where all are."""
    ports = [desk.take_port() for desk in desks]
    hosts, numbers = tuple(desk.node.hostname for desk in desks), [port.begin for port in ports]
    return [
        _Place((port,), (port.begin,), environment(rank, hosts, numbers), hosts)
        for rank, port in enumerate(ports)
    ]


def _task(
    turn: Turn,
    job: Job,
    task_id: TaskId,
    rank: int,
    desk: _Desk,
    gpus: tuple[GpuId, ...],
    place: _Place,
) -> Task:
    return Task(
        id=task_id,
        agent_id=desk.node.id,
        executor_id=task_id,
        job_id=job.id,
        state=TaskState.LAUNCHED,
        launched_at=turn.now,
        attempt=job.attempts + 1,
        gpus=gpus,
        hostname=desk.node.hostname,
        agent_url=desk.node.agent_url,
        launch=job.launches + 1 if job.spec.tasks > 1 else 0,
        rank=rank,
        ports=place.numbers,
        sealed=turn.settings.sealed,
    )


def task_id_of(job_id: JobId, launch: int, rank: int | None = None) -> TaskId:
    """Mesos must never see a task id twice."""
    return launch_id(job_id, launch) if rank is None else TaskId(f"{job_id}.{launch}.{rank}")


def _balance(turn: Turn) -> None:
    state, settings = turn.state, turn.settings
    if wants_offers(turn):
        state.idle_since = None
        if state.suppressed or turn.now - state.swept_at >= settings.sweep_interval_s:
            # Repeated while something waits: a REVIVE that was lost would leave it waiting for ever.
            state.suppressed, state.swept_at = False, turn.now
            turn.effects.append(Revive())
        old = tuple(o.id for o in state.offers.values() if turn.now - o.received_at > settings.offer_hold_s)
        _give_back(turn, old, settings.offer_refuse_s)
        return
    if state.idle_since is None:
        state.idle_since = turn.now
    if turn.now - state.idle_since < settings.idle_linger_s:
        return
    _give_back(turn, tuple(state.offers), settings.idle_refuse_s)
    if not state.suppressed:
        state.suppressed, state.swept_at = True, turn.now
        turn.effects.append(Suppress())
    elif turn.now - state.swept_at >= settings.sweep_interval_s:
        # A suppressed framework is not told of new agents: ask, hold for a moment, suppress again.
        state.suppressed, state.idle_since = False, turn.now
        turn.effects.append(Revive())


def _give_back(turn: Turn, offer_ids: tuple[OfferId, ...], refuse_s: float) -> None:
    if offer_ids:
        turn.effects.append(Decline(offer_ids, refuse_s))
        for offer_id in offer_ids:
            turn.state.drop_offer(offer_id)
