"""Short ways to make nouns in tests."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import PARTS, State
from mesos_gpu.engine.step import HANDLERS, handle, step
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.offer import Offer, PortRange, Scalar
from mesos_gpu.model.resources import AMOUNTS, Resources
from mesos_gpu.model.saves import NOUNS, Saved
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.wire.mesos import assignment, report
from tests.doubles.problems import problems

E = TypeVar("E")


def gpu(name: str, model: str = "A100", *, health: Health = Health.OK, numa_node: int | None = None) -> Gpu:
    """A GPU whose minor number and index follow from the digits in its name."""
    number = int("".join(c for c in name if c.isdigit()) or 0)
    return Gpu(GpuId(name), model, 81920, number, "0000:01:00.0", numa_node, health=health, index=number)


def offer(
    name: str, agent: str = "a1", *, cpus: float = 8, mem: float = 16384, gpus: float = 0, **more: float
) -> Offer:
    """An offer of one agent; `more` are further scalars by Mesos' names."""
    amounts = {"cpus": cpus, "mem": mem, "gpus": gpus, **more}
    scalars = tuple(Scalar(kind, amount) for kind, amount in amounts.items() if amount)
    ports = (PortRange(31000, 31999),)
    return Offer(
        OfferId(name), AgentId(agent), f"{agent}.example", f"http://{agent}:5051", scalars, ports=ports
    )


def request(
    cpus: float = 1.0,
    mem_mib: float = 128.0,
    gpus: int = 0,
    models: tuple[str, ...] = (),
    min_driver: str | None = None,
    *,
    tasks: int = 1,
    **more: Any,
) -> Request:
    """What one task needs; `more` are further amounts, and fields of `GpuRequest`."""
    amounts = {amount.name: more.pop(amount.name) for amount in AMOUNTS if amount.name in more}
    resources = Resources(cpus=cpus, mem_mib=mem_mib, gpus=gpus, **amounts)
    return Request(resources, GpuRequest(gpus, models=models, **more), min_driver, tasks)


def seen(node: NodeCapacity, **fields: object) -> NodeCapacity:
    """A node as `why` sees it after those changes: free are its healthy GPUs that nothing holds."""
    node = replace(node, **fields)  # type: ignore[arg-type]
    idle = (gpu for gpu in node.installed if gpu.health is Health.OK and gpu.id not in node.holders)
    return replace(node, gpus=tuple(idle))


def spec(**fields: object) -> JobSpec:
    """A job that runs `true`."""
    return JobSpec(**{"name": "job", "command": "true", **fields})  # type: ignore[arg-type]


@dataclass
class World:
    """A bare engine: feed it events, look at its effects. The clock goes only where a test puts it."""

    settings: Settings = field(default_factory=lambda: Settings.of("executor", "monitor"))
    now: float = 1000.0
    state: State = field(default_factory=lambda: State(started_at=1000.0))
    serial: int = 0

    def feed(self, *events: ev.Event) -> list[fx.Effect]:
        """Step the events, then match; all effects. Handlers are watched."""
        effects = []
        for event in (*events, ev.Match()):
            effects += step_closely(self.state, event, self.now, self.settings)
        assert problems(self.state) == []
        return effects

    def register(self) -> list[fx.Effect]:
        """The master accepts the subscription."""
        return self.feed(ev.Registered("fw-1", "http://master:5050"))

    def submit(self, name: str = "j1", **fields: object) -> Job:
        """A job with id `name`; the effects are thrown away."""
        self.feed(ev.JobSubmitted(JobId(name), spec(**fields)))
        return self.job(name)

    def job(self, name: str = "j1") -> Job:
        """The job as it is now."""
        return self.state.work.jobs[JobId(name)]

    def offers(self, *offers: Offer) -> list[fx.Effect]:
        """Offers arrive."""
        return self.feed(ev.OffersArrived(tuple(replace(o, received_at=self.now) for o in offers)))

    def node(self, agent: str, *gpus: Gpu, cpus: float = 8, driver: str | None = None) -> list[fx.Effect]:
        """An agent with GPUs comes up: its offer, its monitor's launch and first report, and what is left."""
        self.serial += 1
        effects = self.offers(offer(f"{agent}-o{self.serial}", agent, cpus=cpus, gpus=len(gpus)))
        launched = only(effects, fx.Launch).tasks[0].task
        effects = self.report(agent, *gpus, task=launched.id, driver=driver)
        return effects + self.offers(offer(f"{agent}-p{self.serial}", agent, cpus=cpus - 1, gpus=len(gpus)))

    def report(
        self, agent: str, *gpus: Gpu, task: TaskId | None = None, driver: str | None = None
    ) -> list[fx.Effect]:
        """The node monitor of an agent reports."""
        monitor = task or self.state.cluster.nodes[AgentId(agent)].monitor
        assert monitor is not None
        data = report.encode(Inventory(gpus, "simulated", driver))
        return self.status(monitor, "TASK_RUNNING", agent=agent, data=data)

    def status(
        self,
        task: str,
        state: str,
        *,
        agent: str = "a1",
        reason: str = "",
        data: bytes = b"",
        outcome: Outcome | None = None,
        uuid: str | None = "dXVpZA==",
        message: str = "",
    ) -> list[fx.Effect]:
        """A status update arrives."""
        data = assignment.encode(outcome) if outcome else data
        update = Status(TaskId(task), state, AgentId(agent), reason, "", message, uuid, data)
        return self.feed(ev.StatusArrived(update))

    def tick(self, seconds: float) -> list[fx.Effect]:
        """Time passes, in steps of at most a second."""
        effects: list[fx.Effect] = []
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 1.0, end)
            effects += self.feed(ev.Tick())
        return effects


def step_closely(state: State, event: ev.Event, now: float, settings: Settings) -> list[fx.Effect]:
    """Take one event in as `step` does, and see that its handler changes only the parts that it declares.

    Raises:
        AssertionError: The handler has changed another part.
        NotFound, Conflict, NotAccepted, TooMuch: As of `step`.
    """
    return step(state, event, now, settings, handle=_handle_closely)


def _handle_closely(turn: Turn, event: ev.Event) -> None:
    others = [name for name in PARTS if name not in HANDLERS[type(event)].changes]
    before = STATES.duplicate(turn.state) if others else turn.state
    handle(turn, event)
    for name in others:
        was, now = getattr(before, name), getattr(turn.state, name)
        if was != now:
            compared = [each.name for each in fields(now) if each.compare]
            changed = [each for each in compared if getattr(was, each) != getattr(now, each)]
            words = f"{type(event).__name__} has changed {', '.join(changed)} of {name}"
            raise AssertionError(f"{words}, which its handler does not declare")


def saved_of(state: State) -> Saved:
    """What a store would give back of that state."""
    kept = {name: _kept(getattr(state.part_with(name), name)) for name in (noun.plural for noun in NOUNS)}
    saved = Saved(state.mesos.framework_id, **kept)
    drafts = {job_id for drafts in state.work.members.drafts.values() for job_id in drafts}
    return replace(saved, jobs=tuple(job for job in saved.jobs if job.id not in drafts))


def _kept(values: Any) -> Any:
    """What the state has of a noun: one value, or a tuple of those in a list, a dict, or lists in a dict."""
    if isinstance(values, dict):
        return tuple(
            each for value in values.values() for each in (value if isinstance(value, list) else [value])
        )
    return tuple(values) if isinstance(values, list) else values


def only(effects: list[fx.Effect], kind: type[E]) -> E:
    """The one effect of that kind."""
    matching = every(effects, kind)
    assert len(matching) == 1, f"{len(matching)} {kind.__name__} in {effects}"
    return matching[0]


def every(effects: list[fx.Effect], kind: type[E]) -> list[E]:
    """All effects of that kind."""
    return [effect for effect in effects if isinstance(effect, kind)]
