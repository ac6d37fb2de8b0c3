"""Launches under way never exceed the launch window, and all waiting jobs are launched when agents answer."""

from collections import Counter, defaultdict

from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.indexes.restless import is_under_way
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks.starting import TIMED_OUT
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.queueing.launch_window import FIRST_SIZE, Window
from tests.doubles.builders import World, every, offer, saved_of, spec
from tests.property.examples import examples

AGENTS = ("a1", "a2")
ENDS = ("register", "time out", "drop", "cut off")
ACTS = st.tuples(
    st.sampled_from(("submit", "gang", "offer", "offer", "wait", "restart", *ENDS, "register")),
    st.integers(0, 1),
    st.integers(1, FIRST_SIZE + 20),
)


class Paced:
    """A world that checks each launch against the launch window of its agent."""

    def __init__(self) -> None:
        self.world = World()
        self.world.register()
        self.number = 0

    def do(self, act: str, which: int, count: int) -> None:
        agent = AGENTS[which]
        match act:
            case "submit" | "gang":
                names = [f"j{self.number + n}" for n in range(count if act == "submit" else 1)]
                self.number += len(names)
                wanted = spec(gpus=0, cpus=0.01, tasks=count if act == "gang" else 1)
                self.check(self.world.feed(*(ev.JobSubmitted(JobId(name), wanted) for name in names)))
            case "offer":
                self.world.serial += 1
                self.check(self.world.offers(offer(f"o{self.world.serial}", agent, cpus=64, mem=1e6)))
            case "wait":
                self.check(self.world.tick(count / 2))
            case "restart":
                self.world.state = State.restored(self.world.now, saved_of(self.world.state))
                self.check(self.world.register())
            case _:
                for task in self.launched(agent)[:count]:
                    self.check(self.end(act, task))

    def launched(self, agent: str) -> list[Task]:
        tasks = (self.world.state.work.tasks[task_id] for task_id in self.world.state.work.live)
        return [t for t in tasks if t.agent_id == agent and is_under_way(t)]

    def end(self, how: str, task: Task) -> list[fx.Effect]:
        state, reason = {
            "register": ("TASK_RUNNING", ""),
            "time out": ("TASK_FAILED", TIMED_OUT),
            "drop": ("TASK_DROPPED", ""),
            "cut off": ("TASK_UNREACHABLE", ""),
        }[how]
        return self.world.status(task.id, state, agent=task.agent_id, reason=reason)

    def check(self, effects: list[fx.Effect]) -> None:
        state, now = self.world.state, self.world.now
        jobs = defaultdict[AgentId, Counter[JobId | None]](Counter)
        for task in map(state.work.tasks.__getitem__, state.work.live):
            if is_under_way(task):
                jobs[task.agent_id][task.job_id] += 1
        assert {a: sum(count.values()) for a, count in jobs.items()} == {
            a: len(tasks) for a, tasks in state.work.restless.under_way.items()
        }
        for agent_id in {item.task.agent_id for each in every(effects, fx.Launch) for item in each.tasks}:
            window, under_way = state.cluster.windows.get(agent_id, Window()), jobs[agent_id]
            assert len(under_way) == 1 or sum(under_way.values()) <= window.size, (agent_id, under_way)
            if len(under_way) == 1 and sum(under_way.values()) > window.size:
                assert state.work.jobs[next(iter(under_way)) or JobId("")].spec.tasks > 1
            assert state.cluster.nodes[agent_id].launch_not_before <= now, "it is backed off"

    def settle(self) -> None:
        """Let all agents answer, and run until nothing is left to do."""
        for _ in range(300):
            for agent in AGENTS:
                self.do("offer", AGENTS.index(agent), 1)
                for task in self.launched(agent):
                    self.check(self.end("register", task))
            for task in [self.world.state.work.tasks[task_id] for task_id in self.world.state.work.live]:
                if task.kill_sent_at is not None:
                    self.check(self.world.status(task.id, "TASK_KILLED", agent=task.agent_id))
            self.do("wait", 0, 2)
            if all(
                job.state is JobState.RUNNING or job.state.ended
                for job in self.world.state.work.jobs.values()
            ):
                return
        raise AssertionError(Counter(job.state for job in self.world.state.work.jobs.values()))


@examples(10, 25, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.lists(ACTS, min_size=5, max_size=20))
def test_launches_under_way_fit_the_window_and_all_is_launched_in_the_end(
    acts: list[tuple[str, int, int]],
) -> None:
    paced = Paced()
    for act in acts:
        paced.do(*act)
    paced.settle()
    states = Counter(job.state for job in paced.world.state.work.jobs.values())
    assert not states[JobState.PENDING]


def test_a_large_gang_starts_though_single_tasks_come_all_the_time() -> None:
    paced = Paced()
    paced.do("submit", 0, 30)
    paced.do("offer", 0, 1)
    paced.do("gang", 0, FIRST_SIZE + 10)
    gang = JobId(f"j{paced.number - 1}")
    for _ in range(20):
        paced.do("submit", 0, 10)
        paced.do("offer", 0, 1)
        paced.do("register", 0, 5)
        if paced.world.state.work.jobs[gang].state is not JobState.PENDING:
            break
    assert paced.world.state.work.jobs[gang].state is JobState.STARTING
    assert not any(t.state is TaskState.ABANDONED for t in paced.world.state.work.tasks.values())
    assert every(paced.world.tick(1), fx.Kill) == []
    assert AgentId("a1") in paced.world.state.work.restless.under_way
