"""Any mix of jobs on a small cluster, with the real engine: limits, order, no starvation, promises kept."""

from dataclasses import dataclass, field, replace
from math import inf

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import waiting_jobs
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.shares.card import Ability, Sharing
from tests.doubles.builders import World, every, gpu, offer, saved_of, spec
from tests.doubles.problems import problems
from tests.property.examples import examples

CARDS, CPUS = 4, 16.0
LIMITS = {"lab": 5, "tiny": 1}
SHARING = Sharing(80_000, ((Ability.SHIM, ""),))


@dataclass(frozen=True)
class Work:
    """A job and how long it truly runs, in whole seconds."""

    gpus: int
    cpus: int
    lasts_s: int
    limited: bool = True  # its timeout_s says the truth; else it has none
    queue: str = "default"
    priority: int = 0
    at: int = 0  # when it is submitted
    milli: int = 1000  # thousandths of its GPU, if it has but one

    @property
    def counted_milli(self) -> int:
        """Thousandths of GPUs, in limits."""
        return self.gpus * self.milli


@dataclass
class Cluster:
    """Agents that offer what is free at once, and end each task when its time is over."""

    agents: int
    world: World
    works: dict[JobId, Work] = field(default_factory=dict)
    ends: dict[TaskId, tuple[float, str]] = field(default_factory=dict)
    started: dict[JobId, float] = field(default_factory=dict)
    promised: dict[JobId, float] = field(default_factory=dict)
    serial: int = 0

    @classmethod
    def up(cls, agents: int, aging_step_s: float = inf) -> "Cluster":
        chosen = Settings.of(
            "e", "m", report_stale_s=inf, queue_limits=LIMITS, offer_return_s=600, aging_step_s=aging_step_s,
            cover_linger_s=0,
        )  # fmt: skip
        made = cls(agents, World(chosen.changed(offer_hold_s=inf, idle_linger_s=inf)))
        made.world.register()
        for n in range(agents):
            cards = (replace(gpu(f"g{n}{i}"), sharing=SHARING) for i in range(CARDS))
            made.world.node(f"a{n}", *cards, cpus=CPUS + 1)
        return made

    def submit(self, job_id: JobId, work: Work) -> None:
        self.works[job_id] = work
        wanted = spec(
            name=job_id, gpus=work.gpus, gpu_milli=work.milli, cpus=float(work.cpus), mem_mib=1, queue=work.queue,
            priority=work.priority, timeout_s=float(work.lasts_s) if work.limited else None, kill_grace_s=0,
        )  # fmt: skip
        self.take(self.world.feed(ev.JobSubmitted(job_id, wanted)))

    def take(self, effects: list[fx.Effect]) -> None:
        """Start what was launched, offer what is left, and again, until nothing is launched."""
        for launch in every(effects, fx.Launch):
            for item in launch.tasks:
                if item.task.covers is not None:
                    self.world.status(item.task.id, "TASK_RUNNING", agent=item.task.agent_id)
                    continue
                job_id = JobId(str(item.task.job_id))
                self.started[job_id] = self.world.now
                ends_at = self.world.now + self.works[job_id].lasts_s
                self.ends[item.task.id] = ends_at, item.task.agent_id
                self.world.status(item.task.id, "TASK_RUNNING", agent=item.task.agent_id)
            self.give(launch.tasks[0].task.agent_id)
        for kill in every(effects, fx.Kill):
            agent = self.world.state.work.tasks[kill.task_id].agent_id
            self.take(self.world.status(kill.task_id, "TASK_KILLED", agent=agent))
            self.give(agent)
        self.check()

    def give(self, agent: str) -> None:
        state = self.world.state
        held = [t for t in state.work.tasks.values() if t.agent_id == agent and not t.ended]
        for old in [o for o in state.cluster.offers.values() if o.agent_id == agent]:
            state.cluster.drop_offer(old.id)
        self.serial += 1
        covers = [t for t in held if t.covers is not None]
        free = CARDS - len(covers) - sum(len(t.gpus) for t in held if t.share is None)
        own = [self.works[t.job_id].cpus + 0.01 for t in held if t.job_id]
        cpus = CPUS - sum(own) - (0.01 + 0.001 * len(covers) if covers else 0)
        mem = 16384 - 49 * len(own) - (32 + len(covers) if covers else 0)
        self.take(self.world.offers(offer(f"s{self.serial}", agent, cpus=round(cpus, 3), mem=mem, gpus=free)))

    def until(self, moment: float) -> None:
        """Let the time pass, one end after the other."""
        while self.ends and min(self.ends.values())[0] <= moment:
            ends_at, agent = min(self.ends.values())
            task_id = min(task for task, end in self.ends.items() if end == (ends_at, agent))
            del self.ends[task_id]
            self.world.now = ends_at
            self.take(self.world.status(task_id, "TASK_FINISHED", agent=agent))
            self.give(agent)
            self.take(self.world.feed(ev.Tick()))
        self.world.now = max(self.world.now, moment)

    def check(self) -> None:
        state = self.world.state
        for queue, limit in LIMITS.items():
            works = [self.works[j.id] for j in state.work.jobs.values() if j.spec.queue == queue and runs(j)]
            held = sum(work.counted_milli for work in works)
            assert held <= limit * 1000, f"queue {queue} holds {held} of {limit * 1000} thousandths"
        for gpu_id, sharers in state.gpus.sharers.items():
            assert sum(share.compute_milli for share in sharers.values()) <= 1000, gpu_id
            assert sum(share.memory_mib for share in sharers.values()) <= SHARING.memory_mib, gpu_id
            assert gpu_id not in state.gpus.holders
        assert not problems(state)
        view = View(state, self.world.settings, self.world.now)
        for waiting in waiting_jobs(view, 1):
            if waiting.kept and waiting.kept.at is not None and waiting.kept.hostname:
                self.promised.setdefault(waiting.job.id, waiting.kept.at)


def runs(job: Job) -> bool:
    return job.state is not JobState.PENDING and not job.state.ended


def works(
    *, limited: st.SearchStrategy[bool], later: int = 0, high: int = 0, shares: bool = False
) -> st.SearchStrategy[list[Work]]:
    one = st.builds(
        Work,
        gpus=st.just(1) if shares else st.integers(0, CARDS),
        milli=st.integers(1, 999) if shares else st.just(1000),
        cpus=st.integers(1, 12),
        lasts_s=st.integers(1, 60),
        limited=limited,
        queue=st.sampled_from(["default", "default", "lab", "tiny"]) if high else st.just("default"),
        priority=st.integers(-high, high),
        at=st.integers(0, later),
    )
    return st.lists(one, min_size=1, max_size=14)


def ran(works: list[Work], agents: int, restart: bool = False) -> Cluster:
    cluster = Cluster.up(agents)
    start = cluster.world.now
    for i, work in sorted(enumerate(works), key=lambda entry: entry[1].at):
        cluster.until(start + work.at)
        cluster.submit(JobId(f"j{i:02}"), work)
    if restart:
        cluster.world.state = State.restored(cluster.world.now, saved_of(cluster.world.state))
        cluster.take(cluster.world.register())
        for n in range(agents):
            cluster.give(f"a{n}")
    cluster.until(start + 60 * 20)
    return cluster


@settings(max_examples=20)
@given(works(limited=st.booleans(), later=40, high=3), st.integers(1, 3), st.booleans())
def test_jobs_that_can_run_run_within_their_limits(asked: list[Work], agents: int, restart: bool) -> None:
    cluster = ran(asked, agents, restart)
    never = {job_id for job_id, work in cluster.works.items() if work.gpus > LIMITS.get(work.queue, CARDS)}
    assert set(cluster.works) - set(cluster.started) == never


@examples(4, 20)
@given(
    works(limited=st.booleans(), later=40, high=3, shares=True),
    works(limited=st.booleans(), later=40, high=3),
    st.integers(1, 3),
    st.booleans(),
)
def test_shares_and_whole_gpus_all_run_within_their_limits(
    shares: list[Work], whole: list[Work], agents: int, restart: bool
) -> None:
    cluster = ran([*shares, *whole[:5]], agents, restart)
    never = {
        job_id
        for job_id, work in cluster.works.items()
        if work.counted_milli > LIMITS.get(work.queue, CARDS) * 1000
    }
    assert set(cluster.works) - set(cluster.started) == never
    assert not cluster.world.state.gpus.sharers
    assert not cluster.world.state.gpus.covers, "every card is given back"


@examples(10, 20)
@given(works(limited=st.just(True)), st.integers(1, 3))
@example(  # what was seen of an agent was forgotten while an offer of it was on the way
    [Work(0, 1, 1), Work(0, 1, 1), Work(2, 4, 57), Work(3, 1, 4), Work(3, 4, 1), Work(0, 12, 5)], 1
)
def test_a_reserved_job_is_not_delayed_where_time_limits_are_true(asked: list[Work], agents: int) -> None:
    assert not delayed(ran(asked, agents))


def delayed(cluster: Cluster) -> dict[JobId, tuple[float, float]]:
    """Jobs that started after the time that was kept for them: when that was, and when they did."""
    return {
        job_id: (at, cluster.started[job_id])
        for job_id, at in cluster.promised.items()
        if cluster.started[job_id] > at
    }


@examples(6, 15)
@given(works(limited=st.just(True), shares=True), works(limited=st.just(True)), st.integers(1, 2))
def test_reserved_job_among_shares_is_not_delayed(shares: list[Work], whole: list[Work], agents: int) -> None:
    mixed = [work for pair in zip(shares, whole, strict=False) for work in pair]
    assert not delayed(ran(mixed, agents))


@settings(max_examples=8)
@given(works(limited=st.booleans(), later=40, high=3), st.integers(1, 3))
def test_the_same_events_give_the_same_order(asked: list[Work], agents: int) -> None:
    assert list(ran(asked, agents).started.items()) == list(ran(asked, agents).started.items())


@examples(3, 8)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(5, 15), st.booleans()), min_size=1, max_size=5))
def test_jobs_do_not_starve_under_an_endless_stream_of_higher_priority(
    stream: list[tuple[int, int, bool]],
) -> None:
    """The cluster is always full of younger jobs of higher priority; aging brings the old one to its turn."""
    cluster = Cluster.up(2, aging_step_s=10.0)
    start, old = cluster.world.now, JobId("old")
    for i in range(300):
        gpus, lasts_s, limited = stream[i % len(stream)]
        cluster.submit(JobId(f"s{i}"), Work(gpus, 1, lasts_s, limited, priority=4))
        if i == 8:
            cluster.submit(old, Work(CARDS, 1, 5))
        cluster.until(start + 2 * (i + 1))
        if old in cluster.started:
            break
    # What came in its first 40 s (four steps) stands before it: 24 jobs, two at a time, 15 s each at most.
    assert old in cluster.started, "it waited for 600 s"
