"""Event log for operators: one log line for each change of a state, after it was saved."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from mesos_gpu.api.http.note import within
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.gpus.rolling import problems_of
from mesos_gpu.engine.state import State
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model import saves
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Drain
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.usage import BudgetUse
from mesos_gpu.policy.explain.silence import backed_off
from mesos_gpu.scheduler.figures.counted import Counted
from mesos_gpu.scheduler.figures.meter import Meter

logger = logging.getLogger("mesos_gpu.scheduler")
_BAD: Final = (JobState.FAILED, JobState.UNREACHABLE)


class EventLogger:
    """Writer of log lines and metrics that remembers the last reported state. Only for the engine's thread.

    Args:
        state: State of the engine, which counts as reported.
        meter: Metrics; None if they are not read.
        levels: Names of the topology levels, from the settings.
    """

    def __init__(self, state: State, meter: Meter | None = None, levels: Sequence[str] = ()) -> None:
        self._levels, self._outside = levels, dict[AgentId, str]()
        self._counted = Counted(state, meter or Meter())
        self._jobs = {job.id: job.state for job in state.work.jobs.values()}
        self._up = {node.id: node.lost_at is None for node in state.cluster.nodes.values()}
        self._slow = {node.id: bool(node.launch_not_before) for node in state.cluster.nodes.values()}
        self._cards = {gpu.id: gpu.health for node in state.cluster.nodes.values() for gpu in node.gpus}
        self._gpus = dict[AgentId, tuple[Gpu, ...]]()  # as last reported by each node
        self._steps = {deployment.id: deployment.step for deployment in state.apps.deployments.values()}
        self._held = set[TaskId](state.work.unknown)
        self._told = {key: use.told_percent for key, use in state.ledger.budget_uses.items()}
        self._uncovered: dict[GpuId, bool] = {}  # whether the alarm for lasting so was logged
        self._rolls: dict[str, str] = {}  # hosts whose monitor is being replaced: last logged problem, or ""

    def heard(self, event: ev.Event) -> None:
        """Log events of which no save follows."""
        self._counted.heard(event)
        match event:
            case ev.Registered(framework_id, master_url):
                _say("registered with %s as %s", master_url, framework_id, framework=framework_id)
            case ev.Disconnected():
                logger.warning(
                    "disconnected from the master: tasks continue, nothing is launched until it is connected again"
                )
            case ev.FrameworkRemoved():
                logger.error("Mesos removed this framework and ended all its tasks")
            case ev.KillRequested(job_id):
                _say("job %s: kill requested", job_id, job=job_id)

    def refused(self, event: ev.Event, error: MesosGpuError) -> None:
        """Log a refused request and its reason."""
        self._counted.refused(error)
        _say("refused: %s: %s", type(event).__name__, error.what, event=type(event).__name__)

    def saved_by(self, effects: Sequence[fx.Effect], origins: Iterable[tuple[int, str]]) -> None:
        """Log what was saved, with the id of the request that it follows from.

        Args:
            effects: Effects of a batch.
            origins: End of the effects of each request, and its id, or "" for effects of no request.
        """
        begin = 0
        for end, request in origins:
            if end > begin:
                with within(request):
                    self.saved(effects[begin:end])
            begin = end
        self.saved(effects[begin:])

    def saved(self, effects: Sequence[fx.Effect]) -> None:
        """Log effects that are saved by now."""
        self._counted.saved(effects)
        for effect in effects:
            if (tell := _OF_EFFECT.get(type(effect))) is not None:
                tell(self, effect)

    def _forget_job(self, effect: saves.ForgetJob) -> None:
        self._jobs.pop(effect.job_id, None)

    def _forget_node(self, effect: saves.ForgetNode) -> None:
        self._gpus.pop(effect.agent_id, None)

    def _forget_deployment(self, effect: saves.ForgetDeployment) -> None:
        self._steps.pop(effect.id, None)
        how = "done" if effect.done else "ended before its last step"
        _say("deployment %s: %s", effect.id, how, deployment=effect.id)

    def _budget(self, use: BudgetUse) -> None:
        key = use.queue, use.user, use.index
        if use.told_percent > self._told.get(key, 0):
            whose = "" if use.user == "*" else f" of user {use.user}"
            _say(
                "%d %% of the budget%s of queue %s are used",
                use.told_percent,
                whose,
                use.queue,
                queue=use.queue,
            )
        self._told[key] = use.told_percent

    def look(self, state: State, now: float, alarm_s: float, roll_s: float) -> None:
        """Log shared GPUs without a cover task and replacements of node monitors: their begin, alarm and end."""
        if state.cluster.rolls.under_way or self._rolls:
            self._look_at_rolls(state, now, roll_s)
        if self._levels:
            self._look_at_levels(state)
        for gpu in self._uncovered.keys() - state.gpus.uncovered.keys():
            del self._uncovered[gpu]
            _say("GPU %s: its cover task in Mesos holds it again", gpu, gpu=gpu)
        for gpu, since in state.gpus.uncovered.items():
            told, late = self._uncovered.get(gpu), now - since >= alarm_s
            if told is None or (late and not told):
                self._uncovered[gpu] = late
                tenants = ", ".join(state.gpus.sharers.get(gpu, ()))
                words = (
                    f"for {now - since:.0f} s: other frameworks have the GPUs of its node" if late else "now"
                )
                remedy = (
                    f"; to move them to other GPUs: mesos-gpu gpu drain {gpu} --reason uncovered --deadline 1s"
                    if late
                    else ""
                )
                fields = {"gpu": gpu, "uncovered_s": round(now - since, 1)}
                level = logging.ERROR if late else logging.WARNING
                text = "GPU %s: no cover task holds it in Mesos %s; it is used by %s, and gets no further shares%s"
                logger.log(level, text, gpu, words, tenants, remedy, extra={"fields": fields})

    def _look_at_levels(self, state: State) -> None:
        """Log nodes that left or joined the topology levels."""
        outside = dict(state.cluster.agents.fabric(self._levels, state.cluster.nodes).outside)
        for agent_id in sorted(outside.keys() | self._outside.keys()):
            was, why = self._outside.get(agent_id), outside.get(agent_id)
            if was == why:
                continue
            host = state.cluster.nodes[agent_id].hostname if agent_id in state.cluster.nodes else agent_id
            words = (
                "fits the levels of --topology"
                if why is None
                else f"is outside the levels of --topology: {why}"
            )
            level = logging.INFO if why is None else logging.WARNING
            logger.log(level, "node %s: %s", host, words, extra={"fields": {"node": host}})
        self._outside = outside

    def _look_at_rolls(self, state: State, now: float, roll_s: float) -> None:
        """Log the begin, problems and end of replacements of node monitors."""
        hosts = {
            state.cluster.nodes[agent_id].hostname
            for agent_id in state.cluster.rolls.under_way
            if agent_id in state.cluster.nodes
        }
        problems = {
            state.cluster.nodes[agent_id].hostname: why for agent_id, why in problems_of(state, roll_s, now)
        }
        for host in sorted(self._rolls.keys() - hosts):
            del self._rolls[host]
            _say("node monitor of %s: replaced, the new one reports", host, node=host)
        for host in sorted(hosts):
            told, why = self._rolls.get(host), problems.get(host, "")
            if told is None:
                _say("node monitor of %s: being replaced, tasks continue", host, node=host)
            if why and not told:
                text = "node monitor of %s: %s; no other monitor is replaced until this is fixed"
                logger.error(text, host, why, extra={"fields": {"node": host}})
            self._rolls[host] = why

    def _job(self, job: Job) -> None:
        old = self._jobs.get(job.id)
        if old is job.state:
            return
        self._jobs[job.id] = job.state
        level = logging.WARNING if job.state in _BAD else logging.INFO
        shown = f"{old.value} -> {job.state.value}" if old else job.state.value
        exit_code = f", exit code {job.exit_code}" if job.state.ended and job.exit_code else ""
        fields = {"job": job.id, "state": job.state.value, "task": job.task_id, "exit_code": job.exit_code}
        logger.log(level, "job %s: %s%s: %s", job.id, shown, exit_code, job.message, extra={"fields": fields})

    def _task(self, task: Task) -> None:
        if task.unknown is None:
            self._held.discard(task.id)
        elif task.id not in self._held:
            self._held.add(task.id)
            fields = {"task": task.id, "agent": task.agent_id}
            logger.warning(
                "unknown task %s runs on %s and keeps its GPUs: see mesos-gpu tasks unknown list",
                task.id,
                task.hostname or task.agent_id,
                extra={"fields": fields},
            )

    def _node(self, node: Node) -> None:
        """Log changes of a node: lost or up, launches backed off, health of GPUs."""
        up, was = node.lost_at is None, self._up.get(node.id)
        if up is not was:
            self._up[node.id] = up
            level = logging.INFO if up else logging.WARNING
            word = "up" if up else "lost"
            fields = {"node": node.hostname, "agent": node.id, "state": word}
            logger.log(
                level, "node %s (agent %s): %s", node.hostname, node.id, word, extra={"fields": fields}
            )
        slow, was_slow = bool(node.launch_not_before), self._slow.get(node.id, False)
        if slow is not was_slow:
            self._slow[node.id] = slow
            fields = {"node": node.hostname, "agent": node.id, "state": "backed-off" if slow else "up"}
            level = logging.WARNING if slow else logging.INFO
            words = backed_off(node) or "its executors register again, launches resume"
            logger.log(
                level, "node %s (agent %s): %s", node.hostname, node.id, words, extra={"fields": fields}
            )
        if self._gpus.get(node.id) is node.gpus:
            return  # unchanged report
        self._gpus[node.id] = node.gpus
        for gpu in node.gpus:
            old = self._cards.get(gpu.id)
            if old is not gpu.health:
                self._cards[gpu.id] = gpu.health
                self._card(node, gpu.id, old, gpu.health, gpu.reason)

    def _card(self, node: Node, gpu: GpuId, old: Health | None, new: Health, reason: str) -> None:
        shown = f"{old.value} -> {new.value}" if old else new.value
        level = logging.INFO if new is Health.OK else logging.WARNING
        fields = {"gpu": gpu, "node": node.hostname, "health": new.value}
        because = f": {reason}" if reason else ""
        logger.log(level, "GPU %s on %s: %s%s", gpu, node.hostname, shown, because, extra={"fields": fields})

    def _deployment(self, deployment: Deployment) -> None:
        """Log a new step of a deployment."""
        old = self._steps.get(deployment.id)
        if old == deployment.step:
            return
        self._steps[deployment.id] = deployment.step
        apps = ", ".join(sorted(deployment.plan.affected))
        steps = len(deployment.plan.steps)
        words = f"begins for {apps}" if old is None else "continues"
        _say(
            "deployment %s: %s, step %d of %d",
            deployment.id,
            words,
            deployment.step + 1,
            steps,
            deployment=deployment.id,
        )


def _say_access(effect: saves.SaveAccess) -> None:
    document = effect.document
    by = document.by or "an unknown user"
    _say("access rules: version %d applied by %s", document.version, by, version=document.version)


def _say_token(effect: saves.SaveToken) -> None:
    token = effect.token
    if token.used_at is None:
        _say("token %s for %s was created by %s", token.id, token.name, token.created_by, token=token.id)


def _say_drain(drain: Drain) -> None:
    until = "" if drain.deadline_at is None else ", jobs that still run there are ended at its deadline"
    _say("%s %s is %s%s", drain.target.value, drain.name, drain.words, until, drain=drain.name)


def _say_undrain(effect: saves.ForgetDrain) -> None:
    _say("%s %s is no longer drained", effect.target.value, effect.name, drain=effect.name)


def _say(text: str, *words: object, **fields: object) -> None:
    logger.info(text, *words, extra={"fields": fields})


_OF_EFFECT: Final[dict[type, Callable[[EventLogger, Any], None]]] = {
    saves.SaveJob: lambda narrator, effect: narrator._job(effect.job),
    saves.SaveTask: lambda narrator, effect: narrator._task(effect.task),
    saves.SaveNode: lambda narrator, effect: narrator._node(effect.node),
    saves.ForgetJob: EventLogger._forget_job,
    saves.ForgetNode: EventLogger._forget_node,
    saves.SaveDrain: lambda _, effect: _say_drain(effect.drain),
    saves.ForgetDrain: lambda _, effect: _say_undrain(effect),
    saves.SaveDeployment: lambda narrator, effect: narrator._deployment(effect.deployment),
    saves.ForgetDeployment: EventLogger._forget_deployment,
    saves.SaveBudgetUse: lambda narrator, effect: narrator._budget(effect.use),
    saves.SaveTrust: lambda *_: _say("the master's tasks were checked: launches begin"),
    saves.SaveAccess: lambda _, effect: _say_access(effect),
    saves.SaveToken: lambda _, effect: _say_token(effect),
    saves.ForgetToken: lambda _, effect: _say(
        "token %s was revoked or has expired", effect.id, token=effect.id
    ),
}
