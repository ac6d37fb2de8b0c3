"""The gate, as the kernel runs it: of this machine, and by an emulator of the other, where there is one."""

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from isolator.confinement import gate
from isolator.confinement.apart import has_landlock
from isolator.confinement.apart_sys import SCOPES_SINCE, landlock_abi
from isolator.host.not_started import NotStarted
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel
RUNNERS = {os.uname().machine: ()} | {
    machine: (emulator,)
    for machine in ("x86_64", "aarch64")
    if machine != os.uname().machine and (emulator := shutil.which(f"qemu-{machine}-static"))
}


@pytest.mark.parametrize("machine", [machine for machine in ("x86_64", "aarch64") if machine in RUNNERS])
def test_gate_becomes_the_command_behind_the_fence(machine: str) -> None:
    needs("cgroup2")
    script = Path(__file__).with_name("through_gate.py")
    done = subprocess.run(
        ["unshare", "-m", sys.executable, script, machine, *RUNNERS[machine]],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcomes = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    assert outcomes["runs"] == [True, 7, ["named", "mesos_gpu/gate"]]
    assert outcomes["below an init"] == [True, 0, ["mesos_gpu/gate"]], "the init is of the task's user"
    assert outcomes["absent"] == ["cannot start 'no-such-program': No such file or directory", 127, []]
    assert outcomes["no program"] == ["cannot start '/etc/passwd': it cannot be executed", 126, []]
    for name, size in (("a variable", "3"), ("a large one", "131000")):
        assert outcomes[name] == [True, 0, ["1", size, "/usr/bin:/bin"]], "and no core dump is made of it"
    assert outcomes["too large"][0] == "the container's environment is too large for a secret beside it"
    assert outcomes["not behind it"] == [
        "the rules of its cgroup do not keep the container from the control ports", 125, [],
    ]  # fmt: skip
    if not RUNNERS[machine]:  # an emulator has no Landlock
        _see_apart(outcomes)


def _see_apart(outcomes: dict[str, list[object]]) -> None:
    """What the kernel keeps a container from that runs as the same user as another process."""
    if not has_landlock():
        pytest.skip("the kernel has no Landlock, or it is off")
    others = ("environ", "maps", "mem")
    links = ("cwd", "root", "exe", "fd/0")
    open_to_all = (
        dict.fromkeys((*others, *links), 0)
        | dict.fromkeys(others, 1)
        | {"signal": 0, "socket": 0, "privileges": 1}
    )
    closed = dict.fromkeys(others, 0) | dict.fromkeys(links, 1) | {"privileges": 1, "filter": 2, "moved": 0}
    assert looked(outcomes["not apart"]) == {**open_to_all, "filter": 0, "moved": 0}
    scoped = int(landlock_abi() >= SCOPES_SINCE)
    assert looked(outcomes["apart"]) == {**closed, "signal": scoped, "socket": scoped}
    assert looked(outcomes["apart but for sockets"]) == {**closed, "signal": scoped, "socket": 0}
    assert looked(outcomes["sockets alone"]) == {**closed, "filter": 0, "signal": 0, "socket": scoped}
    assert looked(outcomes["apart by an older kernel"]) == {**closed, "signal": 0, "socket": 0}
    why = ["the kernel does not keep the container from other tasks of its user", 124, {}]
    assert outcomes["refused"] == outcomes["a filter that is none"] == why


def looked(outcome: list[object]) -> dict[str, int]:
    """What each attempt gave: for a file 0 means denied, for a link 0 means read, for the others as of the shell."""
    went, code, attempts = outcome
    assert (went, code) == (True, 0)
    assert isinstance(attempts, dict)
    return {name: int(value) for name, value in attempts.items()}


def test_machine_without_a_gate_runs_no_images() -> None:
    with pytest.raises(NotStarted, match="images can run only on x86_64 and aarch64, not on riscv64"):
        gate.program("riscv64")


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_gate_is_one_small_file(machine: str, number: int) -> None:
    file = gate.program(machine)
    assert file[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", file, 18)[0] == number
    assert len(file) < 1000
