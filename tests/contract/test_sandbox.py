"""What a task, or an archive it had unpacked, plants in its sandbox: the executor, which is root, is not led out."""

import base64
import os
import stat
from pathlib import Path

import pytest

from mesos_gpu.model.tasks.assignment import Outcome
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import Host, host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it changes users")


@pytest.fixture
def victim(open_directory: Path) -> Path:
    """A file of the host that only root may write to."""
    path = open_directory / "victim"
    path.write_text("the host's\n")
    path.chmod(0o600)
    return path


def untouched(victim: Path) -> bool:
    status = victim.lstat()
    return (victim.read_text(), status.st_uid, stat.S_IMODE(status.st_mode)) == ("the host's\n", 0, 0o600)


def begin(one: Host) -> None:
    """A gang's member may begin."""
    one.update("TASK_STARTING")
    one.agent.send({"type": "MESSAGE", "message": {"data": base64.b64encode(b'{"start": true}').decode()}})


def test_the_list_of_hosts_goes_through_no_link(one: Host, victim: Path) -> None:
    (one.sandbox / "hostfile").symlink_to(victim)
    one.launch("cat $HOSTFILE", user="nobody", hosts=("n1", "n2"))
    begin(one)
    one.end("TASK_FINISHED")
    assert one.stdout() == "n1 slots=1\nn2 slots=1\n"
    assert untouched(victim)


def test_sandbox_log_of_the_executor_follows_no_link(
    open_directory: Path, agent: ScriptedAgent, victim: Path
) -> None:
    with host(open_directory, agent, prefix=f"ln -s {victim} executor.log; ") as one:
        assert one.process.wait(30) != 0, "it says nothing where it cannot be read"
        assert "executor.log in the sandbox is not a regular file with one name" in one.stderr()
    assert untouched(victim)


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_second_name_of_a_file_of_the_host_is_not_given_away(one: Host, victim: Path, name: str) -> None:
    (one.sandbox / name).unlink()
    (one.sandbox / name).hardlink_to(victim)
    one.launch("true", user="nobody")
    one.end("TASK_FINISHED")
    victim_again = victim.lstat()
    assert victim_again.st_uid == 0
    assert untouched(victim)


REPLACES = """
for name in stdout stderr executor.log
do
    rm -f $name; mv $name old; mkfifo new; mv -f new $name; ln -sf /etc/passwd $name
done
mkfifo hostfile; echo own > file && rm file && echo done
"""


def test_a_task_cannot_put_a_fifo_in_place_of_its_output(one: Host) -> None:
    one.launch(REPLACES, user="nobody")
    assert one.end("TASK_FINISHED")[1] == Outcome(exit_status=0)
    for name in ("stdout", "stderr", "executor.log"):
        status = (one.sandbox / name).lstat()
        assert stat.S_ISREG(status.st_mode), name
        assert status.st_uid == 0, name
    assert one.stdout() == "done\n"
    assert "Operation not permitted" in one.stderr()


def test_sandbox_streams_are_reopened(one: Host) -> None:
    one.launch("echo one; echo two > /dev/stdout; echo three >> /dev/stderr", user="nobody")
    one.end("TASK_FINISHED")
    # `>` on a file cuts it off, as of any that is reopened.
    assert one.stdout().endswith("two\n")
    assert one.stderr() == "three\n"


def test_sandbox_that_is_closed_cannot_be_read_by_others(one: Host) -> None:
    one.sandbox.chmod(0o750)
    one.launch("touch made; sleep 600", user="nobody")
    wait_until("it is at work", lambda: (one.sandbox / "made").exists())
    assert not stat.S_IMODE(one.sandbox.stat().st_mode) & 0o007
    assert (one.sandbox / "made").owner() == "nobody"
    one.kill(grace_s=0)
    one.end("TASK_KILLED")


# --- its logs and its disk

PRINTS = "i=0; while [ $i -lt 60 ]; do head -c 100000 /dev/zero | tr '\\0' x; echo $i; i=$((i+1)); sleep 0.02; done"


def test_a_log_keeps_within_its_limit(open_directory: Path, agent: ScriptedAgent) -> None:
    with host(open_directory, agent, MESOS_GPU_LOG_LIMIT="1") as one:
        one.launch(PRINTS, user="nobody", log_limit_mib=500)
        one.end("TASK_FINISHED")
        status = (one.sandbox / "stdout").stat()
        assert status.st_size > 6_000_000
        assert status.st_blocks * 512 <= 1_300_000
        first, last = one.stdout()[:200], one.stdout()[-4:]
    assert first.startswith("[mesos-gpu] ")
    assert "it may keep 1 MiB" in first
    assert last == "x59\n"


def test_a_limit_that_is_none_is_the_hosts_fault(open_directory: Path, agent: ScriptedAgent) -> None:
    with host(open_directory, agent, MESOS_GPU_LOG_LIMIT="1G") as one:
        one.launch("true", user="nobody")
        message, outcome = one.end("TASK_FAILED")
        assert "MESOS_GPU_LOG_LIMIT is '1G'" in message
        assert outcome.infrastructure


def test_a_sandbox_that_is_too_large_ends_its_task(one: Host) -> None:
    one.launch(
        "head -c 5000000 /dev/zero > data; exec sleep 600", user="nobody", disk_mib=3, kill_grace_s=1.0
    )
    message, outcome = one.end("TASK_FAILED")
    assert message.startswith("out of disk: 3 MiB asked, 5 used in its sandbox; ask for more with --disk")
    assert (outcome.signal, outcome.infrastructure) == (15, False)


def test_sandbox_output_replaced_by_root_of_a_task_does_not_stay(one: Host) -> None:
    one.launch("echo before; mv stdout s; mkfifo stdout; echo after; touch done; exec sleep 600", user="root")
    wait_until("it is at work", lambda: (one.sandbox / "done").exists())
    wait_until("it is put back", lambda: stat.S_ISREG((one.sandbox / "stdout").lstat().st_mode))
    assert one.stdout() == "before\nafter\n"
    one.kill(grace_s=0)
    one.end("TASK_KILLED")
