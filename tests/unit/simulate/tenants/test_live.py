"""The real engine on agents in memory: small stories of tenants that can be told by hand."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.tenancy import DEFAULT_POOL, Guarantee, QueueDocument, QueueSpec, Shape
from mesos_gpu.simulate.jobs import Cluster
from mesos_gpu.simulate.tenancy.live import queues_of, run_live
from mesos_gpu.simulate.tenancy.record import Record
from mesos_gpu.simulate.tenancy.scenario import Costs, Scenario, arrange
from mesos_gpu.simulate.tenancy.trace import TenantJob, read_tenants
from mesos_gpu.simulate.tenants import owned_nodes

PHILLY6 = Path(__file__).parents[3] / "data" / "tenants" / "philly6.csv"
ASKS_AFTER_S = 3.0  # of the engine: until then what is free may not have been offered yet


def run(
    jobs: Sequence[TenantJob], guarantees: dict[str, int], nodes: int, costs: Costs | None = None
) -> Record:
    costs = costs or Costs(checkpoint_s=1000, restart_s=0)
    return run_live(Scenario(tuple(jobs), Cluster(nodes, 4), guarantees, costs))


def job(name: str, tenant: str, gpus: int, at_s: float = 0.0, lasts_s: float = 100.0) -> TenantJob:
    return TenantJob(name, tenant, gpus, at_s, lasts_s)


#: a borrows b's node; then b wants it back.
BORROWS = (job("a0", "a", 4, 0, 5000), job("a1", "a", 4, 1, 5000), job("owed", "b", 4, 2500, 100))


def test_live_engine_stops_a_borrower_that_goes_on_from_its_checkpoint() -> None:
    record = run(BORROWS, {"a": 1, "b": 1}, 2, Costs(checkpoint_s=1000, restart_s=60))
    began = 2500 + ASKS_AFTER_S
    assert [span.begin_s for span in record.spans["owed"]] == [pytest.approx(began)]
    assert [(stop.job_id, stop.for_job) for stop in record.stopped] == [("a1", "owed")]
    assert record.stopped[0].lost_s == pytest.approx(began - 1 - 2000 + 60)
    assert record.ended_s["a1"] == pytest.approx(began + 100 + 60 + 5000 - 2000)


def test_live_engine_gives_notice_before_the_end() -> None:
    record = run(BORROWS, {"a": 1, "b": 1}, 2, Costs(checkpoint_s=1000, restart_s=0, notice_s=90))
    told = 2500 + ASKS_AFTER_S
    assert record.stopped[0].at_s == pytest.approx(told)
    assert record.spans["a1"][0].end_s == pytest.approx(told + 90)
    assert record.spans["owed"][0].begin_s == pytest.approx(told + 90)


def test_live_engine_stops_no_job_within_its_guarantee() -> None:
    jobs = [job("a", "a", 4, 0, 1000), job("b1", "b", 4, 0, 1000), job("b2", "b", 4, 10)]
    assert run(jobs, {"a": 1, "b": 1}, nodes=2).stopped == []


def test_live_engine_stops_the_borrower_that_loses_least() -> None:
    jobs = [job("old", "a", 4, 0, 9000), job("own", "a", 4, 0, 9000), job("new", "a", 4, 1600, 9000)]
    record = run([*jobs, job("owed", "b", 4, 1900)], {"a": 1, "b": 2}, 3, Costs(1000, 0))
    assert [stop.job_id for stop in record.stopped] == ["new"]


def test_live_engine_starts_a_gang_with_all_of_its_tasks() -> None:
    record = run([job("gang", "a", 8, 0, 100), job("b", "b", 4, 0, 50)], {"a": 2, "b": 1}, nodes=3)
    assert record.ended_s == {"gang": 100, "b": 50}


def test_live_engine_keeps_a_job_that_is_not_preemptible_within_its_guarantee() -> None:
    fixed = TenantJob("fixed", "a", 4, 1, 100, preemptible=False)
    record = run([job("runs", "a", 4, 0, 500), fixed], {"a": 1, "b": 1}, nodes=2)
    assert [span.begin_s for span in record.spans["fixed"]] == [500]


def slice_of(every: int) -> Scenario:
    jobs = read_tenants(PHILLY6).jobs[::every]
    return arrange(jobs, Cluster(6, 8), Costs(), stretch_s=5 * 86400)


@pytest.mark.parametrize("every", [1000, pytest.param(60, marks=pytest.mark.on_change("simulate"))])
def test_live_engine_ends_a_slice_with_no_gpu_held_twice_and_repeats_it(every: int) -> None:
    scenario = slice_of(every)
    record, again = run_live(scenario), run_live(scenario)
    assert record == again
    gpus = {each.job_id: each.gpus for each in scenario.jobs}
    changes = [(span.begin_s, 1, gpus[name]) for name, spans in record.spans.items() for span in spans]
    changes += [(span.end_s, 0, -gpus[name]) for name, spans in record.spans.items() for span in spans]
    held = 0
    for _, _, by in sorted(changes):
        held += by
        assert held <= scenario.cluster.gpus
    assert record.ended_s.keys() == gpus.keys()
    for each in scenario.jobs:
        spans = record.spans[each.job_id]
        assert sum(span.end_s - span.begin_s for span in spans) >= each.lasts_s - 1e-3
        assert all(first.end_s <= second.begin_s for first, second in pairwise(spans))


def test_tenant_names_become_paths_of_queues() -> None:
    assert queues_of(["6214e9", "Vision Team", "vision/team", "__"]) == {
        "6214e9": "6214e9", "Vision Team": "vision-team", "vision/team": "vision-team-3", "__": "tenant",
    }  # fmt: skip


SHAPED = QueueDocument(
    queues={
        "lab": QueueSpec(),
        "lab/a": QueueSpec(guarantee_gpus={DEFAULT_POOL: Guarantee(8000, (Shape(2, 4),))}),
        "lab/b": QueueSpec(guarantee_gpus={DEFAULT_POOL: Guarantee(2000)}),
    }
)


def test_queue_document_gives_the_nodes_that_tenants_own() -> None:
    assert owned_nodes(SHAPED, ["lab/a", "lab/b"], per_node=4) == {"lab/a": 2, "lab/b": 1}


@pytest.mark.parametrize("tenant", ["lab", "other"])
def test_queue_document_without_a_leaf_of_a_tenant_is_refused(tenant: str) -> None:
    with pytest.raises(BadConfiguration, match=f"no leaf for tenant {tenant}"):
        owned_nodes(SHAPED, [tenant], per_node=4)


def test_queue_document_of_a_file_is_used_by_the_engine(tmp_path: Path) -> None:
    (tmp_path / "queues.yaml").write_text(
        "queues:\n  a: {guarantee_gpus: [{nodes: 1, gpus: 4}]}\n  b: {guarantee_gpus: [{nodes: 2, gpus: 4}]}\n"
    )
    (tmp_path / "trace.csv").write_text(
        "job_id,tenant,num_gpu,submit_time,duration\n1,a,4,0,900\n2,a,4,1,900\n3,b,4,300,100\n4,b,4,300,100\n"
    )
    args = [
        "simulate", "tenants", "--trace", str(tmp_path / "trace.csv"), "--queues", str(tmp_path / "queues.yaml"),
        "--nodes", "3", "--gpus-per-node", "4", "--stretch", "none", "--policy", "mesos-gpu",
    ]  # fmt: skip
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 0, result.output
    assert "guaranteed nodes: a 1, b 2" in result.stdout
    assert result.stdout.splitlines()[1].split()[0] == "mesos-gpu"
