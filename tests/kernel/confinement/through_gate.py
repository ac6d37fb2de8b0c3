"""Runs in a mount namespace of its own: commands through a gate of a machine, one JSON line of what became of each.

Arguments: the machine; an emulator of it, if it is not this one.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from isolator.confinement import gate
from isolator.confinement.fence import Fence, fence_for
from isolator.host.control_ports import Denial
from isolator.host.not_started import NotStarted
from mesos_gpu.errors import MesosGpuError

COMMANDS = {
    "runs": ["sh", "-c", "echo $0; grep -o mesos_gpu/gate /proc/self/cgroup; exit 7", "named"],
    "absent": ["no-such-program"],
    "no program": ["/etc/passwd"],
}


class NoFence(Fence):
    """A fence that takes nobody in."""

    def take(self, pid: int, own_cgroup: str = "") -> None:
        pass


def through(
    directory: Path, fence: Fence, runner: list[str], argv: list[str], *, init: bool = False
) -> list[object]:
    one = gate.Gate(directory, fence)
    one.open()
    subprocess.run(["mount", "--bind", directory, gate.INSIDE], check=True)
    try:
        process = subprocess.Popen(
            [*runner, str(directory / "gate"), *argv],
            env={"PATH": "/nowhere:/bin"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            first = process.pid if init else 0
            said: object = one.admit(
                argv, lambda: process.poll() is not None, first=first, see=lambda _: None
            )
        except (NotStarted, MesosGpuError) as error:
            said = str(error).partition("\n")[0]
        out, _ = process.communicate(timeout=30)
        return [said, process.returncode, out.split()]
    finally:
        subprocess.run(["umount", gate.INSIDE], check=True)


def main() -> None:
    runner = sys.argv[2:]
    program = gate.program
    gate.program = lambda machine: program(sys.argv[1])
    os.makedirs(gate.INSIDE, exist_ok=True)
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
            open_one = NoFence(fence.denied, fence.cgroup)
            print(json.dumps(["not behind it", *through(Path(top, "gate"), open_one, runner, ["true"])]))
    finally:
        fence.cgroup.remove()


if __name__ == "__main__":
    main()
