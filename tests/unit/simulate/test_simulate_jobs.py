"""Small schedules that can be computed by hand, and what holds of every schedule."""

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.cli import main
from mesos_gpu.errors import BadConfiguration, Damaged, MesosGpuError, NotFound
from mesos_gpu.policy.tenancy.las import HOUR_MS, Steps
from mesos_gpu.simulate.jobs import NO_CARD, Cluster, Outcome, Prices, Tick, figures, simulate
from mesos_gpu.simulate.orders import ORDERS, Known, Levels
from mesos_gpu.simulate.plot import draw
from mesos_gpu.simulate.trace import TraceJob, read_jobs

ON_CHANGE = pytest.mark.on_change("simulate")
HEAD = "job_id,num_gpu,submit_time,duration\n"
FREE = Prices()
ONE_NODE = Cluster(1, 4)


def _ends(
    policy: str, jobs: Sequence[tuple[str, int, int, int]], cluster: Cluster = ONE_NODE, prices: Prices = FREE
) -> dict[str, int]:
    return dict(simulate([TraceJob(*job) for job in jobs], cluster, ORDERS[policy], prices).ended_ms)


LONG, WIDE, SHORT = ("long", 4, 0, 100), ("wide", 4, 10, 40), ("short", 1, 20, 60)


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        ("fifo", {"long": 100, "wide": 140, "short": 200}),
        ("srtf", {"wide": 50, "short": 110, "long": 200}),  # 40 < 90; then 60 < 90, and long needs all four
        # short: 60 of service; wide: 160, of which 40 are done when short comes; long: 360.
        ("srsf", {"short": 80, "wide": 110, "long": 200}),
    ],
)
def test_schedule_of_three_jobs_follows_the_policy(policy: str, ends: dict[str, int]) -> None:
    assert _ends(policy, [LONG, WIDE, SHORT]) == ends


def test_fifo_schedule_lets_no_job_pass() -> None:
    jobs = [("runs", 3, 0, 100), ("blocked", 4, 1, 10), ("fits", 1, 2, 10)]
    assert _ends("fifo", jobs) == {"runs": 100, "blocked": 110, "fits": 120}


def test_srtf_schedule_fills_free_gpus() -> None:
    jobs = [("runs", 3, 0, 100), ("blocked", 4, 1, 200), ("fits", 1, 2, 300)]
    assert _ends("srtf", jobs) == {"runs": 100, "blocked": 300, "fits": 502}


@pytest.mark.parametrize("policy", ["las", "mesos-gpu"])
def test_las_schedule_serves_the_least_served_first(policy: str) -> None:
    # Each level of `old` ends at whole GPU hours: 1 of 4 GPUs after a quarter of an hour.
    jobs = [("old", 4, 0, HOUR_MS), ("new", 4, HOUR_MS // 2, HOUR_MS // 4)]
    assert _ends(policy, jobs) == {"old": HOUR_MS * 5 // 4, "new": HOUR_MS * 3 // 4}


def test_las_schedule_newcomer_waits_for_its_level() -> None:
    jobs = [("old", 4, 0, HOUR_MS), ("new", 4, 1, HOUR_MS)]
    # Levels of las end at 1, 2 and 4 GPU hours, that is after 15, 30 and 60 minutes; within one, old came first.
    quarter = HOUR_MS // 4
    assert _ends("las", jobs) == {"old": 6 * quarter, "new": 8 * quarter}


def test_schedule_serves_small_jobs_first_only_by_mesos_gpu() -> None:
    jobs = [("wide", 4, 0, 1000), ("small", 1, 0, 1000)]
    assert _ends("mesos-gpu", jobs) == {"small": 1000, "wide": 2000}
    assert _ends("las", [("wide", 4, 0, 1000), ("small", 1, 1, 1000)]) == {"wide": 1000, "small": 2000}


def test_las_schedule_lifts_a_job_that_has_waited_long() -> None:
    stream = [TraceJob(f"small{at:04}", 1, at, 9) for at in range(0, 3000, 9)]
    jobs = [TraceJob("starved", 1, 0, 40), *stream]

    def end(lift_after_ms: int | None) -> int:
        order = Levels(Steps(first_ms=10, factor=10, lift_after_ms=lift_after_ms))
        return simulate(jobs, Cluster(1, 1), order, FREE).ended_ms["starved"]

    assert end(None) > 3000  # each of the stream is new when it comes
    assert end(500) < 2500


def test_schedule_puts_a_gang_on_one_node_or_whole_ones() -> None:
    cluster, seen = Cluster(3, 4), list[Tick]()
    jobs = [TraceJob("half", 2, 0, 50), TraceJob("ten", 10, 0, 50), TraceJob("three", 3, 0, 50)]
    simulate(jobs, cluster, ORDERS["srsf"], FREE, seen.append)
    assert {k: [n for _, n, _ in v] for k, v in seen[0].placed.items()} == {"half": [2000], "three": [3000]}
    assert sorted(n for _, n, _ in seen[1].placed["ten"]) == [2000, 4000, 4000]


def test_schedule_puts_shares_of_a_gpu_together_and_counts_their_part() -> None:
    quarters = [TraceJob(f"q{i}", 1, 0, 100, 250) for i in range(5)]
    seen = list[Tick]()
    ended = simulate([*quarters, TraceJob("three", 3, 0, 50)], ONE_NODE, ORDERS["fifo"], FREE, seen.append)
    assert dict(ended.ended_ms) == {**{f"q{i}": 100 for i in range(5)}, "three": 150}
    assert sorted(seen[0].placed.values()) == [((0, 250, 0),)] * 4 + [((0, 250, 1),)]
    tight = [TraceJob("a", 1, 0, 9, 600), TraceJob("b", 1, 0, 9, 700), TraceJob("c", 1, 1, 9, 300)]
    simulate(tight, ONE_NODE, ORDERS["fifo"], FREE, seen.append)
    with_c = next(tick for tick in seen if "c" in tick.placed)
    assert with_c.placed == {"a": ((0, 600, 0),), "b": ((0, 700, 1),), "c": ((0, 300, 1),)}
    one = [TraceJob("share", 1, 0, 100, 500), TraceJob("whole", 1, 0, 100)]
    made = simulate(one, Cluster(1, 1), ORDERS["srsf"], FREE)
    assert dict(made.ended_ms) == {"share": 100, "whole": 200}, "half a GPU is half the service"
    assert figures(one, Cluster(1, 1), made).gpu_utilisation_pct == 75


def test_schedule_runs_a_job_that_fits_beside_the_running() -> None:
    # By rank (1, 2, 3, 2 GPUs) they would take all three nodes; where they are, they leave one to the last.
    jobs = [("3", 3, 0, 30), ("1", 1, 1, 10), ("2", 2, 2, 20), ("2nd", 2, 3, 40), ("4", 4, 4, 100)]
    assert _ends("srtf", jobs, Cluster(3, 4))["4"] == 104


def test_schedule_pays_prices_of_restarts_and_pauses() -> None:
    jobs = [("long", 1, 0, 100), ("short", 1, 10, 20)]
    one = Cluster(1, 1)
    assert _ends("srtf", jobs, one) == {"long": 120, "short": 30}
    assert _ends("srtf", jobs, one, Prices(restart_ms=7)) == {"long": 127, "short": 30}  # not its first start
    assert _ends("srtf", jobs, one, Prices(pause_ms=3)) == {"long": 123, "short": 30}  # at 10 it was running
    assert _ends("fifo", jobs, one, Prices(restart_ms=7)) == {"long": 100, "short": 120}


@pytest.mark.parametrize("prices", [Prices(restart_ms=50), Prices(pause_ms=50)])
def test_schedule_with_expensive_preemption_ends(prices: Prices) -> None:
    # A slice of 8 ms of GPU time is shorter than its price, and who waits for 30 ms starts anew.
    jobs = [TraceJob(f"j{i}", 12, i, 40) for i in range(5)]
    order = Levels(Steps(8, 2, small_first=True, lift_after_ms=30))
    assert len(simulate(jobs, Cluster(3, 4), order, prices).ended_ms) == 5


def test_schedule_figures_follow_from_the_outcome() -> None:
    jobs = [TraceJob("a", 2, 10, 100), TraceJob("b", 4, 10, 30)]
    measured = figures(jobs, ONE_NODE, Outcome({"a": 140, "b": 40}, 0, 0, 0))
    assert (measured.avg_jct_s, measured.p50_jct_s, measured.p99_jct_s, measured.makespan_s) == (
        0.08,
        0.03,
        0.13,
        0.13,
    )
    assert measured.gpu_utilisation_pct == pytest.approx(100 * 320 / (4 * 130))
    assert (measured.worst_rho, measured.unfair_pct) == (1.3, 50)  # four GPUs for two jobs: no contention


def test_schedule_rho_is_of_an_equal_part_of_the_cluster() -> None:
    jobs = [TraceJob(name, 1, 0, 100) for name in "abc"]
    measured = figures(jobs, Cluster(1, 1), Outcome({"a": 100, "b": 200, "c": 330}, 0, 0, 0))
    assert measured.worst_rho == pytest.approx(1.1)  # a third of a GPU: 300 ms each
    assert measured.unfair_pct == pytest.approx(100 / 3)


def test_schedule_orders_that_know_durations_are_srtf_and_srsf() -> None:
    assert {name for name, order in ORDERS.items() if order.knows_durations} == {"srtf", "srsf"}
    for name in ("fifo", "las", "mesos-gpu"):
        known = Known(4000, 0, HOUR_MS)
        assert ORDERS[name].rank(known, 1) == ORDERS[name].rank(known, 10**9)


_WHOLE = st.tuples(st.integers(1, 12), st.integers(0, 40), st.integers(1, 60))
_SHARES = st.tuples(st.just(1), st.integers(0, 40), st.integers(1, 60), st.integers(1, 999))
_JOBS = st.lists(_WHOLE | _SHARES, min_size=1, max_size=14).map(
    lambda rows: [TraceJob(f"j{i}", *row) for i, row in enumerate(rows)]
)
_SHORT_LEVELS = Levels(Steps(8, 2, small_first=True, lift_after_ms=30))
_ALL = {**ORDERS, "short": _SHORT_LEVELS}


_PRICES = st.sampled_from([FREE, Prices(5), Prices(0, 2), Prices(50, 50)])


@given(_JOBS, st.sampled_from(sorted(_ALL)), _PRICES)
@settings(max_examples=20)
def test_schedules_hold_gangs_and_capacity(jobs: list[TraceJob], policy: str, prices: Prices) -> None:
    assert_sound(jobs, policy, prices)


@ON_CHANGE
@given(_JOBS, st.sampled_from(sorted(_ALL)), _PRICES)
def test_schedules_hold_gangs_and_capacity_in_many_examples(
    jobs: list[TraceJob], policy: str, prices: Prices
) -> None:
    assert_sound(jobs, policy, prices)


def assert_sound(jobs: list[TraceJob], policy: str, prices: Prices) -> None:
    """Assert that a schedule keeps gangs together, uses no GPU twice and ends each job."""
    cluster, order, sizes = Cluster(3, 4), _ALL[policy], {job.job_id: job.milli for job in jobs}
    ended: set[str] = set()
    ticks: list[Tick] = []

    def check(tick: Tick) -> None:
        for job_id, where in tick.placed.items():
            assert sum(milli for _, milli, _ in where) == sizes[job_id]
            assert len(where) == -(-sizes[job_id] // (cluster.gpus_per_node * 1000))
        free, shared = _left(tick, cluster)
        assert min([*free, *shared]) >= 0, "a GPU is used twice"
        running = {job_id for job_id in sizes if job_id in tick.placed}
        present = {job.job_id for job in jobs if job.submitted_ms <= tick.now_ms}
        assert tick.waiting == len(present) - len(running) - tick.ended
        if not order.preempts and ticks:
            assert all(tick.placed.get(i, where) == where for i, where in ticks[-1].placed.items())
        ticks.append(tick)

    outcome = simulate(jobs, cluster, order, prices, check)
    ended.update(outcome.ended_ms)
    assert ended == set(sizes)
    assert all(outcome.ended_ms[job.job_id] >= job.submitted_ms + job.lasts_ms for job in jobs)
    if not order.strict:
        _conserved(jobs, cluster, ticks, outcome)


def _conserved(jobs: list[TraceJob], cluster: Cluster, ticks: list[Tick], outcome: Outcome) -> None:
    """Assert that no job waits that would have room on one node."""
    for tick in ticks:
        free, shared = _left(tick, cluster)
        for job in jobs:
            waits = job.submitted_ms <= tick.now_ms < outcome.ended_ms[job.job_id]
            if waits and job.job_id not in tick.placed:
                assert job.gpus > max(free), f"{job.job_id} waits at {tick.now_ms} beside free GPUs"
                room = job.gpu_milli == 1000 or job.gpu_milli > max(shared, default=0)
                assert room, f"{job.job_id} waits at {tick.now_ms} beside a GPU that has room"


def _left(tick: Tick, cluster: Cluster) -> tuple[list[int], list[int]]:
    """GPUs that are free wholly, by node; thousandths that are free of each other one that is shared."""
    free, shared = [cluster.gpus_per_node] * cluster.nodes, dict[tuple[int, int], int]()
    for where in tick.placed.values():
        for node, milli, card in where:
            if card == NO_CARD:
                free[node] -= milli // 1000
            else:
                free[node] -= (node, card) not in shared
                shared[node, card] = shared.get((node, card), 1000) - milli
    return free, list(shared.values())


@given(_JOBS, st.sampled_from(sorted(_ALL)), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_schedule_is_independent_of_the_order_of_the_file(
    jobs: list[TraceJob], policy: str, chance: random.Random
) -> None:
    shuffled = chance.sample(jobs, len(jobs))
    cluster = Cluster(3, 4)
    assert simulate(jobs, cluster, _ALL[policy], FREE) == simulate(shuffled, cluster, _ALL[policy], FREE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job_id,num_gpu,submit_time\n", "line 1: there is no column duration"),
        (HEAD + "a,1,0,5\nb,x,0,5\n", "line 3: num_gpu is 'x'"),
        (HEAD + "a,0,0,5\n", "line 2: num_gpu is '0'"),
        (HEAD + "a,1.5,0,5\n", "line 2: num_gpu is '1.5'"),
        (HEAD + "a,0.0005,0,5\n", "line 2: num_gpu is '0.0005'"),
        (HEAD + "a,nan,0,5\n", "line 2: num_gpu is 'nan'"),
        (f"gpu_milli,{HEAD}0,a,1,0,5\n", "line 2: gpu_milli is '0'"),
        (f"gpu_milli,{HEAD}1001,a,1,0,5\n", "line 2: gpu_milli is '1001'"),
        (f"gpu_milli,{HEAD}500,a,2,0,5\n", "line 2: gpu_milli is '500'"),
        (f"gpu_milli,{HEAD}500,a,0.25,0,5\n", "line 2: gpu_milli is '500'"),
        (HEAD + "a,1,-3,5\n", "line 2: submit_time is '-3'"),
        (HEAD + "a,1,0,1.5\n", "line 2: duration is '1.5'"),
        (HEAD + "a,1,0\n", "line 2: duration is missing"),
        (HEAD + "a,1,0,5\na,1,0,5\n", "line 3: job_id is 'a'"),
        (HEAD + f"a,1,0,{'9' * 5000}\n", "line 2: duration is"),
        (HEAD, "has no jobs"),
        ("", "line 1: there is no column job_id"),
        (HEAD + 'a,1,0,"5\n', "unexpected end of data"),
    ],
)
def test_job_trace_that_is_bad_is_refused_by_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(Damaged) as caught:
        read_jobs(path)
    assert str(path) in caught.value.what
    assert said in caught.value.what
    assert caught.value.remedy


def test_job_traces_are_read_plain_and_compressed(tmp_path: Path) -> None:
    text = (HEAD + "a,1,0,5\n").encode()
    for name, data in (("t.csv", text), ("t.csv.gz", gzip.compress(text))):
        (tmp_path / name).write_bytes(data)
        assert read_jobs(tmp_path / name) == [TraceJob("a", 1, 0, 5)]
    for name, data in (
        ("bad.csv", b"\xff\xfe"),
        ("bad.csv.gz", text),
        ("cut.csv.gz", gzip.compress(text)[:-9]),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(Damaged, match="is no text"):
            read_jobs(tmp_path / name)
    with pytest.raises(NotFound, match="cannot be read"):
        read_jobs(tmp_path / "none.csv")


def test_schedule_refuses_a_job_larger_than_the_cluster() -> None:
    with pytest.raises(BadConfiguration, match="job a asks for 9 GPUs, and the cluster has 4"):
        simulate([TraceJob("a", 9, 0, 5)], ONE_NODE, ORDERS["fifo"], FREE)


def test_simulate_jobs_command_prints_the_figures(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "a,1,0,5000\nb,1,0,5000\n")
    words = [
        "simulate",
        "jobs",
        "--trace",
        str(path),
        "--nodes",
        "1",
        "--gpus-per-node",
        "1",
        "--policy",
        "fifo",
    ]
    result = CliRunner().invoke(main, [*words, "--json"], catch_exceptions=False)
    document = json.loads(result.output)
    assert (document["avg_jct_s"], document["makespan_s"], document["p99_jct_s"]) == (7.5, 10.0, 10.0)
    assert (document["gpu_utilisation_pct"], document["policy"], document["knows_durations"]) == (
        100.0,
        "fifo",
        False,
    )
    shown = CliRunner().invoke(main, words, catch_exceptions=False).output
    assert "avg_jct_s" in shown
    assert "7.5" in shown
    assert (
        CliRunner().invoke(main, ["simulate", "jobs", "--trace", str(path), "--policy", "magic"]).exit_code
        == 2
    )


@ON_CHANGE
def test_plots_are_drawn_in_the_format_of_their_name(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'mesos_gpu[plot]'")
    series = {"used": [(0.0, 1.0), (1.0, 3.0)], "waiting": [(0.0, 2.0), (1.0, 0.0)]}
    for name, start in (("p.svg", b"<?xml"), ("p.png", b"\x89PNG")):
        draw(tmp_path / name, "a title", series, x="days", y="GPUs")
        assert (tmp_path / name).read_bytes().startswith(start)
    first = (tmp_path / "p.svg").read_bytes()
    assert all(word in first for word in (b"a title", b"used", b"waiting", b"days"))
    draw(tmp_path / "p.svg", "a title", series, x="days", y="GPUs")
    assert (tmp_path / "p.svg").read_bytes() == first
    with pytest.raises(BadConfiguration, match="cannot be written"):
        draw(tmp_path / "none" / "p.svg", "", series, x="", y="")


def test_plots_that_cannot_be_drawn_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConfiguration, match=r"neither \.svg nor \.png"):
        draw(tmp_path / "p.pdf", "", {}, x="", y="")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MesosGpuError, match="needs matplotlib") as caught:
        draw(tmp_path / "p.svg", "", {}, x="", y="")
    assert "mesos_gpu[plot]" in caught.value.remedy
