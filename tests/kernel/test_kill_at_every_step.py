"""kill -9 of an executor at the steps of a launch: the next executor and the monitor find no trace of it, or undo it.

The executor runs under a profiler that sees each call of a function written in C, and kills the process before the
Nth of those that change the host. In long runs N grows until a launch gets through.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from isolator.devices import cgroups
from isolator.gpus.ledger import Ledger
from isolator.host import processes
from isolator.node.reaper import reap
from tests.conftest import wait_until
from tests.doubles.scripted_agent import scripted_agent
from tests.hosts import GPUS, host
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel
EVERY = range(1, 1000)

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


def killed_before(*steps: int) -> pytest.MarkDecorator:
    """Parametrize a test by the `steps` that it kills before: these, and all of them in long runs."""
    every = pytest.param(EVERY, id="every", marks=pytest.mark.long)
    return pytest.mark.parametrize("steps", [pytest.param(steps, id="-".join(map(str, steps))), every])


def traces_of(container: str) -> list[Path]:
    """What a launch of that container has on this host now."""
    places = [Path("/dev/mesos_gpu") / container]
    places += [mount / cgroups.OWN_ROOT / container for mount in {*cgroups.mount_points().values()}]
    return [path for path in places if path.exists()]


@killed_before(60)
@pytest.mark.parametrize("version", ["cgroup1", "cgroup2"])
def test_kill_in_a_launch_is_undone_by_the_next_process(
    open_directory: Path, version: str, steps: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By turns the monitor and an executor come next."""
    needs(version)
    command = bootstrap("prepare", "fetch", "start", "undo", "seal")
    monkeypatch.setattr("tests.hosts.executor_command", lambda: command)
    killed: list[str] = []
    node = open_directory / f"every-{time.monotonic_ns()}"
    node.mkdir()
    for number in steps:
        with scripted_agent() as agent:
            now = time.monotonic_ns()  # another run of these tests may be under way
            task, container = f"job-{number}-{now}.0", f"step-{number}-{now}"
            given = {"MESOS_GPU_ISOLATION": version, "KILL_AT": str(number)}
            with host(node, agent, task=task, container=container, **given) as one:
                one.launch("exit 3", user="nobody", gpus=GPUS, mem_mib=64, cpus=1.0)
                if one.process.wait(60) == 0:
                    assert one.states()[-1] == "TASK_FAILED"
                    break
                killed.append(one.stderr().splitlines()[-1])
                if len(killed) % 2:
                    reap(one.ledger)  # the monitor
                    assert traces_of(container) == [], killed[-1]
                else:  # the next executor that wants the same cards
                    after = following(node, version)
                    assert after == {"state": "TASK_FINISHED", "held": []}, (killed[-1], after)
                    assert traces_of(container) == [], killed[-1]
                    reap(one.ledger)  # seals a sandbox that is not sealed yet
                assert one.ledger.holdings() == ()
                gone = partial(
                    processes.of_task, task
                )  # its launcher ends by itself, when it hears nothing more
                wait_until("nothing of it runs", lambda gone=gone: gone() == [], 30)  # type: ignore[misc]
    if steps is EVERY:
        assert number > 80, killed
        kinds = {step.split()[2] for step in killed}
        assert {"mknod", "mkdir", "execute", "sendall"} <= kinds, "nodes, cgroups, claims, the start"
    else:
        assert len(killed) == len(steps), "the launch came through"


def following(node: Path, version: str) -> dict[str, object]:
    """A whole launch on the same host, by an executor of its own, undisturbed."""
    with scripted_agent() as agent:
        given = {"MESOS_GPU_ISOLATION": version, "KILL_AT": "0"}
        with host(node, agent, task=f"next.{os.getpid()}", **given) as one:
            one.launch("true", user="nobody", gpus=GPUS, mem_mib=64, cpus=1.0)
            agent.wait_for(lambda: one.states()[-1:] in (["TASK_FINISHED"], ["TASK_FAILED"]))
            one.process.wait(60)
            held = [holding.task for holding in one.ledger.holdings() if not holding.is_released]
            return {"state": one.states()[-1], "held": held}


def test_undo_that_is_killed_is_done_by_the_next_reaper(open_directory: Path) -> None:
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
