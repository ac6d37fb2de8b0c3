"""Jobs on the real Mesos: what a user sees."""

import http.client
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from mesos_gpu.adapters.simulated_gpus import SimulatedProbe, change_gpu
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client, Refused, ended
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.contract.cli.cli_rig import call
from tests.web.browser import NEEDED, Browser
from tests.web.conftest import browser, started  # noqa: F401  fixtures

T4, A100 = "Tesla T4", "NVIDIA A100-SXM4-80GB"
pytestmark = [pytest.mark.cluster]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    nodes = [NodeSpec(4, T4), NodeSpec(2, A100)]
    with Stack(
        open_directory / "stack",
        nodes,
        scheduler_arguments=["--report-interval", "2"],
        executor_environment={"MESOS_GPU_RECHECK_S": "1"},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        wait_until("the nodes report", lambda: len(client.gpus()) == 6)
        yield client


def submit(client: Client, command: str, **fields: object) -> Job:
    return client.submit({"name": "t", "command": command, "cpus": 0.1, "mem_mib": 32, **fields})


def end_of(client: Client, job: Job, timeout_s: float = 30) -> Job:
    wait_until(f"the end of {job['id']}", lambda: ended(client.job(job["id"])), timeout_s)
    return client.job(job["id"])


def output_of(client: Client, job: Job, stream: str = "stdout") -> str:
    return client.logs(job["id"], stream=stream, offset=0, length=100_000)["data"]


def mesos_gpu(stack: Stack, *words: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mesos_gpu", "--url", stack.url, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)  # type: ignore[call-overload, no-any-return]


def test_logs_have_times_and_since_leaves_out_older_lines(stack: Stack, client: Client) -> None:
    job = submit(client, "echo one; echo bad >&2; sleep 4; echo two; sleep 1.5; printf three")
    end = end_of(client, job)
    lines = call("--url", stack.url, "logs", job["id"], "--timestamps", "--stdout").stdout.splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["one", "two", "three"]
    at = [datetime.fromisoformat(line.rpartition(" ")[0]).timestamp() for line in lines]
    assert 3 <= at[1] - at[0] <= 7
    first, last = end["started_at"], end["ended_at"]
    assert first is not None
    assert last is not None
    assert first - 2 <= at[0] <= at[1] <= at[2] <= last + 2
    since = datetime.fromtimestamp(at[0] + 2).isoformat()
    got = call("--url", stack.url, "logs", job["id"], "--since", since)
    assert (got.stdout, got.stderr) == ("two\nthree", "")
    quiet = submit(client, "true")
    end_of(client, quiet)
    assert call("--url", stack.url, "logs", quiet["id"], "--since", "1h", "--timestamps").exit_code == 0


def test_environment_of_a_job_names_its_gpu_whatever_the_job_sets(client: Client) -> None:
    env = {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        "MINE": "yes",
        "MESOS_TASK_ID": "x",
    }
    job = end_of(client, submit(client, "env", gpus=1, env=env))
    assert job["state"] == "finished"
    seen = dict(line.split("=", 1) for line in output_of(client, job).splitlines() if "=" in line)
    assert seen["NVIDIA_VISIBLE_DEVICES"] == seen["CUDA_VISIBLE_DEVICES"] == job["gpu_ids"][0]
    assert seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert seen["MINE"] == "yes"
    assert seen["MESOS_TASK_ID"] == job["task_id"]
    assert "MESOS_GPU_NODE_DIR" not in seen


def test_environment_of_a_job_without_gpus_names_none(client: Client) -> None:
    job = end_of(client, submit(client, 'echo "[$NVIDIA_VISIBLE_DEVICES][$CUDA_VISIBLE_DEVICES]"'))
    assert output_of(client, job) == "[void][]\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_user_of_a_job_is_not_root(client: Client) -> None:
    job = end_of(client, submit(client, "id -un; touch here && echo wrote; echo err >&2"))
    assert output_of(client, job) == "nobody\nwrote\n"
    assert output_of(client, job, "stderr") == "err\n"
    with pytest.raises(Refused) as refused:
        submit(client, "id", user="root")
    assert refused.value.problems[0]["path"] == "/user"


def test_exit_code_of_a_job_has_status_and_signal(client: Client) -> None:
    job = end_of(client, submit(client, "exit 7"))
    assert (job["state"], job["exit_code"], job["attempts"]) == ("failed", 7, 1)
    job = end_of(client, submit(client, "kill -9 $$"))
    assert (job["state"], job["exit_code"]) == ("failed", 137)


def test_attempts_are_counted_and_bounded(client: Client) -> None:
    job = end_of(client, submit(client, "echo $MESOS_GPU_ATTEMPT; exit 1", max_attempts=2))
    assert (job["state"], job["attempts"], job["launches"]) == ("failed", 2, 2)
    assert output_of(client, job) == "2\n"


def test_argv_is_not_a_shell(client: Client) -> None:
    job = client.submit({"name": "argv", "argv": ["echo", "$HOME", "a  b"], "cpus": 0.1, "mem_mib": 32})
    assert output_of(client, end_of(client, job)) == "$HOME a  b\n"


def test_command_that_does_not_exist_fails_with_127(client: Client) -> None:
    job = client.submit({"name": "nope", "argv": ["/no/such/command"], "cpus": 0.1, "mem_mib": 32})
    job = end_of(client, job)
    assert (job["state"], job["exit_code"]) == ("failed", 127)
    assert "/no/such/command" in (job["message"] or "")


def test_kill_ends_the_whole_tree_and_frees_the_gpu(client: Client) -> None:
    mark = f"3141.{os.getpid():07}"  # a sleep that only this test starts
    command = f"trap '' TERM; setsid sleep {mark} & (setsid sleep {mark} &) ; sleep {mark}"
    job = submit(client, command, gpus=1, kill_grace_s=0.3)
    wait_until("it runs", lambda: len(_sleeps(mark)) == 3)
    client.kill(job["id"])
    job = end_of(client, job)
    assert job["state"] == "killed"
    assert _sleeps(mark) == []
    assert all(gpu["task_id"] is None for gpu in client.gpus() if gpu["uuid"] in job["gpu_ids"])


def _sleeps(mark: str) -> list[int]:
    import psutil

    return [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", mark]]


def test_timeout_of_a_job_is_a_failure(client: Client) -> None:
    job = end_of(client, submit(client, "sleep 60", timeout_s=0.5, kill_grace_s=0.2))
    assert job["state"] == "failed"
    assert "timeout_s of 0.5" in (job["message"] or "")


def test_gpu_model_of_a_job_chooses_the_node(client: Client) -> None:
    job = end_of(client, submit(client, "true", gpus=2, gpu_model=["NVIDIA H200", A100]))
    assert job["hostname"] == "127.0.0.12"


def test_job_that_can_never_run_is_named_by_why(client: Client) -> None:
    unknown, many = submit(client, "true", gpus=1, gpu_model="RIVA 128"), submit(client, "true", gpus=5)
    why = client.why(unknown["id"])
    assert (why["can_ever_run"], why["state"]) == (False, "pending")
    assert why["summary"] == f"no node has a GPU of model RIVA 128; there are {A100}, {T4}"
    why = client.why(many["id"])
    assert "more than any node has; the largest is 127.0.0.11 with 4" in why["summary"]
    for job in (unknown, many):
        client.kill(job["id"])
        assert end_of(client, job)["state"] == "killed"


def test_submit_refuses_a_bad_request_with_all_its_problems(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.submit({"command": "true", "cpus": -1, "gpus": 1.5, "colour": "red"})
    assert {p["path"] for p in refused.value.problems} == {"/cpus", "/gpus", "/colour"}


def test_health_of_a_gpu_keeps_jobs_off_while_it_is_sick(stack: Stack, client: Client) -> None:
    path = stack.inventory(2)
    first, second = (reading.gpu.id for reading in SimulatedProbe(path).survey().readings)
    change_gpu(path, first, health="sick", reason="XID 79")
    wait_until("it is seen sick", lambda: any(g["health"] == "sick" for g in client.gpus()))
    job = submit(client, "true", gpus=2, gpu_model=A100)
    assert f"{first} is sick since " in client.why(job["id"])["summary"]
    one = end_of(client, submit(client, "true", gpus=1, gpu_model=A100))
    assert one["gpu_ids"] == [second], "its neighbour works on"
    change_gpu(path, first, health=None, reason=None)
    assert end_of(client, job)["state"] == "finished"


def test_mesos_shows_gpus_labels_and_url_of_a_job(stack: Stack, client: Client) -> None:
    job = submit(client, "sleep 60", gpus=3, gpu_model=T4, labels={"team": "vision"})
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    framework = stack.cluster.master.state()["frameworks"][0]
    assert framework["webui_url"] == stack.url
    assert framework["used_resources"]["gpus"] == 3
    (task,) = [t for t in framework["tasks"] if t["name"] == "t"]
    assert (task["state"], task["resources"]["gpus"]) == ("TASK_RUNNING", 3)
    labels = {label["key"]: label["value"] for label in task["labels"]}
    assert labels["team"] == "vision"
    assert set(labels["mesos_gpu.gpus"].split(",")) == set(client.job(job["id"])["gpu_ids"])
    client.kill(job["id"])
    end_of(client, job)


@NEEDED
def test_page_of_the_master_shows_a_job_with_its_cards_and_its_output(
    stack: Stack,
    client: Client,
    browser: Browser,  # noqa: F811
) -> None:
    """The agents have other addresses than the master, so their answers are those of another origin."""
    evil = "<img src=x onerror=\"document.title='pwned'\">"
    job = submit(client, "echo from the sandbox; sleep 60", gpus=2, gpu_model=A100, labels={"note": evil})
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    job = client.job(job["id"])
    (framework,) = stack.cluster.master.state()["frameworks"]
    page = browser.page(stack.cluster.master.url)
    page.when(f"led by {stack.cluster.master.ip}:", " of 6 GPUs in use · 2 agents")
    page.visit("#/agents")
    page.click("#view a", "127.0.0.12")
    page.when("2 of 2 in use · NVIDIA-A100-SXM4-80GB", ", ".join(sorted(job["gpu_ids"])))
    page.visit(f"#/frameworks/{framework['id']}")
    page.click(f"#view tbody a[href*='{job['id']}']")
    html = page.when(f'href="{stack.url}/#/jobs/{job["id"]}"', "&lt;img src=x")
    assert "<img" not in html
    page.click("#view a", "stdout")
    page.when("from the sandbox\n</pre>")
    assert page.run("document.title") == "t · Mesos"
    assert not page.console
    client.kill(job["id"])
    end_of(client, job)


@pytest.mark.parametrize(
    "path", ["/app/../index.html", "/app/%2e%2e/index.html", "/app/..%2findex.html", "/app"]
)
def test_master_serves_no_files_beside_those_of_its_page(stack: Stack, path: str) -> None:
    master = stack.cluster.master
    connection = http.client.HTTPConnection(master.ip, master.port, timeout=60)
    connection.request("GET", path)
    assert connection.getresponse().status == 404
    connection.close()


def test_run_streams_output_and_exits_with_the_code_of_the_job(stack: Stack) -> None:
    done = mesos_gpu(stack, "run", "--gpus", "1", "--shell", "--", "echo out; echo err >&2; exit 5")
    assert (done.returncode, done.stdout) == (5, "out\n")
    assert "err\n" in done.stderr


def test_logs_are_there_after_the_end_of_a_job(stack: Stack, client: Client) -> None:
    job = end_of(client, submit(client, "seq 3"))
    assert call("--url", stack.url, "logs", job["id"]).stdout == "1\n2\n3\n"


def test_scheduler_refuses_a_state_that_another_one_uses(stack: Stack) -> None:
    state = stack.scheduler.directory / "state.sqlite"
    words = ["scheduler", "--master", "127.0.0.1:1", "--state", str(state), "--port", "0"]
    done = mesos_gpu(stack, *words)
    assert done.returncode == 73
    assert "another scheduler uses the state" in done.stderr
