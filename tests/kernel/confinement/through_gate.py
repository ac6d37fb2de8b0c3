"""Runs in a mount namespace of its own: commands through a gate of a machine, one JSON line of what became of each.

Arguments: the machine; an emulator of it, if it is not this one.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

sys.path.insert(0, str(Path(__file__).parents[3]))
from isolator.confinement import apart_sys, gate
from isolator.confinement.apart import NOT_APART, Apart, apart_of
from isolator.confinement.fence import Fence, fence_for
from isolator.host.control_ports import Denial
from isolator.host.not_started import NotStarted
from mesos_gpu.errors import MesosGpuError

COMMANDS = {
    "runs": ["sh", "-c", "echo $0; grep -o mesos_gpu/gate /proc/self/cgroup; exit 7", "named"],
    "absent": ["no-such-program"],
    "no program": ["/etc/passwd"],
}
#: Root without a capability, as many a task is.
AS_TASK = ["setpriv", "--bounding-set", "-all"]
#: By such a process: $0 is another, $1 a Python, $2 the name of an abstract Unix socket of another.
LOOK = """
for file in environ maps mem; do cat /proc/$0/$file 2>&1 >/dev/null | grep -q denied; echo $file $?; done
for link in cwd root exe fd/0; do readlink /proc/$0/$link >/dev/null; echo $link $?; done
kill -0 $0 2>/dev/null; echo signal $?
"$1" -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[1])' "$2" 2>/dev/null
echo socket $?
sed -n 's/^NoNewPrivs:\t/privileges /p; s/^Seccomp:\t/filter /p' /proc/self/status
mkdir one two && touch one/file && ln one/file two/link && mv one/file two/file; echo moved $?
"""


class NoFence(Fence):
    """A fence that takes nobody in."""

    def take(self, pid: int, own_cgroup: str = "") -> None:
        pass


def through(
    directory: Path,
    fence: Fence,
    runner: list[str],
    argv: list[str],
    *,
    init: bool = False,
    apart: Apart = NOT_APART,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> list[object]:
    one = gate.Gate(directory, fence, apart)
    one.open()
    subprocess.run(["mount", "--bind", directory, gate.INSIDE], check=True)
    try:
        process = subprocess.Popen(
            [*runner, str(directory / "gate"), *argv],
            cwd=directory.parent,
            env={"PATH": "/nowhere:/bin"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            first = process.pid if init else 0
            said: object = one.admit(
                argv, lambda: process.poll() is not None, first=first, see=lambda _: None, variables=variables
            )
        except (NotStarted, MesosGpuError) as error:
            said = str(error).partition("\n")[0]
        out, _ = process.communicate(timeout=30)
        return [said, process.returncode, out.split()]
    finally:
        subprocess.run(["umount", gate.INSIDE], check=True)


def look_apart(directory: Path, fence: Fence) -> None:
    """By this machine's kernel, as it is, as one without scopes, and as one that refuses."""
    newest, program = apart_sys.ruleset, apart_of({}).program
    both = Apart(domain=True, program=program)
    other = subprocess.Popen([*AS_TASK, "sleep", "600"])
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"\0of-another-{os.getpid()}")
    listening.listen()
    try:
        for name, apart, ruleset in (
            ("not apart", NOT_APART, newest),
            ("apart", both, newest),
            ("apart but for sockets", replace(both, sockets=False), newest),
            ("sockets alone", Apart(domain=True, signals=False), newest),
            ("apart by an older kernel", both, lambda **_: newest(signals=False, sockets=False)),
            ("refused", both, lambda **_: (b"\xff" * 24, 0)),
            ("a filter that is none", Apart(program=b"\xff" * 8), newest),
        ):
            setattr(apart_sys, "ruleset", ruleset)  # noqa: B010
            look = [*AS_TASK, "sh", "-c", LOOK, str(other.pid), sys.executable, f"of-another-{os.getpid()}"]
            said, code, words = through(directory, fence, [], look, apart=apart)
            assert isinstance(words, list)
            for made in ("one", "two"):
                shutil.rmtree(directory.parent / made, ignore_errors=True)
            print(json.dumps([name, said, code, dict(zip(words[::2], words[1::2], strict=True))]))
    finally:
        listening.close()
        other.kill()
        other.wait()


def main() -> None:
    runner = sys.argv[2:]
    program = gate.program
    gate.program = lambda machine: program(sys.argv[1])
    held = Path(gate.INSIDE, f"gate-{os.getpid()}")  # whoever else is done with the directory leaves it then
    held.mkdir(parents=True)
    fence = fence_for(f"gate-{os.getpid()}", (Denial(5051),))
    assert fence is not None
    fence.set_up()
    try:
        with tempfile.TemporaryDirectory() as top:
            for name, argv in COMMANDS.items():
                print(json.dumps([name, *through(Path(top, "gate"), fence, runner, argv)]))
            below = ["sh", "-c", '"$@"; exit', "init", *runner]
            look = ["sh", "-c", "grep -o mesos_gpu/gate /proc/$PPID/cgroup"]
            told = through(Path(top, "gate"), fence, below, look, init=True)
            print(json.dumps(["below an init", *told]))
            core = "grep -c 'core file size  *1  *1 ' /proc/self/limits"
            for name, size in (("a variable", 3), ("a large one", 131000), ("too large", 131001)):
                given = {"SECRET": "s" * size, "PATH": "/usr/bin:/bin"}
                if name == "too large":
                    given |= {"ANOTHER": "s" * size}
                count = ["sh", "-c", f"{core}; printf %s $SECRET | wc -c; echo $PATH"]
                there = through(Path(top, "gate"), fence, runner, count, variables=given)
                print(json.dumps([name, *there]))
            open_one = NoFence(fence.denied, fence.cgroup)
            if not runner:
                look_apart(Path(top, "gate"), fence)
            print(json.dumps(["not behind it", *through(Path(top, "gate"), open_one, runner, ["true"])]))
    finally:
        fence.cgroup.remove()
        held.rmdir()


if __name__ == "__main__":
    main()
