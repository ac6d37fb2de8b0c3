"""Invariants of the state after each step, which tests and `simulate chaos` assert."""

from dataclasses import replace

from mesos_gpu.engine.indexes.agents import Agents, Place, agents_of
from mesos_gpu.engine.indexes.arrays import overlaps
from mesos_gpu.engine.state import State
from mesos_gpu.model.arrays.indexes import count, has
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.mount import persistent_of
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.policy.sharing.overdrawn import overdrawn


def problems(state: State) -> list[str]:
    """Return the violated invariants of a state, in words."""
    problems_found = [*_problems_of_shares(state), *_problems_of_agents(state), *_problems_of_tasks(state)]
    problems_found += _problems_of_arrays(state)
    problems_found += _problems_of_volumes(state)
    held: dict[GpuId, TaskId] = {}
    for task in state.work.tasks.values():
        if task.ended:
            continue
        for gpu in task.gpus if task.share is None else ():
            if gpu in held:
                problems_found.append(f"{gpu} is held by {held[gpu]} and {task.id}")
            held[gpu] = task.id
    if held != state.gpus.holders:
        problems_found.append(f"holders {state.gpus.holders} are not what the tasks hold: {held}")
    pending = sorted((j.sequence, j.id) for j in state.work.jobs.values() if j.state is JobState.PENDING)
    if pending != state.work.queue:
        problems_found.append(f"the queue is {state.work.queue}, pending are {pending}")
    if set(state.gpus.resets) != {card.id for card in state.gpus.cards.values() if card.reset is not None}:
        problems_found.append(f"resets {list(state.gpus.resets)} are not those of the cards")
    for job in state.work.jobs.values():
        # An abandoned launch may outlive its job: it is killed when its agent is back.
        alive = (t for t in state.work.tasks_of(job.id) if not t.ended and t.state is not TaskState.ABANDONED)
        running = [t.id for t in alive if state.work.current(t) is job]
        if job.state is not JobState.PENDING and not job.state.ended and not running:
            problems_found.append(f"job {job.id} is {job.state.value} without a live task")
        if job.state.ended and running:
            problems_found.append(f"job {job.id} is {job.state.value}, but {running[0]} lives")
    return problems_found


def _problems_of_volumes(state: State) -> list[str]:
    """Return problems of volumes: two jobs, no record, no job, or one name twice for an owner."""
    problems_found, users, names = list[str](), dict[str, JobId](), set[tuple[str, str]]()
    for volume in state.work.volumes.values():
        if volume.is_named and not volume.unwanted:
            if (volume.owner, volume.name) in names:
                problems_found.append(f"{volume.owner} has two volumes {volume.name}")
            names.add((volume.owner, volume.name))
        if not volume.is_named and volume.job_id not in state.work.jobs:
            problems_found.append(f"the job {volume.job_id} of volume {volume.id} is forgotten")
    for job in state.work.jobs.values():
        for mount in persistent_of(job.spec.mounts) if not job.state.ended else ():
            if mount.source not in state.work.volumes:
                problems_found.append(f"there is no record of volume {mount.source} of {job.id}")
            if not mount.volume and (other := users.setdefault(mount.source, job.id)) != job.id:
                problems_found.append(f"{job.id} and {other} have volume {mount.source}")
    return problems_found


def _problems_of_arrays(state: State) -> list[str]:
    """Return differences between the indexes of arrays and the jobs of the state."""
    problems_found, members = list[str](), state.work.members
    live: dict[JobId, set[JobId]] = {}
    for job in state.work.jobs.values():
        if job.array is not None and not job.state.ended:
            live.setdefault(job.array, set()).add(job.id)
    if live != {array_id: set(jobs) for array_id, jobs in members.jobs.items()}:
        problems_found.append(f"members of arrays are {members.jobs}, and should be {live}")
    for array in state.work.arrays.values():
        members_alive = live.get(array.id, set())
        if overlaps(array):
            problems_found.append(f"array {array.id} counts a task twice")
        drafts = members.drafts.get(array.id, {})
        places = {
            array.indexes.position(state.work.jobs[job_id].index or 0): job_id for job_id in members_alive
        }
        over = {each for place, each in places.items() if place is not None and has(array.left, place)}
        if over != set(drafts):
            problems_found.append(
                f"drafts of array {array.id} are {sorted(drafts)}, and should be {sorted(over)}"
            )
        counts = array.counts(0, len(members_alive) - len(drafts))
        if counts.waiting + counts.finished + counts.failed + counts.killed != counts.tasks:
            problems_found.append(f"array {array.id} has lost tasks: {counts}")
        if members.unmade.get(array.id, 0) != count(array.left) - len(drafts):
            problems_found.append(f"array {array.id}: {members.unmade.get(array.id, 0)} wait without a job")
    return problems_found


def _problems_of_shares(state: State) -> list[str]:
    """Return problems of shared GPUs.

    The compute that may be promised is not checked, as an operator may change it while shares run.
    """
    problems_found: list[str] = []
    sharers: dict[GpuId, dict[TaskId, Share]] = {}
    covers: dict[GpuId, TaskId] = {}
    for task in state.work.tasks.values():
        if task.ended:
            continue
        if (share := task.counted_share) is not None:
            for gpu in task.gpus:
                sharers.setdefault(gpu, {})[task.id] = share
        if task.covers is not None:
            if task.covers in covers:
                problems_found.append(f"{task.covers} is covered by {covers[task.covers]} and {task.id}")
            covers[task.covers] = task.id
    if sharers != state.gpus.sharers:
        problems_found.append(f"sharers {state.gpus.sharers} are not what the tasks share: {sharers}")
    if covers != state.gpus.covers:
        problems_found.append(f"covers {state.gpus.covers} are not what the tasks cover: {covers}")
    for gpu in {**sharers, **covers}:
        if gpu in state.gpus.holders:
            problems_found.append(f"{gpu} is held by {state.gpus.holders[gpu]} wholly, and shared")
    gpus_by_id = (
        {gpu.id: gpu for node in state.cluster.nodes.values() for gpu in node.gpus} if sharers else {}
    )
    for gpu, shares in sharers.items():
        card = gpus_by_id.get(gpu)
        problems_found += overdrawn(gpu, card.sharing if card else None, list(shares.values()))
    return problems_found


def _problems_of_agents(state: State) -> list[str]:
    """Return differences between the indexes of agents and the nodes and offers of the state."""
    cluster = state.cluster
    rebuilt, index = agents_of(cluster.nodes.values(), cluster.offers.values()), cluster.agents
    problems_found: list[str] = []
    for name in ("reserved", "unwatched", "lost"):
        if (indexed := set(getattr(index, name))) != (expected := set(getattr(rebuilt, name))):
            problems_found.append(f"agents {name} are {sorted(indexed)}, and should be {sorted(expected)}")
    if _offers(index) != _offers(rebuilt):
        problems_found.append(f"offers by agent are {_offers(index)}, and should be {_offers(rebuilt)}")
    if _places(index) != _places(rebuilt):
        problems_found.append(f"agents by place are {index.places}, and should be {rebuilt.places}")
    if _names(index) != _names(rebuilt):
        problems_found.append(f"agents that name a GPU are {index.naming}, and should be {rebuilt.naming}")
    return problems_found


def _offers(agents: Agents) -> list[list[Offer]]:
    """Return the offers of agents in their order, for a comparison."""
    return [[held.offer for held in agents.offers[a].values()] for a in agents.in_order(agents.offers)]


def _places(agents: Agents) -> tuple[dict[Place, set[AgentId]], set[Place]]:
    """Return the agents at each address, and the addresses with several, for a comparison."""
    return {place: set(there) for place, there in agents.places.items()}, set(agents.crowded)


def _names(agents: Agents) -> dict[GpuId, set[AgentId]]:
    """Return the agents whose reports name each GPU, for a comparison."""
    return {gpu_id: set(named) for gpu_id, named in agents.naming.items()}


def _problems_of_tasks(state: State) -> list[str]:
    """Return differences between the index of live tasks and the tasks of the state."""
    rebuilt, index = replace(state.work, made_restless=None).restless, state.work.restless
    problems_found: list[str] = []
    if (order := index.in_order(index.numbers)) != list(state.work.live):
        problems_found.append(f"live tasks in order are {order}, and should be {list(state.work.live)}")
    for name in ("on", "tasks", "preemptible", "limited", "unkilled"):
        if (indexed := getattr(index, name)) != (expected := getattr(rebuilt, name)):
            problems_found.append(f"restless {name} are {sorted(indexed)}, and should be {sorted(expected)}")
    return problems_found
