"""The node that is kept for a blocked job, against a look at each node, model, and number of ends."""

from dataclasses import replace

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.capacity.fit import room_for, share_for, soonest
from mesos_gpu.policy.capacity.node import NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.reservation import reserve
from tests.doubles.builders import gpu, request, spec
from tests.unit.policy.worlds import NOW, worlds

JOB = Job(JobId("big"), spec(name="big"), NOW, 1)


def first_end(request: Request, node: NodeCapacity, model: str | None) -> int | None:
    """After how many ends there is room."""
    ready = (node.without(node.allocations[:ended]) for ended in range(len(node.allocations) + 1))
    return next((ended for ended, then in enumerate(ready) if room_for(request, then, model).slots), None)


def plainly_reserved(
    request: Request, nodes: list[NodeCapacity], taken: list[Reservation]
) -> Reservation | None:
    every = []
    for number, node in enumerate(nodes):
        left = node.keeping(taken)
        models = request.gpu.models or sorted({gpu.model for gpu in node.installed})
        for choice, model in enumerate(models if request.gpu.count else (None,)):
            ended = first_end(request, left, model)
            if ended is not None:
                at = max([NOW, *(held.ends_at for held in left.allocations[:ended])])
                rank = at, ended, node.hostname, str(node.agent_id), number, choice
                every.append((rank, left, model, ended))
    if not every:
        return None
    (at, *_), node, model, ended = min(every, key=lambda each: each[0])
    ready = node.without(node.allocations[:ended])
    kept = Reservation(JOB.id, JOB.spec.queue, request.resources, at, node.agent_id, node.hostname,
                       awaited=node.allocations[:ended])  # fmt: skip
    if request.gpu.share is None:
        gpus = [gpu.id for group in ready.usable(request.gpu, model) for gpu in group]
        last = gpus[len(gpus) - request.gpu.count :]
        return replace(kept, gpus=frozenset(last), spare=ready.free - request.resources)
    chosen = share_for(request, ready, model)
    assert chosen is not None
    assert chosen.share is not None
    after = ready.minus(request.resources, chosen.gpus, chosen.share)
    is_open = {part.gpu_id for part in node.parts}
    shares = tuple((gpu_id, chosen.share) for gpu_id in chosen.gpus if gpu_id in is_open)
    return replace(
        kept,
        gpus=frozenset(chosen.gpus) - is_open,
        spare=after.free,
        shares=shares,
        beside=tuple(part for part in after.parts if part.gpu_id in dict(shares)),
    )


def test_blocked_jobs_are_kept_the_node_that_a_look_at_all_finds() -> None:
    reserved = 0
    for world in worlds(80):
        nodes, taken = world.nodes(), list[Reservation]()
        for _ in range(3):
            request = world.request()
            kept = reserve(JOB, request, nodes, taken, now=NOW)
            assert kept == plainly_reserved(request, nodes, taken), world.seed
            if kept is not None:
                taken.append(kept)
                reserved += 1
    assert reserved > 60


def test_soonest_room_comes_after_as_many_ends_as_a_look_at_each_finds() -> None:
    for world in worlds(80):
        for node in world.nodes():
            request = world.request()
            new_enough = as_new_as(node.driver, request.min_driver)
            for model in request.gpu.models or node.models or (None,):
                if not new_enough and request.gpu.share is None:
                    continue  # that is for `room_for` to say
                ended = first_end(request, node, model)
                for latest in (90.0, 120.0, 1e9, float("inf")):
                    for most in (0, 1, 2, 99):
                        last = node.allocations[ended - 1].ends_at if ended else 0.0
                        within = ended is not None and (not ended or (last, ended) <= (latest, most))
                        want = ended if within else None
                        assert soonest(request, node, model, (latest, most)) == want, world.seed


BOTH = NodeCapacity(AgentId("a"), "n", Resources(cpus=9, mem_mib=999, gpus=2), (gpu("g0"), gpu("g1", "T4")))


def test_reservation_is_of_the_first_model_that_a_job_names_of_those_free_as_soon() -> None:
    def model_kept(*models: str) -> set[str]:
        kept = reserve(JOB, request(1, 1, 1, models), [BOTH], now=NOW)
        assert kept is not None
        return {card.model for card in BOTH.gpus if card.id in kept.gpus}

    assert [model_kept("T4", "A100"), model_kept("A100", "T4"), model_kept()] == [{"T4"}, {"A100"}, {"A100"}]


def test_node_whose_ports_never_do_is_not_kept() -> None:
    wish = PortWish("web", 80, 31_005)
    ask = replace(request(1, 1), ports=(wish,))
    other = replace(BOTH, agent_id=AgentId("b"), hostname="o", ports=(PortRange(31_005, 31_005),))
    first = replace(BOTH, ports=(PortRange(31_000, 31_004),))
    assert reserve(JOB, ask, [first], now=NOW) is None
    kept = reserve(JOB, ask, [first, other], now=NOW)
    assert kept is not None
    assert kept.agent_id == "b"
