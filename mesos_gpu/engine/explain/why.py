"""Explanation of why a job waits, by what a match would see. It does not change the state."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.charges import pool_of_node, pools_of_node
from mesos_gpu.engine.explain.coming import Coming
from mesos_gpu.engine.explain.ending import coming_end, with_coming_end
from mesos_gpu.engine.explain.hours import estimate_then, hours_words
from mesos_gpu.engine.explain.idling import with_idle
from mesos_gpu.engine.gpus import covers
from mesos_gpu.engine.gpus.gpu_status import gpu_status, usable
from mesos_gpu.engine.gpus.role import is_of, waits_for_role
from mesos_gpu.engine.gpus.unreserving import unreserved_of
from mesos_gpu.engine.match.placing import Placing
from mesos_gpu.engine.match.remains import Pace
from mesos_gpu.engine.preemption.preempting import keep_rooms
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.queue.forecast import Forecast
from mesos_gpu.engine.queue.held import Held
from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.engine.queue.secrets import problem_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.jobs.job import GpuNodes, Job, JobState
from mesos_gpu.model.jobs.why import Stage, Why
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer, resources_of
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.words import clock
from mesos_gpu.policy.admission.limits import class_of
from mesos_gpu.policy.capacity.node import OF_POOL, OFF_GPUS, NodeCapacity, Reservation
from mesos_gpu.policy.explain.hurdles import hurdles
from mesos_gpu.policy.explain.levels import NeededLevel
from mesos_gpu.policy.explain.silence import lost, paced, silent, unfit
from mesos_gpu.policy.explain.why import QueueView, explain

_ONE_POOL: Final = "and all its tasks start in one pool"
_NOT_FOUND: Final = (
    "the search for a placement ended at its bound, so there may be one; constraints on nested fields, as hosts within "
    "racks, are searched without a bound"
)


def why_of(state: State, settings: Settings, now: float, job: Job, *, past_offers: bool = False) -> Why:
    """Explain what a job waits for.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Seconds since the epoch.
        job: Job that the state has.
        past_offers: Whether an agent that offers nothing now counts by its last offer.
    """
    if job.state is not JobState.PENDING:
        answer = explain(job, request_of(job, settings, state), (), queue=QueueView(), now=now)
        answer = with_idle(answer, state, settings, job, now)
        answer = with_coming_end(answer, coming_end(state, now, job), job, now)
        may_be_stopped = job.spec.preemptible and not job.state.ended
        return _with_words(answer, hours_words(state, job.spec.queue, now) if may_be_stopped else "")
    answer = _why_pending(state, settings, now, job, past_offers=past_offers)
    answer = with_idle(answer, state, settings, job, now)
    return _with_words(answer, f"its deployment {words}" if (words := _deployment_waits(state, job)) else "")


def _why_pending(state: State, settings: Settings, now: float, job: Job, *, past_offers: bool) -> Why:
    """Return the explanation of a pending job."""
    queue, kept, backlog = _queue_view(state, settings, now, job)
    neighbours, request = Neighbours(state, settings.placing.levels), request_of(job, settings, state)
    views = _node_views(
        state,
        settings,
        now,
        job,
        state.cluster.nodes.values(),
        neighbours,
        backlog.held,
        past_offers=past_offers,
    )
    nodes = [
        replace(view, kept=tuple([_kept_of(view, job, reservation) for reservation in reservations]))
        if (reservations := kept.get(view.agent_id))
        else view
        for view in views
    ]
    level = _level_of(job, neighbours)

    def answer_on(part: Sequence[NodeCapacity], queue: QueueView = queue) -> Why:
        """Return the explanation by some of the nodes."""
        apart = _Apart(job, neighbours) if job.spec.tasks > 1 and neighbours.key(job) is not None else None
        part_answer = explain(job, request, part, queue=queue, now=now, apart=apart, level=level)
        return part_answer if apart is None or apart.is_proven else _with_words(part_answer, _NOT_FOUND)

    pools = [] if queue.limit else _pools_for(state, backlog, job, nodes)
    if not queue.limit and job.spec.booking is not None:
        booked = backlog.booked_for(job, {node.agent_id: node for node in nodes})
        rule = backlog.barriers.rule_against(job)
        if rule is not None and all(node.stage for node in answer_on([*booked.values()]).nodes):
            queue = replace(queue, limit=rule.words, stage=rule.stage)
    answer = answer_on(pools[0] if pools else nodes, queue)
    # A gang that fits in all pools together may fit in none of them.
    if len(pools) > 1 and answer.tasks_fit == job.spec.tasks:
        answer = max(map(answer_on, pools[1:]), key=lambda each: each.tasks_fit or 0)
    waits = problem_of(state, settings, now, job)
    if waits and job.not_before <= now:
        answer = replace(answer, summary=f"waits for its secrets: {waits}")
    answer = _with_words(answer, waits_for_role(state, settings, job))
    if (later := backlog.held.pools.next(job)) is not None:
        present_pools, (pool, at) = " and ".join(backlog.held.pools.now(job)), later
        words = f"it waits for pool {present_pools}, and may use pool {pool} from {clock(at, now)} on"
        answer = _with_words(answer, words)
    return _with_words(answer, hours_words(state, job.spec.queue, now))


def _with_words(answer: Why, words: str) -> Why:
    """Add words to the summary of an answer; nothing if they are ""."""
    return replace(answer, summary=f"{answer.summary}; {words}") if words else answer


def _pools_for(
    state: State, backlog: Backlog, job: Job, nodes: Sequence[NodeCapacity]
) -> list[Sequence[NodeCapacity]]:
    """Return the nodes as a match looks for a place there: nodes of pools where it does not look are barred.

    The first entry is for all pools where a match looks. For a gang an entry follows for each set of pools in which all
    its tasks may start, if there are several. Empty without pools.
    """
    held = backlog.held
    open_pools = backlog.barriers.open_pools(job)
    if open_pools is None:
        return []
    open_to = backlog.in_pools(job, {node.agent_id: node for node in nodes})
    parts = [frozenset[AgentId]().union(*open_to)]
    if job.spec.tasks > 1 and len(open_to) > 1:
        parts += map(frozenset, open_to)
    seat = None if job.spec.preemptible else state.quota.seats_given.get(job.id)
    why = _ONE_POOL if seat is None else f"and what it is guaranteed is in pool {seat.pool}"

    def bar(node: NodeCapacity) -> NodeCapacity:
        """Return a node with the reason for which its pool is not searched."""
        pool, is_open = held.pool_of(node.agent_id), held.is_in(node.agent_id, open_pools)
        words = f"{pool}, {why}" if is_open else f"{pool}, whose limits leave no room for the job"
        return replace(node, barred=f"{OF_POOL}{words}")

    return [[node if node.agent_id in part or node.barred else bar(node) for node in nodes] for part in parts]


def _level_of(job: Job, neighbours: Neighbours) -> NeededLevel | None:
    """Return the level of the fabric that a gang requires, with the groups of the nodes that have one."""
    topology, tasks = job.spec.topology, job.spec.tasks
    if tasks == 1 or topology is None or not topology.is_required:
        return None
    fabric = neighbours.fabric
    able = [agent_id for agent_id in fabric.groups if not fabric.absence(agent_id, topology)]
    groups = {agent_id: fabric.name(agent_id, topology.level) for agent_id in able}
    return NeededLevel(topology.level, job.spec.segment or tasks, groups)


def waits_for_turn(state: State, settings: Settings, now: float, job: Job, backlog: Backlog) -> bool:
    """Return whether the pace of launches keeps a job off an agent with room for it.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Seconds since the epoch.
        job: Pending job that nothing else blocks.
        backlog: Backlog of a reader at that time.
    """
    under_way = state.work.restless.under_way
    nodes = [
        node for node in state.cluster.nodes.values() if node.id in under_way or node.launch_not_before > now
    ]
    if not nodes:
        return False
    request = replace(request_of(job, settings, state), tasks=job.spec.tasks, ports=job.spec.ports)
    neighbours = Neighbours(state, settings.placing.levels)
    views = list(_node_views(state, settings, now, job, nodes, neighbours, backlog.held))
    return any(
        view.paced and hurdles(request, view, now=now)[0].stage is Stage.PACE
        for view in next(iter(_pools_for(state, backlog, job, views)), views)
    )


def _node_views(
    state: State,
    settings: Settings,
    now: float,
    job: Job,
    nodes: Iterable[Node],
    neighbours: Neighbours,
    held: Held,
    *,
    past_offers: bool = False,
) -> Iterator[NodeCapacity]:
    """Yield each of some nodes as a job sees it, without what is kept there for jobs before it."""
    keeps_off = Placing(state, settings).key(job) is GpuNodes.NEVER
    offers = _offers(state, settings, settings.mesos.role_for(job.spec.queue), past_offers=past_offers)
    pace, by_pools = Pace(state, now), _ByPools(state, held, job, now)
    for node in nodes:
        off_pool, not_yet = by_pools.of(node)
        ruled_out = (
            neighbours.ruled_out(job.spec, node) or off_pool or (OFF_GPUS if keeps_off and node.gpus else "")
        )
        barred = neighbours.barred(job, node) or not_yet
        under_way, room = pace.under_way(node.id), pace.room(node.id)
        waits = paced(node, under_way, room, job.spec.tasks, now)
        yield _node_view(state, settings, now, node, offers.get(node.id, ()), barred, ruled_out, waits)


class _ByPools:
    """Reasons that keep a job off nodes of pools that it may not use now, computed once for each pool."""

    def __init__(self, state: State, held: Held, job: Job, now: float) -> None:
        self._tree, self._held, self._job, self._now = state.quota.tree, held, job, now
        self._pools = held.pools_of(job)
        self._known: dict[tuple[frozenset[str], str], tuple[str, str]] = {}

    def of(self, node: Node) -> tuple[str, str]:
        """Return what rules a node out and what bars it now, "" for each if a match may use it."""
        if self._held.is_in(node.id, self._pools):
            return "", ""
        key = pools_of_node(self._tree, node), pool_of_node(self._tree, node)
        if key not in self._known:
            self._known[key] = self._words(*key)
        return self._known[key]

    def _words(self, able: frozenset[str], pool: str) -> tuple[str, str]:
        """Return what rules out nodes of a pool and what bars them now, in words.

        The pool may be for other jobs, or for this job only later, or not known yet.
        """
        pools = self._held.pools
        if not able & {*pools.every(self._job)}:
            return f"{OF_POOL}{pool}, and {self._others(pool)}", ""
        if len(able) > 1:
            names = " or ".join(sorted(able))
            return "", f"{OF_POOL}{names}: its node monitor has not reported its GPUs yet"
        at = pools.opens_at(self._job, pool)
        return "", f"{OF_POOL}{pool}, which it may use from {clock(at, self._now)} on"

    def _others(self, pool: str) -> str:
        """Return which other pools the class or the queue of the job is for, in words."""
        name, queue = self._job.spec.job_class, self._job.spec.queue
        class_spec = class_of(self._tree, name) if name is not None else None
        if class_spec is not None and class_spec.pools and pool not in class_spec.pools:
            return f"class {class_spec.name} is for {', '.join(class_spec.pools)}"
        return f"queue {queue} uses {', '.join(self._tree.pools_of(queue))}"


def _kept_of(node: NodeCapacity, job: Job, kept: Reservation) -> Reservation:
    """Return a reservation that also covers idle shared GPUs with a reserved share, for a job with whole GPUs.

    Such GPUs do not become whole GPUs for the job, as a share of them is reserved.
    """
    if job.spec.is_share or not kept.shares:
        return kept
    closed = {gpu_id for gpu_id, _ in kept.shares} - {part.gpu_id for part in node.parts}
    return replace(kept, gpus=kept.gpus | closed)


def _offers(state: State, settings: Settings, role: str, *, past_offers: bool) -> dict[AgentId, list[Offer]]:
    """Return the offers of agents to a role."""
    offers: dict[AgentId, list[Offer]] = {}
    for offer in state.cluster.offers.values():
        if not settings.mesos.role_of or is_of(settings, offer, role):
            offers.setdefault(offer.agent_id, []).append(offer)
    for offer in state.cluster.unused.values() if past_offers else ():
        if not settings.mesos.role_of or is_of(settings, offer, role):
            offers.setdefault(offer.agent_id, [offer])
    return offers


def _deployment_waits(state: State, job: Job) -> str:
    """Return what the deployment of an app's instance waits for, in words; "" if it does not wait, or without one."""
    deployments = state.apps.deployments.values() if job.app_version is not None else ()
    words = (deployment.waiting.get(job.spec.app or "", "") for deployment in deployments)
    return next(filter(None, words), "")


class _Apart:
    """The rules of a gang's tasks among each other, for an explanation.

    Attributes:
        is_proven: Whether a placement of all tasks would have been found if there were one.
    """

    def __init__(self, job: Job, neighbours: Neighbours) -> None:
        self._job, self._neighbours, self.is_proven = job, neighbours, True

    def __call__(self, room: Mapping[AgentId, int]) -> dict[AgentId, int]:
        """Return for each node how many tasks it can take beside the others, at most the given number."""
        whole = self._neighbours.place(self._job, room)
        self.is_proven = whole.is_proven
        counts = self._neighbours.most(self._job, room) if whole.counts is None else whole.counts
        return dict(zip(room, counts, strict=True))


def _queue_view(
    state: State, settings: Settings, now: float, job: Job
) -> tuple[QueueView, dict[AgentId, list[Reservation]], Backlog]:
    """Return how the queue order and limits affect a pending job, its reservations by node, and the backlog."""
    coming = Coming(state, settings, now)
    forecast = Forecast(state, settings, now, standing_of(state, settings, now), coming, until=job.id)
    keep_rooms(Turn(state, settings, now), forecast.backlog)
    forecast.before(job.id)
    barriers = forecast.backlog.barriers
    wait = barriers.wait_of(job)
    ending = _ending_for(state, job)
    estimate = forecast.estimate(job)
    if estimate.at is None:
        estimate = estimate_then(state, settings, now, job) or estimate
    view = QueueView(
        position=forecast.place_of(job.id),
        limit=wait.words if wait is not None else "",
        stage=wait.stage if wait is not None else Stage.QUEUE_LIMIT,
        never=barriers.beyond(job),
        estimate=estimate,
        ending=tuple(sorted({str(other.id) for _, other in ending})),
        ended_by=max((_ends_by(task, other) for task, other in ending), default=None),
        owed=coming.owed(forecast.backlog, job),
    )
    return view, forecast.kept_from(job), forecast.backlog


def _ending_for(state: State, job: Job) -> list[tuple[Task, Job]]:
    """Return the tasks that are being ended for a job, with their jobs."""
    live = (state.work.tasks[task_id] for task_id in state.work.live)
    held = ((task, state.work.holding_job(task)) for task in live if task.preempted_for == job.id)
    return [(task, other) for task, other in held if other is not None]


def _ends_by(task: Task, job: Job) -> float:
    """Return the latest end of a task that is being ended, in seconds since the epoch."""
    ends_from = task.kill_sent_at
    if ends_from is None:
        ends_from = task.notice.until if task.notice is not None else task.launched_at
    return ends_from + job.spec.kill_grace_s


def _node_view(
    state: State,
    settings: Settings,
    now: float,
    node: Node,
    offers: Sequence[Offer],
    barred: str,
    ruled_out: str,
    waits: str,
) -> NodeCapacity:
    """Return a node as it is for an explanation, without what other jobs reserve there."""
    drain, holders, installed = state.cluster.drain_of(node.hostname), _holders(state, node, now), node.gpus
    if state.cluster.drains or state.gpus.resets:
        installed = tuple([_as_it_stands(state, node, gpu) for gpu in installed])
    free = usable(state, node, now, settings)
    ids = {gpu.id for gpu in free}
    view = NodeCapacity(
        agent_id=node.id,
        hostname=node.hostname,
        free=resources_of(scalar for offer in offers for scalar in unreserved_of(state, offer)),
        gpus=free,
        parts=tuple(part for part in covers.open_parts(state, node, settings) if part.gpu_id in ids),
        compute_milli=covers.compute_milli(settings),
        cover=covers.cost_of_cover(state, settings, node.id, now),
        keeper=covers.cost_of_keeper(state, settings, node.id),
        installed=installed,
        offered=bool(offers),
        driver=node.driver_version,
        holders=holders,
        lost=lost(node, now) or unfit(node),
        silent=silent(node, now, settings.programs.report_stale_s),
        drained=f"is {drain.words}" if drain else "",
        barred=barred,
        ruled_out=ruled_out,
        paced=waits,
        ports=tuple(ports for offer in offers for ports in offer.ports) if offers else None,
    )
    return view.closed()  # an open shared GPU without shares is whole as soon as a job waits for it


def _as_it_stands(state: State, node: Node, gpu: Gpu) -> Gpu:
    """Return a GPU with its effective health."""
    stands = gpu_status(state, node, gpu)
    if (stands.health, stands.reason, stands.since) == (gpu.health, gpu.reason, gpu.since):
        return gpu
    return replace(gpu, health=stands.health, reason=stands.reason, since=stands.since)


def _holders(state: State, node: Node, now: float) -> dict[GpuId, str]:
    """Return the jobs that hold each GPU of a node, or shares of it, as text; free GPUs are missing."""
    holders: dict[GpuId, str] = {}
    for gpu in node.gpus:
        whole = state.gpus.holders.get(gpu.id)
        if whole is not None and gpu.id not in state.gpus.sharers:  # the usual case on a full cluster
            holders[gpu.id] = str(state.work.tasks[whole].job_id)
            continue
        tenants = dict.fromkeys(str(task.job_id) for task in state.tenants(gpu.id))
        if tenants:
            holders[gpu.id] = ", ".join(tenants)
        elif not covers.is_free(state, gpu.id):
            holders[gpu.id] = "no job any more, and is about to be closed to shares"
        elif state.gpus.contested.get(gpu.id, 0.0) > now:
            holders[gpu.id] = "others: a claim of it was refused"
    return holders
