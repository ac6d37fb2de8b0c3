"""Ctrl-C at moments when it would leave things half done."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def held_interrupt() -> Iterator[None]:
    """Keep a Ctrl-C until the block has ended; a second one is not kept.

    A submission must not be cut off between the scheduler's yes and our knowing the ID: the job would run on,
    and nobody would know. Output must not be cut off between being written and being counted: it would be
    written again. Signals only ever interrupt the main thread, so in another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def keep(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    before = signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
