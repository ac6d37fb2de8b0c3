"""Helper of a session: connects to the scheduler, runs one command in the task, and transfers bytes between
the two.

`opening` runs this file in an interpreter of its own. Whatever ends first, the command, the connection, the
executor or the task, no process that was started here is left.
"""

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from isolator.confinement.inner_calls import Inner
from isolator.confinement.listeners import Listeners, listeners_of
from isolator.host import processes
from isolator.host.sandbox import CONTAINERS, NESTED
from isolator.runs.joining import KeptPlace, Place
from isolator.session.carrying import Carrier
from isolator.session.command import Command, CommandFailed, Work, remedy_of
from isolator.session.websocket import Lost, WebSocket, dial
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.wire.channel.file import GET, LIST, FileOrder
from mesos_gpu.wire.channel.forward import Forward
from mesos_gpu.wire.channel.frames import MAX_DATA, MAX_FRAME, Frame, Kind, decode, encode
from mesos_gpu.wire.channel.order import Order
from mesos_gpu.wire.channel.orders import AnyOrder, decode_order


def main() -> None:
    """Read the call from standard input, serve it, and print the outcome in one line; does not return."""
    with open(0, "rb", closefd=False) as file:
        call = json.load(file)
    # so that processes that the command leaves behind become children of this process
    processes.become_subreaper()
    started: list[Command] = []
    threading.Thread(target=_end_with_executor, args=(int(sys.argv[1]), started), daemon=True).start()
    try:
        path = f"/v1/channels/{call['id']}"
        line = dial(call["url"], path, call["answer"], call["pin"], MAX_FRAME)
    except (OSError, ValueError) as error:
        _leave(f"the scheduler at {call['url']} cannot be reached: {error}")
    try:
        outcome = _serve(line, call, started)
    except Lost as error:
        outcome = f"the connection was lost: {error}"
    except (ValueError, OSError) as error:
        outcome = f"the session was ended: {error}"
    processes.kill_descendants()
    line.close()
    _leave(outcome)


def _serve(line: WebSocket, call: dict[str, Any], started: list[Command]) -> str:
    """Receive the order, run it, and return the outcome."""
    order = _order(line)
    try:
        if call["kept"]:
            place: Place = KeptPlace(call["sandbox"])
            command = Command(place, _reading_of(order, call), call["id"])
        else:
            pid = int(call["pid"])
            # Before the check that the process is still the task's, so that a reused process id is noticed.
            listeners = listeners_of(pid, os.environ) if isinstance(order, Forward) else None
            place = Place(pid, call["task_id"], _session_of(call.get("session"), order))
            command = Command(place, _work_of(order, place, listeners), call["id"])
    except CommandFailed as error:
        _tell(line, order, error)
        return str(error)
    except (OSError, MesosGpuError) as error:
        why = f"the task cannot be joined: {getattr(error, 'strerror', None) or error}"
        line.send(_failed(why))
        return why
    started.append(command)
    with command:
        code = Carrier(line, command).carry()
    return f"a command ended with {code}"


def _session_of(session_call: str | list[int] | None, order: AnyOrder) -> Callable[[], Inner] | None:
    """Return a function that returns the session that the task's inner process forked for a command.

    None if the task has no inner process, or the order executes no program of the task.

    Args:
        session_call: Arguments of `Inner.of`, the first one an open descriptor; a text says why there is no session.
        order: Order of the client.

    Raises:
        OSError: There is no session; the error has the reason.
    """
    if session_call is None or not isinstance(order, Order):
        if isinstance(session_call, list):
            os.close(session_call[0])
        return None
    if isinstance(session_call, str):
        raise OSError(0, session_call)
    session = Inner.of(*session_call)
    return lambda: session


def _tell(line: WebSocket, order: AnyOrder, error: CommandFailed) -> None:
    """Report to the client why a command was not executed: like env(1), with a shell's exit code, or as a
    failed session.
    """
    if error.code is None or not isinstance(order, Order):
        line.send(_failed(str(error)))
        return
    text = f"Error: {error}\nTo fix: {remedy_of(order.argv[0], error.code)}\n"
    words = text.replace("\n", "\r\n") if order.tty else text
    line.send(encode(Frame(Kind.STDERR, words.encode(errors="replace")[:MAX_DATA])))
    line.send(encode(Frame(Kind.EXIT, numbers=(error.code,))))
    # Read what the client has sent already: closing a socket with unread bytes could drop the frames (RFC
    # 2525).
    with contextlib.suppress(Lost):
        while True:
            line.receive()


def _failed(why: str) -> bytes:
    """Return the encoded frame that reports a failure to the other side."""
    return encode(Frame(Kind.FAILED, why[:1000].encode(errors="replace")))


def _order(line: WebSocket) -> AnyOrder:
    frame = decode(line.receive())
    if frame.kind is not Kind.ORDER:
        raise ValueError(f"the scheduler sent {frame.kind.name} before the order")
    return decode_order(frame.data)


def _work_of(order: AnyOrder, place: Place, listeners: Listeners | None) -> Order | Work:
    if isinstance(order, FileOrder):
        words = (place.sandbox, order.what, order.path, order.name)
        return Work("isolator.session.inside.files", words)
    if isinstance(order, Forward):
        assert listeners is not None
        return Work("isolator.session.inside.forward", (*listeners.to_words(), *map(str, order.ports)))
    return order


def _reading_of(order: AnyOrder, call: dict[str, Any]) -> Work:
    """Return the work that reads files in the sandbox of an ended task; refuse every other order."""
    if not isinstance(order, FileOrder) or order.what not in (LIST, GET):
        raise CommandFailed("the task has ended: only its files can be read")
    below = f"{CONTAINERS}/{NESTED}" if call["nested"] else ""
    words = (order.what, order.path, below, "root" if call["as_root"] else "")
    return Work("isolator.session.inside.kept", words)


def _end_with_executor(alive: int, started: list[Command]) -> None:
    """Wait for the end of the executor, and then kill all processes of this session."""
    os.read(alive, 1)  # returns at the end of the pipe only
    for command in started:
        command.signal(signal.SIGKILL)
    processes.kill_descendants()
    os._exit(1)


def _leave(said: str) -> NoReturn:
    os.write(1, said.encode(errors="replace"))
    os._exit(0)


if __name__ == "__main__":
    main()
