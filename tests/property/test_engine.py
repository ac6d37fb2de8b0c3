"""Whatever Mesos sends, in whatever order: safety after every step, and an end when Mesos behaves again."""

from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.assignment import Outcome
from mesos_gpu.model.drain import Target
from mesos_gpu.model.driver import as_new_as
from mesos_gpu.model.gpu import Gpu, Health, Transition
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.job import OnGpuFailure
from mesos_gpu.model.saves import SaveTask
from mesos_gpu.policy.history import MOST
from mesos_gpu.testing.builders import World, every, gpu, offer, saved_of, spec

DRIVERS = {"a0": "535.104.05", "a1": "550.54.14"}
AGENTS = {f"a{n}": tuple(gpu(f"g{n}{i}") for i in range(3)) for n in range(2)}
TARGETS = [(Target.GPU, card.id) for cards in AGENTS.values() for card in cards] + [
    (Target.NODE, f"{agent}.example") for agent in AGENTS
]
TERMINAL = ("TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_LOST", "TASK_GONE")


@dataclass
class FakeMesos:
    """Agents, what runs on them, and offers; it loses calls when told to."""

    running: dict[TaskId, fx.LaunchTask] = field(default_factory=dict)
    offered: dict[OfferId, str] = field(default_factory=dict)
    started: list[TaskId] = field(default_factory=list)
    serial: int = 0

    def free(self, agent: str) -> int:
        used = sum(len(t.task.gpus) for t in self.running.values() if t.task.agent_id == agent)
        return len(AGENTS[agent]) - used


class Scheduler(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world, self.mesos = World(), FakeMesos()
        self.saved: set[TaskId] = set()
        self.lossy = False
        self.told_before: dict[GpuId, Gpu] = {}

    # --- the world around

    @initialize()
    def begin(self) -> None:
        self.take(self.world.register())
        for agent in AGENTS:
            self.offer(agent)
            self.monitor(agent)

    def take(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SaveTask):
                self.saved.add(effect.task.id)
            if isinstance(effect, fx.Launch):
                self.launch(effect)

    def launch(self, launch: fx.Launch) -> None:
        valid = all(offer_id in self.mesos.offered for offer_id in launch.offer_ids)
        state = self.world.state
        for item in launch.tasks:
            node = state.nodes[item.task.agent_id]
            if item.spec is not None:
                assert (Target.NODE, node.hostname) not in state.drains, "placed on a drained node"
                job = state.jobs[JobId(str(item.task.job_id))]
                for least in (job.spec.min_driver, job.learnt_min_driver):
                    assert as_new_as(node.driver_version, least), "placed on too old a driver"
            for gpu_id in item.task.gpus:
                found = node.gpu(gpu_id)
                assert found is not None, "granted without being reported"
                assert found.health is Health.OK, f"granted {gpu_id}, which is {found.health.value}"
                assert (Target.GPU, gpu_id) not in state.drains, "granted a drained card"
                assert gpu_id not in state.resets, "granted a card in a reset"
            assert item.task.id in self.saved, "a launch left before it was saved"
            assert item.task.id not in self.mesos.started, "a task id was used twice"
            self.mesos.started.append(item.task.id)
            if valid and not self.lossy:
                self.mesos.running[item.task.id] = item
        for offer_id in launch.offer_ids:
            self.mesos.offered.pop(offer_id, None)

    def offer(self, agent: str) -> None:
        self.mesos.serial += 1
        made = offer(f"o{self.mesos.serial}", agent, cpus=64, gpus=self.mesos.free(agent))
        if agent not in self.mesos.offered.values():
            self.mesos.offered[made.id] = agent
            self.take(self.world.offers(made))

    def monitor(self, agent: str, gpus: tuple[Gpu, ...] | None = None) -> None:
        node = self.world.state.nodes.get(AgentId(agent))
        if node is not None and node.monitor in self.mesos.running:
            self.take(self.world.report(agent, *(gpus or AGENTS[agent]), driver=DRIVERS[agent]))

    # --- what may happen

    @rule(
        gpus=st.integers(0, 3),
        attempts=st.integers(1, 3),
        failure=st.sampled_from(sorted(OnGpuFailure, key=str)),
        min_driver=st.sampled_from([None, None, "535", "550"]),
    )
    def submit(self, gpus: int, attempts: int, failure: OnGpuFailure, min_driver: str | None) -> None:
        self.mesos.serial += 1
        job_id = JobId(f"j{self.mesos.serial}")
        self.take(
            self.world.feed(
                ev.JobSubmitted(
                    job_id,
                    spec(
                        name=job_id,
                        gpus=gpus,
                        cpus=0.5,
                        mem_mib=1,
                        max_attempts=attempts,
                        on_gpu_failure=failure,
                        min_driver=min_driver,
                    ),
                )
            )
        )

    @rule(agent=st.sampled_from(sorted(AGENTS)))
    def offers(self, agent: str) -> None:
        self.offer(agent)

    @rule(
        agent=st.sampled_from(sorted(AGENTS)),
        healths=st.lists(st.sampled_from([Health.OK] * 3 + list(Health)), min_size=3, max_size=3),
        missing=st.sets(st.integers(0, 2), max_size=2),
    )
    def reports(self, agent: str, healths: list[Health], missing: set[int]) -> None:
        """Any health, of all cards or of those that are found already."""
        both = zip(AGENTS[agent], healths, strict=True)
        gpus = [self.told(card, health) for i, (card, health) in enumerate(both) if i not in missing]
        self.monitor(agent, tuple(gpus))

    def told(self, card: Gpu, health: Health) -> Gpu:
        """The card with a monitor's memory of its last ten changes."""
        old = self.told_before.get(card.id, card)
        if old.health is not health:
            change = Transition(self.world.now, old.health, health, "said so")
            old = replace(old, health=health, history=(*old.history, change)[-10:])
        self.told_before[card.id] = old
        return old

    @rule(
        what=st.sampled_from(TARGETS) | st.sampled_from(TARGETS[-len(AGENTS) :]),
        deadline_s=st.none() | st.sampled_from([0.0, 10.0]),
        back=st.sampled_from([False, False, True]),
    )
    def drains(self, what: tuple[Target, str], deadline_s: float | None, back: bool) -> None:
        event = ev.UndrainRequested(*what) if back else ev.DrainRequested(*what, "why", "me", deadline_s)
        self.request(event)

    @rule(card=st.sampled_from([card.id for cards in AGENTS.values() for card in cards]))
    def resets(self, card: GpuId) -> None:
        self.mesos.serial += 1
        self.request(ev.ResetRequested(card, f"r{self.mesos.serial}", "why"))

    def request(self, event: ev.Event) -> None:
        """What the engine refuses has changed nothing."""
        before = saved_of(self.world.state)
        try:
            effects = self.world.feed(event)
        except (NotFound, Conflict):
            assert saved_of(self.world.state) == before
        else:
            self.take(effects)

    @rule(data=st.data())
    def rescinds(self, data: st.DataObject) -> None:
        if self.mesos.offered:
            offer_id = data.draw(st.sampled_from(sorted(self.mesos.offered)))
            del self.mesos.offered[offer_id]
            if data.draw(st.booleans()):  # else it is still on its way, and crosses an ACCEPT
                self.take(self.world.feed(ev.OfferRescinded(offer_id)))

    @rule(data=st.data())
    def updates(self, data: st.DataObject) -> None:
        """Any state of any task that ever was, late, repeated and reordered."""
        if not self.mesos.started:
            return
        task_id = data.draw(st.sampled_from(self.mesos.started))
        runs = task_id in self.mesos.running
        live = ("TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_UNREACHABLE")
        state = data.draw(st.sampled_from(live + TERMINAL if runs else TERMINAL))
        self.update(task_id, state)

    @rule(data=st.data(), least=st.sampled_from(["470", "535.200", "550.54"]))
    def image_needs_a_driver(self, data: st.DataObject, least: str) -> None:
        """An executor refuses the image; now and then a host has not the driver that its monitor told of."""
        jobs = [task_id for task_id, item in self.mesos.running.items() if item.spec is not None]
        if jobs:
            task_id = data.draw(st.sampled_from(sorted(jobs)))
            self.update(task_id, "TASK_FAILED", Outcome(min_driver=least, needs="a driver"))

    def update(self, task_id: TaskId, state: str, outcome: Outcome | None = None) -> None:
        item = self.mesos.running.get(task_id)
        agent = str(item.task.agent_id) if item else "a0"
        if state in TERMINAL:
            self.mesos.running.pop(task_id, None)
        is_monitor = item is not None and item.spec is None
        if state == "TASK_FINISHED" and not is_monitor:
            outcome = Outcome(exit_status=0)
        self.take(self.world.status(task_id, state, agent=agent, outcome=outcome))

    @rule(data=st.data())
    def kills(self, data: st.DataObject) -> None:
        if self.world.state.jobs:
            job_id = data.draw(st.sampled_from(sorted(self.world.state.jobs)))
            self.take(self.world.feed(ev.KillRequested(job_id)))

    @rule(agent=st.sampled_from(sorted(AGENTS)))
    def agent_is_lost(self, agent: str) -> None:
        self.take(self.world.feed(ev.AgentLost(AgentId(agent))))

    @rule(seconds=st.sampled_from([0.3, 5.0, 150.0]))
    def time_passes(self, seconds: float) -> None:
        self.take(self.world.tick(seconds))

    @rule(lossy=st.booleans())
    def connection_breaks(self, lossy: bool) -> None:
        self.take(self.world.feed(ev.Disconnected()))
        self.mesos.offered.clear()
        self.lossy = lossy
        self.take(self.world.register())
        self.lossy = False

    @rule()
    def scheduler_restarts(self) -> None:
        old = self.world.state
        self.world.state = State.restored(self.world.now, saved_of(old))
        self.mesos.offered.clear()
        self.take(self.world.register())

    # --- what must hold

    @invariant()
    def state_is_sound(self) -> None:
        assert self.world.state.problems() == []

    @invariant()
    def histories_are_bounded_and_true(self) -> None:
        for card in self.world.state.cards.values():
            assert len(card.changes) <= MOST
            assert list(card.changes) == sorted(card.changes, key=lambda change: change.at)
            assert len(set(card.changes)) == len(card.changes)

    @invariant()
    def nobody_shares_a_gpu_by_our_doing(self) -> None:
        held = [g for t in self.world.state.tasks.values() if not t.ended for g in t.gpus]
        assert len(held) == len(set(held))

    def teardown(self) -> None:
        """When Mesos answers truthfully for a while, every job comes to an end."""
        for target, name in list(self.world.state.drains):
            self.take(self.world.feed(ev.UndrainRequested(target, name)))
        for _ in range(60):
            if all(job.state.ended for job in self.world.state.jobs.values()):
                return
            self.settle()
        left = {
            job.id: (job.state, job.message) for job in self.world.state.jobs.values() if not job.state.ended
        }
        raise AssertionError(f"never ended: {left}")

    def settle(self) -> None:
        effects = self.world.tick(12)
        self.take(effects)
        asked = {task_id for r in every(effects, fx.Reconcile) for task_id, _ in r.tasks}
        for task_id in asked - set(self.mesos.running):
            self.take(self.world.status(task_id, "TASK_GONE", uuid=None))
        for task_id in [t for t, item in self.mesos.running.items() if item.spec is not None]:
            self.update(task_id, "TASK_FINISHED")
        for agent in AGENTS:
            self.mesos.offered = {o: a for o, a in self.mesos.offered.items() if o in self.world.state.offers}
            self.offer(agent)
            self.monitor(agent)


TestScheduler = Scheduler.TestCase
TestScheduler.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
