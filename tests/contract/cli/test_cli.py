"""The real `mesos-gpu` against a REST server of its contract: tables, what is told of a job, ends, full pipes."""

import json
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.model.words import clock
from tests.contract.cli.cli_rig import GPU, NODE, call, read_until, started, why
from tests.doubles.fake_rest import FakeRest


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
    assert got.stderr == "mesos-gpu: 101 of 1101 jobs are not shown; list all with --limit 1101\n"
    assert len(call("ps", "--limit", "1101").stdout.splitlines()) == 1102


@pytest.mark.parametrize(("command", "want"), [("gpus", b"XID 79"), ("ps", b"No active job")])
def test_tables_on_a_terminal(rest: FakeRest, command: str, want: bytes) -> None:
    rest.fixed["GET /v1/gpus"] = (200, {"gpus": [GPU]})
    ours, theirs = pty.openpty()
    try:
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
        with started(command, stdout=theirs, env=env) as process:
            os.close(theirs)
            seen = read_until(ours, want)
            assert process.wait(30) == 0
    finally:
        os.close(ours)
    assert (b"\x1b[31msick" in seen) == (command == "gpus")


@pytest.mark.parametrize("name", ["gpus", "nodes"])
def test_lists_as_json_and_empty(rest: FakeRest, name: str) -> None:
    rest.fixed[f"GET /v1/{name}"] = (200, {name: []})
    assert json.loads(call(name, "--json").stdout) == []
    assert len(call(name).stdout.splitlines()) == 1  # the header


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
        "16.5/64",
        "128/512",
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
        "journal_problem": "the journal in /j has 300 MiB of 256: its last 7 days are kept",
        "level_problem": None,
        "unsaved": None,
        "drains": [],
        "isolation_off": ["n"],
        "control_ports_off": ["n"],
        "open_to_all": True,
        "issuer_problem": "https://id.example answers 502",
        "tls": {
            "subject": "CN=n",
            "names": ["n"],
            "not_after": time.time(),
            "clients": "none",
            "crl_until": None,
            "loaded_at": time.time(),
            "problem": "server.pem: the certificate expires in 3.0 days",
        },
    }
    rest.fixed["GET /v1/status"] = (200, status)
    assert "isolation is OFF on n:" in call("status").stderr
    assert "the journal in /j has 300 MiB of 256: its last 7 days are kept" in call("status").stderr
    assert "the control ports are OPEN to tasks on n:" in call("status").stderr
    assert "everyone who reaches it over the network has FULL CONTROL" in call("status").stderr
    assert "TLS: server.pem: the certificate expires in 3.0 days" in call("status").stderr
    assert "logins at the issuer may fail: https://id.example answers 502" in call("status").stderr
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


@pytest.mark.parametrize(
    ("progress", "attempt", "launches"),
    [
        ({"state": "running", "launches": 1}, "1 of 3", "1"),
        ({"state": "running", "launches": 3, "attempts": 1, "infrastructure_failures": 1}, "2 of 3",
         "3, 1 ended by the cluster, which use no attempt"),
        ({"state": "finished", "launches": 1, "attempts": 1}, "1 of 3", "1"),
        ({"state": "failed", "launches": 3, "attempts": 3}, "3 of 3", "3"),
        ({"state": "killed", "launches": 1}, "1 of 3", "1"),
    ],
)  # fmt: skip
def test_show_counts_the_attempt_that_is_under_way(
    rest: FakeRest, progress: dict[str, Any], attempt: str, launches: str
) -> None:
    rest.jobs[rest.add("train", max_attempts=3)] |= progress
    shown = dict(line.split("  ", 1) for line in call("show", "tr").stdout.splitlines() if "  " in line)
    assert (shown["attempt"].strip(), shown["launches"].strip()) == (attempt, launches)


@pytest.mark.parametrize("as_what", ["preempted", "evicted"])
def test_show_says_that_a_launch_was_preempted_and_not_lost(rest: FakeRest, as_what: str) -> None:
    job = rest.add("train")
    rest.launch(job)
    rest.tasks[job][0] |= {"state": "lost", "ended_as": as_what}
    rest.launch(job)
    rows = [line.split() for line in call("show", "tr").stdout.splitlines() if line.startswith(f"{job}.")]
    assert [row[:2] for row in rows] == [[f"{job}.1", as_what], [f"{job}.2", "running"]]


@pytest.mark.parametrize(
    ("use", "line"),
    [
        ((25.5, 300, 2, None), "25.5 % busy, 300 MiB, 2 processes"),
        ((0.0, 0, 1, 10860.0), "0 % busy, 0 MiB, 1 process, idle for 3h01m"),
        ((None, None, None, None), "utilization unknown"),
    ],
)
def test_show_tells_how_a_job_uses_its_gpus(rest: FakeRest, use: tuple[float | None, ...], line: str) -> None:
    names = ("busy_pct", "memory_mib", "processes", "idle_s")
    rest.jobs[rest.add("train", gpus=1)]["use"] = dict(zip(names, use, strict=True))
    shown = call("show", "tr").stdout
    assert f"use           {line}\n" in shown


def test_show_draws_how_busy_the_gpus_of_a_job_were(rest: FakeRest) -> None:
    job = rest.add("train", gpus=1)
    rest.launch(job)
    assert "use, last" not in call("show", job).stdout, "nothing is known"
    fine: list[float | None] = [None] * 88 + [0, 100]
    series = {"step_s": 10.0, "until": 0.0, "memory_mib": [None] * 90, "power_w": [None] * 90}
    coarse = {**series, "step_s": 300.0, "busy_pct": [None] * 288}
    rest.fixed[f"GET /v1/jobs/{job}/use"] = (200, {"fine": {**series, "busy_pct": fine}, "coarse": coarse})
    shown = call("show", job).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("use, last")]
    assert line.split("  ")[-1].strip() == f"{'·' * 44}▄ 50 % on average"
    assert line.startswith("use, last 15 min  ")
    coarse["busy_pct"] = [None] * 284 + [100] * 4
    drawn = [line for line in call("show", job).stdout.splitlines() if line.startswith("use, last")]
    assert drawn[1].endswith("·█ 100 % on average"), "longer than what the first line has"


def test_command_why_reads_well(rest: FakeRest) -> None:
    rest.fixed["GET /v1/why/x"] = (200, why("x-1"))
    assert call("why", "x").stdout == (
        "x-1: waits for 4 GPUs; nearest is n1, which lacks 2 more free GPUs.\n"
        "Place in the queue: 2, 1 job ahead of it.\n"
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
    assert json.loads(call("why", "x", "--json").stdout) == why("x-1")


def test_the_queue_is_listed_with_reservations_and_estimates(rest: FakeRest) -> None:
    waiting = {
        "position": 0, "id": "big-1", "name": "big", "app": None, "array_id": None, "owner": None, "queue": "lab",
        "priority": 1, "effective_priority": 3,
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
    assert " ".join(lines[2][9:]) == "GPUs of its queue not known nobody knows"
    assert lines[4:] == [["QUEUE", "GPUS", "LIMIT", "WAITING"], ["lab", "6", "8", "5"]]
    assert "3 more wait; list them with --limit" in got.stderr
    assert json.loads(call("queue", "--json").stdout)["jobs"][0] == waiting


def test_kill_goes_on_after_a_wrong_id(rest: FakeRest) -> None:
    one, two = rest.add("one"), rest.add("two")
    rest.end(two, "finished", 0)
    got = call("kill", "none", one, two)
    assert got.exit_code == 66
    assert got.stdout == f"{one} killing\n{two} had already ended: finished\n"
    assert got.stderr.startswith("Error: 0 jobs begin with none\nTo fix: ")


def test_kill_of_a_job_that_waits_says_that_it_had_not_started(rest: FakeRest) -> None:
    job = rest.add("one")
    rest.end(job, "killed", None, "killed before it was launched")
    assert call("kill", job).stdout == f"{job} killed: it had not started\n"


def test_list_by_the_name_of_an_array_has_its_tasks(rest: FakeRest) -> None:
    rest.add("sweep.7", id="sweep-00000000.7")
    rest.add("m.7")
    got = call("ps", "--name", "sweep", "--expand", "--columns", "name")
    assert got.stdout.split() == ["NAME", "sweep.7"]


def test_run_refuses_a_unit_as_its_program(rest: FakeRest) -> None:
    got = call("run", "--mem", "4", "GB", "--", "true")
    assert got.exit_code == 2
    assert (
        "GB would be taken as the program: write amount and unit in one word, such as --mem 4GiB"
        in got.stderr
    )
    assert not rest.jobs


@pytest.mark.parametrize("words", [("run", "x"), ("run", "-i", "x"), ("notebook",)])
def test_run_of_what_can_never_run_says_so(rest: FakeRest, words: tuple[str, ...]) -> None:
    for name in ("job-00000000", "notebook-00000000"):
        rest.fixed[f"GET /v1/why/{name}"] = (200, {**why(name), "can_ever_run": False})
    with started(*words) as process:
        job = rest.submitted()
        assert process.stderr is not None
        lines = (line.decode() for line in process.stderr)
        said = next(line for line in lines if "never" in line)
        rest.end(job, "killed", None, "")
        process.wait(60)
    assert said.startswith(
        f"mesos-gpu: job {job}: it can never run on the current nodes, press Ctrl-C to end it: "
    )


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
    assert f"not ended yet: {job}" in got.stderr


def test_a_file_of_jobs_is_submitted_whole_or_not_at_all(rest: FakeRest, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("- {name: a, command: 'true'}\n- {name: b, argv: ['true'], gpus: 1}\n")
    assert call("submit", str(file)).stdout == "a-00000000\nb-00000001\n"
    assert call("submit", "-", stdin='{"name": "c", "command": "x"}').stdout == "c-00000002\n"
    bad = call("submit", "-", stdin='[{"command": "x"}, {"cpus": 0}]')
    assert bad.exit_code == 65
    assert "\n  line 1, /1: must have exactly one of command" in bad.stderr
    assert "\n  line 1, /1/cpus: must be a positive number" in bad.stderr
    assert len(rest.jobs) == 3  # none of the bad file was sent
    rest.fixed["POST /v1/jobs"] = (503, {"error": {"code": "unavailable", "message": "no", "remedy": "wait"}})
    got = call("submit", str(file))
    assert (got.exit_code, got.stderr) == (
        69,
        "mesos-gpu: 0 of 2 jobs were submitted\nError: no\nTo fix: wait\n",
    )
    missing = call("submit", "/nowhere.yaml")
    assert (missing.exit_code, "does not exist" in missing.stderr) == (2, True)


def test_output_to_a_closed_pipe_ends_the_command(rest: FakeRest) -> None:
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


def test_output_to_a_full_disk_is_an_error(rest: FakeRest) -> None:
    rest.add("job")
    with open("/dev/full", "wb") as full, started("ps", stdout=full) as process:
        assert process.stderr is not None
        assert process.stderr.read() == b"Error: [Errno 28] No space left on device\n"
        assert process.wait(30) == 74


def test_closed_streams_are_no_fault(rest: FakeRest) -> None:
    rest.add()
    command = f"{sys.executable} -m mesos_gpu ps >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", command], timeout=60).returncode == 0


def test_coming_end_of_a_job_is_in_show_and_in_a_column_of_ps(rest: FakeRest) -> None:
    job = rest.add()
    rest.launch(job)
    assert "ENDS_BY" not in call("ps").stdout
    at = time.time() + 7260
    words = {"why": "node n1 was drained by ann: new fan", "then": "it is then queued again"}
    rest.update(job, coming_end={"at": at, "reason": "drain", **words})
    (line,) = [each for each in call("show", job).stdout.splitlines() if each.startswith("ends by")]
    assert line.endswith("in 2h00m: node n1 was drained by ann: new fan; it is then queued again")
    listed = call("ps").stdout
    assert "ENDS_BY" in listed
    assert f"{clock(at, time.time())} drain" in listed
    rest.update(job, coming_end={"at": at, "reason": "time_limit", **words})
    assert "ENDS_BY" not in call("ps").stdout, "the job itself has asked for that end"


def test_queue_limit_that_never_lets_a_job_start_is_all_that_why_says(rest: FakeRest) -> None:
    job = rest.add()
    limit = {"reason": "queue-limit", "removed": 1, "left": 0, "example": "n1 lab may hold 2 GPUs"}
    never = {**why(job), "can_ever_run": False, "summary": "queue lab may hold 2 GPUs, and it asks for 3"}
    rest.fixed[f"GET /v1/why/{job}"] = (200, {**never, "funnel": [limit]})
    assert call("why", job).stdout == f"{job}: queue lab may hold 2 GPUs, and it asks for 3.\n"
