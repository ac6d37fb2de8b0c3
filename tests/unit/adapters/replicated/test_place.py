"""Addresses in ZooKeeper where schedulers of one cluster meet, and their passwords."""

from pathlib import Path

import pytest

from mesos_gpu.adapters.replicated.log import decoded, encoded
from mesos_gpu.adapters.replicated.place import Place, parsed
from mesos_gpu.errors import BadConfiguration, Damaged
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.saves import ForgetJob, SaveFramework


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("zk://127.0.0.1:2182/mesos-gpu", Place("127.0.0.1:2182", "/mesos-gpu")),
        ("zk://localhost/a/b/", Place("localhost:2181", "/a/b")),
        ("zk://u:p%40w@zk1:2181,zk2/m", Place("zk1:2181,zk2:2181", "/m", "u", "p@w")),
    ],
)
def test_zookeeper_address_has_servers_path_and_owner(given: str, place: Place) -> None:
    assert parsed(given) == place


@pytest.mark.parametrize(
    "given",
    [
        "", "127.0.0.1:2181/m", "zk://", "zk://h", "zk://h/", "zk:///m", "zk://:@127.0.0.1/m", "zk://u:@127.0.0.1/m",
        "zk://u@127.0.0.1/m", "zk://127.0.0.1:0/m", "zk://127.0.0.1:x/m", "zk://127.0.0.1,/m", "zk://127.0.0.1/m//n",
    ],
)  # fmt: skip
def test_zookeeper_address_that_is_malformed_is_refused(given: str) -> None:
    with pytest.raises(BadConfiguration):
        parsed(given)


def test_zookeeper_address_beyond_loopback_needs_a_password() -> None:
    with pytest.raises(BadConfiguration, match="could launch tasks"):
        parsed("zk://127.0.0.1,zk2.example.org/m")


def test_zookeeper_address_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "ha"
    file.write_text("zk://ann:word@zk1/m\n")
    file.chmod(0o600)
    assert parsed(f"file://{file}") == Place("zk1:2181", "/m", "ann", "word")
    file.chmod(0o644)
    with pytest.raises(BadConfiguration):
        parsed(f"file://{file}")


def test_zookeeper_address_prints_no_password() -> None:
    place = parsed("zk://ann:word@zk1/m")
    assert "word" not in f"{place} {place!r}"


def test_replicated_batch_comes_back_and_other_data_is_refused() -> None:
    batch = [SaveFramework("f"), ForgetJob(JobId("j"))]
    assert decoded(encoded(batch)) == batch
    for data in (b"", b"x", encoded(batch)[:-1]):
        with pytest.raises(Damaged):
            decoded(data)
