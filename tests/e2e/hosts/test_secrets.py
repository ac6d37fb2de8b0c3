"""Secrets of jobs on a real Mesos: they arrive in processes, nested containers and containers of Docker, and nothing
else on the machine has them, whatever is killed when."""

import contextlib
import hashlib
import itertools
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from mesos_gpu.cli.client import Client
from mesos_gpu.local.cluster import Devices
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, kill_all
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.e2e.conftest import EACH_FORM
from tests.kernel.conftest import EACH_CGROUP, needs
from tests.live_files import paths_below

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        bool(dockerd.missing()), reason=f"needs images, an engine and a static busybox: {dockerd.missing()}"
    ),
]
#: Of this run alone: they are looked for everywhere.
TOKEN, KEY = f"s3cret-{uuid.uuid4().hex}", f"s3cret-{uuid.uuid4().hex}"
BOTH = {"HF_TOKEN": "team/hf", "KEY": {"source": "team/key", "file": "keys/id"}}
IMAGE = "small:1"
RUNS: dict[str, dict[str, Any]] = {
    "process": {}, "nested": {"image": IMAGE}, "own": {"image": IMAGE, "container_engine": "own"},
    "docker": {"image": IMAGE, "container_engine": "docker"},
}  # fmt: skip
MODES: dict[str, Devices] = {"cgroup1": "mesos", "cgroup2": "cgroup2"}
SMALL = {"cpus": 0.1, "mem_mib": 32, "kill_grace_s": 0.1}
APPLETS = ["sh", "cat", "grep", "id", "ls", "printf", "sha256sum", "sleep", "stat", "tr", "true", "env"]
LOOK = """
printf %s "$HF_TOKEN" | sha256sum; sha256sum < "$KEY"; cd "$MESOS_SANDBOX"; sha256sum < keys/id
stat -c '%a %u' "$KEY" "${KEY%/*}"; id -u; grep -c 'core file size  *1  *1 ' /proc/self/limits
grep -c ' /dev/mesos_gpu/secrets tmpfs ro,nosuid,nodev,noexec' /proc/mounts
(echo x >> "$KEY") 2>/dev/null || echo closed
echo done; exec sleep 600
"""
#: By a task of the same user: `[s]` so that its own command does not match.
STEAL = """
for p in /proc/[0-9]*; do
  tr '\\0' '\\n' < $p/environ 2>/dev/null | grep '[s]3cret-'; cat $p/root/dev/mesos_gpu/secrets/*/* 2>/dev/null
  cat $p/cwd/keys/id 2>/dev/null; grep -a '[s]3cret-' $p/cmdline 2>/dev/null
done | tr a-z b-za; ls -R /dev/mesos_gpu 2>/dev/null | grep -c id; echo looked
"""


def put(directory: Path, source: str, value: str) -> None:
    path = directory / source
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(f"{value}\n")
    new.rename(path)


@pytest.fixture(scope="module")
def values(open_directory: Path) -> Path:
    directory = open_directory / "secrets"
    directory.mkdir(mode=0o700)
    put(directory, "team/hf", TOKEN)
    put(directory, "team/key", KEY)
    return directory


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    layers = [busybox_layer(dockerd.busybox(), APPLETS)]
    save(open_directory / "images", IMAGE, layers, {"Env": ["PATH=/bin", "HF_TOKEN=of the image"]})
    return open_directory / "images"


#: How devices are kept from tasks plays no part in how secrets come: one way does for the quick suite.
@pytest.fixture(scope="module", params=EACH_CGROUP)
def stack(
    open_directory: Path,
    values: Path,
    images: Path,
    unstarted_engine: dockerd.Dockerd,
    request: pytest.FixtureRequest,
) -> Iterator[Stack]:
    needs(request.param)
    with Stack(
        open_directory / request.param,
        [NodeSpec(0)],
        images=images,
        devices=MODES[request.param],
        executor_environment={
            "MESOS_GPU_ISOLATION": request.param,
            "MESOS_GPU_DOCKER_SOCKET": str(unstarted_engine.socket),
        },
        scheduler_arguments=[
            "--secrets-dir", str(values), "--report-interval", "0.5", "--log-level", "DEBUG",
        ],
    ) as stack:  # fmt: skip
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 0) as client:
        yield client
        kill_all(client)
        wait_until("all have ended", lambda: not client.jobs(states=["active"]))


def submit(client: Client, command: str, **more: Any) -> str:
    return str(client.submit({**SMALL, "command": command, **more})["id"])


def state(client: Client, job: str, wanted: str) -> None:
    def reached() -> bool:
        now = client.job(job)
        assert now["state"] not in ({"failed", "killed", "finished"} - {wanted}), now["message"]
        return now["state"] == wanted

    try:
        wait_until(f"job {job} is {wanted}", reached)
    except AssertionError as error:
        raise AssertionError(f"{error}: {client.why(job)}\n{client.job(job)['message']}") from error


def output(client: Client, job: str) -> str:
    return client.logs(job, stream="stdout", offset=0, length=1 << 20)["data"]


def said(client: Client, job: str, last: str = "done") -> list[str]:
    wait_until(f"it says {last}", lambda: output(client, job).endswith(f"{last}\n"))
    return output(client, job).splitlines()


def digest(text: str) -> str:
    return f"{hashlib.sha256(text.encode()).hexdigest()}  -"


def has(path: Path, *wanted: str) -> bool:
    try:
        if path.is_symlink() or not path.is_file():
            return False
        content = path.read_bytes()
    except OSError:
        return False
    return any(text.encode() in content for text in wanted)


@pytest.fixture
def leaks(stack: Stack, unstarted_engine: dockerd.Dockerd) -> Callable[[], list[str]]:
    """Find the places of values: answers and files of Mesos, Docker and ours, and arguments of processes."""
    return lambda: leaks_of(stack, unstarted_engine)


def leaks_of(stack: Stack, engine: dockerd.Dockerd) -> list[str]:
    """Return where a value of a secret is found."""
    wanted = TOKEN, KEY
    places = [
        str(path)
        for top in (stack.directory, engine.directory)
        for path in paths_below(top)
        if has(path, *wanted)
    ]
    agent = stack.cluster.agents[0]
    addresses = [
        *(
            f"http://127.0.0.1:{stack.cluster.master.port}/{path}"
            for path in ("state", "tasks", "frameworks")
        ),
        *(f"http://{agent.ip}:{agent.port}/{path}" for path in ("state", "containers")),
        *(f"{stack.url}/{path}" for path in ("v1/jobs", "v1/nodes", "v2/apps", "v2/tasks", "metrics")),
    ]
    answers = {address: requests.get(address, timeout=30).text for address in addresses}
    for container in engine.ask("GET", "/containers/json?all=1") if engine.socket.exists() else ():
        answers[f"docker inspect {container['Id']}"] = str(
            engine.ask("GET", f"/containers/{container['Id']}/json")
        )
    ps = subprocess.run(["ps", "axwwo", "args"], capture_output=True, text=True, check=True)
    answers["arguments of processes"] = ps.stdout
    return [*places, *(place for place, text in answers.items() if TOKEN in text or KEY in text)]


def with_environment(wanted: str) -> set[str]:
    """Programs that have a value in their environment."""
    names = set()
    for pid in processes_with(wanted):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return names


def processes_with(wanted: str) -> list[int]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if has(Path(f"/proc/{pid}/environ"), f"={wanted}\0")]


def mounts() -> set[str]:
    """Mount namespaces in which files of secrets are."""
    namespaces = set()
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        if has(path, " /dev/mesos_gpu/secrets "):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                namespaces.add(os.readlink(path.with_name("ns") / "mnt"))
    return namespaces


@pytest.mark.parametrize("form", EACH_FORM, indirect=True)
def test_secrets_arrive_and_are_nowhere_else(
    client: Client, leaks: Callable[[], list[str]], form: str
) -> None:
    job = submit(client, LOOK, secrets=BOTH, **RUNS[form])
    state(client, job, "running")
    lines = said(client, job)
    assert lines[:3] == [digest(TOKEN), digest(KEY), digest(KEY)]
    user = lines[5]
    assert lines[3:] == [f"400 {user}", f"500 {user}", user, "1", "1", "closed", "done"]
    assert leaks() == []
    assert with_environment(TOKEN) == {"sleep"}
    assert len(mounts()) == 1
    shown = dict(client.job(job))["secrets"]
    assert shown == {"HF_TOKEN": {"source": "team/hf", "file": None}, "KEY": BOTH["KEY"]}
    steals_nothing(client, form)
    client.kill(job)
    state(client, job, "killed")
    wait_until("the files are gone", lambda: not mounts())
    assert with_environment(TOKEN) == set()
    assert leaks() == []


def steals_nothing(client: Client, thief: str) -> None:
    other = submit(client, STEAL, **RUNS[thief])
    state(client, other, "finished")
    assert said(client, other, "looked") == ["0", "looked"]


@pytest.mark.long
@pytest.mark.parametrize(("form", "thief"), list(itertools.product(RUNS, repeat=2)), indirect=["form"])
def test_secrets_are_kept_from_tasks_of_each_form(
    client: Client, engine: dockerd.Dockerd, form: str, thief: str
) -> None:
    job = submit(client, LOOK, secrets=BOTH, **RUNS[form])
    state(client, job, "running")
    said(client, job)
    steals_nothing(client, thief)


HOLD = 'printf %s "$HF_TOKEN" | sha256sum; sha256sum < "$KEY"; exec sleep 600'


def executor_of(stack: Stack, job: str) -> psutil.Process:
    """The executor of a job's latest task; other clusters of this machine have executors of the same names."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            env = process.environ()
            ours = env.get("MESOS_DIRECTORY", "").startswith(f"{stack.directory}/")
            named = env.get("MESOS_EXECUTOR_ID", "").startswith(f"{job}.") and "MESOS_TASK_ID" not in env
            if ours and named:
                return process
    raise AssertionError(f"{job} has no executor")


def digests(client: Client, job: str) -> list[str]:
    wait_until("it has said both", lambda: len(output(client, job).splitlines()) >= 2)
    return output(client, job).splitlines()[:2]


@pytest.mark.parametrize("form", EACH_FORM, indirect=True)
def test_secrets_of_a_killed_executor_are_gone_and_the_next_launch_has_new_values(
    client: Client, stack: Stack, leaks: Callable[[], list[str]], values: Path, form: str
) -> None:
    job = submit(client, HOLD, secrets=BOTH, **RUNS[form])
    state(client, job, "running")
    assert digests(client, job) == [digest(TOKEN), digest(KEY)]
    rotated = f"s3cret-{uuid.uuid4().hex}"
    put(values, "team/hf", rotated)
    try:
        executor_of(stack, job).kill()
        wait_until("it is launched anew", lambda: client.job(job)["launches"] >= 2)
        state(client, job, "running")
        assert digests(client, job) == [digest(rotated), digest(KEY)]
        wait_until("one has its files", lambda: len(mounts()) == 1)
        wait_until("the old value is gone", lambda: with_environment(TOKEN) == set())
        assert leaks() == []
    finally:
        put(values, "team/hf", TOKEN)


def test_job_without_its_secret_waits_over_a_killed_scheduler(
    client: Client, stack: Stack, leaks: Callable[[], list[str]], values: Path
) -> None:
    job = submit(client, HOLD, secrets={**BOTH, "LATER": "team/later"})
    words = "waits for its secrets: there is no secret team/later"
    wait_until("it says what it waits for", lambda: client.why(job)["summary"].startswith(words))
    stack.scheduler.kill(signal.SIGKILL)
    stack.scheduler.start().wait()
    wait_until("it says so again", lambda: client.why(job)["summary"].startswith(words))
    assert client.job(job)["launches"] == 0
    put(values, "team/later", KEY)
    try:
        state(client, job, "running")
        assert leaks() == []
    finally:
        (values / "team/later").unlink()


@pytest.mark.parametrize("form", EACH_FORM, indirect=True)
def test_secrets_of_a_task_outlive_scheduler_agent_and_monitor(
    client: Client, stack: Stack, form: str
) -> None:
    looks = f'{HOLD.partition("exec")[0]} while sleep 0.2; do cat "$KEY" >/dev/null || exit 9; done'
    job = submit(client, looks, secrets=BOTH, **RUNS[form])
    state(client, job, "running")
    stack.scheduler.kill(signal.SIGKILL)
    stack.cluster.agents[0].restart()
    stack.scheduler.start().wait()
    monitor = executor_of(stack, "gpu-monitor")
    monitor.kill()
    other = submit(client, HOLD, secrets=BOTH)
    state(client, other, "running")
    assert digests(client, other) == digests(client, job) == [digest(TOKEN), digest(KEY)]
    assert client.job(job)["launches"] == 1


def test_secrets_reach_each_task_of_a_gang_and_each_instance_of_an_app(client: Client, stack: Stack) -> None:
    gang = submit(client, HOLD, secrets=BOTH, tasks=2)
    app = {
        "id": "/web", "cmd": 'sha256sum < "$SECRET_FILE_0"; exec sleep 600', "cpus": 0.1, "mem": 32, "instances": 2,
        "env": {"HF_TOKEN": {"secret": "hf"}}, "secrets": {"hf": {"source": "/team/hf"}, "key": {"source": "team/key"}},
        "container": {"type": "MESOS", "volumes": [{"containerPath": "keys/id", "secret": "key"}]},
    }  # fmt: skip
    assert requests.post(f"{stack.url}/v2/apps", json=app, timeout=30).status_code == 201
    try:
        state(client, gang, "running")
        wait_until(
            "all four have both",
            lambda: len(mounts()) == 4 and len(processes_with(TOKEN)) >= 4,
        )
    finally:
        requests.delete(f"{stack.url}/v2/apps//web", timeout=30)
        wait_until("it is gone", lambda: not requests.get(f"{stack.url}/v2/deployments", timeout=30).json())
