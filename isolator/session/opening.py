"""What an executor does when it is called to a channel: it starts a helper, which goes there, and waits for its end.

The helper is a process of its own, so that nothing that comes over a network is read by the executor, and imports what
an executor does without. It ends when the executor does, by a pipe.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesos_gpu.wire.channel.call import answer_to, decode_call

if TYPE_CHECKING:
    from isolator.confinement.inner import Inner

#: What is run: executors import nothing of it.
_HELPER: Final = str(Path(__file__).with_name("helper.py"))


def open_session(
    data: bytes,
    secret: str,
    task: str,
    pid: int | None,
    room: threading.BoundedSemaphore,
    inner: "Inner | None" = None,
) -> str:
    """Run what waits at a channel in a task, to its end.

    Args:
        data: The call.
        secret: Of the task's launch; "": it has none, and no call is believed.
        task: Mesos' id of it.
        pid: Of its first process.
        room: For those that run at once.
        inner: The inner process of the task, which its commands are forked from; None: it has none.

    Returns:
        What came of it, for the executor's log.
    """
    try:
        call = decode_call(data, task, secret)
    except ValueError as error:
        return f"a call to a channel is not believed: {error}"
    if pid is None:
        return f"channel {call.id}: the task has no process that can be seen"
    if not room.acquire(blocking=False):
        return f"channel {call.id}: there are too many already"
    try:
        return _run({**asdict(call), "answer": answer_to(call, secret), "pid": pid}, call.id, inner)
    finally:
        room.release()


def _run(order: dict[str, object], name: str, inner: "Inner | None") -> str:
    told, (alive, ours) = os.memfd_create("channel", os.MFD_CLOEXEC), os.pipe()
    with contextlib.ExitStack() as files:
        files.callback(os.close, ours)  # by this the helper sees that this process lives
        passed = [alive]
        try:
            if inner is not None:
                order["session"] = passed_on = _session(inner)
                passed += passed_on[:1] if isinstance(passed_on, list) else []
            os.write(told, json.dumps(order).encode())
            os.lseek(told, 0, os.SEEK_SET)
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", _HELPER, str(alive)],
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=passed,
                start_new_session=True,
            )
        except OSError as error:
            return f"channel {name}: its helper could not be started: {error}"
        finally:
            os.close(told)
            for file in passed:
                os.close(file)
        said = process.communicate()[0][-2000:].decode(errors="replace").strip()
    if process.returncode < 0:
        from isolator.session.command import end_left

        end_left(name)
    return f"channel {name}: {said or f'its helper ended with {process.returncode}'}"


def _session(inner: "Inner") -> list[int] | str:
    """What a helper takes over a session by, its file first; or why there is none: files and ports of the task can be
    reached without it."""
    try:
        session = inner.session()
    except OSError as error:
        return str(error.strerror)
    return [session.line.detach(), session.pid, session.number]
