"""A screen that is drawn again and again, and the keys that are pressed meanwhile."""

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from mesos_gpu.cli.interrupt import terminated

if TYPE_CHECKING:
    from rich.console import RenderableType


class Screen:
    """The whole terminal; what was on it before is there again afterwards, however it ends."""

    def __enter__(self) -> Self:
        """Take the terminal."""
        from rich.console import Console
        from rich.live import Live

        with ExitStack() as stack:
            stack.enter_context(terminated())
            stack.enter_context(_not_stopped())
            self._keys = stack.enter_context(_keys())
            self._live = stack.enter_context(
                Live(console=Console(highlight=False), screen=True, auto_refresh=False)
            )
            self._held = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def show(self, picture: "RenderableType") -> None:
        """Put a picture in place of what is shown; what does not fit is cut."""
        self._live.update(picture, refresh=True)

    def key(self, timeout_s: float) -> str:
        """The next key; "": none was pressed in that time."""
        if self._keys is None:
            time.sleep(timeout_s)
            return ""
        if not select.select([self._keys], [], [], timeout_s)[0]:
            return ""
        pressed = os.read(self._keys, 1)
        if not pressed:  # the terminal has gone
            self._keys = None
        return pressed.decode("ascii", "ignore")


@contextmanager
def _keys() -> Iterator[int | None]:
    """The descriptor from which keys come one by one, unseen; None: stdin is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _not_stopped() -> Iterator[None]:
    """Ignore Ctrl-Z: the shell would find the terminal as it is here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)
