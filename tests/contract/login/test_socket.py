"""Callers by a Unix socket: who the kernel says they are, over a real server and with real processes."""

import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.adapters.proofs import peers
from mesos_gpu.adapters.proofs.local import LocalCallers
from mesos_gpu.adapters.proofs.prover import Prover
from mesos_gpu.adapters.proofs.proxies import Proxies, ProxyHeaders
from mesos_gpu.api.http.sockets import LocalSocket
from mesos_gpu.cli.client import Client
from mesos_gpu.errors import BadConfiguration, Conflict
from tests.contract.login.rig import ASKING, LoginRig, TokenStore, asks

ME = pwd.getpwuid(os.geteuid()).pw_name
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="another user's processes need root")


@pytest.fixture
def path(open_directory: Path) -> Path:
    return open_directory / f"run-{os.urandom(4).hex()}" / "api.sock"


@pytest.fixture
def rig(path: Path, store: TokenStore) -> Iterator[LoginRig]:
    rig = LoginRig([store.prover(), LocalCallers(pool=range(60000, 60010))], local=LocalSocket(path))
    yield rig
    rig.close()


def test_local_socket_gives_the_scheduler_s_user_all_rights(rig: LoginRig, path: Path) -> None:
    with Client(f"unix:{path}") as client:
        assert client.jobs() == []
        assert client.kill(client.submit({"command": "true"})["id"])["kill_requested"]
    assert rig.call("GET", "/v1/jobs").status_code == 401


@AS_ROOT
def test_local_socket_names_other_users(rig: LoginRig, path: Path) -> None:
    status, message = asks(path, user="nobody")
    assert (status, message) == (403, "nobody lacks the right job:see")


def test_a_long_path_is_reached_too(open_directory: Path, store: TokenStore) -> None:
    path = open_directory / ("d" * 120) / "api.sock"
    rig = LoginRig([LocalCallers()], local=LocalSocket(path))
    try:
        with Client(f"unix:{path}") as client:
            assert client.jobs() == []
    finally:
        rig.close()
    assert not path.exists()


def test_a_token_counts_before_the_socket_and_a_wrong_one_is_not_passed_over(
    rig: LoginRig, path: Path, store: TokenStore
) -> None:
    with Client(f"unix:{path}") as client:
        client._session.headers["Authorization"] = f"Bearer {store.make('eve')}"
        with pytest.raises(Exception, match="eve lacks the right job:see"):
            client.jobs()
        client._session.headers["Authorization"] = "Bearer mgpu_x"
        with pytest.raises(Exception, match="not one of this scheduler's"):
            client.jobs()


def test_local_socket_proves_no_name_with_a_task_s_environment(rig: LoginRig, path: Path) -> None:
    assert asks(path, environment={"MESOS_TASK_ID": "job-1.1"})[0] == 401


def test_local_socket_proves_no_name_to_children_of_an_executor(
    rig: LoginRig, path: Path, open_directory: Path
) -> None:
    """Whatever its environment says, and also as a grandchild that has left its session."""
    executor = open_directory / f"mesos-{os.urandom(4).hex()}" / "mesos-executor"
    executor.parent.mkdir()
    executor.write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', *sys.argv[1:]], cwd='/', check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, str(executor), ASKING, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("401 ")


@AS_ROOT
def test_a_uid_of_the_pool_is_nobody(rig: LoginRig, path: Path) -> None:
    prover = rig.who.provers[LocalCallers.kind]
    assert isinstance(prover, LocalCallers)
    prover._pool = range(pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("nobody").pw_uid + 1)
    assert asks(path, user="nobody")[0] == 401


def test_a_proxy_on_this_host_speaks_for_others_and_not_for_itself(path: Path) -> None:
    proxies = Proxies(users=(os.geteuid(),))
    provers: list[Prover] = [ProxyHeaders(proxies), LocalCallers(proxies)]
    rig = LoginRig(provers, proxies=proxies, local=LocalSocket(path))
    try:
        assert asks(path)[0] == 401
        with Client(f"unix:{path}") as client:
            client._session.headers["X-Forwarded-User"] = "ann"
            assert client.jobs() == []
        assert rig.call("GET", "/v1/jobs", headers={"X-Forwarded-User": "ann"}).status_code == 401
    finally:
        rig.close()


def test_a_process_that_has_gone_is_nobody(path: Path) -> None:
    """The number may be another process' by now."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        program = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
        connection, _ = listener.accept()
        with connection:
            peer = peers.local_peer_of(connection)
    assert peer is not None
    assert peer.refused


def test_the_directory_must_be_nobody_elses(open_directory: Path) -> None:
    directory = open_directory / f"open-{os.urandom(4).hex()}"
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(BadConfiguration, match="other users may replace a socket in it"):
        LocalSocket(directory / "api.sock")


def test_local_socket_file_that_is_left_is_replaced_unless_in_use(path: Path) -> None:
    first = LocalSocket(path)
    with pytest.raises(Conflict, match="another scheduler listens on"):
        LocalSocket(path)
    first.listener.close()
    second = LocalSocket(path)
    first.close()
    assert path.is_socket()
    second.close()
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(BadConfiguration, match="is not a socket"):
        LocalSocket(path)
