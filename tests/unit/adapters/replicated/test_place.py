"""Where schedulers of one cluster meet: what is taken for an address, and when it needs a password."""

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
def test_an_address_has_servers_a_path_and_who_owns_it(given: str, place: Place) -> None:
    assert parsed(given) == place


@pytest.mark.parametrize(
    "given",
    [
        "", "127.0.0.1:2181/m", "zk://", "zk://h", "zk://h/", "zk:///m", "zk://:@127.0.0.1/m", "zk://u:@127.0.0.1/m",
        "zk://u@127.0.0.1/m", "zk://127.0.0.1:0/m", "zk://127.0.0.1:x/m", "zk://127.0.0.1,/m", "zk://127.0.0.1/m//n",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(BadConfiguration):
        parsed(given)


def test_beyond_loopback_a_password_is_needed() -> None:
    with pytest.raises(BadConfiguration, match="could launch tasks"):
        parsed("zk://127.0.0.1,zk2.example.org/m")


def test_an_address_in_a_file_is_the_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "ha"
    file.write_text("zk://ann:word@zk1/m\n")
    file.chmod(0o600)
    assert parsed(f"file://{file}") == Place("zk1:2181", "/m", "ann", "word")
    file.chmod(0o644)
    with pytest.raises(BadConfiguration):
        parsed(f"file://{file}")


def test_neither_its_words_nor_its_form_for_debugging_have_the_password() -> None:
    place = parsed("zk://ann:word@zk1/m")
    assert "word" not in f"{place} {place!r}"


def test_a_batch_is_read_as_it_was_written_and_nothing_else_is_one() -> None:
    batch = [SaveFramework("f"), ForgetJob(JobId("j"))]
    assert decoded(encoded(batch)) == batch
    for data in (b"", b"x", encoded(batch)[:-1]):
        with pytest.raises(Damaged):
            decoded(data)
