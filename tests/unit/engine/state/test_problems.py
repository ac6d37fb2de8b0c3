"""Invariants of the state: a sound one has no problem; what is broken in it is said, and nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.indexes.agents import Held
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.drain import Card, Reset
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Scalar
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos.reservations import LABEL
from tests.doubles.builders import World, gpu, offer, spec
from tests.doubles.problems import problems

A1, A2 = AgentId("a1"), AgentId("a2")
G0, G1, G2, G3 = map(GpuId, ("g0", "g1", "g2", "g3"))
ARRAY, MEMBER, DRAFT = JobId("sweep-0a1b"), JobId("sweep.0-0a1b"), JobId("sweep.1-0a1b")
HALF = Share(500, 1000, 1000, Method.TURNS)
KEPT = Scalar("gpus", 1, f'{{"reservation":{{"labels":{{"labels":[{{"key":"{LABEL}","value":"fw-1"}}]}}}}}}')
J1 = TaskId("j1.1")


def unowned(name: str, **fields: object) -> Task:
    """A task of no job, unless `fields` say of which."""
    return replace(Task(TaskId(name), A1, name, None, TaskState.RUNNING, 1000.0), **fields)  # type: ignore[arg-type]


def sound() -> State:
    """A state with some of each thing that is looked at, among them what looks broken and is not."""
    world = World()
    world.register()
    world.node("a1", gpu("g0"), cpus=8)
    world.submit("j1", gpus=1, cpus=1)
    world.feed(ev.JobSubmitted(ARRAY, spec(name="sweep", array="0-9%3", cpus=5)))
    world.offers(offer("a1-q", "a1", cpus=5.5))
    world.submit("j2", gpus=64)
    world.submit("j3", gpus=64)
    world.feed(ev.KillRequested(JobId("j3")))
    state = world.state
    state.set_job(replace(world.job("j3"), task_id=TaskId("j3.1")))
    known = state.cluster.nodes[A1]
    cards = gpu("g0"), gpu("g1"), replace(gpu("g2"), sharing=Sharing(2000)), gpu("g3")
    state.cluster.set_node(replace(known, agent_url="http://a1", inventory=Inventory(cards, "simulated")))
    for agent, lost_at in (("a2", 5.0), ("a3", None)):
        state.cluster.set_node(Node(AgentId(agent), "a2", "http://a2", lost_at=lost_at))
    state.cluster.hold_offer(offer("o1", "a1"))
    state.cluster.hold_offer(replace(offer("o2", "a2"), resources=(KEPT,)))
    for task in (
        unowned("j3.1", job_id=JobId("j3"), state=TaskState.ABANDONED),
        unowned("s1", gpus=(G2,), share=HALF),
        unowned("s2", gpus=(G2,), share=HALF),
        unowned("c1", covers=G2),
        unowned("was", gpus=(G0, G1), state=TaskState.FINISHED),
        unowned("had", gpus=(G0,), share=HALF, covers=G0, state=TaskState.FAILED),
    ):
        state.set_task(task)
    state.gpus.set_card(Card(G0, reset=Reset("r", "why", "", 1000.0)))
    state.gpus.set_card(Card(G1))
    return state


def change_array(state: State, **fields: object) -> None:
    """Change the array beside the indexes."""
    state.work.arrays[ARRAY] = replace(state.work.arrays[ARRAY], **fields)  # type: ignore[arg-type]


def abandon(state: State) -> None:
    """Give up the only task of j1, which says that it runs."""
    state.set_task(replace(state.work.tasks[J1], state=TaskState.ABANDONED))


def hold_twice(state: State) -> None:
    """Let a task hold what another one holds."""
    state.set_task(unowned("x1", gpus=(G0,)))


def cover_twice(state: State) -> None:
    """Let two tasks cover one card."""
    state.set_task(unowned("c2", covers=G2))


def hold_shared(state: State) -> None:
    """Let a task hold a shared card wholly."""
    state.set_task(unowned("x1", gpus=(G2,)))


def overdraw(state: State) -> None:
    """Grant more memory of a card than it has."""
    state.set_task(unowned("s3", gpus=(G2,), share=HALF))


def end_with_live_task(state: State) -> None:
    """End a job whose task lives."""
    state.work.jobs[JobId("j1")] = replace(state.work.jobs[JobId("j1")], state=JobState.FINISHED)


def number_first(state: State) -> None:
    """Put an agent's offer before an older one."""
    own = state.cluster.agents.offers[A2]
    own[OfferId("o2")] = Held(0, own[OfferId("o2")].offer)


def offer_other(state: State) -> None:
    """Hold another offer by agent than by id."""
    own = state.cluster.agents.offers[A1]
    own[OfferId("o1")] = Held(own[OfferId("o1")].number, offer("o1", "a1", cpus=1))


BROKEN: list[tuple[str, Callable[[State], object], list[str]]] = [
    ("a card is held twice", hold_twice, ["g0 is held by j1.1 and x1"]),
    ("a holder is missing", lambda state: state.gpus.holders.clear(), ["holders {}"]),
    ("the queue is another", lambda state: state.work.queue.reverse(), ["the queue is"]),
    ("a reset is missing", lambda state: state.gpus.resets.clear(), ["resets []"]),
    ("a reset is too many", lambda state: state.gpus.resets.update({G1: None}), ["resets ['g0', 'g1']"]),
    ("a job has no task", abandon, ["job j1 is starting without a live task"]),
    ("an ended job has one", end_with_live_task, ["job j1 is finished, but j1.1 lives"]),
    (
        "a member is missing",
        lambda state: state.work.members.jobs[ARRAY].popitem(),
        ["members of arrays are"],
    ),
    ("an array is missing", lambda state: state.work.members.jobs.clear(), ["members of arrays are"]),
    (
        "a place is in two sets",
        lambda state: change_array(state, finished=((5, 5),)),
        ["array sweep-0a1b counts a task twice", "array sweep-0a1b has lost tasks"],
    ),
    (
        "a place is in no set",
        lambda state: change_array(state, left=((1, 8),)),
        ["array sweep-0a1b has lost tasks", "array sweep-0a1b: 8 wait without a job"],
    ),
    (
        "a draft is missing",
        lambda state: state.work.members.drafts.clear(),
        [
            "drafts of array sweep-0a1b are [], and should be ['sweep.1-0a1b']",
            "array sweep-0a1b has lost tasks",
            "array sweep-0a1b: 8 wait without a job",
        ],
    ),
    (
        "the count of an array is another",
        lambda state: state.work.members.unmade.clear(),
        ["array sweep-0a1b: 0 wait without a job"],
    ),
    ("a share is missing", lambda state: state.gpus.sharers[G2].popitem(), ["sharers {"]),
    ("a share is of no card", lambda state: state.gpus.sharers.update({G3: {}}), ["sharers {"]),
    ("a cover is missing", lambda state: state.gpus.covers.clear(), ["covers {}"]),
    ("a card is covered twice", cover_twice, ["g2 is covered by c1 and c2"]),
    ("a card is shared and held", hold_shared, ["g2 is held by x1 wholly, and shared"]),
    ("a card is overdrawn", overdraw, ["g2 has 2000 MiB for shares, and 3000 are granted"]),
    (
        "a reserved agent is missing",
        lambda state: state.cluster.agents.reserved.clear(),
        ["agents reserved are []"],
    ),
    (
        "an unwatched agent is missing",
        lambda state: state.cluster.agents.unwatched.clear(),
        ["agents unwatched are []"],
    ),
    ("a lost agent is missing", lambda state: state.cluster.agents.lost.clear(), ["agents lost are []"]),
    ("offers have another order", number_first, ["offers by agent are"]),
    ("an offer is another", offer_other, ["offers by agent are"]),
    ("a place is missing", lambda state: state.cluster.agents.places.popitem(), ["agents by place are"]),
    (
        "a crowded place is missing",
        lambda state: state.cluster.agents.crowded.clear(),
        ["agents by place are"],
    ),
    (
        "a named card is missing",
        lambda state: state.cluster.agents.naming.popitem(),
        ["agents that name a GPU are"],
    ),
    (
        "live tasks have another order",
        lambda state: state.work.live.update({J1: state.work.live.pop(J1)}),
        ["live tasks"],
    ),
    (
        "a restless task is missing",
        lambda state: state.work.restless.tasks.clear(),
        ["restless tasks are []"],
    ),
    (
        "a preemptible task is too many",
        lambda state: state.work.restless.preemptible.add(J1),
        ["restless preempt"],
    ),
    (
        "a limited task is too many",
        lambda state: state.work.restless.limited.add(J1),
        ["restless limited are"],
    ),
    (
        "an unkilled task is too many",
        lambda state: state.work.restless.unkilled.update({A1: {J1}}),
        ["restless unk"],
    ),
]


def test_sound_state_has_no_problems() -> None:
    assert problems(sound()) == []


@pytest.mark.parametrize(("spoil", "said"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_problem_of_a_broken_state_is_said_alone(spoil: Callable[[State], object], said: list[str]) -> None:
    state = sound()
    spoil(state)
    assert [words[: len(start)] for words, start in zip(problems(state), said, strict=True)] == said
