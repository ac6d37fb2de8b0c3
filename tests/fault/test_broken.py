"""A scheduler process with a bug in it: one message costs itself, a dead thread ends the process for its supervisor."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import wait_until
from tests.doubles.scripted_master import ScriptedMaster, Stream

START = "\nfrom mesos_gpu.scheduler.__main__ import main\nmain()\n"
BREAKS_ON_POISON = """
from mesos_gpu.scheduler.figures import meter
def step(state, event, now, settings, real=meter.step):
    effects = real(state, event, now, settings)
    if "poison" in repr(event):
        raise ZeroDivisionError("a bug")
    return effects
meter.step = step
"""
THREAD_DIES = """
from mesos_gpu.adapters.audit.log import AuditLog
def run(self):
    raise ZeroDivisionError("a bug")
AuditLog._run = run
"""


@contextmanager
def scheduler(directory: Path, bug: str, master: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    log = directory / "log"
    options = ["--master", master, "--port", "0", "--state", str(directory / "s" / "state")]
    command = [sys.executable, "-c", bug + START, *options]
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            yield process, log
        finally:
            process.terminate()


def test_message_that_breaks_the_scheduler_is_passed_over(tmp_path: Path) -> None:
    status = {
        "task_id": {"value": "poison"},
        "agent_id": {"value": "a1"},
        "state": "TASK_RUNNING",
        "uuid": "AAAA",
    }
    update = {"type": "UPDATE", "update": {"status": status}}
    with (
        ScriptedMaster(then=Stream(events=(update,))) as master,
        scheduler(tmp_path, BREAKS_ON_POISON, master.address) as (process, log),
    ):
        assert master.wait_for("ACKNOWLEDGE").body["acknowledge"]["task_id"] == {"value": "poison"}
        assert len(master.of_type("SUBSCRIBE")) == 2
        assert process.poll() is None
        said = log.read_text()
    assert "it is skipped and the state is reloaded" in said
    assert "ZeroDivisionError: a bug" in said


def test_scheduler_whose_thread_dies_ends_with_an_error(tmp_path: Path) -> None:
    with ScriptedMaster() as master, scheduler(tmp_path, THREAD_DIES, master.address) as (process, log):
        assert wait_until("it ends", lambda: process.poll() is not None)
        assert process.returncode == 1
        assert (
            "thread audit died, so the scheduler exits; restart it and report this error: ZeroDivisionError('a bug')"
            in log.read_text()
        )
