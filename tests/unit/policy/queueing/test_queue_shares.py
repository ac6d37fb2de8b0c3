"""Shares of GPUs in the queue: what limits count, and what is kept of a card."""

from dataclasses import replace

from mesos_gpu.engine.indexes.charges import ALL
from mesos_gpu.engine.match.ledger import Ledger
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.reading.jobs import explain_job, queue_uses, waiting_jobs
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.model.shares.card import Ability, Sharing
from tests.doubles.builders import gpu, offer, saved_of
from tests.unit.policy.queueing.test_queue import pending, view, world


def test_limit_counts_shares_in_thousandths() -> None:
    made = world(agents=0, queue_limits={"lab": 1})
    made.submit("a", gpus=1, gpu_milli=250, queue="lab")
    made.submit("b", gpus=1, gpu_milli=500, queue="lab")
    made.submit("c", gpus=1, gpu_milli=251, queue="lab")
    made.submit("two", gpus=1, gpu_compute_pct=51, gpu_memory_mib=10, queue="lab", tasks=2)
    backlog = Backlog(made.state, made.settings, made.now, lambda _: NOTHING)
    assert backlog.held is not None
    ledger = Ledger(backlog.held, backlog.reservations)
    for name in ("a", "b"):
        assert not backlog.barriers.over_limit(made.job(name))
        ledger.take(
            Take(AgentId("a0"), made.job(name), request_of(made.job(name), made.settings, made.state))
        )
    assert backlog.held.sums.users["lab", ALL] == 750
    assert backlog.barriers.over_limit(made.job("c"))
    ledger.rollback(1)
    assert not backlog.barriers.over_limit(made.job("c"))
    assert explain_job(view(made), JobId("two")).summary == ("queue lab may hold 1 GPU, and it asks for 1.02")
    assert [(use.limit_gpus, use.used_gpus) for use in queue_uses(view(made))] == [(1, 0)]


def test_limit_lets_so_many_shares_start_and_says_what_they_hold() -> None:
    made = world(agents=0, queue_limits={"lab": 1})
    sharing = Sharing(80_000, ((Ability.SHIM, ""),))
    made.node("a1", *(replace(gpu(f"s{i}"), sharing=sharing) for i in range(2)))
    for n in range(5):
        made.submit(f"j{n}", gpus=1, gpu_milli=250, queue="lab", timeout_s=100 * (n + 1))
        made.offers(offer(f"x{n}", "a1", cpus=8, gpus=1))
    made.submit("free", gpus=1, gpu_milli=250)
    made.submit("whole", gpus=1, queue="lab")
    assert pending(made) == {"j4", "whole"}
    (use,) = [use for use in queue_uses(view(made)) if use.name == "lab"]
    assert (use.limit_gpus, use.used_gpus, use.waiting) == (1, 1, 2)
    assert (
        explain_job(view(made), JobId("j4")).summary
        == "waits for its queue: queue lab may hold 1 GPU, and holds 1"
    )
    waits = waiting_jobs(view(made), 2)
    assert [
        (each.job.id, each.estimate.basis.partition("; then ")[2].partition("; ")[0]) for each in waits
    ] == [
        ("j4", "queue lab may hold 0.25 GPUs more"),
        ("whole", "queue lab may hold 1 GPU more"),
    ]
    for n in range(2):
        made.status(f"j{n}.1", "TASK_FINISHED", agent="a1")
        made.offers(offer(f"y{n}", "a1", cpus=8, gpus=0))
    assert pending(made) == {"whole"}
    (use,) = [use for use in queue_uses(view(made)) if use.name == "lab"]
    assert use.used_gpus == 0.75


def test_share_waits_for_a_part_of_a_card_and_the_queue_says_which() -> None:
    made = world(agents=0)
    made.node(
        "a1", *(replace(gpu(f"s{i}"), sharing=Sharing(80_000, ((Ability.SHIM, ""),))) for i in range(2))
    )
    made.submit("ends", gpus=1, gpu_milli=400, timeout_s=100)
    made.offers(offer("x1", "a1", cpus=8, gpus=1))
    made.submit("stays", gpus=1, gpu_milli=400)
    made.offers(offer("x2", "a1", cpus=8, gpus=1))
    made.submit("whole", gpus=1)
    made.offers(offer("x3", "a1", cpus=8))
    made.submit("wants", gpus=1, gpu_milli=500)
    (waits,) = waiting_jobs(view(made), 1)
    assert waits.kept is not None
    assert (waits.kept.gpus, waits.kept.at) == (("s0",), made.now + 100)
    assert waits.estimate.basis == (
        "job ends has run 0s of its timeout_s 100s on a1.example; then its share of 1 GPU is free there"
    )
    made.status("ends.1", "TASK_FINISHED", agent="a1")
    made.offers(offer("x4", "a1", cpus=8))
    assert pending(made) == set()
    assert made.state.work.tasks[TaskId("wants.1")].gpus == ("s0",)


def test_limit_is_kept_by_a_restart_with_shares() -> None:
    made = world(agents=0, queue_limits={"lab": 1})
    made.node("a1", replace(gpu("s0"), sharing=Sharing(80_000, ((Ability.SHIM, ""),))))
    made.submit("half", gpus=1, gpu_milli=500, queue="lab")
    assert pending(made) == set()
    made.state = State.restored(made.now, saved_of(made.state))
    (use,) = queue_uses(view(made))
    assert use.used_gpus == 0.5


def test_job_above_its_queues_limit_is_told_so() -> None:
    made = world(queue_limits={"lab": 2})
    made.submit("x", gpus=3, queue="lab")
    why = explain_job(view(made), JobId("x"))
    assert (why.summary, why.can_ever_run) == ("queue lab may hold 2 GPUs, and it asks for 3", False)
    (use,) = queue_uses(view(made))
    assert (use.name, use.limit_gpus, use.used_gpus, use.waiting) == ("lab", 2, 0, 1)
