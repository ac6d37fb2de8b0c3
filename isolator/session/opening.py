"""Opening of sessions by an executor: it starts a helper, which connects to the scheduler, and waits for its
end.

The helper is a process of its own, so that the executor reads nothing that comes over a network, and need not
import what the helper imports. It ends with the executor, by a pipe.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isolator.gpus.ledger import Ledger
from mesos_gpu.wire.channel.call import Kept, answer_to, decode_call

if TYPE_CHECKING:
    from isolator.confinement.inner_calls import Inner

#: Program of the helper; executors do not import it.
_HELPER: Final = str(Path(__file__).with_name("helper.py"))
SEALED_S: Final = 10.0  # wait for a sandbox that is being sealed
ROOM_S: Final = 10.0  # wait for other reads to end
_LOOK_S: Final = 0.1
_END_S: Final = 1.0  # longest wait for the end of a session's process after its helper has ended


def open_session(
    data: bytes,
    secret: str,
    task: str,
    pid: int | None,
    room: threading.BoundedSemaphore,
    inner: "Inner | None" = None,
) -> str:
    """Run a session in a task, to its end.

    Args:
        data: Encoded call of the scheduler.
        secret: Secret of the task's launch; "" if it has none, and then every call is refused.
        task: Mesos' task id.
        pid: Pid of the task's first process.
        room: Limit of simultaneous sessions.
        inner: Inner process of the task, from which its commands are forked; None if the task has none.

    Returns:
        The outcome, for the executor's log.
    """
    try:
        call = decode_call(data, task, secret)
    except ValueError as error:
        return f"a call for a session is not authentic: {error}"
    if pid is None:
        return f"channel {call.id}: no process of the task is visible"
    return _run_in({**asdict(call), "answer": answer_to(call, secret), "pid": pid}, call.id, room, inner)


def open_kept(
    data: bytes, secret: str, monitor: str, own: str, books: Ledger, room: threading.BoundedSemaphore
) -> str:
    """Answer a call from a channel to read the sandbox of an ended task.

    Args:
        data: The encoded call.
        secret: Secret of the node monitor's launch; "" if it has none, and then every call is refused.
        monitor: Mesos' task id of the node monitor.
        own: Path of the node monitor's sandbox, from which the path of the other sandbox follows.
        books: Ledger of this host, which lists the sandboxes that are not sealed yet.
        room: Limit of simultaneous sessions.

    Returns:
        The outcome, for the monitor's log.
    """
    try:
        call = decode_call(data, monitor, secret)
        kept = Kept.of(call.kept)
    except ValueError as error:
        return f"a call for a session is not authentic: {error}"
    sandbox = sandbox_of(kept, own)
    deadline = time.monotonic() + SEALED_S
    while _is_to_be_sealed(books, sandbox) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    order = {"sandbox": sandbox, "nested": kept.nested, "as_root": kept.as_root}
    return _run_in({**asdict(call), "answer": answer_to(call, secret), **order}, call.id, room, wait_s=ROOM_S)


def sandbox_of(kept: Kept, own: str) -> str:
    """Return the path of a sandbox of this host's agent (Mesos' slave/paths.hpp).

    Args:
        kept: Ids that name the sandbox.
        own: Path of another sandbox of the agent: WORK_DIR/slaves/AGENT/frameworks/…
    """
    work, _, _ = os.path.realpath(own).rpartition("/frameworks/")
    of_executor = f"frameworks/{kept.framework_id}/executors/{kept.executor_id}"
    return os.path.realpath(f"{os.path.dirname(work)}/{kept.agent_id}/{of_executor}/runs/latest")


def _is_to_be_sealed(books: Ledger, sandbox: str) -> bool:
    traces = (trace for holding in books.holdings() if holding.is_released for trace in holding.traces)
    return any(trace.kind == "sandbox" and os.path.realpath(trace.what) == sandbox for trace in traces)


def _run_in(
    order: dict[str, object],
    name: str,
    room: threading.BoundedSemaphore,
    inner: "Inner | None" = None,
    *,
    wait_s: float = 0.0,
) -> str:
    if not room.acquire(timeout=wait_s):
        return f"channel {name}: too many sessions are open already"
    try:
        return _run(order, name, inner)
    finally:
        room.release()


def _run(order: dict[str, object], name: str, inner: "Inner | None") -> str:
    order_file, (alive, ours) = os.memfd_create("channel", os.MFD_CLOEXEC), os.pipe()
    session: list[int] | str | None = None
    with contextlib.ExitStack() as files:
        files.callback(os.close, ours)  # its end tells the helper that this process has ended
        passed = [alive]
        try:
            if inner is not None:
                order["session"] = session = _session(inner)
                passed += session[:1] if isinstance(session, list) else []
            os.write(order_file, json.dumps(order).encode())
            os.lseek(order_file, 0, os.SEEK_SET)
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", _HELPER, str(alive)],
                stdin=order_file,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=passed,
                start_new_session=True,
            )
        except OSError as error:
            return f"channel {name}: its helper could not be started: {error}"
        finally:
            os.close(order_file)
            for file in passed:
                os.close(file)
        output = process.communicate()[0][-2000:].decode(errors="replace").strip()
    if process.returncode < 0:
        from isolator.session.command import end_left

        end_left(name)
    if inner is not None and isinstance(session, list):
        inner.reap(session[1], _END_S)
    return f"channel {name}: {output or f'its helper ended with {process.returncode}'}"


def _session(inner: "Inner") -> list[int] | str:
    """Return the arguments of `Inner.of` for a new session, or the reason why it cannot be forked.

    A reason is no failure yet: files and ports of the task can be reached without a session.
    """
    try:
        session = inner.session()
    except OSError as error:
        return str(error.strerror)
    return [session.line.detach(), session.pid, session.number]
