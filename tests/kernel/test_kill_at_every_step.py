"""kill -9 of an executor at every step of a launch: whoever comes next finds nothing of it, or undoes it.

The executor runs under a profiler that sees each call of a function written in C, and kills the process before the
Nth of those that change the host. N grows until a launch gets through.
"""

import os
import random
import shlex
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from isolator.confinement import pids
from isolator.devices import cgroups
from isolator.gpus.ledger import Ledger
from isolator.host import processes
from isolator.node.reaper import reap
from mesos_gpu.testing.scripted_agent import scripted_agent
from tests.conftest import wait_until
from tests.hosts import GPUS, host
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel

#: Runs before the executor's main: its own module, no hook in the product.
BOOTSTRAP = """
import os, signal, sys, threading
STEP, SEEN = int(os.environ["KILL_AT"]), 0
CHANGES = {
    "mkdir", "rmdir", "mknod", "chmod", "open", "write", "execute", "executemany", "link", "unlink", "fork",
    "remove", "sendall", "shutdown", "rename", "replace", "chown", "utime", "flock", "close", "pwrite", "fchmod",
}
def seen(frame, event, argument):
    global SEEN
    if event != "c_call" or argument.__name__ not in CHANGES:
        return
    if isinstance(argument.__self__, str):  # str.replace: one for each mount of this host, and no change
        return
    name = frame.f_code.co_filename
    if "isolator" not in name and "pathlib" not in name and "shutil" not in name:
        return
    SEEN += 1
    if SEEN == STEP:
        os.write(2, f"killed before {argument.__name__} in {frame.f_code.co_name}\\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
sys.path.insert(0, ROOT)
from isolator.executor import main as executor
exec(compile(PATCH, "isolator, as a test has it", "exec"))
def counted(step):
    def taken(self, *given):
        sys.setprofile(seen)
        try:
            return step(self, *given)
        finally:
            sys.setprofile(None)
    return taken
for name in STEPS:  # one after the other, each on a thread of its own
    setattr(executor.Work, name, counted(getattr(executor.Work, name)))
sys.exit(executor.main())
"""


def bootstrap(*steps: str, patch: str = "") -> str:
    """The command of an executor that is killed in one of these steps. `patch`: code that runs in it first, whose
    changes count."""
    root = str(Path(processes.__file__).resolve().parents[2])
    code = BOOTSTRAP.replace("ROOT", repr(root)).replace("STEPS", repr(steps)).replace("PATCH", repr(patch))
    return f"exec {os.path.realpath(sys.executable)} -IS -c {shlex.quote(code)}"


def traces_of(container: str) -> list[Path]:
    """What a launch of that container has on this host now."""
    places = [Path("/dev/mesos_gpu") / container]
    mounts = {*cgroups.mounted().values(), *filter(None, [pids.mounted()])}
    places += [mount / cgroups.OWN_ROOT / container for mount in mounts]
    return [path for path in places if path.exists()]


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 5])
@pytest.mark.parametrize("version", ["cgroup1", "cgroup2"])
def test_a_kill_at_any_step_is_undone_by_whoever_comes_next(
    open_directory: Path, version: str, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stride 1, at every step; in the quick suite at every fifth, from any on. By turns the monitor and an
    executor come next."""
    needs(version)
    command = bootstrap("prepare", "fetch", "start", "undo", "seal")
    monkeypatch.setattr("tests.hosts.executor_command", lambda: command)
    steps: list[str] = []
    node = open_directory / f"every-{time.monotonic_ns()}"
    node.mkdir()
    for number in range(random.randint(1, stride), 1000, stride):
        with scripted_agent() as agent:
            now = time.monotonic_ns()  # another run of these tests may be under way
            task, container = f"job-{number}-{now}.0", f"step-{number}-{now}"
            given = {"MESOS_GPU_ISOLATION": version, "KILL_AT": str(number)}
            with host(node, agent, task=task, container=container, **given) as one:
                one.launch("exit 3", user="nobody", gpus=GPUS)
                if one.process.wait(60) == 0:
                    assert one.states()[-1] == "TASK_FAILED"
                    break
                steps.append(one.stderr().splitlines()[-1])
                if len(steps) % 2:
                    reap(one.ledger)  # the monitor
                    assert traces_of(container) == [], steps[-1]
                else:  # the next executor that wants the same cards
                    after = following(node, version)
                    assert after == {"state": "TASK_FINISHED", "held": []}, (steps[-1], after)
                    assert traces_of(container) == [], steps[-1]
                    reap(one.ledger)  # seals a sandbox that is not sealed yet
                assert one.ledger.holdings() == ()
                gone = partial(
                    processes.of_task, task
                )  # its launcher ends by itself, when it hears nothing more
                wait_until("nothing of it runs", lambda gone=gone: gone() == [], 30)  # type: ignore[misc]
    assert number > 80, steps
    if stride == 1:
        kinds = {step.split()[2] for step in steps}
        assert {"mknod", "mkdir", "execute", "sendall"} <= kinds, "nodes, cgroups, claims, the start"


def following(node: Path, version: str) -> dict[str, object]:
    """A whole launch on the same host, by an executor of its own, undisturbed."""
    with scripted_agent() as agent:
        given = {"MESOS_GPU_ISOLATION": version, "KILL_AT": "0"}
        with host(node, agent, task=f"next.{os.getpid()}", **given) as one:
            one.launch("true", user="nobody", gpus=GPUS)
            agent.wait_for(lambda: one.states()[-1:] in (["TASK_FINISHED"], ["TASK_FAILED"]))
            one.process.wait(60)
            held = [holding.task for holding in one.ledger.holdings() if not holding.is_released]
            return {"state": one.states()[-1], "held": held}


def test_the_undo_itself_may_be_killed(open_directory: Path) -> None:
    """A reaper that dies half-way is followed by another."""
    needs("cgroup1")
    node = open_directory / f"undo-{time.monotonic_ns()}"
    node.mkdir()
    container = f"undo-{time.monotonic_ns()}"
    with (
        scripted_agent() as agent,
        host(node, agent, container=container, MESOS_GPU_ISOLATION="cgroup1") as one,
    ):
        one.launch("echo ready; exec sleep 600", user="nobody", gpus=GPUS)
        one.update("TASK_RUNNING")
        one.process.kill()
        one.process.wait(60)
        made = len(traces_of(container))
        assert made >= 3
        reaper = (
            "import os, signal, sys; from pathlib import Path; from isolator.confinement import enclosure; "
            "from isolator.gpus import ledger; from isolator.node import reaper\n"
            "undo = enclosure.undo\n"
            "def once(trace):\n"
            "    undo(trace); os.kill(os.getpid(), signal.SIGKILL)\n"
            "reaper.undo = once\n"
            "reaper.reap(ledger.Ledger(Path(sys.argv[1])))\n"
        )
        path = node / "node" / "ledger.sqlite"
        done = subprocess.run([sys.executable, "-c", reaper, str(path)], check=False)
        assert done.returncode == -9
        assert len(traces_of(container)) == made - 1, "one is undone"
        assert len(Ledger(path).holdings()) == 1, "and the rest is on record"
        reap(Ledger(path))
        assert traces_of(container) == []
        assert Ledger(path).holdings() == ()
