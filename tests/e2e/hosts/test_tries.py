"""Tasks that try to get at what commands the cluster and at other tasks, on a Mesos that asks for names: as a process,
in an image of the agent's, by the Docker Engine; with cgroup v1 and v2. Each try is refused.
"""

import ctypes
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from isolator.confinement.apart import has_landlock, has_yama
from isolator.confinement.apart_sys import SCOPES_SINCE, landlock_abi
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, layer, save
from tests.doubles.python_image import python_layer
from tests.e2e.conftest import EACH_FORM
from tests.kernel.conftest import EACH_CGROUP, needs
from tests.live_files import paths_below

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: without it there are no rules"),
]
TRIES = Path(__file__).with_name("tries.py")
PYTHON = "/usr/bin/python3"  # one that the user nobody can run
MARK = "w0rd-of-another-task"
FORMS: dict[str, dict[str, Any]] = {
    "process": {},
    "nested": {"image": "tries:1", "container_engine": "mesos"},
    "own": {"image": "tries:1", "container_engine": "own"},
    "docker": {"image": "tries:1", "container_engine": "docker"},
}
#: From what commands the cluster: the rules of the task's cgroup, a namespace that is not entered, one without a way.
KEPT_OFF = {"EPERM", "EACCES", "ENETUNREACH"}
#: From all else: the modes of files, its view, or the kernel's checks.
REFUSALS = {*KEPT_OFF, "ENOENT", "ESRCH", "ENODATA", "ENOTDIR"}
IPC_PRIVATE, IPC_RMID = 0, 0


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    if lack := dockerd.missing():
        pytest.skip(f"needs images, an engine and a static busybox: {lack}")
    directory = open_directory / "images"
    packages = ("collections", "ctypes", "encodings", "importlib", "json", "re")
    modules = ("_ctypes", "_struct", "_json", "_socket", "select", "math", "array")
    layers = [
        busybox_layer(dockerd.busybox(), ["sh", "echo", "sleep"]),
        python_layer(packages, modules),
        layer({"tries.py": TRIES.read_bytes()}),
    ]
    save(directory, "tries:1", layers, {"Env": ["PATH=/usr/bin:/bin", "PYTHONHOME=/usr"]})
    return directory


@dataclass
class Scene:
    """A cluster with a task of each form, which others try to get at."""

    stack: Stack
    engine: dockerd.Dockerd
    victims: dict[str, str]  # forms, and their jobs' ids
    abstract: str  # the name of a Unix socket without a file that listens

    def given(self) -> dict[str, Any]:
        """The argument of the tries."""
        stack = self.stack
        assert stack.secure is not None
        top = stack.directory
        files = [stack.secure.directory, *stack.secure.directory.iterdir(), top / "scheduler", top / "nodes"]
        files += [*paths_below(top / "scheduler"), *paths_below(top / "nodes")]
        for agent in stack.cluster.agents:
            files += [agent.log, agent.directory / "work" / "meta", agent.directory / "work" / "provisioner"]
            files += [path for path in paths_below(agent.directory / "run/containers") if path.is_file()]
        files += [
            stack.cluster.master.log,
            *self.sandboxes(),
            *(place / "private" for place in self.sandboxes()),
        ]
        commanding = [stack.cluster.master.pid, stack.scheduler.pid, *(a.pid for a in stack.cluster.agents)]
        return {
            "ports": {
                "master": [stack.cluster.master.port],
                "agent": [agent.port for agent in stack.cluster.agents],
                "scheduler": [stack.scheduler.port],
            },
            "sockets": [
                str(self.engine.socket),
                str(self.engine.directory / "containerd.sock"),
                str(stack.socket),
            ],
            "files": sorted({str(path) for path in files}),
            "pids": [*commanding, *self.processes()],
            "mark": MARK,
            "abstract": self.abstract,
        }

    def sandboxes(self) -> list[Path]:
        """Directories of the victims."""
        runs = self.stack.directory.glob("mesos/agent-*/work/slaves/*/frameworks/*/executors/*/runs/*")
        tasks = tuple(self.victims.values())
        own = [run for run in runs if run.parent.parent.name.startswith(tasks) and not run.is_symlink()]
        return [*own, *(path for run in own for path in run.glob("containers/*"))]

    def processes(self) -> list[int]:
        """The processes of the victims: executors and commands."""
        listed = []
        for process in psutil.process_iter():
            try:
                env = process.environ()
            except psutil.Error:
                continue
            if env.get("MESOS_EXECUTOR_ID", env.get("MESOS_TASK_ID", "")).startswith(
                tuple(self.victims.values())
            ):
                listed.append(process.pid)
        return listed


@contextmanager
def victims(client: Client) -> Iterator[dict[str, str]]:
    jobs = {}
    try:
        for form, how in FORMS.items():
            request = {
                "name": f"victim-{form}",
                "cpus": 0.1,
                "mem_mib": 64,
                "user": "nobody",
                "env": {"WORD": MARK},
            }
            job = client.submit({**request, "command": "echo $WORD > private; exec sleep 600", **how})
            jobs[form] = job["id"]
        for ident in jobs.values():
            wait_until("it runs", lambda ident=ident: client.job(ident)["state"] == "running")  # type: ignore[misc]
        yield jobs
    finally:
        for ident in jobs.values():
            client.kill(ident)
            wait_until("it is killed", lambda ident=ident: client.job(ident)["state"] == "killed")  # type: ignore[misc]


@contextmanager
def of_others() -> Iterator[str]:
    """What all users of a host reach: a Unix socket without a file, whose name this is, and shared memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    shared = libc.shmget(IPC_PRIVATE, 4096, 0o666)
    assert shared >= 0
    name = f"of-others-{os.getpid()}"
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"\0{name}")
            listening.listen(64)
            yield name
    finally:
        libc.shmctl(shared, IPC_RMID, None)


@pytest.fixture(scope="module", params=EACH_CGROUP)
def scene(open_directory: Path, images: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    needs(request.param)
    with (
        dockerd.Dockerd() as engine,
        Stack(
            open_directory / request.param,
            [NodeSpec(1)],
            images=images,
            devices="mesos" if request.param == "cgroup1" else "cgroup2",
            secure=True,
            executor_environment={
                "MESOS_GPU_ISOLATION": request.param,
                "MESOS_GPU_DOCKER_SOCKET": str(engine.socket),
            },
        ) as stack,
        client_of(stack, 1) as client,
        of_others() as abstract,
    ):
        engine.load(images / "tries:1.tar")
        with victims(client) as jobs:
            yield Scene(stack, engine, jobs, abstract)


def outcomes(text: str) -> dict[str, str]:
    return dict(map(json.loads, text.splitlines()))


@pytest.mark.parametrize("form", EACH_FORM)
def test_tries_of_a_task_are_all_refused(scene: Scene, open_directory: Path, form: str) -> None:
    given = scene.given()
    if form == "process":
        code = open_directory / "tries.py"
        code.write_text(TRIES.read_text())
        code.chmod(0o644)
        argv = [PYTHON, str(code), json.dumps(given)]
    else:
        argv = ["python3", "/tries.py", json.dumps(given)]
    with Client(scene.stack.reach) as client:
        client.patience_s = 60
        request = {
            "name": "tries",
            "cpus": 0.1,
            "mem_mib": 128,
            "user": "nobody",
            "argv": argv,
            **FORMS[form],
        }
        job = client.submit(request)
        job = [job, *client.follow(job)][-1]
        ended = client.logs(job["id"], stream="stderr", offset=0, length=4000)["data"]
        assert job["state"] == "finished", (job["message"], ended)
        text = ""
        while part := client.logs(job["id"], stream="stdout", offset=len(text), length=60000)["data"]:
            text += part
    tried = outcomes(text)
    asked = [
        name for name in tried if name.startswith(("master", "agent", "scheduler", "listen", "datagram"))
    ]
    assert len(asked) > 100
    hidden = {"ENOENT"} if form == "own" else set()  # processes of the host are not in its /proc
    kept_off = {name: KEPT_OFF | (hidden if name.endswith("init's network") else set()) for name in asked}
    assert {name: tried[name] for name in asked if tried[name] not in kept_off[name]} == {}
    served = tried.pop(
        f"socket {scene.stack.socket}"
    )  # everybody may connect: the kernel says that it is a task
    assert served.startswith("HTTP/1.1 401") if form == "process" else served == "ENOENT", served
    if not (has_landlock() or has_yama()):
        tried = {name: got for name, got in tried.items() if " of " not in name}
    if landlock_abi() < SCOPES_SINCE:
        assert tried.pop("abstract socket") == "connected"
    assert {name: got for name, got in tried.items() if got not in REFUSALS} == {}


def test_fetch_reads_no_file_and_no_environment_of_another_task(scene: Scene) -> None:
    """By file: URIs, as its user: another's output, and its environment."""
    private = [place / "private" for place in scene.sandboxes() if (place / "private").exists()]
    assert private
    processes = [psutil.Process(pid) for pid in scene.processes()]
    environs = [f"/proc/{each.pid}/environ" for each in processes if each.username() == "nobody"]
    assert any(MARK in Path(path).read_text() for path in environs), "they are worth it"
    with Client(scene.stack.reach) as client:
        client.patience_s = 60
        jobs = [
            client.submit(
                {
                    "name": "fetches",
                    "cpus": 0.1,
                    "mem_mib": 64,
                    "user": "nobody",
                    "argv": ["true"],
                    "fetch": [f"file://{path}"],
                    **how,
                }
            )
            for how in FORMS.values()
            for path in (private[0], *(environs[:1] if has_landlock() else ()))
        ]
        for job in jobs:
            ended = [job, *client.follow(job)][-1]
            assert ended["state"] == "failed", ended
            assert "could not fetch file:///" in ended["message"], ended["message"]


def test_tries_outside_of_a_task_succeed(scene: Scene) -> None:
    """A process of the same user that nothing keeps: so the tries are real ones."""
    done = subprocess.run(
        [PYTHON, "-", json.dumps(scene.given())], input=TRIES.read_text(),
        env={"MESOS_TASK_ID": "none"}, user="nobody", group="nogroup", extra_groups=(),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    tried = outcomes(done.stdout)
    got = {name for name, said in tried.items() if said not in REFUSALS}
    master, api = scene.stack.cluster.master.port, scene.stack.scheduler.port
    assert tried[f"master 127.0.0.1:{master} GET /state "].startswith("HTTP/1.1 401")
    assert tried[f"scheduler 127.0.0.1:{api} GET /v1/jobs "].startswith("HTTP/1.1 401")
    assert tried[f"socket {scene.stack.socket}"].startswith("HTTP/1.1 401"), (
        "what it says of itself is a task's"
    )
    assert any("private" in name and MARK in tried[name] for name in got), "modes of files do not keep it"
    assert tried["abstract socket"] == "connected"
    assert tried["shared memory"].startswith("reads")
    for kind in ("environ of ", "below root of ", "seize ", "descriptor of "):
        assert any(name.startswith(kind) for name in got) != has_yama(), kind
