"""The funnel adds up, and what it says is what the matcher does."""

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.step import step
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import GpuNodes, Job, JobState
from mesos_gpu.model.jobs.why import Stage, Why
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.offer import PortRange, Scalar
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.explain.why import QueueView, explain
from tests.doubles.builders import World, gpu, offer, request, seen, spec
from tests.property.examples import examples

NOW = 1000.0
MODELS = ("A100", "T4")


@dataclass(frozen=True)
class Card:
    """What matters of a GPU."""

    model: str = "A100"
    memory_mib: int = 40960
    capability: str | None = "8.0"
    health: Health = Health.OK
    held: bool = False  # of no meaning in a world

    def gpu(self, name: str) -> Gpu:
        """Make the card, under that name."""
        made = gpu(name, self.model, health=self.health)
        return replace(made, memory_mib=self.memory_mib, compute_capability=self.capability)


CARDS = st.builds(
    Card,
    st.sampled_from(MODELS),
    st.sampled_from((16384, 40960)),
    st.sampled_from((None, "7.5", "8.0")),
    st.sampled_from((Health.OK, Health.OK, Health.OK, Health.SICK)),
    st.booleans(),
)
WANTS = st.fixed_dictionaries(
    {
        "gpus": st.integers(0, 3),
        "cpus": st.sampled_from((0.5, 2.0, 4.0)),
        "gpu_model": st.sampled_from(((), ("T4",), MODELS)),
        "min_driver": st.sampled_from((None, None, "535")),
        "gpu_memory_mib": st.sampled_from((None, None, 40960)),
        "compute_capability": st.sampled_from((None, None, "8.0")),
        "disk_mib": st.sampled_from((0, 0, 0, 60)),
    }
)


def adds_up(why: Why, agents: int) -> int:
    """Check the funnel; how many agents are left."""
    assert len(why.nodes) == agents
    order = [list(Stage).index(row.reason) for row in why.funnel]
    assert order == sorted(set(order))
    left = agents
    for row in why.funnel:
        assert row.removed > 0
        left -= row.removed
        assert row.left == left
        assert row.example
    assert left >= 0
    return left


# --- the words alone


@st.composite
def node_views(draw: st.DrawFn, name: str) -> NodeCapacity:
    cards = draw(st.lists(CARDS, max_size=4))
    gpus = tuple(card.gpu(f"{name}-g{i}") for i, card in enumerate(cards))
    offered = draw(st.booleans())
    amounts = Resources(
        cpus=draw(st.sampled_from((1.0, 4.0, 16.0))),
        mem_mib=draw(st.sampled_from((64.0, 4096.0))),
        gpus=draw(st.integers(0, 4)),
        disk_mib=draw(st.sampled_from((0.0, 100.0))),
    )
    ports = draw(st.sampled_from(((), *((PortRange(31000, 31000 + n),) for n in range(3)))))
    return seen(
        NodeCapacity(AgentId(name), name),
        free=amounts if offered else Resources(),
        offered=offered,
        ports=ports if offered else None,
        installed=gpus,
        holders={gpu.id: "j" for gpu, card in zip(gpus, cards, strict=True) if card.held},
        lost=draw(st.sampled_from(("", "", "", "the master lost it"))),
        silent=draw(st.sampled_from(("", "", "", "its monitor is silent"))),
        drained=draw(st.sampled_from(("", "", "", "is drained"))),
        driver=draw(st.sampled_from((None, "470.82", "550.54"))),
        barred=draw(st.sampled_from(("", "", "violates"))),
    )


@examples(60, 200)
@given(st.data(), WANTS, st.integers(0, 4), st.integers(1, 4), st.sampled_from(("", "", "lab is full")))
def test_the_funnel_adds_up(
    data: st.DataObject, want: dict[str, object], agents: int, tasks: int, limit: str
) -> None:
    nodes = [data.draw(node_views(f"n{i}")) for i in range(agents)]
    made = spec(**want, tasks=tasks)
    job = Job(JobId("j1"), made, NOW, 1)
    ask = request(
        made.cpus,
        made.mem_mib,
        made.gpus,
        made.gpu_model,
        made.min_driver,
        disk_mib=made.disk_mib,
        memory_mib=made.gpu_memory_mib,
        compute_capability=made.compute_capability,
    )
    why = explain(job, ask, nodes, queue=QueueView(0, limit), now=NOW)
    left = adds_up(why, agents)
    assert (left > 0) == (why.summary == "it fits now, and is about to be launched")
    assert why.can_ever_run or not left
    assert (why.tasks_fit is None) == (tasks == 1)
    if why.tasks_fit is not None:
        assert (why.tasks_fit == tasks) == (
            left > 0 or [r.reason for r in why.funnel][-1:] == [Stage.QUEUE_LIMIT]
        )
    assert why.nearest is None or why.nearest.missing == "has room for it" or left == 0 or limit or tasks > 1


# --- beside the matcher

DRIVERS = st.sampled_from((None, "470.82", "550.54"))
PLACES = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(("default", "lab")),
        "priority": st.integers(0, 2),
        "timeout_s": st.sampled_from((None, 60.0)),
        "app": st.sampled_from((None, "web")),
        "constraints": st.sampled_from(((), (), (Constraint("hostname", Operator.UNIQUE),))),
        "away": st.sampled_from((None, None, None, "web")),
        "tasks": st.sampled_from((1, 1, 2, 3)),
    }
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A few nodes that run something, some of it drained; and jobs that wait."""
    limits: dict[str, int] = draw(st.sampled_from(({}, {"lab": 2})))
    world = World(Settings.of("e", "m", queue_limits=limits, gpu_nodes=draw(st.sampled_from(GpuNodes))))
    world.register()
    agents = [f"a{i}" for i in range(draw(st.integers(1, 4)))]
    for agent in agents:
        cards = draw(st.lists(CARDS, max_size=4))
        gpus = [card.gpu(f"{agent}g{i}") for i, card in enumerate(cards)]
        if gpus:
            world.node(agent, *gpus, cpus=draw(st.sampled_from((3, 8))), driver=draw(DRIVERS))
        else:
            world.offers(offer(f"{agent}-o", agent))
    if draw(st.integers(0, 4)) == 0:
        world.feed(ev.DrainRequested(Target.NODE, "a0.example", "new fan"))
    for i in range(draw(st.integers(0, 6))):
        world.submit(f"w{i}", **draw(WANTS), **draw(PLACES))
        agent = draw(st.sampled_from(agents))
        more = offer(f"o{i}", agent, cpus=draw(st.sampled_from((1, 4, 9))), gpus=draw(st.integers(0, 4)))
        disk = Scalar("disk", draw(st.sampled_from((50.0, 60.0, 130.0))))
        ports = draw(st.sampled_from(((), (PortRange(31000, 31001),), more.ports)))
        world.offers(replace(more, ports=ports, resources=(*more.resources, disk)))
    if draw(st.booleans()):
        world.now += 5.0
    return world


@examples(20, 100)
@given(worlds(), WANTS, PLACES)
def test_funnel_has_room_exactly_if_the_matcher_launches(
    world: World, want: dict[str, object], place: dict[str, object]
) -> None:
    world.feed()
    for job in list(world.state.work.jobs.values()):
        if job.state is JobState.PENDING:
            why = explain_job(View(world.state, world.settings, world.now), job.id)
            assert adds_up(why, len(world.state.cluster.nodes)) == 0, "what fits has been launched"
    step(world.state, ev.JobSubmitted(JobId("new"), spec(**want, **place)), world.now, world.settings)
    why = explain_job(View(world.state, world.settings, world.now), JobId("new"))
    left = adds_up(why, len(world.state.cluster.nodes))
    step(world.state, ev.Match(), world.now, world.settings)
    assert (world.job("new").state is JobState.STARTING) == (left > 0), why
    assert (why.summary == "it fits now, and is about to be launched") == (left > 0)
    assert why.can_ever_run or not left
