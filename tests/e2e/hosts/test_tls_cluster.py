"""A real master and a real agent behind haproxy, which ends TLS before them: the embedded Mesos has none of its own."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolator.agent.commands import executor_command
from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.cli.client import Client, Refused
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.tasks.task import Task, TaskState
from tests.certificates import Authority, Made
from tests.clients import client_of
from tests.conftest import wait_until
from tests.contract.abuse.agents import Reader
from tests.e2e.test_jobs import end_of, submit

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(HAPROXY is None, reason="no haproxy: apt-get install haproxy"),
]
AGENT = "127.0.0.11"
CONFIGURATION = """
global
  stats socket {stats} mode 600
defaults
  mode tcp
  timeout connect 10s
  timeout client 1h
  timeout server 1h
frontend master_tls
  bind fd@{master_fd} ssl crt {pem}
  default_backend master
backend master
  server master 127.0.0.1:{master}
frontend agent_tls
  bind fd@{agent_fd} ssl crt {pem}
  default_backend agent
backend agent
  server agent {agent_ip}:{agent}
"""


class Proxy:
    """haproxy before a master and an agent. It is given its sockets: a free port could be another's meanwhile."""

    def __init__(self, directory: Path, made: Made, stack: Stack) -> None:
        self._sockets = [socket.create_server((ip, 0)) for ip in ("127.0.0.1", AGENT)]
        self.master_tls, self.agent_tls = (each.getsockname()[1] for each in self._sockets)
        directory.mkdir()
        pem = directory / "both.pem"
        pem.write_bytes(made.cert.read_bytes() + made.key.read_bytes())
        self._stats, self.configuration = directory / "stats", directory / "haproxy.cfg"
        text = CONFIGURATION.format(
            stats=self._stats,
            pem=pem,
            master=stack.cluster.master.port,
            master_fd=self._sockets[0].fileno(),
            agent=stack.cluster.agents[0].port,
            agent_ip=AGENT,
            agent_fd=self._sockets[1].fileno(),
        )
        self.configuration.write_text(text)

    @contextmanager
    def running(self) -> Iterator[None]:
        assert HAPROXY is not None
        given = [each.fileno() for each in self._sockets]
        with subprocess.Popen([HAPROXY, "-db", "-f", str(self.configuration)], pass_fds=given) as process:
            for each in self._sockets:
                each.close()
            try:
                wait_until("haproxy listens", lambda: self._stats.exists() or process.poll() is not None)
                assert process.poll() is None
                yield
            finally:
                process.terminate()

    def connections(self, frontend: str) -> int:
        """How many there were so far."""
        with socket.socket(socket.AF_UNIX) as stats:
            stats.connect(str(self._stats))
            stats.sendall(b"show stat\n")
            text = b""
            while more := stats.recv(65536):
                text += more
        names, *rows = [line.split(",") for line in text.decode().lstrip("# ").splitlines() if line]
        row = next(dict(zip(names, row, strict=False)) for row in rows if row[:2] == [frontend, "FRONTEND"])
        return int(row["stot"])


@pytest.fixture(scope="module")
def ca(open_directory: Path) -> Authority:
    (open_directory / "ca").mkdir()
    ca = Authority(open_directory / "ca")
    ca.cert.chmod(0o644)  # executors read it, whoever they run as
    return ca


@pytest.fixture(scope="module")
def cluster(open_directory: Path, ca: Authority) -> Iterator[tuple[Stack, Proxy]]:
    """Start a cluster whose scheduler and executors know the ports of the proxy alone."""
    env = {"MESOS_GPU_AGENT_CACERT": str(ca.cert)}
    stack = Stack(open_directory / "stack", [NodeSpec(2)], executor_environment=env)
    made = ca.server("cluster", "127.0.0.1", AGENT)
    proxy = Proxy(open_directory / "proxy", made, stack)
    more = ["--master", f"https://127.0.0.1:{proxy.master_tls}", "--mesos-cacert", str(ca.cert)]
    for kind in ("executor", "monitor", "keeper"):
        command = executor_command() if kind == "executor" else executor_command(kind)
        at_proxy = f"export MESOS_AGENT_ENDPOINT={AGENT}:{proxy.agent_tls}; {command}"
        more += [f"--{kind}-command", at_proxy]
    start = stack.scheduler.start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stack.scheduler, "start", lambda *words: start(*more, *words))
        with proxy.running(), stack:
            yield stack, proxy


@pytest.fixture(scope="module")
def client(cluster: tuple[Stack, Proxy]) -> Iterator[Client]:
    with client_of(cluster[0], 2) as client:
        yield client


def test_jobs_run_and_their_executors_speak_tls(cluster: tuple[Stack, Proxy], client: Client) -> None:
    _, proxy = cluster
    assert client.status()["master_url"] == f"https://127.0.0.1:{proxy.master_tls}"
    assert proxy.connections("master_tls") >= 2  # events, calls
    before = proxy.connections("agent_tls")
    assert before >= 2  # of the node monitor
    job = end_of(client, submit(client, 'test -z "$(env | grep MESOS_GPU_AGENT)"', gpus=1))
    assert (job["state"], job["exit_code"]) == ("finished", 0)
    assert proxy.connections("agent_tls") >= before + 2  # its subscription, its updates


def test_logs_are_read_by_tls_and_never_without(
    cluster: tuple[Stack, Proxy], client: Client, ca: Authority
) -> None:
    """The agent's own port speaks plain HTTP: the scheduler, which expects TLS, does not read it."""
    stack, proxy = cluster
    job = end_of(client, submit(client, "echo by TLS"))
    with pytest.raises(Refused, match="is not trusted: it ended the handshake, as a server without TLS does"):
        client.logs(job["id"], stream="stdout", offset=0, length=100)
    launched = stack.scheduler.get(f"/v1/jobs/{job['id']}/tasks")["tasks"][0]
    framework = client.status()["framework_id"] or ""
    task = Task(
        TaskId(launched["id"]),
        AgentId(launched["agent_id"]),
        launched["id"],
        JobId(job["id"]),
        TaskState.FINISHED,
        0.0,
        hostname=AGENT,
        agent_url=f"http://{AGENT}:{proxy.agent_tls}",
    )
    reader = Reader(client_context(Trust(ca.cert)))
    assert reader.read(task, framework, "stdout", 0, 100).data == "by TLS\n"


def test_a_restarted_scheduler_finds_its_tasks_again(cluster: tuple[Stack, Proxy], client: Client) -> None:
    stack, _ = cluster
    job = submit(client, "sleep 1000")
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    stack.scheduler.kill()
    stack.scheduler.start().wait()
    assert client.job(job["id"])["state"] == "running"
    client.kill(job["id"])
    assert end_of(client, job)["state"] == "killed"
