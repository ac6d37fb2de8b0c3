"""The keys of a host: how long they serve, and whose file is believed."""

import json
import os
import stat
from pathlib import Path

import pytest

from isolator.gpus.ledger import Ledger
from isolator.secrets import exposure, keys
from mesos_gpu.adapters.secrets import envelope
from mesos_gpu.model.nodes.gpu import Inventory

NOW = 1_000_000.0


def opens(node: Path, message: str, now: float) -> bool:
    private = [key.private for key in keys.read(node).lasting(now)]
    try:
        return envelope.unseal(message, private, b"") == {"A": b"a"}
    except envelope.Unopened:
        return False


def test_a_key_serves_for_a_day_and_its_predecessor_for_an_hour_more(tmp_path: Path) -> None:
    node = tmp_path / "node"
    first = keys.current(node, NOW)
    message = envelope.seal({"A": b"a"}, first, b"")
    assert keys.current(node, NOW + keys.FRESH_S - 1) == first
    later = NOW + keys.FRESH_S
    second = keys.current(node, later)
    assert second != first
    assert opens(node, message, later + keys.KEPT_S - 1)
    assert not opens(node, message, later + keys.KEPT_S)
    assert keys.current(node, later + keys.KEPT_S) == second
    assert len(keys.read(node).keys) == 1, "what opens nothing is not kept"
    assert envelope.public_of(keys.read(node).keys[0].private) == second


def test_a_clock_that_was_set_back_makes_a_new_key(tmp_path: Path) -> None:
    first = keys.current(tmp_path, NOW)
    assert keys.current(tmp_path, NOW - 100) != first


def test_key_file_and_its_directory_are_the_owners_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        keys.current(tmp_path / "a", NOW)
        Ledger(tmp_path / "b" / "ledger.sqlite").holdings()
        os.close(Ledger(tmp_path / "c" / "ledger.sqlite").lock("container"))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a" / keys.NAME).stat().st_mode) == 0o600
    assert {stat.S_IMODE((tmp_path / each).stat().st_mode) for each in "abc"} == {0o700}
    assert os.listdir(tmp_path / "a") == [keys.NAME]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_key_file_that_others_could_read_is_not_believed(tmp_path: Path, mode: int) -> None:
    first = keys.current(tmp_path, NOW)
    (tmp_path / keys.NAME).chmod(mode)
    assert keys.read(tmp_path) == keys.Keys()
    assert keys.current(tmp_path, NOW) != first
    assert stat.S_IMODE((tmp_path / keys.NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot_id": 1}', '{"keys": [{"private": "zz"}]}'])
def test_key_file_that_is_none_is_not_believed(tmp_path: Path, text: str) -> None:
    (tmp_path / keys.NAME).touch(mode=0o600)
    (tmp_path / keys.NAME).write_text(text)
    assert keys.read(tmp_path) == keys.Keys()
    assert keys.current(tmp_path, NOW)


def test_keys_of_an_earlier_boot_open_nothing(tmp_path: Path) -> None:
    first = keys.current(tmp_path, NOW)
    body = json.loads((tmp_path / keys.NAME).read_text())
    (tmp_path / keys.NAME).write_text(json.dumps({**body, "boot_id": "another"}))
    assert keys.read(tmp_path) == keys.Keys()
    assert keys.current(tmp_path, NOW) != first


def test_a_key_is_in_no_text_of_its_noun(tmp_path: Path) -> None:
    keys.current(tmp_path, NOW)
    known = keys.read(tmp_path)
    assert known.keys[0].private.hex() not in repr(known)
    assert repr(known.keys[0].private) not in repr(known)


def test_a_monitor_says_its_key_or_why_it_has_none(tmp_path: Path) -> None:
    env = {"MESOS_GPU_USER_POOL": "900000-900009"}
    said = exposure.with_key(Inventory(), tmp_path / "node", env)
    assert said.secrets_problem == ""
    assert said.secrets_key == envelope.public_of(keys.read(tmp_path / "node").keys[0].private)
    (tmp_path / "file").touch()
    said = exposure.with_key(Inventory(), tmp_path / "file" / "node", env)
    assert said.secrets_key == ""
    assert "cannot be kept" in said.secrets_problem
    wrong = exposure.with_key(Inventory(), tmp_path / "node", {"MESOS_GPU_USER_POOL": "x"})
    assert wrong.secrets_key == ""
    assert "MESOS_GPU_USER_POOL" in wrong.secrets_problem


def test_a_host_that_keeps_tasks_of_a_user_together_takes_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "is_root", lambda: False)
    assert exposure.exposed({"MESOS_GPU_TASK_FILTER": "off"}) == "", "all is one user's"
    monkeypatch.setattr(exposure, "is_root", lambda: True)
    assert "is off" in exposure.exposed({"MESOS_GPU_TASK_FILTER": "off"})
    assert exposure.exposed({"MESOS_GPU_TASK_FILTER": "off", "MESOS_GPU_USER_POOL": "900000-900009"}) == ""
    assert "is off" in exposure.exposed_to_user(
        {"MESOS_GPU_TASK_FILTER": "off", "MESOS_GPU_USER_POOL": "900000-900009"}
    )
    assert exposure.exposed_to_user({"MESOS_GPU_TASK_FILTER": "off", "MESOS_GPU_POOL_UID": "900000"}) == ""
    monkeypatch.setattr(exposure, "has_landlock", lambda: False)
    assert "no Landlock" in exposure.exposed({})
    monkeypatch.setattr(exposure, "has_landlock", lambda: True)
    assert exposure.exposed({}) == ""
