"""What a task is told of its end, and what it tells of its checkpoints: an executor as a process, a real sandbox."""

import base64
import json
import os
import time
from pathlib import Path

import pytest

from isolator.host.sandbox import CHECKPOINT, NOTICE
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import NoticeSignal
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.wire.mesos.notice import decode_checkpoint, decode_told, encode_notice
from tests.conftest import wait_until
from tests.hosts import Host

USR1 = NoticeSignal.SIGUSR1
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it changes users")


def give(
    one: Host, number: int = 1, *, recalled: bool = False, signal: NoticeSignal = NoticeSignal.NONE
) -> None:
    """The scheduler says that the task is to end in 40 of 60 seconds."""
    notice = Notice(
        number, NoticeReason.RECLAIM, "makes room", at=1000.0, until=1060.0, by=JobId("other"),
        recalled_at=1020.0 if recalled else None,
    )  # fmt: skip
    data = base64.b64encode(encode_notice(notice, 40.0, signal)).decode()
    one.agent.send({"type": "MESSAGE", "message": {"data": data}})


def said(one: Host) -> list[bytes]:
    """Data of all updates of the task that is running or being killed."""
    running = (each for each in one.agent.updates if each["state"] in ("TASK_RUNNING", "TASK_KILLING"))
    return [base64.b64decode(each["data"]) for each in running if each.get("data")]


def told(one: Host) -> list[int]:
    return [number for data in said(one) if (number := decode_told(data)) is not None]


def kept(one: Host) -> list[float]:
    return [ago_s for data in said(one) if (ago_s := decode_checkpoint(data)) is not None]


def runs(one: Host, command: str, **assignment: object) -> None:
    """Run a command until it is ready: one that handles a signal says so itself, when it does."""
    one.launch(command if "echo ready" in command else f"echo ready; {command}", **assignment)
    wait_until("it runs", lambda: "ready" in one.stdout())
    one.update("TASK_RUNNING")


def file_of(one: Host) -> dict[str, object]:
    body: dict[str, object] = json.loads((one.sandbox / NOTICE).read_text())
    return body


def test_the_task_reads_who_wants_its_end_and_when_and_that_it_is_called_off(one: Host) -> None:
    until = 'until [ -e "$MESOS_GPU_NOTICE" ]; do sleep 0.02; done; cat "$MESOS_GPU_NOTICE"'
    again = 'until grep -q "recalled.: true" "$MESOS_GPU_NOTICE"; do sleep 0.02; done; echo on'
    runs(one, f"{until}; {again}")
    give(one)
    one.agent.wait_for(lambda: told(one) == [1])
    now, body = time.time(), file_of(one)
    assert {name: body[name] for name in ("number", "reason", "why", "by", "recalled")} == {
        "number": 1, "reason": "reclaim", "why": "makes room", "by": "other", "recalled": False,
    }  # fmt: skip
    assert body["until"] == pytest.approx(now + 40, abs=30)
    assert body["at"] == pytest.approx(now - 20, abs=30)
    give(one, 2, recalled=True)
    one.end("TASK_FINISHED")
    assert '"why": "makes room"' in one.stdout()
    assert one.stdout().endswith("on\n")
    assert told(one) == [1, 2]


def test_notice_that_comes_twice_is_answered_twice_and_done_once(one: Host) -> None:
    handler = "trap 'echo told' USR1; echo ready; while :; do sleep 0.05; done"
    runs(one, handler)
    give(one, signal=USR1)
    one.agent.wait_for(lambda: told(one) == [1])
    wait_until("it is signalled", lambda: "told" in one.stdout())
    before = (one.sandbox / NOTICE).stat().st_ino
    give(one, signal=USR1)
    one.agent.wait_for(lambda: told(one) == [1, 1])
    assert (one.sandbox / NOTICE).stat().st_ino == before
    assert one.stdout().count("told") == 1
    one.kill(grace_s=0.0)
    one.end("TASK_KILLED")


def test_the_signal_ends_no_process_without_a_handler(one: Host) -> None:
    inner = "trap 'echo inner; exit 75' USR1; echo ready; while :; do sleep 0.05; done"
    runs(one, f'sh -c "{inner}"; code=$?; echo outer $code; exit $code')
    give(one, signal=USR1)
    message, outcome = one.end("TASK_FAILED")
    assert (message, outcome.exit_status) == ("Command exited with status 75", 75)
    assert one.stdout() == "ready\ninner\nouter 75\n"


@as_root
@pytest.mark.parametrize("trap", ["ln -sf {aim} {notice}", "ln -f mine {notice}", "mkfifo {notice}"])
def test_notice_file_replaced_by_the_task_does_not_mislead_root(
    one: Host, open_directory: Path, trap: str
) -> None:
    aim = open_directory / "aim"
    aim.write_text("not to be changed")
    aim.chmod(0o600)
    command = trap.format(aim=aim, notice=NOTICE)
    runs(one, f"echo kept > mine; {command}; echo set; sleep 600", user="nobody")
    wait_until("the trap is set", lambda: "set" in one.stdout())
    give(one)
    one.agent.wait_for(lambda: told(one) == [1])
    assert aim.read_text() == "not to be changed"
    assert (one.sandbox / "mine").read_text() == "kept\n"
    assert not (one.sandbox / NOTICE).is_symlink()
    assert file_of(one)["number"] == 1
    assert (one.sandbox / NOTICE).owner() == "root"
    one.kill(grace_s=0.0)
    one.end("TASK_KILLED")


def test_a_directory_in_the_files_place_is_not_answered_and_the_signal_comes_once(one: Host) -> None:
    runs(one, f"mkdir {NOTICE}; trap 'echo told' USR1; echo set; while :; do sleep 0.05; done")
    wait_until("the trap is set", lambda: "set" in one.stdout())
    for _ in range(3):
        give(one, signal=USR1)
    log = one.sandbox / "executor.log"
    wait_until("it is tried", lambda: log.read_text().count("notice 1 cannot be given") == 3)
    assert told(one) == []
    wait_until("it is signalled", lambda: one.stdout().count("told") == 1)
    (one.sandbox / NOTICE).rmdir()
    give(one, signal=USR1)
    one.agent.wait_for(lambda: told(one) == [1])
    assert [path.name for path in one.sandbox.iterdir() if path.name.startswith(f".{NOTICE}")] == []
    one.kill(grace_s=0.0)
    one.end("TASK_KILLED")


def test_a_notice_before_the_start_is_for_later(one: Host) -> None:
    one.agent.wait_for(lambda: bool(one.agent.subscribes))
    give(one)
    runs(one, "sleep 600")
    assert not (one.sandbox / NOTICE).exists()
    give(one)
    one.agent.wait_for(lambda: told(one) == [1])
    one.kill(grace_s=0.0)
    one.end("TASK_KILLED")


def test_a_task_tells_of_its_checkpoints_and_of_the_last_before_its_end(one: Host) -> None:
    runs(
        one,
        'echo 1 > "$MESOS_GPU_CHECKPOINT"; until [ -e go ]; do sleep 0.02; done; touch "$MESOS_GPU_CHECKPOINT"',
    )
    one.agent.wait_for(lambda: len(kept(one)) == 1)
    assert kept(one)[0] < 60
    (one.sandbox / "go").touch()
    one.end("TASK_FINISHED")
    assert len(kept(one)) == 2


@pytest.mark.parametrize("when", ["1 hour", "-1 day"])
def test_a_checkpoint_of_the_future_or_of_before_the_start_is_not_told(one: Host, when: str) -> None:
    runs(one, f'touch -d "{when}" "$MESOS_GPU_CHECKPOINT"')
    one.end("TASK_FINISHED")
    assert kept(one) == []


def test_a_checkpoint_that_is_a_link_is_none(one: Host) -> None:
    runs(one, f"touch other; ln -s other {CHECKPOINT}")
    one.end("TASK_FINISHED")
    assert kept(one) == []


def test_a_checkpoint_after_sigterm_is_told_too(one: Host) -> None:
    runs(
        one,
        "trap 'touch \"$MESOS_GPU_CHECKPOINT\"; exit 0' TERM; while :; do sleep 0.05; done",
        kill_grace_s=60.0,
    )
    one.kill()
    one.end("TASK_KILLED")
    assert len(kept(one)) == 1
