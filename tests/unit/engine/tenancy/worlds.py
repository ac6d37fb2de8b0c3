"""Bare engines with a tree of queues."""

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.step import step
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tenancy import DEFAULT_POOL, Guarantee, QueueDocument, QueueSpec
from tests.doubles.builders import World, gpu, offer, spec


def owed(gpus: float) -> dict[str, Guarantee]:
    """A guarantee of so many GPUs."""
    return {DEFAULT_POOL: Guarantee(round(gpus * 1000))}


def most(gpus: float) -> dict[str, int]:
    """A limit of so many GPUs."""
    return {DEFAULT_POOL: round(gpus * 1000)}


def tree_world(
    queues: dict[str, QueueSpec], *, settings: Settings | None = None, **document: object
) -> World:
    """A registered engine with that document."""
    world = World(settings or Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf")))
    world.register()
    apply(world, queues, **document)
    return world


def apply(world: World, queues: dict[str, QueueSpec], **document: object) -> None:
    """A new version of the document."""
    made = QueueDocument(queues=queues, **document)  # type: ignore[arg-type]
    world.feed(ev.QueuesChanged(made, world.state.quota.queues.version))


def node(world: World, name: str, gpus: int, model: str = "A100") -> None:
    """A node comes up with so many free GPUs."""
    world.node(name, *(gpu(f"{name}-{i}", model) for i in range(gpus)), cpus=100)


def again(world: World, name: str, gpus: int) -> None:
    """Offer again what is left of a node."""
    world.serial += 1
    world.offers(offer(f"{name}-q{world.serial}", name, cpus=50, gpus=gpus))


def running(world: World) -> set[str]:
    """The jobs that hold something."""
    return {
        str(job.id)
        for job in world.state.work.jobs.values()
        if job.state in (JobState.STARTING, JobState.RUNNING, JobState.KILLING)
    }


def submit_all(world: World, *jobs: tuple[str, str, int], **more: object) -> None:
    """Jobs, each with its queue and GPUs, of which none is matched before all are there."""
    for name, queue, gpus in jobs:
        wanted = spec(queue=queue, gpus=gpus, cpus=0.1, **more)
        step(world.state, ev.JobSubmitted(JobId(name), wanted), world.now, world.settings)
