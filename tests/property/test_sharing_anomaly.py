"""HiveD's anomaly, for any small cluster: with shapes a queue's gang waits no longer among others than were the queue
alone on its nodes, beyond notice, grace and minimum run time.

What runs ends at a time of its own, early or late, and may be stopped; the queue's own jobs fit when they come.
"""

from dataclasses import dataclass

from hypothesis import assume, event, given
from hypothesis import strategies as st

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tenancy import MinRuntime
from tests.doubles.builders import offer
from tests.property.examples import examples
from tests.unit.engine.tenancy.lending import Tenants, queue, shapes

GRACE_S = 2.0
MATCHES_S = (
    15.0  # what is free has been offered, and two matches: one stops and moves jobs, one starts the gang
)
END_S = 60  # by then everything has ended but what comes last


@dataclass(frozen=True)
class Coming:
    """A job: when it comes and when it ends, in s from the start; endless: it is not ended."""

    name: str
    queue: str
    gpus: int
    at: int
    ends: int
    tasks: int = 1


@dataclass(frozen=True)
class Story:
    """A cluster, what `team` is guaranteed of it, and who comes."""

    nodes: int
    gpus: int  # of each node
    own: int  # nodes of team; the others are guaranteed to `other`
    notice_s: int
    least_s: int  # the minimum run time of who borrows
    jobs: tuple[Coming, ...]

    @property
    def gang(self) -> Coming:
        """The last job of the team."""
        return self.jobs[-1]


class Agents(Tenants):
    """Agents whose GPUs are all held offer their CPUs still."""

    def offer_again(self) -> list[fx.Effect]:
        """Offer what is free."""
        effects = super().offer_again()
        idle = self.state.cluster.nodes.keys() - {
            held.agent_id for held in self.state.cluster.offers.values()
        }
        for agent_id in sorted(idle):
            self.serial += 1
            effects += self.offers(offer(f"r{self.serial}", agent_id, cpus=32))
        return effects


@st.composite
def stories(draw: st.DrawFn) -> Story:
    nodes, gpus = draw(st.integers(2, 4)), draw(st.sampled_from([2, 4]))
    own = draw(st.integers(1, nodes - 1))
    last = draw(st.integers(10, 30))
    jobs = []
    for i in range(draw(st.integers(2, 10))):
        name, team = f"j{i}", draw(st.booleans())
        at = draw(st.integers(0, last - 1 if team else last + 5))
        ends = draw(st.integers(at + 1, END_S))
        jobs.append(Coming(name, "team" if team else "other", draw(st.integers(1, gpus)), at, ends))
    size = draw(st.integers(1, gpus))
    tasks = draw(st.integers(1, own * (gpus // size)))
    gang = Coming("gang", "team", size, last, 10**6, tasks)
    return Story(
        nodes, gpus, own, draw(st.sampled_from([0, 10])), draw(st.sampled_from([0, 15])), (*jobs, gang)
    )


def start_of(story: Story, *, alone: bool) -> int | None:
    """Play a story; in how many seconds from its start the gang starts; None: a job of the team had to wait, alone."""
    world = Agents()
    world.register()
    world.agents(story.own if alone else story.nodes, story.gpus)
    protects = MinRuntime(story.least_s, story.least_s)
    team = queue(shapes(story.own, story.gpus), min_runtime_s=protects, notice_s=story.notice_s)
    other = queue(
        shapes(story.nodes - story.own, story.gpus), min_runtime_s=protects, notice_s=story.notice_s
    )
    world.document(**{"team": team} if alone else {"team": team, "other": other})
    jobs = [job for job in story.jobs if job.queue == "team" or not alone]
    for second in range(END_S * 3):
        for job in jobs:
            if job.ends == second:
                _ends(world, job)
        for job in jobs:
            if job.at == second:
                world.submit(
                    job.name, queue=job.queue, gpus=job.gpus, tasks=job.tasks, preemptible=True,
                    notice_s=story.notice_s, kill_grace_s=GRACE_S,
                )  # fmt: skip
        world.offer_again()
        world.passes(1)
        world.tick(0.01)
        world.obeys()
        world.starts()
        if second >= story.gang.at and world.job("gang").state is JobState.RUNNING:
            return second
        waits = (world.job(job.name).state is JobState.PENDING for job in jobs if job.at == second)
        if alone and second < story.gang.at and any(waits):
            return None
    return END_S * 3


def _ends(world: Tenants, job: Coming) -> None:
    if world.job(job.name).state is JobState.RUNNING:
        world.ends(job.name)
    elif not world.job(job.name).state.ended:
        world.feed(ev.KillRequested(JobId(job.name)))


@examples(2, 10)
@given(stories())
def test_a_gang_waits_no_longer_than_alone(story: Story) -> None:
    alone = start_of(story, alone=True)
    assume(alone is not None)
    assert alone is not None
    shared = start_of(story, alone=False)
    assert shared is not None
    waits = "waits" if alone > story.gang.at + 5 else "starts at once"
    event(f"{waits} alone, {'later' if shared > alone + 1 else 'no later'} among others")
    assert shared <= alone + story.notice_s + GRACE_S + story.least_s + MATCHES_S, (alone, shared)
