"""Full-screen display with keyboard input."""

import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, Self

from mesos_gpu.cli.interrupt import terminated

if TYPE_CHECKING:
    from rich.console import RenderableType


UP, DOWN, ENTER, ESCAPE, RUB = "up", "down", "enter", "escape", "rub"
_KEYS: Final = {
    "\x1b[A": UP, "\x1bOA": UP, "\x1b[B": DOWN, "\x1bOB": DOWN, "\r": ENTER, "\n": ENTER, "\x7f": RUB, "\b": RUB,
}  # fmt: skip
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)
_AT_ONCE: Final = 64  # bytes read at once


class Screen:
    """Full-screen mode of the terminal; its former contents are restored at the end."""

    def __init__(self) -> None:
        self._pressed: list[str] = []

    def __enter__(self) -> Self:
        """Switch the terminal to full-screen mode."""
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
        """Replace the displayed picture; what does not fit is cut."""
        self._live.update(picture, refresh=True)

    def key(self, timeout_s: float) -> str:
        """Return the next key, a character or one of the names above; "" if none was pressed within the timeout."""
        if not self._pressed:
            self._pressed = self._read(timeout_s)
        return self._pressed.pop(0) if self._pressed else ""

    def _read(self, timeout_s: float) -> list[str]:
        if self._keys is None:
            time.sleep(timeout_s)
            return []
        if not select.select([self._keys], [], [], timeout_s)[0]:
            return []
        typed = os.read(self._keys, _AT_ONCE)
        if not typed:  # the terminal has gone
            self._keys = None
        return keys_in(typed.decode("utf-8", "ignore"))


def keys_in(typed: str) -> list[str]:
    """Return the keys in a terminal's input; unknown keys are dropped."""
    named = [(sequence, _KEYS.get(sequence, "")) for sequence in _SEQUENCE.findall(typed)]
    return [
        name or (ESCAPE if sequence == "\x1b" else sequence)
        for sequence, name in named
        if name or sequence == "\x1b" or sequence.isprintable()
    ]


@contextmanager
def _keys() -> Iterator[int | None]:
    """Yield the descriptor for reading keys singly without echo; None if stdin is not a terminal."""
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
    """Ignore Ctrl-Z, which would leave the terminal in this mode for the shell."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)
