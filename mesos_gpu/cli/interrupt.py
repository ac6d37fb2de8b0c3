"""Ctrl-C and SIGTERM at moments when they would leave things half done."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM came, and is treated as Ctrl-C is."""


def _here() -> bool:
    """Signals only ever interrupt the main thread."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def held_interrupt() -> Iterator[None]:
    """Keep a Ctrl-C or SIGTERM until the block has ended; a second one is not kept.

    A submission must not be cut off between the scheduler's yes and our knowing the ID: the job would run on,
    and nobody would know. Output must not be cut off between being written and being counted: it would be
    written again. In a thread that is not the main one this does nothing.
    """
    if not _here():
        yield
        return
    came: int | None = None

    def keep(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if came is not None:
            raise KeyboardInterrupt
        came = number

    before = {number: signal.signal(number, keep) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came is not None:
        signal.raise_signal(came)


@contextlib.contextmanager
def terminated() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM in the block; in a thread that is not the main one nothing changes."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end) if _here() else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
