"""Nodes for the jobs of one match: which may serve a job, the capacity of each, and the ends of its tasks."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.gpus.capacities import capacity_of
from mesos_gpu.engine.gpus.gpu_status import is_closed, well
from mesos_gpu.engine.gpus.role import is_for_others
from mesos_gpu.engine.queue.held import Held
from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.apps.ports import without
from mesos_gpu.policy.capacity.fit import Misfit, fit, share_for
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, NodeCapacity
from mesos_gpu.policy.capacity.request import Request

_PORTS_REST_S: Final = 120.0  # a port that was in use goes last; Linux keeps a closed connection for 60 s
Offered = Callable[[AgentId], Resources]  # returns the rest of an agent's held offers
#: Estimates the run time of a job in seconds, with the basis.
Learn = Callable[[Job], tuple[float, str] | None]
#: Time of an end, the time limit from which it follows, and the basis of an end without a limit.
End = tuple[float, float | None, str]


class Ends:
    """Expected ends of launches, as known at one moment.

    Args:
        state: State of the engine.
        now: Time, in seconds since the epoch.
        learn: Function that estimates the run time of jobs without a limit; None for no estimates.
    """

    def __init__(self, state: State, now: float, learn: Learn | None) -> None:
        self._state, self._now, self._learn = state, now, learn

    def of(self, task: Task, job: Job) -> End:
        """Return the expected end of a launch."""
        if self._state.work.current(task) is None:
            return ENDLESS, None, ""  # unreachable: it ends when its agent is back
        if task.kill_sent_at is not None:
            return max(task.kill_sent_at + job.spec.kill_grace_s, self._now), None, ""
        if task.notice is not None and task.notice.stands:
            return max(task.notice.until + job.spec.kill_grace_s, self._now), None, ""
        return self.by_itself(job, self._now if task.started_at is None else task.started_at)

    def by_itself(self, job: Job, begun_at: float) -> End:
        """Return the end of a launch by its time limit or its estimated run time."""
        if job.spec.timeout_s is not None:
            return max(begun_at + job.spec.timeout_s, self._now), job.spec.timeout_s, ""
        learnt = self._learn(job) if self._learn else None
        if learnt is not None and begun_at + learnt[0] > self._now:
            return begun_at + learnt[0], learnt[0], learnt[1]
        return ENDLESS, None, ""


class Nodes:
    """Nodes during one match, with the capacity of each, which is computed on first use.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        held: Pools of jobs and of nodes.
        neighbours: Constraints between jobs and nodes.
        offered: Function that returns the rest of the offers of an agent.
        ends: Expected ends of launches.
        reading: Whether the state must not remember any results.
    """

    def __init__(
        self,
        state: State,
        settings: Settings,
        now: float,
        held: Held,
        neighbours: Neighbours,
        offered: Offered,
        ends: Ends,
        *,
        reading: bool = False,
    ) -> None:
        self._state, self._settings, self._now = state, settings, now
        self._held, self._neighbours = held, neighbours
        self._offered, self._ends, self._reading = offered, ends, reading
        self._known: dict[AgentId, NodeCapacity] = {}

    def serves(self, job: Job, node: Node, *, ever: bool = False) -> bool:
        """Return whether a job may run on a node now; with `ever` also if it may do so only after a longer wait."""
        if node.lost_at is not None or is_closed(self._state, node):
            return False
        if not self._held.is_in(node.id, self._held.pools.every(job) if ever else self._held.pools_of(job)):
            return False
        if self._settings.mesos.role_of and is_for_others(self._state, self._settings, job, node.id):
            return False
        return not self._neighbours.barred(job, node)

    def new_enough(self, job: Job, node: Node) -> bool:
        """Return whether the driver of a node is as new as a job needs."""
        return as_new_as(node.driver_version, job.min_driver)

    def is_new(self, job: Job) -> bool:
        """Return whether a job still waits for an offer of a GPU open to shares, before another GPU is opened."""
        return self._now - max(job.submitted_at, job.not_before) < self._settings.placing.open_after_s

    def joins_soon(self, job: Job, request: Request) -> bool:
        """Return whether an open GPU has room for a job on an agent whose next offer is on its way."""
        tasks, nodes_by_id = self._state.work.tasks, self._state.cluster.nodes
        agents = dict.fromkeys(tasks[task_id].agent_id for task_id in self._state.gpus.covers.values())
        nodes = (nodes_by_id.get(agent_id) for agent_id in agents if not self._offered(agent_id))
        return any(node is not None and self._joins(job, request, node) for node in nodes)

    def _joins(self, job: Job, request: Request, node: Node) -> bool:
        """Return whether a node with a launch within `open_after_s` has an open GPU with room for a job."""
        began = self._now - self._settings.placing.open_after_s
        if not self.serves(job, node) or all(task.launched_at < began for task in self._tasks_on(node.id)):
            return False
        # The remaining free amounts are not known before an offer.
        capacity = replace(self.capacity(node), free=request.resources)
        chosen = None if isinstance(fit(request, capacity), Misfit) else share_for(request, capacity)
        return chosen is not None and not chosen.opens

    def ports_for(self, job: Job, node: Node) -> tuple[PortRange, ...] | None:
        """Return the free ports of a node; None if the job needs no ports, or if no offer lists them."""
        if job.spec.tasks == 1 and not job.spec.ports:
            return None
        offers = [offer for offer in self._state.cluster.offers.values() if offer.agent_id == node.id]
        offered_ports = [ports for offer in offers for ports in offer.ports]
        if not offered_ports and (not offers or self._offered(node.id).cpus < self.capacity(node).free.cpus):
            return None  # offers that may have ports were given back
        taken = sorted(port for task in self._tasks_on(node.id) for port in task.ports)
        return without([PortRange(port, port) for port in taken], offered_ports)

    def ports_in_use_lately(self, agent_id: AgentId) -> Mapping[int, float]:
        """Return the ports of an agent's tasks that ended lately, each with the time of the end."""
        return self._state.work.ports.freed_since(agent_id, self._now - _PORTS_REST_S)

    def capacity(self, node: Node) -> NodeCapacity:
        """Return the free capacity of a node, and what its tasks give back when they end."""
        capacity = self._known.get(node.id)
        if capacity is None:
            capacity = self._known[node.id] = self._built(node)
        return capacity

    def _built(self, node: Node) -> NodeCapacity:
        """Return the capacity of a node."""
        tasks = self._tasks_on(node.id)
        held = [self.allocation(task, node) for task in tasks if task.covers is None]
        seen = node, tasks, held, self._offered(node.id)
        return capacity_of(self._state, self._settings, self._now, *seen, reading=self._reading)

    def _tasks_on(self, agent_id: AgentId) -> list[Task]:
        """Return the live tasks of an agent, in launch order."""
        return [self._state.work.tasks[task_id] for task_id in self._state.work.restless.on.get(agent_id, ())]

    def allocation(self, task: Task, node: Node | None = None) -> Allocation:
        """Return the allocation of a task with its expected end; if its node is not known, only the number of GPUs."""
        settings, job = self._settings, self._state.work.jobs.get(task.job_id or JobId(""))
        if job is None:
            return Allocation(None, settings.programs.monitor, since=task.launched_at)
        gpus = () if node is None else well(self._state, node, self._now, settings, task.gpus)
        ends_at, lasts_s, learnt = self._ends.of(task, job)
        return Allocation(
            job_id=job.id,
            resources=footprint_of(job, settings).total,
            gpus=gpus,
            share=task.counted_share,
            since=task.started_at or task.launched_at,
            ends_at=ends_at,
            lasts_s=lasts_s,
            learnt=learnt,
            counted_milli=self._state.work.counted_milli(task, job),
            ports=tuple([PortRange(port, port) for port in task.ports]),
        )

    def allocation_at_launch(self, job: Job, milli: int) -> Allocation:
        """Return the allocation of a task that is launched now.

        Args:
            job: Job of the task.
            milli: Cost of its GPUs in thousandths; the GPUs themselves are not known.
        """
        ends_at, lasts_s, learnt = self._ends.by_itself(job, self._now)
        resources = footprint_of(job, self._settings).total
        return Allocation(job.id, resources, (), self._now, ends_at, lasts_s, learnt, counted_milli=milli)

    def forget(self, agent_id: AgentId) -> None:
        """Drop the cached capacity of a node on which a launch was taken or undone."""
        self._known.pop(agent_id, None)
