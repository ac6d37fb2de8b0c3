"""Index of live tasks that upkeep must look at: few of fifty thousand that run.

It is not saved. It is built on first use, and each change of the state updates it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.task import Task, TaskState

_AT_REST: Final = (TaskState.STARTING, TaskState.RUNNING)


@dataclass(slots=True)
class LiveTaskIndex:
    """Indexes of live tasks.

    Attributes:
        numbers: Number of each live task in the order of launches.
        on: Live tasks by agent, in the order of launches.
        tasks: Tasks that need a message, an end or another step, now or later.
        preemptible: Tasks of preemptible jobs.
        limited: Tasks of jobs with a time limit.
        under_way: Tasks whose executors have not sent a status update yet, by agent.
        unkilled: Tasks to be killed without a kill request yet, by agent.
        freed: Agents on which a task with a kill request has ended since the last look.
        told: Tasks being killed, with the time of the first kill request, the latest last, by agent.
    """

    numbers: dict[TaskId, int] = field(default_factory=dict)
    on: dict[AgentId, dict[TaskId, None]] = field(default_factory=dict)
    tasks: set[TaskId] = field(default_factory=set)
    preemptible: set[TaskId] = field(default_factory=set)
    limited: set[TaskId] = field(default_factory=set)
    under_way: dict[AgentId, set[TaskId]] = field(default_factory=dict)
    unkilled: dict[AgentId, set[TaskId]] = field(default_factory=dict)
    freed: set[AgentId] = field(default_factory=set, compare=False)
    told: dict[AgentId, dict[TaskId, float]] = field(default_factory=dict, compare=False)
    _agents: dict[TaskId, AgentId] = field(default_factory=dict, compare=False)
    _next: "count[int]" = field(default_factory=count, compare=False)

    def enter(self, task: Task, job: Job | None) -> None:
        """Update the indexes after a change of a live task or its job."""
        task_id, agent_id = task.id, task.agent_id
        if task_id not in self.numbers:
            self.numbers[task_id] = next(self._next)
        preemptible = job is not None and job.spec.preemptible
        limited = job is not None and job.spec.timeout_s is not None
        (self.tasks.add if _is_restless(task, job) else self.tasks.discard)(task_id)
        (self.preemptible.add if preemptible else self.preemptible.discard)(task_id)
        (self.limited.add if limited else self.limited.discard)(task_id)
        if self._agents.get(task_id) != agent_id:
            self._set_agent(task_id, agent_id)
        if is_under_way(task):
            self.under_way.setdefault(agent_id, set()).add(task_id)
        elif agent_id in self.under_way:
            _discard(self.under_way, agent_id, task_id)
        is_to_be_killed = bool(task.evicted) or (job is not None and job.kill_requested)
        if is_to_be_killed and task.kill_sent_at is None:
            self.unkilled.setdefault(agent_id, set()).add(task_id)
        elif agent_id in self.unkilled:
            _discard(self.unkilled, agent_id, task_id)
        if task.kill_sent_at is not None:
            self.told.setdefault(agent_id, {}).setdefault(task_id, task.kill_sent_at)

    def leave(self, task_id: TaskId) -> None:
        """Remove a task that is live no longer."""
        self.numbers.pop(task_id, None)
        self.tasks.discard(task_id)
        self.preemptible.discard(task_id)
        self.limited.discard(task_id)
        agent_id = self._agents.get(task_id)
        self._set_agent(task_id, None)
        if agent_id is not None:
            _discard(self.under_way, agent_id, task_id)
            _discard(self.unkilled, agent_id, task_id)
            killed = self.told.get(agent_id, {})
            if killed.pop(task_id, None) is not None:
                self.freed.add(agent_id)
            if not killed:
                self.told.pop(agent_id, None)

    def _set_agent(self, task_id: TaskId, agent_id: AgentId | None) -> None:
        """Note the agent of a task; None if the task is live no longer."""
        old = self._agents.get(task_id)
        if old == agent_id:
            return
        if old is not None:
            del self._agents[task_id], self.on[old][task_id]
            if not self.on[old]:
                del self.on[old]
        if agent_id is not None:
            self._agents[task_id] = agent_id
            self.on.setdefault(agent_id, {})[task_id] = None

    def told_since(self, agent_id: AgentId, moment: float) -> Iterator[TaskId]:
        """Yield the live tasks of an agent with a kill request since a moment, the latest first."""
        for task_id, killed_at in reversed(self.told.get(agent_id, {}).items()):
            if killed_at < moment:
                return
            yield task_id

    def in_order(self, tasks: Iterable[TaskId]) -> list[TaskId]:
        """Return some live tasks in the order of their launches."""
        return sorted(tasks, key=self.numbers.__getitem__)


def _is_restless(task: Task, job: Job | None) -> bool:
    """Return whether upkeep must look at a task."""
    if task.state not in _AT_REST or (task.launch > 0 and task.state is TaskState.STARTING):
        return True
    ends = task.kill_sent_at is not None or bool(task.evicted) or bool(task.excess)
    return ends or task.notice is not None or (job is not None and job.kill_requested)


def is_under_way(task: Task) -> bool:
    """Return whether a task was launched and its executor has sent no status update; its agent may be unreachable."""
    if task.state is TaskState.UNREACHABLE:
        return task.started_at is None
    return task.state is TaskState.LAUNCHED


def _discard(known: dict[AgentId, set[TaskId]], agent_id: AgentId, task_id: TaskId) -> None:
    """Remove a task from an index by agent."""
    tasks = known.get(agent_id)
    if tasks is not None:
        tasks.discard(task_id)
        if not tasks:
            del known[agent_id]
