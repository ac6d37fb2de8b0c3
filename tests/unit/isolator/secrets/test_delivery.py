"""What an executor makes of the secrets that a launch brought, and all for which it starts nothing."""

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.host.not_started import NotStarted
from isolator.images.login import Login
from isolator.secrets import delivery, handing, keys, mount
from mesos_gpu.adapters.secrets import envelope
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.secret import IMAGE_LOGIN
from mesos_gpu.model.tasks.assignment import Assignment
from mesos_gpu.wire.mesos import assignment as wire

OWN = {"MESOS_SLAVE_ID": "S0", "MESOS_GPU_POOL_UID": "900000"}
VALUES = {"TOKEN": b"hunter2", "KEY": b"\0\xff"}
PLAN = Assignment("job-1", 1, command="true", secrets=(("TOKEN", ""), ("KEY", "keys/id")))


@pytest.fixture(autouse=True)
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process goes on to be that of other tests."""
    monkeypatch.setattr(delivery, "guard", lambda: None)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    keys.current(tmp_path, time.time())
    return tmp_path


def sealed(node: Path, *, task: str = "job-1.1", agent: str = "S0", **values: bytes) -> Assignment:
    key = keys.current(node, time.time())
    message = envelope.seal(values or VALUES, key, envelope.purpose(task, agent))
    return wire.decode_assignment(wire.encode(replace(PLAN, sealed_secrets=message)))


def refused(plan: Assignment, node: Path, task: str = "job-1.1") -> NotStarted:
    def start() -> None:
        delivery.see_sealed(plan)
        delivery.opened(plan, task, OWN, node)

    with pytest.raises(NotStarted) as error:
        start()
    assert "hunter2" not in str(error.value)
    return error.value


def test_secrets_become_variables_and_files(node: Path) -> None:
    given = delivery.opened(sealed(node), "job-1.1", OWN, node)
    assert given.env == {"TOKEN": "hunter2", "KEY": f"{mount.PLACE}/keys/id"}
    assert given.files == {"keys/id": b"\0\xff"}
    assert "hunter2" not in repr(given)
    assert delivery.opened(replace(PLAN, secrets=()), "job-1.1", OWN, node) is delivery.NONE


def test_secret_sealed_for_another_task_or_host_is_not_opened(node: Path) -> None:
    for plan in (sealed(node, task="job-1.2"), sealed(node, agent="S1")):
        error = refused(plan, node)
        assert "cannot be opened" in str(error)
        assert error.outcome.infrastructure, "it is launched anew"
    refused(sealed(node), node, task="job-2.1")


def test_a_host_without_keys_opens_nothing(node: Path, tmp_path: Path) -> None:
    plan = sealed(node)
    (node / keys.NAME).unlink()
    assert "has made no key" in str(refused(plan, node))


def test_a_launch_without_its_secrets_starts_nothing(node: Path) -> None:
    error = refused(replace(PLAN, secrets_problem="the value of secret team/hf was not at hand"), node)
    assert "not at hand" in str(error)
    assert error.outcome.infrastructure
    assert refused(PLAN, node).outcome.infrastructure
    assert "no secret KEY" in str(refused(sealed(node, TOKEN=b"a"), node))


def test_a_variable_has_no_nul(node: Path) -> None:
    error = refused(sealed(node, TOKEN=b"a\0b", KEY=b""), node)
    assert "contains a NUL byte" in str(error)
    assert not error.outcome.infrastructure, "it would be the same elsewhere"


def test_task_that_others_of_its_user_could_read_gets_no_secret(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "exposed_to_user", lambda _: "they could read it")
    assert str(refused(sealed(node), node)) == "the task gets no secrets: they could read it"


def test_executor_with_secrets_is_not_dumped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    code = (
        "import resource; from isolator.secrets.delivery import guard; guard(); "
        "print(resource.getrlimit(resource.RLIMIT_CORE), open('/proc/self/status').read().count('CoreDumping')); "
        "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0].startswith("(1, 1)")
    assert done.stdout.split("\n")[1] == "0", "PR_GET_DUMPABLE"
    assert resource.getrlimit(resource.RLIMIT_CORE) != (1, 1)


def test_a_file_system_has_room_for_its_files_and_nothing_else() -> None:
    asked = mount.options({"a": b"x", "keys/id": b"y" * 5000, "keys/more/c": b""}, 7, 8)
    page = resource.getpagesize()
    assert asked == {
        "mode": "500", "uid": "7", "gid": "8",
        "size": str((1 + -(-5000 // page) + 2 + 1) * page), "nr_inodes": "7",
    }  # fmt: skip


def test_a_container_that_is_not_given_its_files_in_time_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What links the files into the sandbox is the task's user by then, whom another task of that user may stop."""
    (tmp_path / "secrets").mkdir()
    monkeypatch.setattr(handing, "_MAX_S", 1e-4)
    given = delivery.Given(files={"id": b"hunter2"})
    with pytest.raises(MesosGpuError, match=r"not done within 0\.0001 s") as refused:
        handing.hand(given, os.getpid(), tmp_path, (os.getuid(), os.getgid()), str(tmp_path))
    assert "hunter2" not in f"{refused.value!r} {refused.value.__cause__!r}"


# --- logins for registries of images

PULL = Assignment("job-1", 1, command="true", image="reg.example/app", image_secret="team/ngc")
LOGIN = json.dumps({"auths": {"reg.example": {"username": "ann", "password": "hunter2"}}}).encode()


def sealed_login(node: Path, value: bytes, *, is_default: bool = False) -> Assignment:
    message = envelope.seal(
        {IMAGE_LOGIN: value}, keys.current(node, time.time()), envelope.purpose("job-1.1", "S0")
    )
    plan = replace(PULL, sealed_secrets=message, image_secret_is_default=is_default)
    return wire.decode_assignment(wire.encode(plan))


def test_login_for_the_image_is_opened_and_no_variable_has_it(node: Path) -> None:
    given = delivery.opened(sealed_login(node, LOGIN), "job-1.1", OWN, node)
    assert (given.env, given.files) == ({}, {})
    assert given.logins is not None
    assert given.logins.find("reg.example", "app") == Login("ann", "hunter2")
    assert "hunter2" not in repr(given)


@pytest.mark.parametrize(("default", "whose"), [(False, "of the job"), (True, "of its queue")])
def test_image_secret_of_another_form_is_a_fault_of_who_named_it(
    node: Path, default: bool, whose: str
) -> None:
    error = refused(sealed_login(node, b"ann:hunter2", is_default=default), node)
    assert f"the image secret team/ngc {whose} is not a config.json" in str(error)
    assert error.outcome.infrastructure is default


def test_launch_without_its_login_starts_nothing(node: Path) -> None:
    assert refused(PULL, node).outcome.infrastructure
    other = envelope.seal({"A": b"x"}, keys.current(node, time.time()), envelope.purpose("job-1.1", "S0"))
    error = refused(replace(PULL, sealed_secrets=other), node)
    assert "contains no login of the image secret team/ngc" in str(error)
    assert error.outcome.infrastructure
