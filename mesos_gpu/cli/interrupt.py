"""Deferral of Ctrl-C and SIGTERM while an interrupt would leave work half done."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM, which is handled like Ctrl-C."""


def _here() -> bool:
    """Return whether this is the main thread, the only one that signals interrupt."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def held_interrupt() -> Iterator[None]:
    """Defer a Ctrl-C or SIGTERM until the block has ended; a second one interrupts at once.

    A submission must not be interrupted between the scheduler's acceptance and learning the ID: the job would run on
    unnoticed. Output must not be interrupted between being written and being counted: it would be written twice.
    In other threads than the main one this does nothing.
    """
    if not _here():
        yield
        return
    received: int | None = None

    def keep(number: int, _frame: FrameType | None) -> None:
        nonlocal received
        if received is not None:
            raise KeyboardInterrupt
        received = number

    before = {number: signal.signal(number, keep) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received is not None:
        signal.raise_signal(received)


@contextlib.contextmanager
def terminated() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM in the block; does nothing in threads other than the main one."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end) if _here() else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
