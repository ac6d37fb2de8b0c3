"""Each policy of others does what its document, or its own test, says."""

from collections.abc import Sequence

import pytest

from mesos_gpu.simulate.baselines import BASELINES, drus
from mesos_gpu.simulate.jobs import Cluster
from mesos_gpu.simulate.tenancy.loop import Live, Loop, tasks_of
from mesos_gpu.simulate.tenancy.record import Record
from mesos_gpu.simulate.tenancy.scenario import Costs, Scenario
from mesos_gpu.simulate.tenancy.trace import TenantJob

DAY = 86400.0
FREE = Costs(checkpoint_s=1.0, restart_s=0.0)


def run(
    policy: str,
    jobs: Sequence[TenantJob],
    guarantees: dict[str, int],
    nodes: int,
    costs: Costs = FREE,
    per_node: int = 4,
) -> Record:
    scenario = Scenario(tuple(jobs), Cluster(nodes, per_node), guarantees, costs)
    return Loop(scenario, BASELINES[policy]()).run(policy)


def job(
    name: str, tenant: str, gpus: int, at_s: float = 0.0, lasts_s: float = 100.0, user: str = ""
) -> TenantJob:
    return TenantJob(name, tenant, gpus, at_s, lasts_s, user)


def began(record: Record, name: str) -> list[float]:
    return [span.begin_s for span in record.spans[name]]


def stopped(record: Record) -> list[tuple[str, str | None]]:
    return [(stop.job_id, stop.for_job) for stop in record.stopped]


def test_baseline_fifo_serves_the_oldest_of_all_tenants() -> None:
    record = run(
        "fifo", [job("a1", "a", 4), job("a2", "a", 4, 1), job("b", "b", 4, 2)], {"a": 1, "b": 1}, nodes=1
    )
    assert [began(record, name)[0] for name in ("a1", "a2", "b")] == [0, 100, 200]


def test_baseline_fifo_lets_a_job_that_fits_pass() -> None:
    record = run(
        "fifo", [job("runs", "a", 3), job("wide", "a", 4, 1), job("small", "b", 1, 2)], {"a": 1, "b": 1}, 1
    )
    assert (began(record, "wide"), began(record, "small")) == ([102], [2])


def test_baseline_drf_serves_the_lowest_share_of_its_guarantee_first() -> None:
    # 'a' holds 4 of its 8, 'b' 4 of its 4: what comes free is a's, though b's job is older.
    jobs = [job("a1", "a", 4), job("b1", "b", 4, lasts_s=50), job("b2", "b", 4, 1), job("a2", "a", 4, 2)]
    jobs += [job("b0", "b", 4, lasts_s=200)]
    record = run("drf", jobs, {"a": 2, "b": 1}, nodes=3)
    assert (began(record, "a2"), began(record, "b2")) == ([50], [100])


def test_baseline_fairtree_serves_all_users_of_the_better_account_first() -> None:
    """Slurm, fair_tree.html: "if one account has a higher fair share than another, all of its users do"."""
    jobs = [
        job("used-up", "bad", 4, lasts_s=100, user="x"),
        job("bad", "bad", 4, 10, user="never-ran"),
        job("good", "good", 4, 20, lasts_s=10, user="y"),
    ]
    record = run("fairtree", jobs, {"bad": 1, "good": 1}, nodes=1)
    assert (began(record, "good"), began(record, "bad")) == ([100], [110])


def test_baseline_fairtree_serves_the_user_with_less_use_first() -> None:
    jobs = [
        job("first", "a", 4, lasts_s=100, user="x"),
        job("again", "a", 4, 10, lasts_s=10, user="x"),
        job("other", "a", 4, 20, lasts_s=10, user="y"),
    ]
    record = run("fairtree", jobs, {"a": 1}, nodes=1)
    assert (began(record, "other"), began(record, "again")) == ([100], [110])


def test_baseline_fairtree_halves_use_of_a_half_life_ago() -> None:
    """PriorityDecayHalfLife: 4 GPU weeks that ended two weeks ago are fewer than 2 of just now."""
    week = 7 * DAY
    jobs = [
        job("old", "a", 4, 0, week, "old"),
        job("new", "a", 2, 3 * week - week, week, "new"),
        job("fills", "a", 2, 2 * week, week, "third"),
        job("of-new", "a", 4, 2.5 * week, 10, "new"),
        job("of-old", "a", 4, 2.6 * week, 10, "old"),
    ]
    record = run("fairtree", jobs, {"a": 1}, nodes=1)
    assert began(record, "of-old") < began(record, "of-new")


# --- Cook


def live(gpus: int, index: int = 0) -> Live:
    return Live(job(f"j{index}", "ljin", gpus), index, 1, gpus)


def test_baseline_cook_shares_are_those_of_the_test_of_cook() -> None:
    """cook.test.scheduler.dru: tasks of 10, 5, 25 and 15 with a share of 25 are at 0.4, 0.6, 1.6 and 2.2."""
    tasks = [live(gpus, n) for n, gpus in enumerate((10, 5, 25, 15))]
    assert list(drus(tasks, 25).values()) == pytest.approx([0.4, 0.6, 1.6, 2.2])


def test_baseline_cook_stops_the_task_highest_above_its_share() -> None:
    """'a' is at 3 times its share on three nodes: its last one makes room, for 'b' that has nothing."""
    jobs = [job(f"a{n}", "a", 4, n, DAY) for n in range(3)] + [job("b", "b", 4, 400, 50)]
    record = run("cook", jobs, {"a": 1, "b": 1}, nodes=3)
    assert stopped(record) == [("a2", "b")]
    assert began(record, "b") == [600]  # the next cycle, of 300 s


def test_baseline_cook_stops_no_task_within_the_safe_share() -> None:
    jobs = [job("a", "a", 4, 0, 5000), job("b", "b", 4, 400, 50)]
    assert run("cook", jobs, {"a": 2, "b": 1}, nodes=1).stopped == []


# --- reclaim

#: Two nodes of four, each with jobs of 3 and 1; then somebody is owed 2.
IN_PIECES = (
    *(job(f"old{n + 1}", "a", 3, n, DAY) for n in range(2)),
    *(job(f"new{n + 1}", "a", 1, n + 2, DAY) for n in range(2)),
    job("owed", "b", 2, 10, 50),
)


def test_count_reclaim_stops_the_newest_jobs_even_if_the_gpus_freed_are_on_different_nodes() -> None:
    """Kueue: candidates are sorted by "most recently admitted first"; of nodes it knows nothing by default."""
    record = run("count-reclaim", IN_PIECES, {"a": 1, "b": 1}, nodes=2)
    assert stopped(record) == [("new2", "owed"), ("new1", "owed")]
    assert began(record, "owed")[0] >= DAY  # one GPU came free on each node


def test_node_reclaim_stops_jobs_on_a_node_where_the_waiting_job_then_fits() -> None:
    record = run("node-reclaim", IN_PIECES, {"a": 1, "b": 1}, nodes=2)
    assert stopped(record) == [("old2", "owed")]  # one victim, the newer of the two that will do
    assert began(record, "owed") == [10]


@pytest.mark.parametrize("policy", ["count-reclaim", "node-reclaim"])
def test_baseline_stops_no_job_within_its_guarantee(policy: str) -> None:
    jobs = [job("a", "a", 4, 0, 1000), job("b1", "b", 4, 0, 1000), job("b2", "b", 4, 10)]
    assert run(policy, jobs, {"a": 1, "b": 2}, nodes=2).stopped == []


def test_baseline_stopped_job_goes_on_from_its_checkpoint() -> None:
    jobs = [job("a0", "a", 4, 0, 5000), job("a1", "a", 4, 1, 5000), job("owed", "b", 4, 2001, 100)]
    record = run("node-reclaim", jobs, {"a": 1, "b": 1}, 2, Costs(checkpoint_s=1500, restart_s=60))
    assert [(stop.job_id, stop.lost_s) for stop in record.stopped] == [("a1", 500 + 60)]
    assert record.ended_s["a1"] == 2001 + 100 + 60 + 5000 - 1500


def test_baseline_stopped_job_without_checkpoints_starts_over() -> None:
    jobs = [job("a0", "a", 4, 0, 5000), job("a1", "a", 4, 1, 5000), job("owed", "b", 4, 2001, 100)]
    record = run("node-reclaim", jobs, {"a": 1, "b": 1}, 2, Costs(checkpoint_s=None, restart_s=0))
    assert record.ended_s["a1"] == 2101 + 5000


@pytest.mark.parametrize("policy", ["count-reclaim", "node-reclaim"])
def test_baseline_victim_has_its_notice_first(policy: str) -> None:
    jobs = [job("a0", "a", 4, 0, 5000), job("a1", "a", 4, 1, 5000), job("owed", "b", 4, 2000, 100)]
    record = run(policy, jobs, {"a": 1, "b": 1}, 2, Costs(1.0, 0.0, notice_s=90))
    assert began(record, "owed") == [2090]
    assert record.spans["a1"][0].end_s == 2090


@pytest.mark.parametrize("policy", ["cook", "count-reclaim", "node-reclaim"])
def test_baseline_stops_no_job_that_is_not_preemptible(policy: str) -> None:
    jobs = [
        TenantJob("a0", "a", 4, 0, 5000, preemptible=False),
        TenantJob("a1", "a", 4, 1, 5000, preemptible=False),
        job("owed", "b", 4, 2000, 100),
    ]
    assert run(policy, jobs, {"a": 1, "b": 1}, nodes=2).stopped == []


@pytest.mark.parametrize("policy", BASELINES)
def test_baseline_fills_no_node_beyond_its_gpus_and_ends_every_job(policy: str) -> None:
    jobs = [
        job(f"{tenant}{n}", tenant, 1 + (n * 7 + len(tenant)) % 4, n * 40.0, 50.0 + n * 13 % 400)
        for n in range(60)
        for tenant in ("a", "bb", "ccc")
    ]
    jobs.sort(key=lambda each: each.submitted_s)
    record = run(policy, jobs, {"a": 1, "bb": 1, "ccc": 1}, 3, Costs(30.0, 5.0, 7.0))
    assert set(record.ended_s) == {each.job_id for each in jobs}
    gpus = {each.job_id: each.gpus for each in jobs}
    changes = [(span.begin_s, 1, gpus[name]) for name, spans in record.spans.items() for span in spans]
    changes += [(span.end_s, 0, -gpus[name]) for name, spans in record.spans.items() for span in spans]
    held = 0
    for _, _, by in sorted(changes):
        held += by
        assert held <= 12
    for each in jobs:
        assert sum(span.end_s - span.begin_s for span in record.spans[each.job_id]) >= each.lasts_s - 1e-6


@pytest.mark.parametrize(
    ("gpus", "tasks"), [(1, (1, 1)), (8, (1, 8)), (12, (2, 6)), (16, (2, 8)), (20, (4, 5)), (17, (17, 1))]
)
def test_tenant_job_larger_than_a_node_is_a_gang_of_equal_tasks(gpus: int, tasks: tuple[int, int]) -> None:
    assert tasks_of(gpus, 8) == tasks
