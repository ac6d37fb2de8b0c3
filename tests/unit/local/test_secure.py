"""The files and lists of a cluster that asks everybody who they are."""

import json
import stat
from pathlib import Path

import pytest

from mesos_gpu.adapters.credentials import read
from mesos_gpu.errors import Unavailable
from mesos_gpu.install.mesos_access import acls_of_agents, acls_of_master, roles_of
from mesos_gpu.libmesos.fetch import check_mechanism
from mesos_gpu.local.secure import Secure


def test_every_start_has_secrets_of_its_own_in_private_files(tmp_path: Path) -> None:
    secure = Secure(tmp_path / "secrets")
    secure.write()
    first = {path.name: path.read_text() for path in secure.directory.iterdir()}
    secure.write()
    changed = {path.name for path in secure.directory.iterdir() if path.read_text() != first[path.name]}
    assert changed == {
        "framework", "agent", "operator", "executor", "known-to-master", "known-to-agents", "executors-key",
    }  # fmt: skip
    assert {stat.S_IMODE(path.stat().st_mode) for path in secure.directory.iterdir()} == {0o600}
    assert stat.S_IMODE(secure.directory.stat().st_mode) == 0o700
    named = [*secure.master_flags().values(), *secure.agent_flags().values(), *secure.scheduler_arguments()]
    named += secure.executor_environment().values()
    used = {Path(word.removeprefix("file://")).name for word in named if str(tmp_path) in word}
    assert used | {"operator"} == set(first), "every file is used, the last by people"


def test_a_file_that_somebody_put_there_is_not_written_through(tmp_path: Path) -> None:
    secure, other = Secure(tmp_path / "secrets"), tmp_path / "other"
    other.write_text("theirs")
    secure.directory.mkdir()
    secure.framework.symlink_to(other)
    secure.write()
    assert other.read_text() == "theirs"
    assert read(secure.framework).principal == "mesos-gpu"


def test_the_lists_allow_nothing_that_they_do_not_name() -> None:
    for lists in (acls_of_master("root", ("gpu",)), acls_of_agents("root")):
        assert lists["permissive"] is False
        rules = [(action, rule) for action, listed in lists.items() for rule in listed or ()]
        everybody = {action for action, rule in rules if "ANY" in str(rule["principals"])}
        assert everybody == {"view_flags"}
    text = json.dumps(acls_of_agents("root"))
    assert "nested" not in text
    assert "standalone" not in text


@pytest.mark.parametrize(
    ("roles", "reserved"),
    [
        (("*",), None),
        (("gpu",), ["gpu"]),
        (("*", "gpu-research"), ["gpu-research"]),
        (("gpu", "gpu-research", "spark"), ["gpu", "gpu-research", "spark"]),
    ],
)
def test_only_roles_of_its_own_are_reserved_for(roles: tuple[str, ...], reserved: list[str] | None) -> None:
    lists = acls_of_master("root", roles)
    assert lists["register_frameworks"][0]["roles"] == {"values": list(roles)}
    if reserved is None:
        assert "reserve_resources" not in lists
    else:
        assert lists["reserve_resources"][0]["roles"] == {"values": reserved}


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        ((), ("*",)),
        (("--role", "gpu", "--journal", "j"), ("gpu",)),
        (("--role=gpu", "--mesos-role-of=a=spark", "--mesos-role-of", "b=flink"), ("gpu", "spark", "flink")),
        (("--mesos-role-of", "a=spark"), ("*", "spark")),
    ],
)
def test_roles_are_read_from_the_options_of_a_scheduler(
    words: tuple[str, ...], roles: tuple[str, ...]
) -> None:
    assert roles_of(words) == roles


def test_without_cram_md5_the_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="libcrammd5") as error:
        check_mechanism(tmp_path)
    assert error.value.remedy == "apt-get install -y libsasl2-modules"
