"""The embedded cluster: real masters, agents and containers; what is left of them afterwards."""

import base64
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import requests

from mesos_gpu.errors import BadConfiguration, Conflict, Unavailable
from mesos_gpu.libmesos import fetch, helpers
from mesos_gpu.local import leftovers
from mesos_gpu.local.cluster import AgentSpec, Cluster, Isolation, choose_isolation
from mesos_gpu.local.processes import Agent, Process, poll
from tests.conftest import wait_until

pytestmark = pytest.mark.cluster
#: Parameters of a test that starts a cluster for each launcher of Mesos.
EACH_ISOLATION = ("linux", pytest.param("posix", marks=pytest.mark.long))

#: An agent that has lost its master repeats an update after 10 s, then 20, then 40 (src/slave/constants.hpp).
EVENT_S = 90.0

#: An executor on the v1 API: says that its tasks run, and comes back after a restart of its agent. An agent refuses an
#: update while the executor is not subscribed; the lock makes sure that the next subscription carries such an update.
#: Beside it runs a process that shares neither environment nor session with it, for as many seconds as its argument
#: says.
EXECUTOR = """
import base64, contextlib, http.client, json, os, subprocess, sys, threading, time, uuid
subprocess.Popen(["env", "-i", "setsid", "sleep", sys.argv[1]])
ids = {"framework_id": {"value": os.environ["MESOS_FRAMEWORK_ID"]},
       "executor_id": {"value": os.environ["MESOS_EXECUTOR_ID"]}}
tasks, updates, lock = {}, {}, threading.Lock()

def call(path, message):
    connection = http.client.HTTPConnection(os.environ["MESOS_AGENT_ENDPOINT"])
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    connection.request("POST", "/slave(1)/api/v1" + path, json.dumps(message), headers)
    return connection.getresponse()

def update(task_id, state, **more):
    uid = base64.b64encode(uuid.uuid4().bytes).decode()
    status = {"task_id": task_id, "state": state, "uuid": uid, "source": "SOURCE_EXECUTOR",
              "executor_id": ids["executor_id"], "timestamp": time.time(), **more}
    with lock, contextlib.suppress(OSError, http.client.HTTPException):
        updates[uid] = {"status": status}
        call("/executor", {**ids, "type": "UPDATE", "update": {"status": status}})

def launch(task):
    update(task["task_id"], "TASK_RUNNING", message=os.environ.get("FLAVOUR", ""))

def kill(task_id):
    pass

# more

while True:
    try:
        with lock:
            subscribe = {"unacknowledged_tasks": list(tasks.values()),
                         "unacknowledged_updates": list(updates.values())}
            stream = call("/executor", {**ids, "type": "SUBSCRIBE", "subscribe": subscribe})
        while length := stream.readline():
            event = json.loads(stream.read(int(length)))
            if event["type"] == "LAUNCH":
                task = event["launch"]["task"]
                tasks[task["task_id"]["value"]] = task
                launch(task)
            elif event["type"] == "KILL":
                kill(event["kill"]["task_id"])
            elif event["type"] == "ACKNOWLEDGED":
                updates.pop(event["acknowledged"]["uuid"], None)
                tasks.pop(event["acknowledged"]["task_id"]["value"], None)
            elif event["type"] == "SHUTDOWN":
                raise SystemExit
    except (OSError, ValueError, http.client.HTTPException):
        pass
    time.sleep(0.1)
"""


class Framework:
    """A v1 scheduler that launches one task at a time."""

    def __init__(self, cluster: Cluster, user: str = pwd.getpwuid(os.geteuid()).pw_name) -> None:
        self._url = f"{cluster.master.url}/api/v1/scheduler"
        self._offers: dict[str, Any] = {}
        # without the capability, agents that have GPUs are not offered at all
        info = {
            "user": user,
            "name": "test",
            "checkpoint": True,
            "failover_timeout": 60,
            "capabilities": [{"type": "GPU_RESOURCES"}],
        }
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        message = {"type": "SUBSCRIBE", "subscribe": {"framework_info": info}}
        self._stream = requests.post(self._url, json=message, headers=self._headers, stream=True, timeout=30)
        self._headers["Mesos-Stream-Id"] = self._stream.headers["Mesos-Stream-Id"]
        self.id = self.event("SUBSCRIBED")["framework_id"]["value"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def event(self, kind: str) -> Any:
        """The next event of a kind; a HEARTBEAT every 15 s keeps the loop going."""
        deadline = time.monotonic() + EVENT_S
        while time.monotonic() < deadline:
            length = b""
            while (byte := self._stream.raw.read(1)) != b"\n":
                assert byte, "the master closed the stream"
                length += byte
            event = json.loads(self._stream.raw.read(int(length)))
            if event["type"] == "OFFERS":
                self._offers |= {offer["id"]["value"]: offer for offer in event["offers"]["offers"]}
            elif event["type"] == "RESCIND":
                self._offers.pop(event["rescind"]["offer_id"]["value"], None)
            if event["type"] == kind:
                return event.get(kind.lower())
        raise TimeoutError(f"no {kind} within {EVENT_S:g} s")

    def call(self, kind: str, **content: Any) -> None:
        message = {"framework_id": {"value": self.id}, "type": kind, kind.lower(): content}
        requests.post(self._url, json=message, headers=self._headers, timeout=30).raise_for_status()

    def offers(self, agent_id: str, mem_mib: float) -> list[Any]:
        """Ids of offers of an agent that hold so much together: what a task leaves is offered by itself."""
        while True:
            offers = [offer for offer in self._offers.values() if offer["agent_id"]["value"] == agent_id]
            amounts = [r for offer in offers for r in offer["resources"] if r["name"] == "mem"]
            if sum(amount["scalar"]["value"] for amount in amounts) >= mem_mib:
                return [self._offers.pop(offer["id"]["value"])["id"] for offer in offers]
            self.event("OFFERS")

    def launch(
        self, agent: Agent, command: str, task_id: str = "t", executor_id: str = "e", data: bytes = b""
    ) -> None:
        """Launch a task on an executor, which is started as `command` if it does not run."""
        amounts = {"cpus": 0.1, "mem": 32}
        offers = self.offers(agent.id, mem_mib=2 * amounts["mem"])
        resources = [
            {"name": name, "type": "SCALAR", "scalar": {"value": value}} for name, value in amounts.items()
        ]
        executor = {"executor_id": {"value": executor_id}, "type": "CUSTOM", "command": {"value": command}}
        task = {
            "name": "t",
            "task_id": {"value": task_id},
            "agent_id": {"value": agent.id},
            "resources": resources,
            "executor": {**executor, "resources": resources},
            "data": base64.b64encode(data).decode(),
        }
        launch = {"type": "LAUNCH", "launch": {"task_infos": [task]}}
        self.call("ACCEPT", offer_ids=offers, operations=[launch], filters={"refuse_seconds": 0})

    def status(self) -> Any:
        """The next status update, acknowledged."""
        status = self.event("UPDATE")["status"]
        if "uuid" in status:  # not of the master's own
            acknowledged = {name: status[name] for name in ("agent_id", "task_id", "uuid")}
            self.call("ACKNOWLEDGE", **acknowledged)
        return status

    def run(self, agent: Agent, command: str) -> Any:
        """Launch a task whose executor is `command`; its first status."""
        self.launch(agent, command)
        return self.status()


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A directory that every user can pass; pytest's own is only its owner's."""
    directory = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def directory(base: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=base)) / "cluster"


def executor(directory: Path, more: str = "") -> tuple[str, str]:
    """A command that is the executor, and the argument of the stray process beside it."""
    seconds = f"1000.{int(directory.parent.stat().st_ino)}"
    path = directory.parent / "executor.py"
    path.write_text(EXECUTOR.replace("# more\n", more))
    return f"exec {helpers.python()} -IS {path} {seconds}", seconds


def running(text: str) -> list[str]:
    """Command lines of the living processes with a text in their command line or environment."""
    command_lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = [(process / name).read_bytes() for name in ("cmdline", "environ")]
        except OSError:
            continue
        if process.name != str(os.getpid()) and any(text.encode() in word for word in words):
            command_lines.append(words[0].replace(b"\0", b" ").decode())
    return command_lines


def assert_nothing_left(directory: Path, *others: str) -> None:
    for text in (str(directory), *others):
        assert running(text) == []
    top = leftovers.cgroup_root(directory, 0).removesuffix("-0")
    assert list(Path("/sys/fs/cgroup").glob(f"*/{top}*")) == []
    assert str(directory) not in Path("/proc/self/mountinfo").read_text()
    assert not directory.exists()


def needs(isolation: Isolation) -> None:
    try:
        choose_isolation(isolation)
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cluster(base: Path) -> Iterator[Cluster]:
    specs = [
        AgentSpec({"cpus": 2, "mem": 1024, "gpus": 4}, {"gpu_model": "Tesla-A", "rack": "1"}),
        AgentSpec({"cpus": 4.5, "mem": 2048, "gpus": 2}, {"gpu_model": "sim-b"}),
        AgentSpec({"cpus": 8, "mem": 16384, "disk": 5}, executor_environment={"FLAVOUR": "plain"}),
    ]
    with Cluster(base / "shared", specs) as running:
        yield running
    assert_nothing_left(base / "shared")


def test_agents_appear_with_their_resources_and_attributes(cluster: Cluster) -> None:
    seen = [agent.info() for agent in cluster.agents]
    amounts = [[entry["resources"].get(name) for name in ("cpus", "mem", "disk", "gpus")] for entry in seen]
    assert amounts == [[2, 1024, 10000, 4], [4.5, 2048, 10000, 2], [8, 16384, 5, 0]]
    assert [entry["attributes"] for entry in seen] == [
        {"gpu_model": "Tesla-A", "rack": 1},
        {"gpu_model": "sim-b"},
        {},
    ]
    assert [entry["id"] for entry in seen] == [agent.id for agent in cluster.agents]
    assert len({entry["pid"] for entry in seen}) == 3


def test_mesos_version_is_1_11_0(cluster: Cluster) -> None:
    for process in (cluster.master, *cluster.agents):
        assert process.get("/version")["version"] == "1.11.0"


def test_a_killed_agent_comes_back_with_its_id(cluster: Cluster) -> None:
    agent, pid, ident = cluster.agents[0], cluster.agents[0].pid, cluster.agents[0].id
    agent.kill()
    assert leftovers.Identity.of(pid) is None
    assert agent.id == ident
    agent.start().wait()
    assert agent.running
    assert agent.pid != pid
    assert agent.info()["id"] == ident


def test_agents_survive_a_killed_master(cluster: Cluster) -> None:
    idents, url = [agent.id for agent in cluster.agents], cluster.master.url
    cluster.master.kill(signal.SIGKILL)
    cluster.master.start().wait()
    for agent in cluster.agents:
        agent.wait()
    assert cluster.master.url == url
    assert [agent.info()["id"] for agent in cluster.agents] == idents


def test_a_paused_agent_goes_on(cluster: Cluster) -> None:
    agent = cluster.agents[1]
    agent.kill(signal.SIGSTOP)
    agent.kill(signal.SIGCONT)
    assert agent.running
    assert agent.get("/version")["version"] == "1.11.0"


def test_master_that_runs_is_not_started_twice(cluster: Cluster) -> None:
    with pytest.raises(Conflict, match="is already running"):
        cluster.master.start()


@pytest.mark.parametrize("start", [Cluster.clean_up, lambda directory: Cluster(directory).start()])
def test_a_living_clusters_directory_is_left_alone(cluster: Cluster, start: Any) -> None:
    with pytest.raises(Conflict, match=f"process {os.getpid()} has a cluster"):
        start(cluster.directory)
    assert cluster.master.running


def test_executors_get_path_and_what_the_spec_says(cluster: Cluster) -> None:
    with Framework(cluster) as framework:
        status = framework.run(cluster.agents[2], executor(cluster.directory)[0])
        assert (status["state"], status["message"]) == ("TASK_RUNNING", "plain")
        (entry,) = wait_until("its executor runs", lambda: executors_of(framework.id))
        names = {pair.partition("=")[0] for pair in (entry / "environ").read_text().split("\0")}
        assert {n for n in names if not n.startswith(("MESOS_", "LIBPROCESS_"))} <= {
            "",
            "PATH",
            "FLAVOUR",
            "PWD",
        }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks of other users")
def test_a_task_of_another_user_reaches_its_sandbox(cluster: Cluster) -> None:
    command = executor(cluster.directory)[0].replace(helpers.python(), "/usr/bin/python3")
    with Framework(cluster, user="nobody") as framework:
        assert framework.run(cluster.agents[0], command)["state"] == "TASK_RUNNING"
        (entry,) = wait_until("its executor runs", lambda: executors_of(framework.id))
        assert entry.owner() == "nobody"
        assert (entry / "cwd").readlink().is_relative_to(cluster.agents[0].directory / "work")


def executors_of(framework_id: str) -> list[Path]:
    """Return the directories in /proc of the executors of a framework."""
    executors = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text(), (process / "environ").read_text()
        except OSError:
            continue
        if "executor.py" in words[0] and framework_id in words[1]:
            executors.append(process)
    return executors


@pytest.mark.parametrize("isolation", EACH_ISOLATION)
def test_a_task_survives_its_agent_and_nothing_survives_the_stop(
    directory: Path, isolation: Isolation
) -> None:
    needs(isolation)
    command, stray = executor(directory)
    with Cluster(directory, [AgentSpec()], isolation=isolation) as cluster:
        agent = cluster.agents[0]
        with Framework(cluster) as framework:
            assert framework.run(agent, command)["state"] == "TASK_RUNNING"
            agent.restart()
            framework.call("RECONCILE", tasks=[{"task_id": {"value": "t"}}])
            assert framework.event("UPDATE")["status"]["state"] == "TASK_RUNNING"
        assert running(stray)
    assert_nothing_left(directory, stray)


@pytest.mark.parametrize("isolation", EACH_ISOLATION)
def test_stopping_after_an_agent_was_killed_with_a_task(directory: Path, isolation: Isolation) -> None:
    needs(isolation)
    command, stray = executor(directory)
    with Cluster(directory, [AgentSpec(), AgentSpec()], isolation=isolation) as cluster:
        with Framework(cluster) as framework:
            assert framework.run(cluster.agents[1], command)["state"] == "TASK_RUNNING"
        cluster.agents[1].kill()
        assert running(stray)
    assert_nothing_left(directory, stray)


OWNER = """
import sys, time
from pathlib import Path
from mesos_gpu.local.cluster import AgentSpec, Cluster
directory, port, isolation = sys.argv[1:]
Cluster(Path(directory), [AgentSpec()], master_port=int(port), isolation=isolation).start()
print("up", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("isolation", EACH_ISOLATION)
def test_the_next_owner_cleans_up_after_a_killed_one(directory: Path, isolation: Isolation) -> None:
    needs(isolation)
    command, stray = executor(directory)
    with Cluster(directory, [AgentSpec()], isolation=isolation) as cluster:
        port = str(cluster.master.port)
    words = [sys.executable, "-c", textwrap.dedent(OWNER), str(directory), port, isolation]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        with pytest.raises(Conflict, match=f"process {owner.pid} has a cluster"):
            cluster.start()
        agent = Agent(cluster.leader, directory / "agent-1", "127.0.0.1", 1, {})
        with Framework(cluster) as framework:
            assert framework.run(agent, command)["state"] == "TASK_RUNNING"
        owner.kill()
    assert len(running(str(directory))) >= 3  # master, agent, executor
    with cluster:
        assert running(stray) == []
        assert cluster.agents[0].info()
    assert_nothing_left(directory, stray)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"work_dir": "/"}, "the cluster itself sets work_dir"),
        ({"no_such": "1"}, "agent-1 does not start: Failed to load unknown flag 'no_such'"),
        ({"isolation": "nix"}, "Unknown or unsupported isolator 'nix'"),
        ({"resources": "gpus:x"}, "Bad type for resource gpus"),
    ],
)
def test_bad_flag_of_an_agent_is_reported_in_the_words_of_mesos(
    directory: Path, flags: dict[str, str], text: str
) -> None:
    with pytest.raises((BadConfiguration, Unavailable), match=text):
        Cluster(directory, [AgentSpec(flags=flags)]).start()
    assert_nothing_left(directory)


@pytest.mark.parametrize(
    ("name", "text"), [("no_such", "unknown flag 'no_such'"), ("agent_ping_timeout", "Invalid duration '1'")]
)
def test_bad_flag_of_a_master_is_reported_in_the_words_of_mesos(
    directory: Path, name: str, text: str
) -> None:
    with pytest.raises(BadConfiguration, match=f"master does not start: .*{text}"):
        Cluster(directory, [], master_flags={name: "1"}).start()
    assert_nothing_left(directory)


def test_a_port_in_use_is_named(directory: Path, cluster: Cluster) -> None:
    with pytest.raises(Unavailable, match="Address already in use"):
        Cluster(directory, [], master_port=cluster.master.port).start()
    assert_nothing_left(directory)


def test_cluster_keeps_files_that_are_not_its_own(directory: Path) -> None:
    (directory / "master").mkdir(parents=True)
    with pytest.raises(Conflict, match="holds master"):
        Cluster(directory, []).start()
    (directory / "master").rename(directory / "mine")
    with Cluster(directory, []) as cluster:
        added = cluster.add_agent(AgentSpec({"cpus": 1, "mem": 32}))
        assert added.info()["resources"]["cpus"] == 1
    assert [path.name for path in directory.iterdir()] == ["mine"]


def test_a_handle_of_a_stopped_cluster_does_not_start(directory: Path) -> None:
    cluster = Cluster(directory, [AgentSpec()])
    process: Process = cluster.agents[0]
    with pytest.raises(Conflict, match="no cluster of this process is started"):
        process.start()
    with pytest.raises(Unavailable, match="was not started"):
        _ = process.pid
    with pytest.raises(Unavailable, match="has not registered"):
        _ = cluster.agents[0].id
    cluster.stop()
    assert not directory.exists()


def test_an_empty_cache_is_filled_from_the_distribution(tmp_path: Path) -> None:
    fetch.libmesos()
    shutil.copy(fetch.cache_directory() / fetch.EGG, tmp_path)
    made = fetch.libmesos(tmp_path)
    assert made == tmp_path / fetch.LIBRARY
    assert fetch.sha256(made) == fetch.LIBRARY_SHA256
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([fetch.EGG, fetch.LIBRARY])


UNPRIVILEGED = """
import sys
from pathlib import Path
from mesos_gpu.local.cluster import AgentSpec, Cluster
with Cluster(Path(sys.argv[1]), [AgentSpec()]) as cluster:
    print(cluster.isolation, cluster.agents[0].info()["active"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_unprivileged_user_has_a_cluster_with_the_posix_launcher(base: Path) -> None:
    python, root = "/usr/bin/python3", Path(helpers.ROOT)
    home = Path(tempfile.mkdtemp(dir=base))
    home.chmod(0o777)
    shutil.copy(fetch.libmesos(), home)
    environment = {"MESOS_GPU_CACHE": str(home), "PYTHONPATH": str(root), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [python, "-BWerror", "-c", UNPRIVILEGED, str(home / "cluster")],
        env=environment,
        cwd="/",
        user="nobody",
        group="nogroup",
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "No module named 'mesos_gpu'" in done.stderr:
        pytest.skip(f"{root} cannot be read by the user nobody")
    assert (done.stdout, done.stderr) == ("posix True\n", "")
    assert_nothing_left(home / "cluster")


def test_polling_gives_up_with_a_name() -> None:
    with pytest.raises(Unavailable, match="the moon: not within"):
        poll("the moon", lambda: None, timeout_s=0.1)


@pytest.mark.parametrize("attributes", [{"model": "Tesla A"}, {"a:b": "c"}, {"a": "b;c"}, {"a\n": "b"}])
def test_attributes_that_mesos_would_change_are_refused(attributes: dict[str, str]) -> None:
    with pytest.raises(BadConfiguration, match="Mesos cannot store the attribute"):
        AgentSpec(attributes=attributes)
