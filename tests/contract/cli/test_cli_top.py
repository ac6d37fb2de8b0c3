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
from typing import Any

import pytest

from mesos_gpu.cli.cluster.top import bar, uses
from mesos_gpu.testing.fake_rest import FakeRest
from tests.contract.cli.cli_rig import GPU, call, read_until, started

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
    rest.fixed["GET /v1/gpus"] = (200, {"gpus": list(gpus)})


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


def test_the_most_used_comes_first() -> None:
    gpus = [
        _shared("n2", [_share("a", 4000, 24.0), _share("b", 12000, 1.0)]),
        _shared("n1", [_share("c", None)]),
    ]
    order = {sort: [use.job for use in uses(gpus, sort)] for sort in ("card", "memory", "compute")}
    assert order == {
        "card": ["c", "(free)", "a", "b", "(free)"],
        "memory": ["b", "a", "(free)", "c", "(free)"],
        "compute": ["a", "b", "(free)", "c", "(free)"],
    }


def test_what_uses_more_than_it_may_and_what_is_uncovered_is_told() -> None:
    over, within, uncovered = uses(
        [_shared("n", [_share("a", 10001), _share("b", 10000)], "uncovered")], "card"
    )
    assert (over.state, over.memory, over.memory_of, over.refused) == ("over", 10001, 10000, 3)
    assert within.state == "ok"
    assert (uncovered.state, uncovered.job, uncovered.memory_of) == ("uncovered", "(uncovered)", None)


def test_a_gpu_that_nobody_shares_has_what_is_in_use_on_it_and_nothing_where_nobody_can_say() -> None:
    use = {"memory_used_mib": 300, "busy_pct": 40.0}
    unknown = {"memory_used_mib": None, "busy_pct": None}
    held: list[Any] = [{**GPU, "job_id": "a-1", "use": said} for said in (use, unknown, None)]
    assert [(row.memory, row.compute, row.compute_of) for row in uses(held, "card")] == [
        (300, 40.0, 100),
        (None, None, 100),
        (None, None, 100),
    ]


def test_a_bar_is_full_at_what_is_granted_and_never_longer() -> None:
    assert [bar(used, 10) for used in (0, 5, 10, 25)] == ["░" * 10, "█" * 5 + "░" * 5, "█" * 10, "█" * 10]
    assert bar(None, 10) is None
    assert bar(3, 0) is None


def test_a_pipe_gets_one_look(rest: FakeRest) -> None:
    got = call("top", "--sort", "memory")
    assert got.exit_code == 0, got.output
    headers, *rows = got.stdout.splitlines()
    assert "MEMORY" not in headers  # bars are for people
    assert [row.split()[2:7] for row in rows[:2]] == [
        ["over", "b", "12000", "10000", "1"],
        ["ok", "a", "4000", "10000", "24"],
    ]
    assert json.loads(call("top", "--json").stdout) == rest.fixed["GET /v1/gpus"][1]["gpus"]  # type: ignore[index]


def test_no_request_more_often_than_each_second(rest: FakeRest) -> None:
    got = call("top", "--interval", "0.2s")
    assert got.exit_code == 2
    assert "--interval: must be at least 1s" in got.stderr


def test_what_a_node_says_commands_no_terminal(rest: FakeRest) -> None:
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
        read_until(terminal, b"what follows is old")
        rest.start()
        read_until(terminal, b"every 1s, by memory")
        os.write(terminal, b"q")
        assert b"\x1b[?1049l" in read_until(terminal, b"\x1b[?25h")  # back, and with the cursor
        assert process.wait(30) == 0
        assert termios.tcgetattr(terminal) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_the_screen_back(rest: FakeRest, number: int) -> None:
    with _on_a_terminal() as (process, terminal, before):
        read_until(terminal, b"q quit")
        process.send_signal(number)
        read_until(terminal, b"\x1b[?1049l")
        assert process.wait(30) == 130
        assert termios.tcgetattr(terminal) == before
