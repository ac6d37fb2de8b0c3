"""Builders of nouns for tests, and an engine without a scheduler (`World`)."""

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
    """Return a GPU whose minor number and index are the digits in its name."""
    number = int("".join(c for c in name if c.isdigit()) or 0)
    return Gpu(GpuId(name), model, 81920, number, "0000:01:00.0", numa_node, health=health, index=number)


def offer(
    name: str, agent: str = "a1", *, cpus: float = 8, mem: float = 16384, gpus: float = 0, **more: float
) -> Offer:
    """Return an offer of one agent; `more` has further scalar resources by their names in Mesos."""
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
    """Return the request of a task; `more` has further amounts, and fields of `GpuRequest`."""
    amounts = {amount.name: more.pop(amount.name) for amount in AMOUNTS if amount.name in more}
    resources = Resources(cpus=cpus, mem_mib=mem_mib, gpus=gpus, **amounts)
    return Request(resources, GpuRequest(gpus, models=models, **more), min_driver, tasks)


def seen(node: NodeCapacity, **fields: object) -> NodeCapacity:
    """Return a changed node as `why` sees it: its healthy GPUs that no task holds are free."""
    node = replace(node, **fields)  # type: ignore[arg-type]
    idle = (gpu for gpu in node.installed if gpu.health is Health.OK and gpu.id not in node.holders)
    return replace(node, gpus=tuple(idle))


def spec(**fields: object) -> JobSpec:
    """Return the specification of a job that runs `true`."""
    return JobSpec(**{"name": "job", "command": "true", **fields})  # type: ignore[arg-type]


@dataclass
class World:
    """An engine without a scheduler: a test feeds it events, checks its effects and sets its clock."""

    settings: Settings = field(default_factory=lambda: Settings.of("executor", "monitor"))
    now: float = 1000.0
    state: State = field(default_factory=lambda: State(started_at=1000.0))
    serial: int = 0

    def feed(self, *events: ev.Event) -> list[fx.Effect]:
        """Step the events and then a match; return all effects.

        Checks that each handler changes only the parts of the state that it declares, and the invariants of the state.
        """
        effects = []
        for event in (*events, ev.Match()):
            effects += step_closely(self.state, event, self.now, self.settings)
        assert problems(self.state) == []
        return effects

    def register(self) -> list[fx.Effect]:
        """Accept the subscription, as the master does."""
        return self.feed(ev.Registered("fw-1", "http://master:5050"))

    def submit(self, name: str = "j1", **fields: object) -> Job:
        """Submit a job with id `name`, drop the effects, and return the job."""
        self.feed(ev.JobSubmitted(JobId(name), spec(**fields)))
        return self.job(name)

    def job(self, name: str = "j1") -> Job:
        """Return the present job."""
        return self.state.work.jobs[JobId(name)]

    def offers(self, *offers: Offer) -> list[fx.Effect]:
        """Feed offers that arrive now."""
        return self.feed(ev.OffersArrived(tuple(replace(o, received_at=self.now) for o in offers)))

    def node(self, agent: str, *gpus: Gpu, cpus: float = 8, driver: str | None = None) -> list[fx.Effect]:
        """Start an agent with GPUs: feed its offer, the first report of its monitor, and an offer of the rest."""
        self.serial += 1
        effects = self.offers(offer(f"{agent}-o{self.serial}", agent, cpus=cpus, gpus=len(gpus)))
        launched = only(effects, fx.Launch).tasks[0].task
        effects = self.report(agent, *gpus, task=launched.id, driver=driver)
        return effects + self.offers(offer(f"{agent}-p{self.serial}", agent, cpus=cpus - 1, gpus=len(gpus)))

    def report(
        self, agent: str, *gpus: Gpu, task: TaskId | None = None, driver: str | None = None
    ) -> list[fx.Effect]:
        """Feed a report of an agent's node monitor."""
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
        """Feed a status update."""
        data = assignment.encode(outcome) if outcome else data
        update = Status(TaskId(task), state, AgentId(agent), reason, "", message, uuid, data)
        return self.feed(ev.StatusArrived(update))

    def tick(self, seconds: float) -> list[fx.Effect]:
        """Let time pass, with a tick at least every second; return all effects."""
        effects: list[fx.Effect] = []
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 1.0, end)
            effects += self.feed(ev.Tick())
        return effects


def step_closely(state: State, event: ev.Event, now: float, settings: Settings) -> list[fx.Effect]:
    """Step one event, and check that its handler changes only the parts of the state that it declares.

    Raises:
        AssertionError: The handler has changed another part.
        NotFound, Conflict, NotAccepted, TooMuch: `step` raises it.
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
    """Return what a store would load after this state was saved."""
    kept = {name: _kept(getattr(state.part_with(name), name)) for name in (noun.plural for noun in NOUNS)}
    saved = Saved(state.mesos.framework_id, **kept)
    drafts = {job_id for drafts in state.work.members.drafts.values() for job_id in drafts}
    return replace(saved, jobs=tuple(job for job in saved.jobs if job.id not in drafts))


def _kept(values: Any) -> Any:
    """Return a single value as it is, and the values of a list, a dict or a dict of lists as a tuple."""
    if isinstance(values, dict):
        return tuple(
            each for value in values.values() for each in (value if isinstance(value, list) else [value])
        )
    return tuple(values) if isinstance(values, list) else values


def only(effects: list[fx.Effect], kind: type[E]) -> E:
    """Return the only effect of a kind."""
    matching = every(effects, kind)
    assert len(matching) == 1, f"{len(matching)} {kind.__name__} in {effects}"
    return matching[0]


def every(effects: list[fx.Effect], kind: type[E]) -> list[E]:
    """Return all effects of a kind."""
    return [effect for effect in effects if isinstance(effect, kind)]
