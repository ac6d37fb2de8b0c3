"""The filter of system calls: what it decides, as a program that is run here, and as the kernel runs it."""

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from isolator.confinement import seccomp
from isolator.confinement.apart import Apart, apart_of
from isolator.confinement.seccomp import (
    ALLOW,
    ATTACHES,
    DENY,
    ENTRIES,
    KERNEL,
    OTHERS,
    PROCESSES,
    compile_filter,
    verdict,
)
from mesos_gpu.errors import BadConfiguration

ALL = (*PROCESSES, *KERNEL)
ROOT = Path(__file__).parents[4]
TRACEME, GETREGS, READ = 0, 12, 0


@pytest.mark.parametrize("machine", ENTRIES)
def test_listed_calls_are_denied_by_every_way_into_the_kernel(machine: str) -> None:
    program = compile_filter(ALL, machine)
    for arch, numbers in ENTRIES[machine].items():
        assert {name: verdict(program, numbers[name], arch, ATTACHES[0]) for name in ALL} == dict.fromkeys(
            ALL, DENY
        )
        others = set(range(460)) - {numbers[name] for name in ALL}
        assert {verdict(program, number, arch) for number in others} == {ALLOW}


@pytest.mark.parametrize("machine", ENTRIES)
def test_ptrace_calls_that_attach_are_denied(machine: str) -> None:
    program = compile_filter(ALL, machine)
    for arch, numbers in ENTRIES[machine].items():
        said = {r: verdict(program, numbers["ptrace"], arch, r) for r in (*ATTACHES, TRACEME, GETREGS)}
        assert said == {**dict.fromkeys(ATTACHES, DENY), TRACEME: ALLOW, GETREGS: ALLOW}
        assert verdict(program, numbers["ptrace"], arch, 2**32 + ATTACHES[0]) == DENY, (
            "the kernel takes a long"
        )


@pytest.mark.parametrize("machine", ENTRIES)
def test_limits_and_priorities_of_others_are_denied(machine: str) -> None:
    program = compile_filter(OTHERS, machine)
    pointer, high = 0x7F0000001000, 0x7F << 32
    for arch, numbers in ENTRIES[machine].items():
        for name, arguments, said in (
            ("prlimit64", (0, 7, pointer), ALLOW),
            ("prlimit64", (4711, 7, 0, pointer), ALLOW),
            ("prlimit64", (4711, 7, pointer), DENY),
            ("prlimit64", (4711, 7, high), DENY),
            ("prlimit64", (2**32, 7, pointer), ALLOW),  # the kernel takes an int
            ("setpriority", (0, 0, 5), ALLOW),
            ("setpriority", (1, 0, 5), ALLOW),
            ("setpriority", (0, 4711, 5), DENY),
            ("setpriority", (2, 0, 5), DENY),
            ("setpriority", (2, 65534, 5), DENY),
            ("ioprio_set", (1, 0, 5), ALLOW),
            ("ioprio_set", (1, 4711, 5), DENY),
            ("ioprio_set", (3, 0, 5), DENY),
        ):
            assert verdict(program, numbers[name], arch, *arguments) == said, (name, arguments)


def test_x32_and_unknown_entries_are_denied() -> None:
    program = compile_filter(ALL, "x86_64")
    native = next(iter(ENTRIES["x86_64"]))
    assert verdict(program, 0x40000000 | READ, native) == DENY
    assert verdict(program, READ, 0xC0000015) == DENY


def test_seccomp_denies_only_listed_calls() -> None:
    program = compile_filter(KERNEL, "x86_64")
    arch, numbers = next(iter(ENTRIES["x86_64"].items()))
    assert verdict(program, numbers["ptrace"], arch, ATTACHES[0]) == ALLOW
    assert verdict(program, numbers["keyctl"], arch) == DENY


def test_a_machine_whose_numbers_are_not_known_has_none() -> None:
    assert compile_filter(ALL, "s390x") == ()


def test_a_filter_is_listed_as_wanted() -> None:
    assert seccomp.listing(compile_filter(("ptrace", "bpf"), "aarch64")) == (
        """\
   0: A = data[4]
   1: if A == 0xc00000b7 goto +0 else +11
   2: A = data[0]
   3: if A == 0x75 goto +0 else +6
   4: A = data[16]
   5: if A == 0x10 goto +0 else +1
   6: return EPERM
   7: if A == 0x4206 goto +0 else +1
   8: return EPERM
   9: return allow
  10: if A == 0x118 goto +0 else +1
  11: return EPERM
  12: return allow
  13: if A == 0x40000028 goto +0 else +11
  14: A = data[0]
  15: if A == 0x1a goto +0 else +6
  16: A = data[16]
  17: if A == 0x10 goto +0 else +1
  18: return EPERM
  19: if A == 0x4206 goto +0 else +1
  20: return EPERM
  21: return allow
  22: if A == 0x182 goto +0 else +1
  23: return EPERM
  24: return allow
  25: return EPERM
"""
    )


TRIES = """
import ctypes, json, os, sys
sys.path.insert(0, sys.argv[1])
from isolator.confinement import apart_sys
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
child = os.fork()
if child == 0:
    os.read(0, 1)
    os._exit(0)
apart_sys.install(bytes.fromhex(sys.argv[2]))
def tried(*arguments):
    return ctypes.get_errno() if libc.syscall(*arguments) < 0 else 0
said = {
    "attach": tried(101, 16, child, 0, 0), "seize": tried(101, 0x4206, child, 0, 0),
    "process_vm_readv": tried(310, child, 0, 0, 0, 0, 0), "pidfd_getfd": tried(438, os.pidfd_open(child), 0, 0),
    "keyctl": tried(250, 0, -2, 0), "x32": tried(0x40000000 | 39), "getpid": tried(39),
}
debugged = os.fork()
if debugged == 0:
    os._exit(tried(101, 0, 0, 0, 0))  # PTRACE_TRACEME
said["traceme"] = os.waitstatus_to_exitcode(os.waitpid(debugged, 0)[1])
print(json.dumps(said))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of its calls are those of x86-64")
def test_seccomp_filter_is_obeyed_by_the_kernel() -> None:
    program = seccomp.encode(compile_filter(ALL, "x86_64")).hex()
    done = subprocess.run(
        [sys.executable, "-c", TRIES, str(ROOT), program],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout) == {
        "attach": errno.EPERM, "seize": errno.EPERM, "process_vm_readv": errno.EPERM, "pidfd_getfd": errno.EPERM,
        "keyctl": errno.EPERM, "x32": errno.EPERM, "getpid": 0, "traceme": 0,
    }  # fmt: skip


def test_seccomp_follows_the_operators_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = os.uname().machine
    always = (*KERNEL, *OTHERS)
    lists = (always, (*PROCESSES, *always))
    small, large = (seccomp.encode(compile_filter(names, machine)) for names in lists)
    for landlock, yama, how, kept in (
        (True, False, "auto", Apart(True, small)),
        (False, True, "auto", Apart(False, small)),
        (False, False, "auto", Apart(False, large)),
        (True, True, "strict", Apart(True, large)),
        (True, True, "off", Apart()),
    ):
        monkeypatch.setattr("isolator.confinement.apart.has_landlock", lambda said=landlock: said)
        monkeypatch.setattr("isolator.confinement.apart.has_yama", lambda said=yama: said)
        assert apart_of({"MESOS_GPU_TASK_FILTER": how}) == kept
    with pytest.raises(BadConfiguration, match="MESOS_GPU_TASK_FILTER is 'on'"):
        apart_of({"MESOS_GPU_TASK_FILTER": "on"})
