"""`mesos-gpu run`: streams, exit codes, signals, stdin, a scheduler that is away."""

import json
import os
import pty
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.contract.cli.cli_rig import call, finish, launch_two, on_a_terminal, read_until, started, why
from tests.doubles.fake_rest import FakeRest


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


def test_run_shows_all_ranks_live_each_line_after_its_rank(rest: FakeRest) -> None:
    with started("run", "--tasks", "2", "--", "work") as process:
        job = rest.submitted()
        zero, one = launch_two(rest, job)
        rest.write(one, "stdout", b"half")
        rest.write(zero, "stdout", b"whole\n")
        assert process.stdout is not None
        assert process.stdout.readline() == b"[0] whole\n"  # live: the job still runs
        rest.write(one, "stdout", b" a line\n")
        assert process.stdout.readline() == b"[1] half a line\n"
        rest.write(one, "stderr", b"bad\n")
        _, again = launch_two(rest, job)
        rest.write(again, "stdout", b"no end")
        process.send_signal(signal.SIGINT)
        rest.until(lambda: rest.jobs[job]["kill_requested"])
        rest.end(job, "killed", 143, "killed as asked")
        code, out, err = finish(process)
    assert (code, out) == (130, "[1] no end\n")
    assert "[1 err] bad\n" in err
    assert err.count("was launched again") == 1, "not once for each rank"


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
@pytest.mark.parametrize("is_pipe", [True, False])
def test_data_on_stdin_is_refused_and_nothing_is_submitted(
    rest: FakeRest, tmp_path: Path, words: list[str], is_pipe: bool
) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"data")
    reader, writer = os.pipe()
    os.write(writer, b"data")
    with file.open() as opened, started(*words, stdin=reader if is_pipe else opened) as process:
        code, out, err = finish(process)
    assert (code, out) == (2, "")
    assert "stdin has data, but jobs get no stdin" in err
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
    rest.fixed["GET /v1/why/job-00000000"] = (200, why("job-00000000"))
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
    assert f"detached; check how it ends with `mesos-gpu show {job}`" in err


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
    assert "connection refused), for 0.7 s\nTo fix: jobs keep running" in got.stderr


def test_run_command_on_a_terminal_says_in_a_line_why_it_waits(rest: FakeRest) -> None:
    rest.fixed["GET /v1/why/job-00000000"] = (200, why("job-00000000"))
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


def test_a_detached_run_as_json(rest: FakeRest) -> None:
    got = call("run", "--detach", "--json", "--", "true")
    assert got.exit_code == 0
    assert json.loads(got.stdout)["state"] == "pending"
    wrong = call("run", "--json", "--", "true")
    assert wrong.exit_code == 2
    assert "--json needs --detach" in wrong.stderr


@pytest.mark.parametrize("words", [("-i",), ()])
def test_refused_run_says_nothing_of_an_interruption(rest: FakeRest, words: tuple[str, ...]) -> None:
    problems = [{"path": "/user", "reason": "root is not allowed"}]
    error = {"code": "invalid", "message": "the request is not valid", "remedy": "ask", "problems": problems}
    rest.fixed["POST /v1/jobs"] = (422, {"error": error})
    got = call("run", *words, "--user", "root", "--", "cat")
    assert got.exit_code == 65
    assert got.stderr.startswith("Error: ")
    assert "interrupted" not in got.stderr


@pytest.mark.parametrize("columns", [80, 120])
def test_run_with_a_terminal_ends_its_status_line_first(rest: FakeRest, columns: int) -> None:
    rest.fixed["GET /v1/why/job-00000000"] = (200, why("job-00000000"))
    rest.fixed["POST /v1/jobs/job-00000000/exec"] = (
        409,
        {"error": {"code": "conflict", "message": "no channel in this test", "remedy": "none"}},
    )
    with on_a_terminal("run", "-it", "sh", columns=columns) as (process, keys):
        seen = read_until(keys, b"2 more free")
        rest.launch(rest.submitted())
        seen += read_until(keys, b"no channel in this test")
        assert process.wait(60) == 73
    text = seen.decode()
    lines = text[: text.index("Error: ")].split("\r\n")
    assert lines[-1].endswith("\r\x1b[K"), "what follows begins in the first column of an empty line"
    assert max(len(shown) for line in lines for shown in line.split("\r\x1b[K")) < columns
