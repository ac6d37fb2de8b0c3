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
from typing import Final

from mesos_gpu.wire.channel.call import answer_to, decode_call

#: What is run: executors import nothing of it.
_HELPER: Final = str(Path(__file__).with_name("helper.py"))


def open_session(
    data: bytes, secret: str, task: str, pid: int | None, room: threading.BoundedSemaphore
) -> str:
    """Run what waits at a channel in a task, to its end.

    Args:
        data: The call.
        secret: Of the task's launch; "": it has none, and no call is believed.
        task: Mesos' id of it.
        pid: Of its first process.
        room: For those that run at once.

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
        return _run({**asdict(call), "answer": answer_to(call, secret), "pid": pid}, call.id)
    finally:
        room.release()


def _run(order: dict[str, object], name: str) -> str:
    told, (alive, ours) = os.memfd_create("channel", os.MFD_CLOEXEC), os.pipe()
    with contextlib.ExitStack() as files:
        files.callback(os.close, ours)  # by this the helper sees that this process lives
        try:
            os.write(told, json.dumps(order).encode())
            os.lseek(told, 0, os.SEEK_SET)
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", _HELPER, str(alive)],
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(alive,),
                start_new_session=True,
            )
        except OSError as error:
            return f"channel {name}: its helper could not be started: {error}"
        finally:
            os.close(told)
            os.close(alive)
        said = process.communicate()[0][-2000:].decode(errors="replace").strip()
    if process.returncode < 0:
        from isolator.session.command import end_left

        end_left(name)
    return f"channel {name}: {said or f'its helper ended with {process.returncode}'}"
