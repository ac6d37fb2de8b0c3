"""The real `mesos-gpu` against a REST server of its contract: output, exit codes, signals, terminals."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from mesos_gpu.testing.fake_rest import FakeRest

UUIDS = ("748f8361-f8f8-5919-8128-7782099d4f97", "c5d8ee65-225e-547c-968b-e6d1aeffee4a")
PROGRAM = [sys.executable, "-m", "mesos_gpu"]
GPU = {
    "uuid": "GPU-1",
    "model": "A100 [x]",
    "memory_mib": 40960,
    "compute_capability": "8.0",
    "minor": 0,
    "pci_bus_id": "",
    "numa_node": None,
    "health": "sick",
    "reason": "XID 79",
    "since": 1000.0,
    "node_health": "sick",
    "node_reason": "XID 79",
    "warnings": [],
    "drain": None,
    "reset": None,
    "hostname": "node-1",
    "agent_id": "S0",
    "task_id": None,
    "job_id": None,
    "job_name": None,
}


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeRest]:
    with FakeRest() as server:
        monkeypatch.setenv("MESOS_GPU_URL", server.url)
        monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
        yield server


def call(*words: str, stdin: str = "") -> Result:
    """In this process: for what needs no signals and no terminal."""
    return CliRunner().invoke(main, words, input=stdin, prog_name="mesos-gpu")


@contextmanager
def started(*words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The program as a process, which does not outlive the block."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with subprocess.Popen([*PROGRAM, *words], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out.decode(), (err or b"").decode()


def read_until(fd: int, words: bytes, timeout_s: float = 60.0) -> bytes:
    seen, deadline = b"", time.monotonic() + timeout_s
    while words not in seen:
        ready, _, _ = select.select([fd], [], [], max(deadline - time.monotonic(), 0))
        assert ready, f"{words!r} did not come; only {seen!r}"
        piece = os.read(fd, 65536)
        assert piece, f"the end came before {words!r}; only {seen!r}"
        seen += piece
    return seen


# ---- run


def test_run_streams_both_and_takes_the_exit_code(rest: FakeRest) -> None:
    with started("run", "--", "work") as process:
        job = rest.submitted()
        task = rest.launch(job)
        rest.write(task, "stdout", b"one\n")
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"  # live: the job still runs
        rest.write(task, "stdout", "zwei ü\nno end".encode())
        rest.write(task, "stderr", b"bad\n")
        rest.end(job, "failed", 3, "exit status 3")
        code, out, err = finish(process)
    assert (code, out) == (3, "zwei ü\nno end")
    assert err == f"bad\nmesos-gpu: job {job} failed, exit code 3: exit status 3\n"


def test_run_writes_all_of_much_output(rest: FakeRest) -> None:
    with started("run", "x") as process:
        job = rest.submitted()
        rest.write(rest.launch(job), "stdout", b"0123456789abcde\n" * 200_000)  # more than one chunk
        rest.end(job, "finished", 0)
        code, out, err = finish(process)
    assert (code, len(out), err) == (0, 3_200_000, "")


@pytest.mark.parametrize(
    ("state", "exit_code", "want"), [("killed", None, 143), ("failed", None, 125), ("failed", 137, 137)]
)
def test_run_exit_codes_without_a_zero(rest: FakeRest, state: str, exit_code: int | None, want: int) -> None:
    ends = threading.Thread(target=lambda: rest.end(rest.submitted(), state, exit_code, "because"))
    ends.start()
    got = call("run", "x")
    ends.join()
    assert got.exit_code == want
    assert "because" in got.stderr


def test_run_goes_on_with_each_launch(rest: FakeRest) -> None:
    with started("run", "x") as process:
        job = rest.submitted()
        for text in (b"first\n", b"second\n", b"third\n"):
            rest.write(rest.launch(job), "stdout", text)
        rest.end(job, "finished", 0)
        code, out, err = finish(process)
    assert (code, out) == (0, "first\nsecond\nthird\n")
    assert err.count("was launched again") == 2


def test_ctrl_c_kills_the_job_and_waits_for_its_end(rest: FakeRest) -> None:
    with started("run", "x") as process:
        job = rest.submitted()
        task = rest.launch(job)
        rest.write(task, "stdout", b"up\n")
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest.until(lambda: rest.jobs[job]["kill_requested"])
        rest.write(task, "stdout", b"saved\n")
        rest.end(job, "killed", 143, "killed as asked")
        code, out, err = finish(process)
    assert (code, out) == (130, "saved\n")
    assert f"killing job {job}" in err
    assert "Traceback" not in err


def test_ctrl_c_while_submitting_leaves_no_job_behind(rest: FakeRest) -> None:
    with rest.held(), started("run", "x") as process:
        rest.until(lambda: bool(rest.asked))  # the scheduler has it, and has not said so
        process.send_signal(signal.SIGINT)
        rest.release()
        rest.until(lambda: rest.jobs[rest.submitted()]["kill_requested"])
        rest.end(rest.submitted(), "killed")
        assert finish(process)[0] == 130


def test_sigterm_kills_the_job_and_waits_for_its_end(rest: FakeRest) -> None:
    with started("run", "x") as process:
        job = rest.submitted()
        rest.launch(job)
        rest.until(lambda: rest.asked[-1][0].endswith("/logs"))
        process.send_signal(signal.SIGTERM)
        rest.until(lambda: rest.jobs[job]["kill_requested"])
        assert process.poll() is None, "it waits for the end"
        rest.end(job, "killed")
        code, _, err = finish(process)
    assert (code, f"job {job} killed" in err) == (143, True)


def test_sigterm_while_submitting_kills_the_job_too(rest: FakeRest) -> None:
    with rest.held(), started("run", "x") as process:
        rest.submitted()
        process.send_signal(signal.SIGTERM)
        rest.release()
        rest.until(lambda: rest.jobs[rest.submitted()]["kill_requested"])
        rest.end(rest.submitted(), "killed")
        assert finish(process)[0] == 143


@pytest.mark.parametrize("words", [["run", "cat"], ["run", "-d", "cat"]])
def test_data_on_stdin_is_refused_and_nothing_is_submitted(
    rest: FakeRest, tmp_path: Path, words: list[str]
) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"data")
    reader, writer = os.pipe()
    os.write(writer, b"data")
    with file.open() as opened:
        for stdin in (opened, reader):
            with started(*words, stdin=stdin) as process:
                code, out, err = finish(process)
            assert (code, out) == (2, "")
            assert "stdin has data, and a job gets none" in err
            assert "</dev/null" in err
    os.close(reader)
    os.close(writer)
    assert not rest.jobs


def test_data_that_comes_late_on_stdin_is_told_and_left_there(rest: FakeRest) -> None:
    reader, writer = os.pipe()
    with started("run", "cat", stdin=reader) as process:
        job = rest.submitted()
        rest.launch(job)
        os.write(writer, b"late")
        assert process.stderr is not None
        assert b"stdin has data" in read_until(process.stderr.fileno(), b"\n")
        rest.end(job, "finished", 0)
        assert finish(process)[:2] == (0, "")
    assert os.read(reader, 10) == b"late"
    os.close(reader)
    os.close(writer)


def test_an_empty_pipe_as_stdin_is_no_data(rest: FakeRest) -> None:
    with started("run", "x", stdin=subprocess.PIPE) as process:
        job = rest.submitted()
        rest.launch(job)
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        rest.end(job, "finished", 0)
        assert finish(process) == (0, "", "")


def test_the_id_of_a_job_that_waits_is_said_without_a_terminal_too(rest: FakeRest) -> None:
    rest.fixed["GET /v1/why/job-00000000"] = (200, _why("job-00000000"))
    with started("run", "x") as process:
        assert process.stderr is not None
        said = read_until(process.stderr.fileno(), b"\n")
        assert said.startswith(b"mesos-gpu: job job-00000000: waits for 4 GPUs; nearest is n1")
        job = rest.submitted()
        rest.launch(job)
        rest.end(job, "finished", 0)
        assert finish(process) == (0, "", "")


def test_a_second_ctrl_c_leaves_at_once(rest: FakeRest) -> None:
    with started("run", "x") as process:
        job = rest.submitted()
        rest.launch(job)
        process.send_signal(signal.SIGINT)
        rest.until(lambda: rest.jobs[job]["kill_requested"])
        rest.until(lambda: rest.asked[-1][0].endswith("/logs"))
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process)
    assert code == 130
    assert f"left; see what becomes of it with `mesos-gpu show {job}`" in err


def test_a_reader_that_leaves_kills_the_job_silently(rest: FakeRest) -> None:
    with started("run", "yes") as process:
        job = rest.submitted()
        task = rest.launch(job)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        rest.write(task, "stdout", b"y\n")
        assert process.wait(30) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert rest.jobs[job]["kill_requested"]


def test_run_outlives_a_restart_of_the_scheduler(rest: FakeRest) -> None:
    with started("run", "x") as process:
        job = rest.submitted()
        task = rest.launch(job)
        rest.write(task, "stdout", b"before\n")
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        rest.stop()
        read_until(process.stderr.fileno(), b"trying again for 60 s")
        rest.start()
        rest.write(task, "stdout", b"after\n")
        rest.end(job, "finished", 0)
        code, out, err = finish(process)
    assert (code, out) == (0, "after\n")
    assert "the scheduler is back" in err


def test_patience_has_an_end(rest: FakeRest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mesos_gpu.cli.waiting.PATIENCE_S", 0.7)
    job = rest.add()

    def leave() -> None:
        rest.until(lambda: len(rest.asked) == 2)
        rest.stop()

    goes = threading.Thread(target=leave)
    goes.start()
    got = call("wait", job)
    goes.join()
    assert got.exit_code == 69
    assert "connection refused), for 0.7 s now\nTo fix: jobs run on without it" in got.stderr


def test_on_a_terminal_one_line_says_why_it_waits(rest: FakeRest) -> None:
    rest.fixed["GET /v1/why/job-00000000"] = (200, _why("job-00000000"))
    ours, theirs = pty.openpty()
    try:
        env = {**os.environ, "COLUMNS": "200"}
        with started("run", "x", stdout=theirs, stderr=theirs, env=env) as process:
            os.close(theirs)
            seen = read_until(ours, b"2 more free GPUs")
            job = rest.submitted()
            rest.write(rest.launch(job), "stdout", b"hello\n")
            seen += read_until(ours, b"hello\r\n")
            rest.end(job, "finished", 0)
            assert process.wait(30) == 0
    finally:
        os.close(ours)
    assert b"\r\x1b[Khello\r\n" in seen  # the line is gone before the output
    assert seen.startswith(b"mesos-gpu: job job-00000000\r\n")


# ---- the others


def test_ps_is_plain_and_stable_when_piped(rest: FakeRest) -> None:
    rest.add("a", argv=["sh", "-c", "echo 'x'\n\x1b[2J"], gpus=2)
    ended = rest.add("b", command="long " * 60)
    rest.launch(ended)
    rest.end(ended, "failed", 7)
    lines = call("ps").stdout.splitlines()
    assert lines[0].split() == [
        "ID",
        "STATE",
        "EXIT",
        "QUEUE",
        "PRIO",
        "GPUS",
        "CPUS",
        "MEM_MIB",
        "NODE",
        "AGE",
        "RAN",
        "COMMAND",
    ]
    assert len(lines) == 2
    assert lines[1].split()[:8] == ["a-00000000", "pending", "-", "default", "0", "2", "1", "128"]
    assert r"echo '\"'\"'x'\"'\"'\n\x1b[2J" in lines[1].replace("'\"'\"'", r"'\"'\"'")
    every = call("ps", "--all").stdout.splitlines()
    assert [row.split()[0] for row in every[1:]] == ["a-00000000", "b-00000001"]
    assert every[2].endswith("long " * 59 + "long")  # nothing is cut
    assert [row.split()[2] for row in call("ps", "--state", "failed").stdout.splitlines()[1:]] == ["7"]
    assert call("ps", "--state", "killed").stdout.splitlines() == [
        call("ps", "--state", "killed").stdout.rstrip()
    ]


def test_ps_shows_what_runs_first_and_counts_what_it_hides(rest: FakeRest) -> None:
    first = rest.add("runs")
    rest.launch(first)
    for _ in range(1100):
        rest.add("waits")
    got = call("ps")
    assert got.stdout.splitlines()[1].split()[:2] == [first, "running"]
    assert len(got.stdout.splitlines()) == 1001
    assert got.stderr == "mesos-gpu: 101 of 1101 jobs are not shown; see them with --limit 1101\n"
    assert len(call("ps", "--limit", "1101").stdout.splitlines()) == 1102


def test_tables_on_a_terminal(rest: FakeRest) -> None:
    rest.fixed["GET /v1/gpus"] = (200, {"gpus": [GPU]})
    for words, want in ((["gpus"], b"XID 79"), (["ps"], b"No active job")):
        ours, theirs = pty.openpty()
        try:
            env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
            with started(*words, stdout=theirs, env=env) as process:
                os.close(theirs)
                seen = read_until(ours, want)
                assert process.wait(30) == 0
        finally:
            os.close(ours)
        assert (b"\x1b[31msick" in seen) == (words == ["gpus"])


@pytest.mark.parametrize("name", ["gpus", "nodes"])
def test_lists_as_json_and_empty(rest: FakeRest, name: str) -> None:
    rest.fixed[f"GET /v1/{name}"] = (200, {name: []})
    assert json.loads(call(name, "--json").stdout) == []
    assert len(call(name).stdout.splitlines()) == 1  # the header


NODE = {
    "agent_id": "S0",
    "hostname": "n",
    "state": "up",
    "attributes": {"b": "2", "a": "1"},
    "region": None,
    "zone": "z1",
    "gpus_total": 4,
    "gpus_used": 1,
    "gpus_sick": 0,
    "gpus_drained": 0,
    "driver_version": None,
    "cuda_version": None,
    "volume": None,
    "volume_problem": "no room on /",
    "isolation": "off",
    "control_ports": "off",
    "drain": None,
    "source": "simulated",
    "reported_at": None,
    "tasks": 2,
}


@pytest.mark.parametrize(
    ("volume", "problem", "shown"),
    [("535.1", None, "ready"), ("470.2", None, "470.2"), (None, "no room", "none"), (None, None, "-")],
)
def test_nodes_say_how_their_driver_volume_is(
    rest: FakeRest, volume: str | None, problem: str | None, shown: str
) -> None:
    node = {**NODE, "driver_version": "535.1", "cuda_version": "12.2"}
    rest.fixed["GET /v1/nodes"] = (
        200,
        {"nodes": [{**node, "volume": volume, "volume_problem": problem, "hostname": name} for name in "ab"]},
    )
    got = call("nodes")
    assert got.stdout.splitlines()[1].split()[6:9] == ["535.1", "12.2", shown]
    said = f"mesos-gpu: no driver volume on a, b: {problem}\n"
    assert got.stderr == (said if problem else "")


def test_nodes_and_status(rest: FakeRest) -> None:
    rest.fixed["GET /v1/nodes"] = (200, {"nodes": [{**NODE, "reported_at": time.time()}]})
    assert call("nodes").stdout.splitlines()[1].split() == [
        "n",
        "up",
        "4",
        "1",
        "0",
        "2",
        "-",
        "-",
        "none",
        "simulated",
        "off",
        "0s",
        "S0",
        "-",
        "@zone=z1,a=1,b=2",
    ]
    status = {
        "framework_id": "F",
        "master_url": "http://m",
        "connected": False,
        "webui_url": "http://w",
        "started_at": time.time(),
        "version": "0.1",
        "jobs": {"pending": 2, "failed": 0},
        "gpus_total": 4,
        "gpus_used": 1,
        "gpus_sick": 0,
        "gpus_drained": 2,
        "nodes": 1,
        "tasks_unknown": 0,
        "unsaved": None,
        "drains": [],
        "isolation_off": ["n"],
        "control_ports_off": ["n"],
    }
    rest.fixed["GET /v1/status"] = (200, status)
    assert "isolation is OFF on n:" in call("status").stderr
    assert "the control ports are OPEN to tasks on n:" in call("status").stderr
    text = call("status").stdout
    assert "master     http://m (NOT CONNECTED)\n" in text
    assert "jobs       2 pending\n" in text
    assert json.loads(call("status", "--json").stdout) == {"url": rest.url, **status}


def test_show_by_prefix(rest: FakeRest) -> None:
    job = rest.add("train", env={"A": "x y"}, labels={"k": "v"}, gpu_model=["A", "B"], gpus=1)
    rest.launch(job)
    got = call("show", "tr")
    assert got.exit_code == 0, got.stderr
    assert "gpus          1 of model A or B\n" in got.stdout
    assert "env           'A=x y'\n" in got.stdout
    assert f"\n{job}.1  running" in got.stdout
    shown = json.loads(call("show", "tr", "--json").stdout)
    assert (shown["id"], shown["runs"][0]["id"]) == (job, f"{job}.1")


def _why(job: str) -> dict[str, object]:
    missing = "lacks 2 more free GPUs"
    return {
        "job_id": job,
        "state": "pending",
        "summary": f"waits for 4 GPUs; nearest is n1, which {missing}",
        "queue_position": 1,
        "can_ever_run": True,
        "tasks_fit": None,
        "agents": 3,
        "funnel": [
            {"reason": "model", "removed": 2, "left": 1, "example": "n2 has T4"},
            {"reason": "gpus", "removed": 1, "left": 0, "example": f"n1 {missing}"},
        ],
        "nearest": {"hostname": "n1", "missing": missing},
        "nodes": [{"hostname": "n1", "agent_id": "S0", "reasons": [missing, "lacks 1 cpus"]}],
        "estimate": {"at": None, "basis": "nobody knows when job x ends"},
    }


def test_why_reads_well(rest: FakeRest) -> None:
    rest.fixed["GET /v1/why/x"] = (200, _why("x-1"))
    assert call("why", "x").stdout == (
        "x-1: waits for 4 GPUs; nearest is n1, which lacks 2 more free GPUs.\n"
        "Place in the queue: 2, 1 job before it.\n"
        "Estimated start: not known: nobody knows when job x ends.\n"
        "\n"
        "REASON  REMOVED  AGENTS LEFT  FOR EXAMPLE\n"
        "-             -            3  -\n"
        "model         2            1  n2 has T4\n"
        "gpus          1            0  n1 lacks 2 more free GPUs\n"
        "\n"
        "NODE  WHY NOT\n"
        "n1    lacks 2 more free GPUs; lacks 1 cpus\n"
    )
    assert json.loads(call("why", "x", "--json").stdout) == _why("x-1")


def test_queue(rest: FakeRest) -> None:
    waiting = {
        "position": 0, "id": "big-1", "name": "big", "queue": "lab", "priority": 1, "effective_priority": 3,
        "gpus": 4, "cpus": 1.0, "mem_mib": 128, "submitted_at": time.time() - 60.5,
        "reservation": {"hostname": "n1", "gpu_ids": ["g1", "g2"], "at": time.time() + 180.5},
        "estimate": {"at": time.time() + 180.5, "basis": "job x has run 3m of its timeout_s 6m on n1"},
    }  # fmt: skip
    share = {
        **waiting,
        "position": 1,
        "id": "b-2",
        "reservation": {"hostname": None, "gpu_ids": [], "at": None},
    }
    rest.fixed["GET /v1/queue"] = (
        200,
        {
            "jobs": [waiting, {**share, "estimate": {"at": None, "basis": "nobody knows"}}],
            "queues": [
                {"name": "default", "limit_gpus": None, "used_gpus": 1, "waiting": 0},
                {"name": "lab", "limit_gpus": 8, "used_gpus": 6, "waiting": 5},
            ],
        },
    )
    got = call("queue")
    lines = [line.split() for line in got.stdout.splitlines()]
    assert lines[1][:12] == ["1", "big-1", "lab", "1", "3", "4", "1", "128", "1m00s", "n1,", "2", "GPUs"]
    assert " ".join(lines[1][12:]) == "in 3m00s job x has run 3m of its timeout_s 6m on n1"
    assert " ".join(lines[2][9:]) == "a share of its queue not known nobody knows"
    assert lines[4:] == [["QUEUE", "GPUS", "LIMIT", "WAITING"], ["lab", "6", "8", "5"]]
    assert "3 more wait; see them with --limit" in got.stderr
    assert json.loads(call("queue", "--json").stdout)["jobs"][0] == waiting


def test_logs(rest: FakeRest) -> None:
    job = rest.add()
    got = call("logs", job)
    assert (got.exit_code, got.stdout) == (73, "")
    assert "has not been launched yet" in got.stderr
    task = rest.launch(job)
    rest.write(task, "stdout", b"1\n2\n3\nno end")
    rest.write(task, "stderr", b"e\n")
    rest.end(job, "finished", 0)
    assert call("logs", job).stdout == "1\n2\n3\nno end"
    assert call("logs", job, "--stderr").stdout == "e\n"
    for lines, want in ((0, ""), (1, "no end"), (2, "3\nno end"), (9, "1\n2\n3\nno end")):
        assert call("logs", job, "--tail", str(lines)).stdout == want
    assert call("logs", job, "-f", "-n", "1").stdout == "no end"


def test_bytes_come_out_as_they_were_written(rest: FakeRest) -> None:
    every = bytes(range(256)) * 3 + b"\xe2\x82"
    with started("run", "x") as process:
        job = rest.submitted()
        rest.write(rest.launch(job), "stdout", every)
        rest.end(job, "finished", 0)
        assert process.communicate(timeout=30)[0] == every
    assert call("logs", job).stdout_bytes == every


def test_logs_of_an_attempt_and_of_a_launch_by_its_task_id(rest: FakeRest) -> None:
    job = rest.add()
    for word in (b"first\n", b"second\n"):
        rest.write(rest.launch(job), "stdout", word)
    rest.end(job, "failed", 1)
    assert call("logs", job).stdout == "second\n"
    assert call("logs", job, "--attempt", "1").stdout == "first\n"
    assert call("logs", f"{job}.1").stdout == "first\n"
    assert call("show", f"{job}.1").exit_code == 0
    got = call("logs", job, "--attempt", "3")
    assert (got.exit_code, f"job {job} has no attempt 3; there are: 1, 2" in got.stderr) == (66, True)
    assert call("logs", f"{job}.1", "--attempt", "1").exit_code == 2


def test_both_streams_are_marked_where_they_come_out_at_one_place(rest: FakeRest) -> None:
    job = rest.add()
    task = rest.launch(job)
    rest.write(task, "stdout", b"out")
    rest.write(task, "stderr", b"err\n")
    rest.end(job, "failed", 1)
    apart = call("logs", job)
    assert (apart.stdout, apart.stderr) == ("out", "err\n"), "two places: as it was written"
    with started("logs", job, stderr=subprocess.STDOUT) as process:
        code, out, _ = finish(process)
    assert (code, out) == (0, "==> stdout <==\nout\n\n==> stderr <==\nerr\n")
    with started("logs", job, "--stderr", stderr=subprocess.STDOUT) as process:
        assert finish(process)[1] == "err\n"


def test_logs_of_an_app_are_those_of_its_tasks(rest: FakeRest) -> None:
    jobs = [rest.add(f"web.instance-{uuid}._app") for uuid in UUIDS]
    tasks = [rest.launch(job) for job in jobs]
    for task in tasks:
        rest.write(task, "stdout", f"of {task[:-2]}\n".encode())
    rest.write(tasks[1], "stderr", b"bad\n")
    staged = [{"id": task, "stagedAt": str(i)} for i, task in enumerate(tasks)]
    rest.fixed["GET /v2/apps/web"] = (200, {"app": {"id": "/web", "tasks": staged}})
    first, second = ("web.instance-748f8361", "web.instance-c5d8ee65")
    assert call("logs", "/web").stdout == (
        f"==> {first} stdout <==\nof {jobs[0]}\n\n"
        f"==> {second} stdout <==\nof {jobs[1]}\n\n==> {second} stderr <==\nbad\n"
    )
    assert call("logs", "/web", "--stderr").stdout == f"==> {second} stderr <==\nbad\n"
    assert call("logs", "/web", "--attempt", "1").exit_code == 2
    rest.fixed["GET /v2/apps/web"] = (200, {"app": {"id": "/web", "tasks": []}})
    got = call("logs", "/web")
    assert (got.exit_code, "see why: mesos-gpu why /web" in got.stderr) == (66, True)


def test_logs_that_cannot_be_read_are_an_error(rest: FakeRest) -> None:
    job = rest.add()
    rest.launch(job)
    rest.fixed[f"GET /v1/jobs/{job}/logs"] = (
        404,
        {"error": {"code": "not-found", "message": "the sandbox is gone", "remedy": "r"}},
    )
    got = call("logs", job)
    assert (got.exit_code, got.stderr) == (66, "Error: the sandbox is gone\nTo fix: r\n")
    rest.end(job, "finished", 0)
    got = call("logs", "-f", job)
    assert (got.exit_code, got.stderr) == (
        0,
        f"mesos-gpu: output of {job}.1 is missing: the sandbox is gone\n",
    )


def test_kill_goes_on_after_a_wrong_id(rest: FakeRest) -> None:
    one, two = rest.add("one"), rest.add("two")
    rest.end(two, "finished", 0)
    got = call("kill", "none", one, two)
    assert got.exit_code == 66
    assert got.stdout == f"{one} killing\n{two} had ended: finished\n"
    assert got.stderr.startswith("Error: 0 jobs begin with none\nTo fix: ")


def test_wait_takes_the_first_bad_exit_code(rest: FakeRest) -> None:
    one, two, three = rest.add("one"), rest.add("two"), rest.add("three")
    for job, code in ((one, 0), (three, 9)):
        rest.end(job, "failed" if code else "finished", code)

    def end_it() -> None:
        rest.until(lambda: len(rest.asked) > 3)
        rest.end(two, "failed", 4)

    ends = threading.Thread(target=end_it)
    ends.start()
    got = call("wait", one, two, three)
    ends.join()
    assert got.exit_code == 4
    assert got.stdout == f"{one} finished 0\n{two} failed 4\n{three} failed 9\n"


def test_wait_has_a_timeout(rest: FakeRest) -> None:
    job = rest.add()
    begin = time.monotonic()
    got = call("wait", job, "--timeout", "0.3s", "--json")
    assert time.monotonic() - begin < 30
    assert (got.exit_code, json.loads(got.stdout)[0]["state"]) == (124, "pending")
    assert f"still not ended: {job}" in got.stderr


def test_submit(rest: FakeRest, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("- {name: a, command: 'true'}\n- {name: b, argv: ['true'], gpus: 1}\n")
    assert call("submit", str(file)).stdout == "a-00000000\nb-00000001\n"
    assert call("submit", "-", stdin='{"name": "c", "command": "x"}').stdout == "c-00000002\n"
    bad = call("submit", "-", stdin='[{"command": "x"}, {"cpus": 0}]')
    assert bad.exit_code == 65
    assert "\n  /1: needs exactly one of command" in bad.stderr
    assert "\n  /1/cpus: must be a positive number" in bad.stderr
    assert len(rest.jobs) == 3  # none of the bad file was sent
    rest.fixed["POST /v1/jobs"] = (503, {"error": {"code": "unavailable", "message": "no", "remedy": "wait"}})
    got = call("submit", str(file))
    assert (got.exit_code, got.stderr) == (
        69,
        "mesos-gpu: 0 of 2 jobs were submitted\nError: no\nTo fix: wait\n",
    )
    missing = call("submit", "/nowhere.yaml")
    assert (missing.exit_code, "does not exist" in missing.stderr) == (2, True)


def test_a_closed_pipe_and_a_full_disk(rest: FakeRest) -> None:
    for i in range(300):
        rest.add(f"job{i}", command="x" * 300)
    with started("ps", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        process.stdout = None
        assert process.wait(30) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
    with open("/dev/full", "wb") as full, started("ps", stdout=full) as process:
        assert process.stderr is not None
        assert process.stderr.read() == b"Error: [Errno 28] No space left on device\n"
        assert process.wait(30) == 74


def test_closed_streams_are_no_fault(rest: FakeRest) -> None:
    rest.add()
    command = f"{sys.executable} -m mesos_gpu ps >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", command], timeout=60).returncode == 0


def test_a_detached_run_as_json(rest: FakeRest) -> None:
    got = call("run", "--detach", "--json", "--", "true")
    assert got.exit_code == 0
    assert json.loads(got.stdout)["state"] == "pending"
    wrong = call("run", "--json", "--", "true")
    assert wrong.exit_code == 2
    assert "--json needs --detach" in wrong.stderr
