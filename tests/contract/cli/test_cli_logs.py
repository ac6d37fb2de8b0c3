"""`mesos-gpu logs`: of jobs, launches and apps, byte for byte."""

import subprocess
from typing import Any

from mesos_gpu.cli import output
from mesos_gpu.cli.channel.interactive import held
from tests.contract.cli.cli_rig import UUIDS, call, finish, launch_two, started
from tests.doubles.fake_rest import FakeRest


def test_logs_are_printed_as_they_were_written(rest: FakeRest) -> None:
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


def test_logs_of_a_session_say_why_there_is_no_output(rest: FakeRest) -> None:
    request: dict[str, Any] = {"argv": ["bash", "-l"]}
    assert held(request)[-2:] == ["bash", "-l"]
    job = rest.add(**request)
    rest.launch(job)
    rest.end(job, "finished", 0)
    printed = call("logs", job)
    assert (printed.exit_code, printed.stdout) == (0, "")
    assert f"{job} was run with -i or -t" in printed.stderr
    other = rest.add(command="echo ': session of: '")
    rest.launch(other)
    assert "-i or -t" not in call("logs", other).stderr


def test_bytes_come_out_as_they_were_written(rest: FakeRest) -> None:
    every = bytes(range(256)) * 3 + b"\xe2\x82"
    with started("run", "x") as process:
        job = rest.submitted()
        rest.write(rest.launch(job), "stdout", every)
        rest.end(job, "finished", 0)
        assert process.communicate(timeout=30)[0] == every
    assert call("logs", job).stdout_bytes == every


def test_logs_of_an_earlier_launch_by_its_number_and_by_its_task_id(rest: FakeRest) -> None:
    job = rest.add()
    for word in (b"first\n", b"second\n"):
        rest.write(rest.launch(job), "stdout", word)
    rest.end(job, "failed", 1)
    assert call("logs", job).stdout == "second\n"
    assert call("logs", job, "--launch", "1").stdout == "first\n"
    assert call("logs", f"{job}.1").stdout == "first\n"
    assert call("show", f"{job}.1").exit_code == 0
    got = call("logs", job, "--launch", "3")
    assert (got.exit_code, f"job {job} has no launch 3: it was launched 2 times" in got.stderr) == (66, True)
    assert call("logs", f"{job}.1", "--launch", "1").exit_code == 2


def test_logs_mark_both_streams_in_one_place(rest: FakeRest) -> None:
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


def test_logs_of_one_stream_are_not_marked(rest: FakeRest) -> None:
    job = rest.add()
    rest.write(rest.launch(job), "stderr", b"err\n")
    rest.end(job, "failed", 1)
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
    assert call("logs", "/web", "--launch", "1").exit_code == 2
    rest.fixed["GET /v2/apps/web"] = (200, {"app": {"id": "/web", "tasks": []}})
    got = call("logs", "/web")
    assert (got.exit_code, "find out why with: mesos-gpu why /web" in got.stderr) == (66, True)


def test_logs_of_an_app_without_a_task_are_those_of_the_latest_that_ended(rest: FakeRest) -> None:
    older, latest = (rest.add(f"web.instance-{uuid}._app") for uuid in UUIDS)
    for job in (older, latest):
        rest.write(rest.launch(job), "stderr", f"boom {job}\n".encode())
        rest.end(job, "failed", exit_code=1)
    rest.fixed["GET /v2/apps/web"] = (200, {"app": {"id": "/web", "tasks": []}})
    got = call("logs", "/web", "--stderr")
    assert (got.exit_code, got.stdout) == (0, f"==> {latest[:21]} stderr <==\nboom {latest}\n")
    said = f"mesos-gpu: no instance of /web runs; printing the latest task {latest}.1, which ended "
    assert got.stderr.startswith(said)
    assert rest.queries["GET /v1/jobs"]["app"] == ["/web"]


def test_logs_of_an_app_are_followed_over_new_tasks_until_it_is_deleted(rest: FakeRest) -> None:
    tasks = [rest.launch(rest.add(f"web.instance-{uuid}._app")) for uuid in UUIDS]
    staged = [{"id": task, "stagedAt": str(i)} for i, task in enumerate(tasks)]
    rest.fixed["GET /v2/apps/web"] = (200, {"app": {"id": "/web", "tasks": staged[:1]}})
    rest.write(tasks[0], "stdout", b"one\n")
    with started("logs", "/web", "-f") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        rest.write(tasks[0], "stdout", b"two\n")
        lines.append(process.stdout.readline())
        rest.write(tasks[1], "stdout", b"three\n")
        rest.fixed["GET /v2/apps/web"] = (200, {"app": {"id": "/web", "tasks": staged}})
        lines += [process.stdout.readline() for _ in range(3)]
        rest.fixed["GET /v2/apps/web"] = (404, {"message": "App '/web' does not exist"})
        code, out, errors = finish(process)
    first, second = (b"==> web.instance-748f8361 stdout <==\n", b"==> web.instance-c5d8ee65 stdout <==\n")
    assert lines == [first, b"one\n", b"two\n", b"\n", second, b"three\n"]
    assert (code, out, errors) == (0, "", "")


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
        f"mesos-gpu: output of {job}.1 could not be read completely: the sandbox is gone\n",
    )


def noted(rest: FakeRest, task: str, stdout: bytes, *times: tuple[int, float]) -> None:
    """Write the stdout of a task, with what its host has noted: sizes, and moments in seconds since the epoch."""
    rest.write(task, "stdout", stdout)
    rest.times[task, "stdout"] = [{"offset": size, "at": at} for size, at in times]
    rest.times[task, "stderr"] = []


def test_logs_of_a_gang_are_merged_by_time(rest: FakeRest) -> None:
    job = rest.add(tasks=2)
    zero, one = launch_two(rest, job)
    noted(rest, zero, b"a\nb\nno", (2, 10.0), (4, 30.0), (6, 40.0))
    noted(rest, one, b"c\nd\n", (2, 20.0), (4, 35.0))
    merged = "[0] a\n[1] c\n[0] b\n[1] d\n[0] no\n"
    for words in ([], ["--rank", "all"], ["-n", "9"]):
        got = call("logs", job, *words)
        assert (got.stdout, got.stderr) == (merged, ""), words
    assert call("logs", job, "-n", "1").stdout == "[1] d\n[0] no\n"
    stamps = [f"{output.stamp(at)} " for at in (10.0, 20.0, 30.0, 35.0)]
    lines = call("logs", job, "--timestamps").stdout.splitlines()
    assert [line[: len(stamps[0])] for line in lines[:4]] == stamps
    assert call("logs", job, "--rank", "0").stdout == "a\nb\nno"
    rest.end(job, "finished", 0)
    assert call("logs", job, "-f").stdout == merged


def test_logs_of_a_gang_without_times_are_those_of_rank_0_or_rank_by_rank(rest: FakeRest) -> None:
    job = rest.add(tasks=2)
    zero, one = launch_two(rest, job)
    rest.write(zero, "stdout", b"a\nb\nno")
    rest.write(zero, "stderr", b"bad\n")
    rest.write(one, "stdout", b"c\n")
    got = call("logs", job, "--rank", "all")
    note = "mesos-gpu: printing rank by rank, because times of writing are not known for all ranks\n"
    assert (got.stdout, got.stderr) == ("[0] a\n[0] b\n[0] no\n[1] c\n", f"{note}[0 err] bad\n")
    assert call("logs", job, "--rank", "all", "--stderr").stdout == "[0 err] bad\n"
    assert call("logs", job, "--rank", "all", "-n", "1", "--stdout").stdout == "[0] no\n[1] c\n"
    assert call("logs", job, "--rank", "1", "--prefix").stdout == "[1] c\n"
    first = call("logs", job)
    assert first.stdout == "a\nb\nno"
    assert first.stderr.startswith(
        "mesos-gpu: printing only rank 0 of 2, because times of writing are not known"
    )
    assert call("logs", zero, "--rank", "all").exit_code == 2
    assert call("logs", job, "--rank", "some").exit_code == 2


def test_logs_follow_all_ranks_through_a_restart(rest: FakeRest) -> None:
    job = rest.add(tasks=2)
    zero, one = launch_two(rest, job)
    with started("logs", job, "--rank", "all", "-f") as process:
        assert process.stdout is not None
        rest.write(one, "stdout", b"half")
        rest.write(zero, "stdout", b"whole\n")
        assert process.stdout.readline() == b"[0] whole\n"
        rest.write(one, "stdout", b" a line\n")
        assert process.stdout.readline() == b"[1] half a line\n"
        _, again = launch_two(rest, job)
        rest.write(again, "stdout", b"again")
        rest.end(job, "finished", 0)
        code, out, errors = finish(process)
    assert (code, out) == (0, "[1] again\n")
    assert errors.count("was launched again") == 1, "a launch of both is told once"


def test_the_launch_before_the_latest(rest: FakeRest) -> None:
    job = rest.add()
    rest.write(rest.launch(job), "stdout", b"first\n")
    got = call("logs", job, "--launch", "previous")
    assert (got.exit_code, "was launched 1 time:" in got.stderr) == (66, True)
    rest.write(rest.launch(job), "stdout", b"second\n")
    assert call("logs", job, "--launch", "previous").stdout == "first\n"
    assert call("logs", job, "--launch", "0").exit_code == 2


def test_lines_of_an_app_s_tasks_come_after_their_names(rest: FakeRest) -> None:
    tasks = [rest.launch(rest.add(f"web.instance-{uuid}._app")) for uuid in UUIDS]
    for task in tasks:
        rest.write(task, "stdout", b"x\ny")
    rest.write(tasks[1], "stderr", b"bad\n")
    staged = [{"id": task, "stagedAt": str(i)} for i, task in enumerate(tasks)]
    rest.fixed["GET /v2/apps/web"] = (200, {"app": {"id": "/web", "tasks": staged}})
    first, second = ("web.instance-748f8361", "web.instance-c5d8ee65")
    assert call("logs", "/web", "--prefix").stdout.splitlines() == [
        f"[{first}] x", f"[{second}] x", f"[{second} err] bad", f"[{first}] y", f"[{second}] y",
    ]  # fmt: skip


def test_lines_come_with_when_they_were_written(rest: FakeRest) -> None:
    job = rest.add()
    task = rest.launch(job)
    rest.write(task, "stdout", b"one\ntwo\nthree\nno end")
    rest.times[task, "stdout"] = [
        {"offset": 8, "at": 1_800_000_000.25},
        {"offset": 14, "at": 1_800_000_060.0},
    ]
    stamps = [str(output.stamp(at)) for at in (1_800_000_000.25, 1_800_000_060.0)]
    got = call("logs", job, "--timestamps", "--stdout")
    assert got.stdout == (f"{stamps[0]} one\n{stamps[0]} two\n{stamps[1]} three\n(time unknown) no end\n")
    assert (
        call("logs", job, "--timestamps", "--stdout", "-n", "2").stdout.splitlines()[0]
        == f"{stamps[1]} three"
    )
    assert call("logs", job, "--timestamps", "--prefix").stdout.splitlines()[0] == f"{stamps[0]} [0] one"


def test_since_is_asked_of_the_scheduler_and_not_with_tail(rest: FakeRest) -> None:
    job = rest.add()
    rest.write(rest.launch(job), "stdout", b"one\n")
    assert call("logs", job, "--since", "2027-03-01T08:00Z").exit_code == 0
    assert rest.queries[f"GET /v1/jobs/{job}/logs"]["since"] == ["1803888000.000"]
    assert call("logs", job, "--since", "1h", "-n", "1").exit_code == 2
    assert call("logs", job, "--since", "yesterday").exit_code == 2
