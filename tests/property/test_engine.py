"""Whatever Mesos sends, in whatever order: safety after every step, and an end when Mesos behaves again."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.model.assignment import Outcome
from mesos_gpu.model.gpu import Gpu, Health
from mesos_gpu.model.ids import AgentId, JobId, OfferId, TaskId
from mesos_gpu.model.saves import SaveTask
from mesos_gpu.testing.builders import World, every, gpu, offer, saved_of, spec

AGENTS = {f"a{n}": tuple(gpu(f"g{n}{i}") for i in range(3)) for n in range(2)}
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
        for item in launch.tasks:
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
            self.take(self.world.report(agent, *(gpus or AGENTS[agent])))

    # --- what may happen

    @rule(gpus=st.integers(0, 3), attempts=st.integers(1, 3))
    def submit(self, gpus: int, attempts: int) -> None:
        self.mesos.serial += 1
        job_id = JobId(f"j{self.mesos.serial}")
        self.take(
            self.world.feed(
                ev.JobSubmitted(
                    job_id, spec(name=job_id, gpus=gpus, cpus=0.5, mem_mib=1, max_attempts=attempts)
                )
            )
        )

    @rule(agent=st.sampled_from(sorted(AGENTS)))
    def offers(self, agent: str) -> None:
        self.offer(agent)

    @rule(agent=st.sampled_from(sorted(AGENTS)), sick=st.sets(st.integers(0, 2)))
    def reports(self, agent: str, sick: set[int]) -> None:
        from dataclasses import replace

        gpus = [replace(g, health=Health.SICK) if i in sick else g for i, g in enumerate(AGENTS[agent])]
        self.monitor(agent, tuple(gpus))

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

    def update(self, task_id: TaskId, state: str) -> None:
        item = self.mesos.running.get(task_id)
        agent = str(item.task.agent_id) if item else "a0"
        if state in TERMINAL:
            self.mesos.running.pop(task_id, None)
        is_monitor = item is not None and item.spec is None
        outcome = Outcome(exit_status=0) if state == "TASK_FINISHED" and not is_monitor else None
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
    def nobody_shares_a_gpu_by_our_doing(self) -> None:
        held = [g for t in self.world.state.tasks.values() if not t.ended for g in t.gpus]
        assert len(held) == len(set(held))

    def teardown(self) -> None:
        """When Mesos answers truthfully for a while, every job comes to an end."""
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
