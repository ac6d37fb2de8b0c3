"""Who may say in ZooKeeper that he is a master: a real server of it."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from isolator.node.findings import Finding, Level
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.libmesos import meeting as met
from mesos_gpu.libmesos.check import diagnose
from mesos_gpu.libmesos.program import ZooKeeper
from mesos_gpu.libmesos.service import Service
from mesos_gpu.local.zookeeper import ZooKeeper as Server
from tests.conftest import wait_until

EVERYBODY_READS_MASTERS_WRITE = [("digest", 31), ("world", 1)]


@pytest.fixture
def anyone(meeting: str) -> Iterator[KazooClient]:
    """Somebody who reaches the server, and has no password."""
    client = KazooClient(meeting.removeprefix("zk://").partition("/")[0])
    client.start(30)
    yield client
    client.stop()
    client.close()


def of_masters(meeting: str, proof: str = "masters:secret") -> ZooKeeper:
    return ZooKeeper(meeting.replace("zk://", f"zk://{proof}@"))


def rights(client: KazooClient, path: str) -> list[tuple[str, int]]:
    return sorted((each.id.scheme, each.perms) for each in client.get_acls(path)[0])


def test_a_master_makes_a_place_that_it_alone_writes(meeting: str, anyone: KazooClient) -> None:
    where, told = of_masters(f"{meeting}/a/b"), list[str]()
    own(where, told)
    assert rights(anyone, where.path) == EVERYBODY_READS_MASTERS_WRITE
    own(where, told)
    assert told == []


def test_a_zookeeper_node_open_to_all_becomes_writable_by_masters_only(
    meeting: str, anyone: KazooClient
) -> None:
    where, told = of_masters(meeting), list[str]()
    anyone.create(where.path, b"", OPEN_ACL_UNSAFE)
    own(where, told)
    assert rights(anyone, where.path) == EVERYBODY_READS_MASTERS_WRITE
    assert told == [
        f"{where.path} in ZooKeeper was open to other clients: only masters may write there from now on"
    ]


def test_a_zookeeper_node_of_another_owner_is_refused(meeting: str, anyone: KazooClient) -> None:
    where = of_masters(meeting)
    anyone.create(where.path, b"", [make_digest_acl("other", "word", all=True)])
    with pytest.raises(BadConfiguration, match="is not open to this master"):
        own(where, [])


def test_a_master_sees_to_it_beside_itself_once_zookeeper_answers(
    meeting: str, anyone: KazooClient, zookeeper: Server, tmp_path: Path
) -> None:
    where, told, program = of_masters(meeting), tmp_path / "told", tmp_path / "mesos-master"
    program.write_text("#!/bin/sh\necho it listens\nexec sleep 600\n")
    program.chmod(0o755)
    flags = (f"--zk={where}", "--ip=127.0.0.1", f"--work_dir={tmp_path}")
    ours = str(Path(sys.executable).with_name("mesos-gpu"))
    command = [ours, "mesos", "master", "--mesos-binaries", str(tmp_path)]
    zookeeper.kill(signal.SIGSTOP)
    try:
        with (
            told.open("wb") as file,
            subprocess.Popen([*command, *flags], stdout=file, stderr=file) as master,
        ):
            wait_until("it listens, whatever ZooKeeper does", lambda: "it listens" in told.read_text())
            wait_until("it says what it waits for", lambda: "waiting for ZooKeeper at" in told.read_text())
            zookeeper.kill(signal.SIGCONT)
            wait_until("the place is there", lambda: anyone.exists(where.path))
            master.kill()
    finally:
        zookeeper.kill(signal.SIGCONT)
    assert rights(anyone, where.path) == EVERYBODY_READS_MASTERS_WRITE
    assert "secret" not in told.read_text()


def test_services_without_credentials_have_nothing_to_do_there(meeting: str, anyone: KazooClient) -> None:
    Service("agent", (f"--master={of_masters(meeting)}",)).meet(pytest.fail)
    Service("master", (f"--zk={meeting}",)).meet(pytest.fail)
    Service("master", ()).meet(pytest.fail)
    assert anyone.exists(of_masters(meeting).path) is None


def test_check_says_that_everybody_may_write(meeting: str, anyone: KazooClient) -> None:
    where = of_masters(meeting)
    anyone.create(where.path, b"", OPEN_ACL_UNSAFE)
    service = Service("master", (f"--zk={where}", "--quorum=1", "--ip=0.0.0.0", "--work_dir=/var/lib/m"))
    assert "may write" in " ".join(each.text for each in warnings_of(service))
    own(where, [])
    assert "may write" not in " ".join(each.text for each in warnings_of(service))


def warnings_of(service: Service) -> list[Finding]:
    return [each for each in diagnose(service) if each.level is Level.WARN]


def own(where: ZooKeeper, told: list[str]) -> None:
    met.own(where, told.append)
