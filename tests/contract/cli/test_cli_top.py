"""`mesos-gpu top`: its rows, and the screen that it draws again and again."""

import fcntl
import json
import os
import pty
import signal
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen
from typing import Any, get_type_hints

import pytest

from mesos_gpu.api.spec.gpus.use import Meters
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.top.cards import CARDS, bar, uses
from mesos_gpu.cli.top.live import DOWN, ENTER, ESCAPE, RUB, UP, keys_in
from mesos_gpu.cli.top.nodes import NODES
from mesos_gpu.cli.top.tasks import TASKS
from tests.contract.cli.cli_rig import GPU, NODE, call, read_until, started
from tests.doubles.fake_rest import FakeRest

UNKNOWN = {
    **dict.fromkeys(get_type_hints(Meters)),
    "at": 0.0,
    "busy_pct": None,
    "processes": None,
    "xid": None,
}
USE = {**UNKNOWN, "memory_used_mib": 300, "busy_pct": 40.0, "power_mw": 250_400, "temperature_c": 61}
KEPT = {"memory": "kernel", "compute": "cooperative", "faults": "contained"}


def _share(job: str, memory_mib: int | None, compute_pct: float | None = 20.0) -> dict[str, Any]:
    used = {
        "memory_mib": memory_mib, "most_memory_mib": memory_mib, "compute_pct": compute_pct, "refused": 3,
        "windows_missed": 0, "problem": None,
    }  # fmt: skip
    return {
        "memory_mib": 10000, "memory_max_mib": 10000, "compute_pct": 25.0, "method": "dmem+windows",
        "instance": None, "guarantee": KEPT, "task_id": f"{job}.1", "job_id": job, "job_name": job,
        "used": None if memory_mib is None else used,
    }  # fmt: skip


def _shared(host: str, shares: list[dict[str, Any]], state: str = "covered") -> Any:
    sharing = {
        "state": state, "task_id": None, "memory_mib": 40000, "free_memory_mib": 20000, "free_compute_pct": 50.0,
        "method": "dmem+windows", "domain": None,
    }  # fmt: skip
    return {**GPU, "hostname": host, "health": "ok", "reason": "", "shares": shares, "sharing": sharing}


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRest]:
    with FakeRest() as server:
        monkeypatch.setenv("MESOS_GPU_URL", server.url)
        _answer(server, _shared("n2", [_share("a", 4000, 24.0), _share("b", 12000, 1.0)]))
        yield server


def _answer(rest: FakeRest, *gpus: Any) -> None:
    cards = [{**gpu, "uuid": f"GPU-{number}"} for number, gpu in enumerate(gpus)]
    rest.fixed["GET /v1/gpus"] = (200, {"gpus": cards})


@contextmanager
def _on_a_terminal(*words: str) -> Iterator[tuple[Popen[bytes], int, list[Any]]]:
    """`top` on a terminal of 100 columns and 12 lines, what can be read and typed there, and how that was before."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 100, 0, 0))
    before = termios.tcgetattr(ours)
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    try:
        with started(
            "top", *words, stdin=theirs, stdout=theirs, stderr=theirs, env={**env, "TERM": "xterm"}
        ) as process:
            yield process, ours, before
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_most_used_comes_first(rest: FakeRest) -> None:
    _answer(
        rest,
        _shared("n2", [_share("a", 4000, 24.0), _share("b", 12000, 1.0)]),
        _shared("n1", [_share("c", None)]),
    )
    with Client(rest.url) as client:
        rows = CARDS.look(client, ()).rows
    order = {
        sort: [row.cells[3] for row in CARDS.chosen(rows, sort, "")] for sort in ("card", "memory", "compute")
    }
    assert order == {
        "card": ["c", "(free)", "a", "b", "(free)"],
        "memory": ["b", "a", "c", "(free)", "(free)"],
        "compute": ["a", "b", "c", "(free)", "(free)"],
    }
    assert [row.cells[3] for row in CARDS.chosen(rows, "card", "N1")] == ["c", "(free)"]
    assert [row.job for row in rows] == ["c", None, "a", "b", None]


def test_top_marks_use_above_the_limit_and_uncovered_use() -> None:
    over, within, uncovered = uses([_shared("n", [_share("a", 10001), _share("b", 10000)], "uncovered")])
    assert (over.state, over.memory, over.memory_of, over.refused) == ("over", 10001, 10000, 3)
    assert within.state == "ok"
    assert (uncovered.state, uncovered.job, uncovered.memory_of) == ("uncovered", "(uncovered)", None)


def test_top_names_the_user_of_each_job() -> None:
    whole: Any = {**GPU, "hostname": "m", "job_id": "a"}
    rows = uses([whole, _shared("n", [_share("a", 1), _share("b", 1)])], {"a": "ann", "b": None})
    assert [(row.job, row.user) for row in rows] == [
        ("a", "ann"), ("a", "ann"), ("b", None), ("(free)", None)
    ]  # fmt: skip


def test_a_gpu_that_nobody_shares_has_what_is_in_use_on_it_and_nothing_where_nobody_can_say() -> None:
    held: list[Any] = [{**GPU, "job_id": "a-1", "use": said} for said in (USE, UNKNOWN, None)]
    assert [(row.memory, row.compute, row.compute_of, row.power, row.temperature) for row in uses(held)] == [
        (300, 40.0, 100, 250, 61),
        (None, None, 100, None, None),
        (None, None, 100, None, None),
    ]


def test_a_node_has_the_sum_of_what_is_known_of_all_its_cards(rest: FakeRest) -> None:
    rest.fixed["GET /v1/nodes"] = (
        200,
        {"nodes": [{**NODE, "hostname": f"n{i}", "agent_id": f"S{i}"} for i in (1, 0)]},
    )
    busy = {**USE, "busy_pct": 80.0, "temperature_c": 70}
    uses_ = [("S0", USE), ("S0", busy), ("S1", USE), ("S1", UNKNOWN)]
    _answer(
        rest,
        *(
            {**GPU, "agent_id": agent, "index": i, "minor": i, "use": use}
            for i, (agent, use) in enumerate(uses_)
        ),
    )
    with Client(rest.url) as client:
        seen = NODES.look(client, ())
    by_name = [dict(zip(NODES.headers, row.cells, strict=True)) for row in seen.rows]
    shown = [[row[each] for each in ("HOST", "BUSY_%", "USED_MIB", "POWER_W", "TEMP_C")] for row in by_name]
    assert shown == [["n0", 60.0, 600, 501, 70], ["n1", None, None, None, 61]], "half of a sum is none"
    assert [row.cells[0] for row in NODES.chosen(seen.rows, "free", "")] == ["n0", "n1"]
    assert seen.summary == "nodes: 2, 0 lost; 2 of 8 GPUs held"


def test_a_task_has_what_its_cards_and_its_shares_of_cards_use(rest: FakeRest) -> None:
    job = rest.add("train", gpus=2, queue="night", owner="ann")
    task = rest.launch(job)
    rest.jobs[job]["use"] = {"busy_pct": 40.0, "memory_mib": 0, "processes": 1, "idle_s": 7260.0}
    monitor = {**rest.tasks[job][0], "id": "monitor.1", "job_id": None}
    shared = {**rest.tasks[job][0], "id": "a.1", "job_id": "a"}
    rest.fixed["GET /v1/tasks"] = (
        200,
        {"tasks": [{**rest.tasks[job][0], "gpu_ids": ["g", "h"]}, monitor, shared]},
    )
    whole = [{**GPU, "task_id": task, "job_id": job, "use": {**USE, "busy_pct": pct}} for pct in (20.0, 60.0)]
    _answer(rest, *whole, _shared("n2", [_share("a", 4000, 24.0), _share("b", 1)]))
    with Client(rest.url) as client:
        seen = TASKS.look(client, ())
    rows = [dict(zip(TASKS.headers, row.cells, strict=True)) for row in seen.rows]
    shown = [
        [row[each] for each in ("TASK", "USER", "QUEUE", "GPUS", "BUSY_%", "USED_MIB", "IDLE")]
        for row in rows
    ]
    assert shown == [["a.1", None, None, 0, 24.0, 4000, None], [task, "ann", "night", 2, 40.0, 600, "2h01m"]]
    assert [row.job for row in TASKS.chosen(seen.rows, "compute", "")] == [job, "a"]
    (_, told) = json.loads(call("top", "tasks", "--json").stdout)
    assert (told["id"], told["use"]) == (task, {"busy_pct": 40.0, "memory_mib": 600, "idle_s": 7260.0})


def test_top_of_a_node_asks_for_that_node_alone(rest: FakeRest) -> None:
    rest.fixed["GET /v1/nodes"] = (
        200,
        {"nodes": [{**NODE, "hostname": f"n{i}.x", "agent_id": f"S{i}"} for i in (1, 2)]},
    )
    shown = [line.split()[0] for line in call("top", "nodes", "--node", "n2").stdout.splitlines()]
    assert shown == ["HOST", "n2.x"]
    assert rest.queries["GET /v1/gpus"]["node"] == ["n2"]
    rest.fixed["GET /v1/tasks"] = (200, {"tasks": []})
    for view in ("cards", "tasks"):
        assert call("top", view, "--node", "n*", "--node", "m").exit_code == 0
        assert rest.queries["GET /v1/gpus"]["node"] == ["n*", "m"]
    assert call("top", "queue", "--node", "n2").exit_code == 2


def test_keys_are_told_from_what_a_terminal_sends() -> None:
    typed = "m\x1b[A\x1bOB\x1b[5~/ü\x7f\r\x1b[15;2~\x00\x1b"
    assert keys_in(typed) == ["m", UP, DOWN, "/", "ü", RUB, ENTER, ESCAPE]


def test_an_order_that_a_view_lacks_is_refused(rest: FakeRest) -> None:
    got = call("top", "queue", "--sort", "memory")
    assert got.exit_code == 2
    assert "--sort: queue can be sorted by place, gpus, waits, priority" in got.stderr


def test_a_bar_is_full_at_what_is_granted_and_never_longer() -> None:
    assert [bar(used, 10) for used in (0, 5, 10, 25)] == ["░" * 10, "█" * 5 + "░" * 5, "█" * 10, "█" * 10]
    assert bar(None, 10) is None
    assert bar(3, 0) is None


def test_a_pipe_gets_one_look(rest: FakeRest) -> None:
    got = call("top", "--sort", "memory")
    assert got.exit_code == 0, got.output
    headers, *rows = got.stdout.splitlines()
    assert "MEMORY" not in headers  # bars are for people
    assert [row.split()[2:8] for row in rows[:2]] == [
        ["over", "b", "-", "12000", "10000", "1"],
        ["ok", "a", "-", "4000", "10000", "24"],
    ]
    assert json.loads(call("top", "--json").stdout) == rest.fixed["GET /v1/gpus"][1]["gpus"]  # type: ignore[index]


def test_top_asks_at_most_once_a_second(rest: FakeRest) -> None:
    got = call("top", "--interval", "0.2s")
    assert got.exit_code == 2
    assert "--interval: must be at least 1s" in got.stderr


def test_top_prints_no_terminal_codes_of_a_node(rest: FakeRest) -> None:
    _answer(rest, {**_shared("n\x1b[2J", [_share("a\x9b5m", 4000)]), "reason": "\x1b]0;x\x07"})
    got = call("top", "--once")
    assert "\x1b" not in got.stdout
    assert "\x9b" not in got.stdout
    assert r"n\x1b[2J" in got.stdout


def test_the_screen_follows_keys_and_the_cluster_and_is_given_back(rest: FakeRest) -> None:
    with _on_a_terminal("--interval", "1s") as (process, terminal, before):
        seen = read_until(terminal, b"q quit")
        assert b"\x1b[?1049h" in seen  # the other page of the terminal
        assert b"GPUs: 1 on 1 host, 1 shared, 0 held whole; every 1s, by card" in seen
        os.write(terminal, b"m")
        read_until(terminal, b"by memory")
        _answer(rest, _shared("n2\x1b[2J", [_share("newcomer", 4000)]))
        assert b"n2\x1b[2J" not in read_until(terminal, b"newcomer")
        _answer(rest, _shared("n3", [_share(f"job-{i}", 100 - i) for i in range(40)]))
        assert b"job-7" not in read_until(terminal, b"34 rows more")
        rest.stop()
        read_until(terminal, b"outdated")
        rest.start()
        read_until(terminal, b"every 1s, by memory")
        os.write(terminal, b"q")
        assert b"\x1b[?1049l" in read_until(terminal, b"\x1b[?25h")  # back, and with the cursor
        assert process.wait(30) == 0
        assert termios.tcgetattr(terminal) == before


def test_keys_turn_to_other_views_choose_rows_and_end_jobs(rest: FakeRest) -> None:
    job = rest.add("train", gpus=1)
    waiting = {
        "id": job, "name": "train", "app": None, "array_id": None, "owner": "ann", "queue": "night",
        "priority": 0, "effective_priority": 3,
        "gpus": 9, "cpus": 1.0, "mem_mib": 128, "submitted_at": 0.0, "reservation": None,
        "estimate": {"at": None, "basis": "nobody knows"},
    }  # fmt: skip
    queue = {"name": "night", "limit_gpus": None, "used_gpus": 0, "waiting": 2}
    two = [{**waiting, "position": 0, "id": "first-1", "name": "first"}, {**waiting, "position": 1}]
    rest.fixed["GET /v1/queue"] = (200, {"jobs": two, "queues": [queue]})
    with _on_a_terminal("--interval", "1s") as (process, terminal, _before):
        read_until(terminal, b"by card")
        os.write(terminal, b"k")
        read_until(terminal, b"choose a row first")
        os.write(terminal, b"4")
        read_until(terminal, b"queue: 2 jobs of 1 queue wait for 18 GPUs; every 1s, by place")
        os.write(terminal, b"/trai\r")
        *_, frame = read_until(terminal, b"only /trai").split(b"\x1b[H")
        assert b"first-1" not in frame
        os.write(terminal, b"\x1b[Bk")
        read_until(terminal, f"Kill {job}? y: yes, any other key: no".encode())
        os.write(terminal, b"n")
        read_until(terminal, f"{job} continues".encode())
        assert ("DELETE", job) not in [tuple(what.split(" /v1/jobs/")) for what, _ in rest.asked]
        os.write(terminal, b"ky")
        read_until(terminal, f"{job} is being killed".encode())
        rest.until(lambda: rest.jobs[job]["state"] == "killing")
        os.write(terminal, b"\x1b")
        read_until(terminal, b"first-1")
        os.write(terminal, b"s")
        read_until(terminal, b"by gpus")
        rest.fixed[f"DELETE /v1/jobs/{job}"] = (
            403,
            {"error": {"code": "forbidden", "message": "not yours", "remedy": ""}},
        )
        os.write(terminal, b"/train\r\x1b[Bky")
        read_until(terminal, f"{job}: not yours".encode())
        os.write(terminal, b"q")
        read_until(terminal, b"\x1b[?1049l")
        assert process.wait(30) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_gives_the_screen_back(rest: FakeRest, number: int, code: int) -> None:
    with _on_a_terminal() as (process, terminal, before):
        read_until(terminal, b"q quit")
        process.send_signal(number)
        read_until(terminal, b"\x1b[?1049l")
        assert process.wait(30) == code
        assert termios.tcgetattr(terminal) == before
